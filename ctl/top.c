/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecommctl top: what all groups do, refreshed like top(1). With -n or --once it prints plain
 * reports instead, for scripts; rates then are those of one interval before each report.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ctl/terminal.h"
#include "ctl/top_rates.h"
#include "ctl/top_screen.h"
#include "ctl/wire.h"
#include "proto/codec.h"

#define DEFAULT_INTERVAL_MS 1000
#define FIRST_INTERVAL_MS   200
#define MIN_INTERVAL_MS     100
#define MAX_INTERVAL_MS     3600000

struct top {
	const struct mc_ctl *ctl;
	int interval_ms;
	unsigned long n_reports; /* 0: live */
	bool hide_ranks;
	struct mc_ctl_wire *wire;
	Moecomm__Wire__Status *before, *now;
	int64_t before_ms, now_ms;
};

static int64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static Moecomm__Wire__Status *forget(Moecomm__Wire__Status *status)
{
	if (status)
		mc_codec_free(&status->base);
	return NULL;
}

/* Asks once more; on failure the conversation is over and ret_problem says why. */
static int sample(struct top *top, char *ret_problem, size_t n_problem)
{
	Moecomm__Wire__Status *status = NULL;
	int r = MC_CTL_OK;

	if (!top->wire)
		r = mc_ctl_wire_try(top->ctl, &top->wire, ret_problem, n_problem);
	if (!r)
		r = mc_ctl_wire_try_status(top->wire, true, &status, ret_problem, n_problem);
	if (r) {
		top->wire = mc_ctl_wire_close(top->wire);
		return r;
	}
	forget(top->before);
	top->before = top->now;
	top->before_ms = top->now_ms;
	top->now = status;
	top->now_ms = clock_ms();
	return MC_CTL_OK;
}

static double seconds_between(const struct top *top)
{
	return top->before ? (double)(top->now_ms - top->before_ms) / 1000 : 0;
}

static int report(const struct top *top)
{
	struct mc_top_rows rows;

	mc_top_rates(top->before, top->now, seconds_between(top), &rows);
	if (top->ctl->json)
		mc_top_print_json(top->now, &rows, seconds_between(top));
	else
		mc_top_print(stdout, top->ctl, top->now, &rows, !top->hide_ranks);
	mc_top_rows_clear(&rows);
	return fflush(stdout) ? MC_CTL_REFUSED : MC_CTL_OK;
}

static int run_batch(struct top *top)
{
	char problem[2048];
	int r = sample(top, problem, sizeof(problem));

	for (unsigned long i = 0; !r && i < top->n_reports; i++) {
		poll(NULL, 0, top->interval_ms);
		r = sample(top, problem, sizeof(problem));
		if (r)
			break;
		if (i && !top->ctl->json)
			putchar('\n');
		r = report(top);
		if (r)
			return r;
	}
	if (r)
		fprintf(stderr, "moecommctl: %s\n", problem);
	return r;
}

static void show(const struct top *top, const char *problem)
{
	struct mc_top_rows rows = {0};
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return;
	if (*problem) {
		fprintf(out, "moecomm top\n\n%s\n\nasking again; q ends\n", problem);
	} else {
		mc_top_rates(top->before, top->now, seconds_between(top), &rows);
		mc_top_print(out, top->ctl, top->now, &rows, !top->hide_ranks);
		fprintf(out, "\nq quit   r ranks %s   space now\n", top->hide_ranks ? "on" : "off");
	}
	if (!fclose(out))
		mc_terminal_show(text, n);
	free(text);
	mc_top_rows_clear(&rows);
}

static int run_live(struct top *top)
{
	char problem[2048] = "", key = 0;
	int64_t next_ms = 0;
	/* without a daemon at the start there is nothing to look at */
	int r = sample(top, problem, sizeof(problem));

	if (r) {
		fprintf(stderr, "moecommctl: %s\n", problem);
		return r;
	}
	r = mc_terminal_open();
	if (r) {
		fprintf(stderr, "moecommctl: cannot use the terminal: %s\n", strerror(-r));
		return MC_CTL_REFUSED;
	}
	/* the first rates come soon, and the interval's after that */
	next_ms = clock_ms() + FIRST_INTERVAL_MS;
	for (;;) {
		int64_t now = clock_ms();

		if (now >= next_ms) {
			*problem = 0;
			if (sample(top, problem, sizeof(problem))) {
				/* a daemon that comes back counts from the start */
				top->before = forget(top->before);
				top->now = forget(top->now);
			}
			now = clock_ms();
			next_ms = now + top->interval_ms;
		}
		show(top, problem);
		switch (mc_terminal_wait((int)(next_ms - now), &key)) {
		case MC_TERMINAL_END:
			mc_terminal_close();
			return MC_CTL_OK;
		case MC_TERMINAL_KEY:
			if (key == 'q' || key == 'Q') {
				mc_terminal_close();
				return MC_CTL_OK;
			}
			if (key == 'r')
				top->hide_ranks = !top->hide_ranks;
			if (key == ' ')
				next_ms = 0;
			break;
		default:
			break;
		}
	}
}

static bool parse_interval(const char *text, int *ret_ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds * 1000 >= MIN_INTERVAL_MS) ||
		!(seconds * 1000 <= MAX_INTERVAL_MS))
		return false;
	*ret_ms = (int)(seconds * 1000);
	return true;
}

static bool parse_count(const char *text, unsigned long *ret_n)
{
	char *end;

	if (*text < '1' || *text > '9')
		return false;
	errno = 0;
	*ret_n = strtoul(text, &end, 10);
	return !errno && !*end;
}

int mc_ctl_top(const struct mc_ctl *ctl, int argc, char **argv)
{
	static const struct option options[] = {{"delay", required_argument, NULL, 'd'},
		{"count", required_argument, NULL, 'n'}, {"once", no_argument, NULL, 'o'},
		{"groups-only", no_argument, NULL, 'g'}, {NULL, 0, NULL, 0}};
	struct top top = {.ctl = ctl, .interval_ms = DEFAULT_INTERVAL_MS};
	int option, r;

	while ((option = getopt_long(argc, argv, "d:n:g", options, NULL)) != -1) {
		switch (option) {
		case 'd':
			if (!parse_interval(optarg, &top.interval_ms))
				return mc_ctl_usage("-d takes seconds from 0.1 to 3600");
			break;
		case 'n':
			if (!parse_count(optarg, &top.n_reports))
				return mc_ctl_usage("-n takes a number of reports from 1 on");
			break;
		case 'o':
			top.n_reports = 1;
			break;
		case 'g':
			top.hide_ranks = true;
			break;
		default:
			return mc_ctl_usage(
				"usage: top [-d SECONDS] [-n N | --once] [--groups-only]");
		}
	}
	if (optind < argc)
		return mc_ctl_usage("top takes no '%s'", argv[optind]);
	if (!top.n_reports && ctl->json)
		return mc_ctl_usage("top --json needs --once or -n N");
	if (!top.n_reports && !isatty(STDOUT_FILENO))
		return mc_ctl_usage("stdout is no terminal: use top --once or top -n N");
	r = top.n_reports ? run_batch(&top) : run_live(&top);
	forget(top.before);
	forget(top.now);
	mc_ctl_wire_close(top.wire);
	return r;
}
