/* SPDX-License-Identifier: Apache-2.0 */
/* moecomm-bench control: options, order of the parts, the report. */
#include "bench/control/control.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench/bench.h"
#include "bench/common/daemon.h"
#include "bench/common/number.h"
#include "bench/common/stats.h"

static const char usage[] =
	"usage: moecomm-bench control [OPTION…]\n"
	"\n"
	"Measures the daemon's control plane on the host backend: attach of 1, 2, 4, 8 and 16 "
	"ranks as\n"
	"processes and as threads, status queries a second, and a storm of connects. Starts a "
	"daemon of\n"
	"its own unless --socket names one.\n"
	"\n"
	"  --socket PATH    use the daemon there\n"
	"  --json           JSON instead of a table\n"
	"  --repeats N      attaches of each kind (10)\n"
	"  --rows N         capacity of the groups, rows a rank (64)\n"
	"  --row-bytes N    bytes of a dispatched and of a combined row (4096)\n"
	"  --clients N      of the storm (200)\n"
	"  --query-ms N     how long to send queries (1000)\n"
	"  --help\n";

static const struct mc_report_column columns[] = {
	{"what", "MEASURED", 0, true},
	{"size", "SIZE", 0, false},
	{"n", "N", 0, false},
	{"median", "MEDIAN", 2, false},
	{"min", "MIN", 2, false},
	{"p99", "P99", 2, false},
	{"max", "MAX", 2, false},
	{"unit", "UNIT", 0, true},
	{"target", "TARGET", 0, false},
	{"met", "MET", 0, true},
	{NULL, NULL, 0, false},
};

void mc_control_row(struct mc_control *control, const char *what, int size, const char *unit,
	double *samples, size_t n, double target)
{
	struct mc_bench_stats stats = mc_bench_stats_of(samples, n);

	mc_report_row(control->report);
	mc_report_text(control->report, what);
	mc_report_number(control->report, size);
	mc_report_number(control->report, (double)n);
	mc_report_number(control->report, stats.median);
	mc_report_number(control->report, stats.min);
	mc_report_number(control->report, stats.p99);
	mc_report_number(control->report, stats.max);
	mc_report_text(control->report, unit);
	mc_report_number(control->report, target);
	mc_report_text(control->report, isnan(target)            ? NULL
					: stats.median <= target ? "yes"
								 : "no");
}

enum moecomm_status mc_control_connect(
	const struct mc_control *control, const char *label, moecomm_context **ret_context)
{
	struct moecomm_connect_options options = MOECOMM_CONNECT_OPTIONS_INIT;

	options.socket_path = control->socket;
	options.label = label;
	return moecomm_connect(&options, ret_context);
}

enum moecomm_status mc_control_join(const struct mc_control *control, moecomm_context *context,
	const char *name, int rank, int world_size, moecomm_group **ret_group)
{
	struct moecomm_group_options options = MOECOMM_GROUP_OPTIONS_INIT;

	options.name = name;
	options.rank = rank;
	options.world_size = world_size;
	options.backend = MOECOMM_BACKEND_HOST;
	options.max_rows = control->rows;
	options.dispatch_row_bytes = control->row_bytes;
	options.combine_row_bytes = control->row_bytes;
	return moecomm_group_join(context, &options, ret_group);
}

/* Returns -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct mc_control *control)
{
	enum { SOCKET = 256, JSON, REPEATS, ROWS, ROW_BYTES, CLIENTS, QUERY_MS, HELP };
	static const struct option options[] = {
		{"socket", required_argument, NULL, SOCKET},
		{"json", no_argument, NULL, JSON},
		{"repeats", required_argument, NULL, REPEATS},
		{"rows", required_argument, NULL, ROWS},
		{"row-bytes", required_argument, NULL, ROW_BYTES},
		{"clients", required_argument, NULL, CLIENTS},
		{"query-ms", required_argument, NULL, QUERY_MS},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	int64_t value;
	int option, r = 0;

	while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case SOCKET:
			control->socket = optarg;
			break;
		case JSON:
			control->json = true;
			break;
		case REPEATS:
			r = mc_bench_number("repeats", optarg, 1, 10000, &value);
			control->repeats = (int)value;
			break;
		case ROWS:
			r = mc_bench_number("rows", optarg, 1, 1 << 20, &control->rows);
			break;
		case ROW_BYTES:
			r = mc_bench_number("row-bytes", optarg, 1, 1 << 20, &control->row_bytes);
			break;
		case CLIENTS:
			r = mc_bench_number("clients", optarg, 1, 1000, &value);
			control->n_clients = (int)value;
			break;
		case QUERY_MS:
			r = mc_bench_number("query-ms", optarg, 1, 60000, &value);
			control->query_ms = (int)value;
			break;
		case HELP:
			fputs(usage, stdout);
			return MC_BENCH_OK;
		default:
			return MC_BENCH_USAGE;
		}
	}
	if (r == 0 && optind < argc) {
		fprintf(stderr, "moecomm-bench: control takes no '%s'\n", argv[optind]);
		r = -1;
	}
	return r < 0 ? MC_BENCH_USAGE : -1;
}

static int measure(struct mc_control *control)
{
	static const int sizes[] = {1, 2, 4, 8, 16};
	char text[96];

	control->report = mc_report_new("control", columns);
	snprintf(text, sizeof(text), "%lld rows a rank of %lld bytes, dispatch and combine",
		(long long)control->rows, (long long)control->row_bytes);
	mc_report_fact(control->report, "groups", text);

	/* processes first: they are forked while this process has no other thread */
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (mc_control_attach_processes(control, sizes[i]) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (mc_control_attach_threads(control, sizes[i]) < 0)
			return -1;
	if (mc_control_queries(control) < 0)
		return -1;
	return mc_control_storm(control);
}

int mc_bench_control(int argc, char **argv)
{
	struct mc_control control = {
		.repeats = 10, .rows = 64, .row_bytes = 4096, .n_clients = 200, .query_ms = 1000};
	struct mc_bench_daemon daemon = {0};
	moecomm_context *context = NULL;
	int r = parse(argc, argv, &control);

	if (r >= 0)
		return r;
	if (!control.socket) {
		if (mc_bench_daemon_start("host", &daemon) < 0)
			return MC_BENCH_UNREACHABLE;
		control.socket = daemon.socket;
	} else if (mc_control_connect(&control, "moecomm-bench", &context) != MOECOMM_OK) {
		fprintf(stderr, "moecomm-bench: %s\n", moecomm_last_error());
		return MC_BENCH_UNREACHABLE;
	}
	moecomm_disconnect(context);
	r = measure(&control) < 0 ? MC_BENCH_FAILED : MC_BENCH_OK;
	/* what was measured before a failure is worth showing too */
	if (mc_report_print(control.report, control.json) < 0) {
		fprintf(stderr, "moecomm-bench: cannot write the results\n");
		r = MC_BENCH_FAILED;
	}
	mc_bench_daemon_stop(&daemon);
	return r;
}
