/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as one object: what its parts share. main.c is the program around it. */
#ifndef MC_DAEMON_DAEMON_H
#define MC_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "daemon/backends/backend.h"
#include "daemon/config.h"
#include "daemon/metrics/counters.h"
#include "daemon/quota.h"
#include "daemon/service.h"
#include "daemon/state/state.h"

struct mc_conn;
struct mc_groups;
struct mc_metrics_http;
struct mc_server;

#define MC_INSTANCE_BYTES 16u

struct mc_daemon {
	uv_loop_t *loop;
	struct mc_config config;
	struct mc_config_overrides overrides;
	struct mc_quota *quota;
	struct mc_counters counters;
	struct mc_service service;
	struct mc_state state; /* what outlives this run */
	struct mc_groups *groups;
	struct mc_server *server;                /* NULL: not listening */
	struct mc_metrics_http *metrics_http;    /* NULL: not served */
	const struct mc_daemon_backend *backend; /* what AUTO means to a joiner */
	const char *not_ready;                   /* why it can't serve now; NULL: it can */
	uint8_t instance[MC_INSTANCE_BYTES];     /* random; of this run */
	char boot_id[64];
	uint64_t start_ms;
	struct mc_conn *conns;
	uint32_t n_conns;
	uint64_t next_conn_id;
	bool stopping;
	bool handles_open;
	bool cuda_started;
	char logged_reason[256];
	uv_idle_t reaper;       /* closes connections that were doomed inside a handler */
	uv_timer_t ready_timer; /* looks again whether a backend that could not serve now can */
	uv_signal_t sigterm, sigint, sighup;
};

/* Everything but socket and signals. Returns 0, or -errno with a line in ret_error. */
int mc_daemon_init(struct mc_daemon *daemon, uv_loop_t *loop, const struct mc_config *config,
	const struct mc_config_overrides *overrides, char *ret_error, size_t n_error);
/* Binds the socket, catches signals, tells the service manager. Returns 0, or -errno with a line.
 */
int mc_daemon_serve(struct mc_daemon *daemon, char *ret_error, size_t n_error);
/* Refuses new joins, tells who waits, closes everything; the loop then runs empty. Idempotent. */
void mc_daemon_stop(struct mc_daemon *daemon);
/* After the loop has run empty. */
void mc_daemon_clear(struct mc_daemon *daemon);

/* Refreshes what systemctl shows. */
void mc_daemon_update_status(struct mc_daemon *daemon);

#endif
