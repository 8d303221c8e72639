/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every metric of the daemon, once: name, type, labels and help. The exposition is made from this
 * table, and docs/metrics.md is checked against it.
 */
#ifndef MC_DAEMON_METRICS_REGISTRY_H
#define MC_DAEMON_METRICS_REGISTRY_H

/* X(id, name, type, help) */
#define MC_METRICS_TABLE(X)                                                                        \
	X(BUILD_INFO, "moecomm_build_info", "gauge",                                               \
		"Always 1; the labels tell release, protocol and backend.")                        \
	X(READY, "moecomm_ready", "gauge",                                                         \
		"1 when the daemon can form groups on its backend, else 0.")                       \
	X(START_TIME, "moecomm_start_time_seconds", "gauge",                                       \
		"Unix time at which the daemon started.")                                          \
	X(CLIENTS, "moecomm_clients", "gauge", "Connections that stand now.")                      \
	X(CONNECTIONS, "moecomm_connections_total", "counter",                                     \
		"Connections taken since the start.")                                              \
	X(REQUESTS, "moecomm_requests_total", "counter", "Requests received since the start.")     \
	X(REFUSED, "moecomm_refused_total", "counter",                                             \
		"Requests and connections refused, by the status they were told.")                 \
	X(GROUPS, "moecomm_groups", "gauge", "Groups, by state.")                                  \
	X(ARENA, "moecomm_arena_bytes", "gauge",                                                   \
		"Memory of all groups, also of ended epochs that somebody still maps.")            \
	X(EPOCHS_READY, "moecomm_epochs_ready_total", "counter", "Epochs that became ready.")      \
	X(FAILURES, "moecomm_group_failures_total", "counter",                                     \
		"Epochs that ended otherwise than by members leaving, by status.")                 \
	X(STALLS, "moecomm_stalls_total", "counter",                                               \
		"Times that a rank began to stall: others waited, and it did not move.")           \
	X(FALLBACKS, "moecomm_fallback_total", "counter",                                          \
		"Groups that could not, or were told not to, take the fast path, by reason.")      \
	X(OP_WAIT, "moecomm_op_wait_seconds", "histogram",                                         \
		"Time that an op waited for peers, by op kind; host backend.")                     \
	X(GROUP_READY, "moecomm_group_ready", "gauge", "1 when the group is ready, else 0.")       \
	X(GROUP_RANKS, "moecomm_group_ranks", "gauge", "Ranks that have joined the group.")        \
	X(GROUP_MISSING, "moecomm_group_missing_ranks", "gauge",                                   \
		"Ranks that the group still waits for.")                                           \
	X(GROUP_STALLED, "moecomm_group_stalled_ranks", "gauge",                                   \
		"Ranks that others wait for and that do not move.")                                \
	X(GROUP_ARENA, "moecomm_group_arena_bytes", "gauge",                                       \
		"Memory of the group's newest epoch.")                                             \
	X(RANK_STALLED, "moecomm_rank_stalled", "gauge",                                           \
		"1 when others wait for the rank and it does not move, else 0.")                   \
	X(RANK_CALLS, "moecomm_rank_calls_total", "counter",                                       \
		"Number of the last call that the rank entered; starts again with each epoch.")    \
	X(RANK_LAG, "moecomm_rank_lag_calls", "gauge",                                             \
		"Calls behind the first rank of the group.")                                       \
	X(RANK_AGE, "moecomm_rank_progress_age_seconds", "gauge",                                  \
		"Time since the rank last entered or left a call.")                                \
	X(RANK_WAIT, "moecomm_rank_wait_seconds_total", "counter",                                 \
		"Time that the rank's ops waited for peers; host backend; starts again with each " \
		"epoch.")                                                                          \
	X(RANK_PUSHED, "moecomm_rank_pushed_bytes_total", "counter",                               \
		"Bytes that the rank pushed to peers; host backend; starts again with each "       \
		"epoch.")                                                                          \
	X(LEFT_OUT, "moecomm_metrics_left_out_groups", "gauge",                                    \
		"Groups without series of their own here, since the answer would be too large.")

enum mc_metric_id {
#define MC_METRIC_ENUM(id, name, type, help) MC_METRIC_##id,
	MC_METRICS_TABLE(MC_METRIC_ENUM)
#undef MC_METRIC_ENUM
		MC_METRIC_N,
};

struct mc_metric {
	const char *name;
	const char *type; /* "counter", "gauge" or "histogram" */
	const char *help;
};
extern const struct mc_metric mc_metrics[MC_METRIC_N];

#endif
