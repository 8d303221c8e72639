/* SPDX-License-Identifier: Apache-2.0 */
/* moecomm-bench failures: options, the events, the report. */
#include "bench/failures/failures.h"
#include "bench/failures/memory.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench.h"
#include "bench/common/daemon.h"
#include "bench/common/number.h"
#include "bench/common/report.h"
#include "bench/common/stats.h"
#include "ctl/wire.h"

static const char usage[] =
	"usage: moecomm-bench failures [OPTION…]\n"
	"\n"
	"Measures how long it takes until every rank hears of a failure, and "
	"until all of them\n"
	"run again: a killed rank, a rank that stands still, differing ops, "
	"aborts, a killed\n"
	"daemon. Starts a daemon of its own.\n"
	"\n"
	"  --backend NAME   host or cuda (host)\n"
	"  --json           JSON instead of a table\n"
	"  --ranks N        2 to 16 (4; with cuda as many as GPUs, at least 2)\n"
	"  --repeats N      of each event (100)\n"
	"  --deadline-ms N  of an op, for the rank that stands still (500)\n"
	"  --events LIST    some of killed,stuck,mismatch,abort,operator,nothing,daemon (all)\n"
	"  --ops N          that 'nothing' and 'daemon' watch (1000)\n"
	"  --row-bytes N    bytes of a dispatched row (256)\n"
	"  --help\n";

static const struct mc_report_column columns[] = {
	{"event", "EVENT", 0, true},
	{"status", "STATUS", 0, true},
	{"measured", "MEASURED", 0, true},
	{"n", "N", 0, false},
	{"median_ms", "MEDIAN MS", 2, false},
	{"p99_ms", "P99 MS", 2, false},
	{"max_ms", "MAX MS", 2, false},
	{"bound_ms", "BOUND MS", 0, false},
	{"met", "MET", 0, true},
	{NULL, NULL, 0, false},
};

/* What is measured of an event. */
struct quantity {
	const char *name, *measured;
	enum moecomm_status status; /* what ranks hear */
	double bound_ms;      /* semantics: NAN for none; negative: the deadline and a tenth */
	double cuda_bound_ms; /* where it differs; else 0 */
};

#define MAX_QUANTITIES 2

struct event {
	const char *key; /* in --events */
	/* Does it once; sets ret_ms of each quantity. 0, or -1 after telling. */
	int (*run)(struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat,
		double *ret_ms);
	struct quantity quantity[MAX_QUANTITIES]; /* the second may have no name: there is none */
};

static double ms_of(int64_t ns)
{
	return (double)ns / 1e6;
}

/* When the last of them heard. */
static int64_t last_failed(const struct mc_failures *failures, int but)
{
	int64_t last = 0;

	for (int r = 0; r < failures->n_ranks; r++)
		if (r != but && atomic_load(&failures->rank[r].failed_ns) > last)
			last = atomic_load(&failures->rank[r].failed_ns);
	return last;
}

static uint64_t epoch_of(const struct mc_failures *failures)
{
	return atomic_load(&failures->rank[0].epoch);
}

static int go_on(struct mc_failures *failures, uint64_t old_epoch)
{
	if (mc_failures_rejoin(failures, old_epoch) < 0)
		return -1;
	return mc_failures_wait_ops(failures, 20);
}

/* The status on the survivors; then the new process and all of them in the next epoch. */
static int run_killed(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	uint64_t epoch = epoch_of(failures);
	int victim = repeat % failures->n_ranks;
	int64_t begun = mc_bench_now_ns();

	(void)daemon;
	if (mc_failures_kill_rank(failures, victim) < 0 ||
		mc_failures_wait_failed(failures, victim, MOECOMM_PEER_LOST) < 0)
		return -1;
	ret_ms[0] = ms_of(last_failed(failures, victim) - begun);
	if (mc_failures_start_rank(failures, victim) < 0 || mc_failures_rejoin(failures, epoch) < 0)
		return -1;
	ret_ms[1] = ms_of(mc_bench_now_ns() - begun);
	/* a process that uses CUDA takes its own time to start, with or without a failure */
	if (failures->n_gpus)
		ret_ms[1] -= ms_of(atomic_load(&failures->rank[victim].own_start_ns));
	return mc_failures_wait_ops(failures, 20);
}

static int run_stuck(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	uint64_t epoch = epoch_of(failures);
	int victim = repeat % failures->n_ranks;
	double longest = 0;

	(void)daemon;
	atomic_store(&failures->rank[victim].command, MC_FAILURES_PAUSE);
	if (mc_failures_wait_failed(failures, victim, MOECOMM_TIMEOUT) < 0)
		return -1;
	for (int r = 0; r < failures->n_ranks; r++) {
		const struct mc_failures_rank *rank = &failures->rank[r];
		double ms = ms_of(atomic_load(&rank->failed_ns) - atomic_load(&rank->begun_ns));

		if (r != victim && ms > longest)
			longest = ms;
	}
	*ret_ms = longest;
	atomic_store(&failures->rank[victim].command, MC_FAILURES_RUN);
	if (mc_failures_wait_failed(failures, -1, MOECOMM_TIMEOUT) < 0)
		return -1;
	return go_on(failures, epoch);
}

static int run_mismatch(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	uint64_t epoch = epoch_of(failures);
	int actor = repeat % failures->n_ranks;

	(void)daemon;
	atomic_store(&failures->rank[actor].command, (int)MC_FAILURES_WRONG);
	if (mc_failures_wait_failed(failures, -1, MOECOMM_MISMATCH) < 0)
		return -1;
	*ret_ms = ms_of(last_failed(failures, -1) - atomic_load(&failures->rank[actor].acted_ns));
	return go_on(failures, epoch);
}

/* The status on all; then, from there, a verified op of all in the same processes. */
static int run_abort(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	uint64_t epoch = epoch_of(failures);
	int actor = repeat % failures->n_ranks;
	int64_t begun;

	(void)daemon;
	atomic_store(&failures->rank[actor].command, (int)MC_FAILURES_ABORT);
	if (mc_failures_wait_failed(failures, -1, MOECOMM_ABORTED) < 0)
		return -1;
	ret_ms[0] = ms_of(last_failed(failures, -1) - atomic_load(&failures->rank[actor].acted_ns));
	begun = last_failed(failures, -1);
	if (mc_failures_rejoin(failures, epoch) < 0)
		return -1;
	ret_ms[1] = ms_of(mc_bench_now_ns() - begun);
	return mc_failures_wait_ops(failures, 20);
}

/* Connects, greets and aborts, as moecommctl abort does. */
static int run_abort_by_operator(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	Moecomm__Wire__Abort request = MOECOMM__WIRE__ABORT__INIT;
	struct mc_ctl ctl = {.socket = failures->socket};
	uint64_t epoch = epoch_of(failures);
	struct mc_ctl_wire *wire = NULL;
	int64_t begun = mc_bench_now_ns();
	int r;

	(void)daemon, (void)repeat;
	request.group = failures->group;
	r = mc_ctl_wire_open(&ctl, &wire);
	if (!r)
		r = mc_ctl_wire_call(wire, MC_FRAME_ABORT, &request.base, MC_FRAME_DONE, NULL);
	mc_ctl_wire_close(wire);
	if (r || mc_failures_wait_failed(failures, -1, MOECOMM_ABORTED) < 0)
		return -1;
	*ret_ms = ms_of(last_failed(failures, -1) - begun);
	return go_on(failures, epoch);
}

static int slowest_while(struct mc_failures *failures, uint64_t n_ops, double *ret_ms)
{
	for (int r = 0; r < failures->n_ranks; r++) {
		if (atomic_load(&failures->rank[r].is_failed)) {
			fprintf(stderr, "moecomm-bench: an op of rank %d failed: %s\n", r,
				failures->rank[r].detail);
			return -1;
		}
	}
	if (mc_failures_wait_ops(failures, n_ops) < 0)
		return -1;
	*ret_ms = 0;
	for (int r = 0; r < failures->n_ranks; r++)
		if (ms_of(atomic_load(&failures->rank[r].slowest_ns)) > *ret_ms)
			*ret_ms = ms_of(atomic_load(&failures->rank[r].slowest_ns));
	return 0;
}

static void forget_slowest(struct mc_failures *failures)
{
	for (int r = 0; r < failures->n_ranks; r++)
		atomic_store(&failures->rank[r].slowest_ns, 0);
}

/* What to compare the next one with. */
static int run_nothing(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	(void)daemon, (void)repeat;
	forget_slowest(failures);
	return slowest_while(failures, (uint64_t)failures->n_watched, ret_ms);
}

static int run_daemon_killed(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	(void)repeat;
	forget_slowest(failures);
	mc_bench_daemon_kill(daemon);
	if (slowest_while(failures, (uint64_t)failures->n_watched, ret_ms) < 0 ||
		mc_bench_daemon_restart(daemon) < 0)
		return -1;
	return 0;
}

static const struct event events[] = {
	{"killed", run_killed,
		{{"a rank is killed", "kill -9 to the status on all survivors", MOECOMM_PEER_LOST,
			 1000, 0},
			{"a killed rank is replaced",
				"kill -9 to a verified op of all with the new process", MOECOMM_OK,
				2000, 4000}}},
	{"stuck", run_stuck,
		{{"a rank stands still", "begin of the op to its status, on the slowest",
			MOECOMM_TIMEOUT, -1, 0}}},
	{"mismatch", run_mismatch,
		{{"ranks call different ops", "the wrong call to the status on all",
			MOECOMM_MISMATCH, NAN, 0}}},
	{"abort", run_abort,
		{{"a member aborts", "the call to the status on all", MOECOMM_ABORTED, 1000, 0},
			{"all rejoin", "the last status to a verified op of all", MOECOMM_OK, 2000,
				4000}}},
	{"operator", run_abort_by_operator,
		{{"an operator aborts", "moecommctl's connect to the status on all",
			MOECOMM_ABORTED, 1000, 0}}},
	{"nothing", run_nothing,
		{{"nothing happens", "slowest of the watched ops of all ranks", MOECOMM_OK, NAN,
			0}}},
	{"daemon", run_daemon_killed,
		{{"the daemon is killed", "slowest of the watched ops after kill -9", MOECOMM_OK,
			NAN, 0}}},
};

#define N_EVENTS (sizeof(events) / sizeof(*events))

static void add_row(struct mc_report *report, const struct mc_failures *failures,
	const struct event *event, size_t q, double *samples, size_t n)
{
	const struct quantity *quantity = &event->quantity[q];
	struct mc_bench_stats stats = mc_bench_stats_of(samples, n);
	double bound = failures->n_gpus && quantity->cuda_bound_ms > 0 ? quantity->cuda_bound_ms
								       : quantity->bound_ms;
	char measured[128];

	if (bound < 0)
		bound = failures->deadline_ms * 1.1;
	snprintf(measured, sizeof(measured), "%s%s", quantity->measured,
		failures->n_gpus && event->run == run_killed && q == 1 ? ", less its own start"
								       : "");

	mc_report_row(report);
	mc_report_text(report, quantity->name);
	mc_report_text(report, moecomm_status_name(quantity->status));
	mc_report_text(report, measured);
	mc_report_number(report, (double)n);
	mc_report_number(report, stats.median);
	mc_report_number(report, stats.p99);
	mc_report_number(report, stats.max);
	mc_report_number(report, bound);
	mc_report_text(report, isnan(bound) ? NULL : stats.max <= bound ? "yes" : "no");
}

/* samples: room for all repeats of each quantity. */
static int measure_event(struct mc_failures *failures, struct mc_bench_daemon *daemon,
	const struct event *event, double *samples, struct mc_report *report)
{
	const size_t n = (size_t)failures->repeats;

	for (size_t i = 0; i < n; i++) {
		double ms[MAX_QUANTITIES] = {0};

		if (event->run(failures, daemon, (int)i, ms) < 0)
			return -1;
		for (size_t q = 0; q < MAX_QUANTITIES; q++)
			samples[q * n + i] = ms[q];
	}
	for (size_t q = 0; q < MAX_QUANTITIES && event->quantity[q].name; q++)
		add_row(report, failures, event, q, samples + q * n, n);
	return 0;
}

static int measure(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, struct mc_report *report)
{
	double *samples = calloc((size_t)failures->repeats * MAX_QUANTITIES, sizeof(*samples));
	int r = samples ? mc_failures_start_ranks(failures) : -1;

	for (size_t e = 0; r == 0 && e < N_EVENTS; e++) {
		if (!(failures->events >> e & 1u))
			continue;
		r = measure_event(failures, daemon, &events[e], samples, report);
		if (r < 0)
			fprintf(stderr, "moecomm-bench: not measured: %s\n",
				events[e].quantity[0].name);
	}
	for (int rank = 0; rank < failures->n_ranks; rank++)
		if (atomic_load(&failures->rank[rank].is_wrong)) {
			fprintf(stderr, "moecomm-bench: rank %d has got wrong data\n", rank);
			r = -1;
		}
	mc_failures_stop_ranks(failures);
	free(samples);
	return r;
}

/* list is cut up. */
static int parse_events(char *list, struct mc_failures *failures)
{
	char *rest = NULL;

	failures->events = 0;
	for (char *key = strtok_r(list, ",", &rest); key; key = strtok_r(NULL, ",", &rest)) {
		size_t e = 0;

		while (e < N_EVENTS && strcmp(key, events[e].key) != 0)
			e++;
		if (e == N_EVENTS) {
			fprintf(stderr, "moecomm-bench: --events has no '%s': there are", key);
			for (e = 0; e < N_EVENTS; e++)
				fprintf(stderr, " %s", events[e].key);
			fputc('\n', stderr);
			return -1;
		}
		failures->events |= 1u << e;
	}
	if (failures->events)
		return 0;
	fprintf(stderr, "moecomm-bench: --events names none\n");
	return -1;
}

static int parse_backend(const char *name, struct mc_failures *failures)
{
	failures->n_gpus = 0;
	if (!strcmp(name, "host"))
		return 0;
	if (strcmp(name, "cuda") != 0) {
		fprintf(stderr, "moecomm-bench: --backend %s: need host or cuda\n", name);
		return -1;
	}
	failures->n_gpus = mc_failures_count_gpus();
	if (failures->n_gpus)
		return 0;
	fprintf(stderr,
		"moecomm-bench: --backend cuda: no GPU is here, or no CUDA in this build\n");
	return -1;
}

/* Returns -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct mc_failures *failures)
{
	enum { BACKEND = 256, JSON, RANKS, REPEATS, DEADLINE_MS, EVENTS, OPS, ROW_BYTES, HELP };
	static const struct option options[] = {
		{"backend", required_argument, NULL, BACKEND},
		{"json", no_argument, NULL, JSON},
		{"ranks", required_argument, NULL, RANKS},
		{"repeats", required_argument, NULL, REPEATS},
		{"deadline-ms", required_argument, NULL, DEADLINE_MS},
		{"events", required_argument, NULL, EVENTS},
		{"ops", required_argument, NULL, OPS},
		{"row-bytes", required_argument, NULL, ROW_BYTES},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	int64_t value = 0;
	int option, r = 0;

	while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case BACKEND:
			r = parse_backend(optarg, failures);
			break;
		case JSON:
			failures->json = true;
			break;
		case RANKS:
			r = mc_bench_number("ranks", optarg, 2, MC_FAILURES_MAX_RANKS, &value);
			failures->n_ranks = (int)value;
			break;
		case REPEATS:
			r = mc_bench_number("repeats", optarg, 1, 100000, &value);
			failures->repeats = (int)value;
			break;
		case DEADLINE_MS:
			r = mc_bench_number("deadline-ms", optarg, 20, 60000, &value);
			failures->deadline_ms = (int)value;
			break;
		case EVENTS:
			r = parse_events(optarg, failures);
			break;
		case OPS:
			r = mc_bench_number("ops", optarg, 1, 5000, &value);
			failures->n_watched = (int)value;
			break;
		case ROW_BYTES:
			r = mc_bench_number("row-bytes", optarg, 8, 1 << 20, &failures->row_bytes);
			break;
		case HELP:
			fputs(usage, stdout);
			return MC_BENCH_OK;
		default:
			return MC_BENCH_USAGE;
		}
	}
	if (r == 0 && optind < argc) {
		fprintf(stderr, "moecomm-bench: failures takes no '%s'\n", argv[optind]);
		r = -1;
	}
	if (!failures->n_ranks)
		failures->n_ranks = !failures->n_gpus      ? 4
				    : failures->n_gpus < 2 ? 2
				    : failures->n_gpus < MC_FAILURES_MAX_RANKS
					    ? failures->n_gpus
					    : MC_FAILURES_MAX_RANKS;
	return r < 0 ? MC_BENCH_USAGE : -1;
}

int mc_bench_failures(int argc, char **argv)
{
	struct mc_failures failures = {.repeats = 100,
		.deadline_ms = 500,
		.n_watched = 1000,
		.events = ~0u,
		.row_bytes = 256};
	struct mc_bench_daemon daemon = {0};
	struct mc_report *report;
	char text[96], backend[16];
	int r = parse(argc, argv, &failures);

	if (r >= 0)
		return r;
	failures.rank = mmap(NULL, MC_FAILURES_MAX_RANKS * sizeof(*failures.rank),
		PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (failures.rank == MAP_FAILED) {
		perror("moecomm-bench: mmap");
		return MC_BENCH_FAILED;
	}
	if (mc_bench_daemon_start(failures.n_gpus ? "cuda" : "host", &daemon) < 0)
		return MC_BENCH_UNREACHABLE;
	failures.socket = daemon.socket;
	snprintf(failures.group, sizeof(failures.group), "failures-%d", (int)getpid());
	report = mc_report_new("failures", columns);
	snprintf(backend, sizeof(backend), "%d GPUs", failures.n_gpus);
	snprintf(text, sizeof(text), "%d processes, dispatch of %d rows of %lld bytes, %s",
		failures.n_ranks, MC_FAILURES_ROWS, (long long)failures.row_bytes,
		failures.n_gpus ? backend : "host backend");
	mc_report_fact(report, "ranks", text);
	snprintf(text, sizeof(text), "%d ms", failures.deadline_ms);
	mc_report_fact(report, "deadline", text);
	snprintf(text, sizeof(text), "%d", failures.n_watched);
	mc_report_fact(report, "watched ops", text);
	r = measure(&failures, &daemon, report) < 0 ? MC_BENCH_FAILED : MC_BENCH_OK;
	/* what was measured before a failure is worth showing too */
	if (mc_report_print(report, failures.json) < 0) {
		fprintf(stderr, "moecomm-bench: cannot write the results\n");
		r = MC_BENCH_FAILED;
	}
	mc_bench_daemon_stop(&daemon);
	munmap(failures.rank, MC_FAILURES_MAX_RANKS * sizeof(*failures.rank));
	return r;
}
