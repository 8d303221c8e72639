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

struct event {
	const char *name, *measured;
	enum moecomm_status status; /* what ranks hear */
	/* Does it once; sets *ret_ms. 0, or -1 after telling. */
	int (*run)(struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat,
		double *ret_ms);
	double bound_ms;      /* semantics: NAN for none; negative: the deadline and a tenth */
	double cuda_bound_ms; /* where it differs; else 0 */
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
	*ret_ms = ms_of(last_failed(failures, victim) - begun);
	if (mc_failures_start_rank(failures, victim) < 0)
		return -1;
	return go_on(failures, epoch);
}

static int run_replaced(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	uint64_t epoch = epoch_of(failures);
	int victim = repeat % failures->n_ranks;
	int64_t begun = mc_bench_now_ns();

	(void)daemon;
	if (mc_failures_kill_rank(failures, victim) < 0 ||
		mc_failures_start_rank(failures, victim) < 0 ||
		mc_failures_rejoin(failures, epoch) < 0)
		return -1;
	*ret_ms = ms_of(mc_bench_now_ns() - begun);
	/* a process that uses CUDA takes its own time to start, with or without a failure */
	if (failures->n_gpus)
		*ret_ms -= ms_of(atomic_load(&failures->rank[victim].own_start_ns));
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

static int run_command(struct mc_failures *failures, int repeat, enum mc_failures_command command,
	enum moecomm_status status, double *ret_ms)
{
	uint64_t epoch = epoch_of(failures);
	int actor = repeat % failures->n_ranks;

	atomic_store(&failures->rank[actor].command, (int)command);
	if (mc_failures_wait_failed(failures, -1, status) < 0)
		return -1;
	*ret_ms = ms_of(last_failed(failures, -1) - atomic_load(&failures->rank[actor].acted_ns));
	return go_on(failures, epoch);
}

static int run_mismatch(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	(void)daemon;
	return run_command(failures, repeat, MC_FAILURES_WRONG, MOECOMM_MISMATCH, ret_ms);
}

static int run_abort(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	(void)daemon;
	return run_command(failures, repeat, MC_FAILURES_ABORT, MOECOMM_ABORTED, ret_ms);
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

/* From the failure that all have heard of to the next verified op of all, in the same processes. */
static int run_rejoin(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	uint64_t epoch = epoch_of(failures);
	int64_t begun;

	(void)daemon;
	atomic_store(&failures->rank[repeat % failures->n_ranks].command, MC_FAILURES_ABORT);
	if (mc_failures_wait_failed(failures, -1, MOECOMM_ABORTED) < 0)
		return -1;
	begun = mc_bench_now_ns();
	if (mc_failures_rejoin(failures, epoch) < 0)
		return -1;
	*ret_ms = ms_of(mc_bench_now_ns() - begun);
	return mc_failures_wait_ops(failures, 20);
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
	return slowest_while(failures, 1000, ret_ms);
}

static int run_daemon_killed(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, int repeat, double *ret_ms)
{
	(void)repeat;
	forget_slowest(failures);
	mc_bench_daemon_kill(daemon);
	if (slowest_while(failures, 1000, ret_ms) < 0 || mc_bench_daemon_restart(daemon) < 0)
		return -1;
	return 0;
}

static const struct event events[] = {
	{"a rank is killed", "kill -9 to the status on all survivors", MOECOMM_PEER_LOST,
		run_killed, 1000, 0},
	{"a rank stands still", "begin of the op to its status, on the slowest", MOECOMM_TIMEOUT,
		run_stuck, -1, 0},
	{"ranks call different ops", "the wrong call to the status on all", MOECOMM_MISMATCH,
		run_mismatch, NAN, 0},
	{"a member aborts", "the call to the status on all", MOECOMM_ABORTED, run_abort, 1000, 0},
	{"an operator aborts", "moecommctl's connect to the status on all", MOECOMM_ABORTED,
		run_abort_by_operator, 1000, 0},
	{"all rejoin", "the last status to a verified op of all", MOECOMM_OK, run_rejoin, 2000,
		4000},
	{"a killed rank is replaced", "kill -9 to a verified op of all with the new process",
		MOECOMM_OK, run_replaced, 2000, 4000},
	{"nothing happens", "slowest of 1000 ops of all ranks", MOECOMM_OK, run_nothing, NAN, 0},
	{"the daemon is killed", "slowest of the 1000 ops after kill -9", MOECOMM_OK,
		run_daemon_killed, NAN, 0},
};

static void add_row(struct mc_report *report, const struct mc_failures *failures,
	const struct event *event, double *samples, size_t n)
{
	struct mc_bench_stats stats = mc_bench_stats_of(samples, n);
	double bound = failures->n_gpus && event->cuda_bound_ms > 0 ? event->cuda_bound_ms
								    : event->bound_ms;
	char measured[128];

	if (bound < 0)
		bound = failures->deadline_ms * 1.1;
	snprintf(measured, sizeof(measured), "%s%s", event->measured,
		failures->n_gpus && event->run == run_replaced ? ", less its own start" : "");

	mc_report_row(report);
	mc_report_text(report, event->name);
	mc_report_text(report, moecomm_status_name(event->status));
	mc_report_text(report, measured);
	mc_report_number(report, (double)n);
	mc_report_number(report, stats.median);
	mc_report_number(report, stats.p99);
	mc_report_number(report, stats.max);
	mc_report_number(report, bound);
	mc_report_text(report, isnan(bound) ? NULL : stats.max <= bound ? "yes" : "no");
}

static int measure(
	struct mc_failures *failures, struct mc_bench_daemon *daemon, struct mc_report *report)
{
	double *samples = calloc((size_t)failures->repeats, sizeof(*samples));
	int r = samples ? mc_failures_start_ranks(failures) : -1;

	for (size_t e = 0; r == 0 && e < sizeof(events) / sizeof(*events); e++) {
		for (int i = 0; r == 0 && i < failures->repeats; i++)
			r = events[e].run(failures, daemon, i, &samples[i]);
		if (r == 0)
			add_row(report, failures, &events[e], samples, (size_t)failures->repeats);
		else
			fprintf(stderr, "moecomm-bench: not measured: %s\n", events[e].name);
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
	enum { BACKEND = 256, JSON, RANKS, REPEATS, DEADLINE_MS, ROW_BYTES, HELP };
	static const struct option options[] = {
		{"backend", required_argument, NULL, BACKEND},
		{"json", no_argument, NULL, JSON},
		{"ranks", required_argument, NULL, RANKS},
		{"repeats", required_argument, NULL, REPEATS},
		{"deadline-ms", required_argument, NULL, DEADLINE_MS},
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
	struct mc_failures failures = {.repeats = 100, .deadline_ms = 500, .row_bytes = 256};
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
