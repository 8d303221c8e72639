/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/soak/daemons.h"
#include "fault/soak/groups.h"
#include "fault/soak/soak.h"

#define STEP_US 2000
/* From the end of the chaos until all have left. */
#define WIND_DOWN_US  INT64_C(60000000)
#define RESIDENT_US   INT64_C(30000000)
#define RSS_SLACK_KIB 4096

struct soak *soak;

struct options {
	int64_t seconds;
	uint64_t rounds; /* verified ops after which it ends; 0: by time alone */
};

static int usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--seconds N] [--seed N] [--calm] [--ops N] [--slack-ms N]\n"
		"  --calm      no chaos: only groups that come and go\n"
		"  --ops N     end after so many verified ops, if that is sooner\n"
		"  --slack-ms  what a loaded machine may add to a bound (default 1000)\n",
		program);
	return 2;
}

static bool parse(int argc, char **argv, struct options *ret_options)
{
	static const struct option known[] = {{"seconds", required_argument, NULL, 's'},
		{"seed", required_argument, NULL, 'e'}, {"calm", no_argument, NULL, 'c'},
		{"ops", required_argument, NULL, 'o'}, {"slack-ms", required_argument, NULL, 'l'},
		{NULL, 0, NULL, 0}};

	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		switch (c) {
		case 's':
			ret_options->seconds = atoll(optarg);
			break;
		case 'e':
			soak->seed = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			soak->calm = true;
			break;
		case 'o':
			ret_options->rounds = strtoull(optarg, NULL, 10);
			break;
		case 'l':
			soak->slack_ms = atoi(optarg);
			break;
		default:
			return false;
		}
	}
	return optind == argc && ret_options->seconds > 0;
}

static uint64_t n_ops(void)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < SOAK_GROUPS; g++)
		for (uint32_t r = 0; r < SOAK_WORLD; r++)
			n += atomic_load(&soak->group[g].slot[r].n_ops);
	return n;
}

static bool wait_flag(_Atomic bool *flag, const char *what)
{
	int64_t give_up_us = soak_now_us() + RESIDENT_US;

	while (!atomic_load(flag)) {
		if (soak_now_us() > give_up_us) {
			soak_problem("the resident process is not %s", what);
			return false;
		}
		usleep(STEP_US);
	}
	return true;
}

static void check_resident(void)
{
	const struct soak_holdings *before = &soak->resident_before, *after = &soak->resident_after;

	printf("resident process: %d fds, %d memfd mappings, %d threads, %ld KiB at the start; "
	       "%d, %d, %d, %ld KiB at the end\n",
		before->n_fds, before->n_maps, before->n_threads, before->rss_kib, after->n_fds,
		after->n_maps, after->n_threads, after->rss_kib);
	if (after->n_fds != before->n_fds || after->n_maps != before->n_maps ||
		after->n_threads != before->n_threads)
		soak_problem("the resident process is not back at what it held");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (after->rss_kib > before->rss_kib + RSS_SLACK_KIB)
		soak_problem("the resident process has grown from %ld to %ld KiB", before->rss_kib,
			after->rss_kib);
#endif
}

static void run(const struct options *options)
{
	int64_t end_us = soak_now_us() + options->seconds * 1000000;
	bool over = false;

	while (!over && !groups_stuck()) {
		groups_step(false);
		daemons_step(false);
		usleep(STEP_US);
		over = soak_now_us() > end_us || (options->rounds && n_ops() >= options->rounds);
	}
	end_us = soak_now_us() + WIND_DOWN_US;
	while (!groups_stuck() && !(groups_over() && daemons_calm())) {
		groups_step(true);
		daemons_step(true);
		usleep(STEP_US);
		if (soak_now_us() > end_us) {
			soak_problem("not all groups could leave in order at the end");
			break;
		}
	}
}

static void end_resident(pid_t pid)
{
	int64_t give_up_us = soak_now_us() + RESIDENT_US;
	int status = 0;

	atomic_store(&soak->resident_may_go, true);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (soak_now_us() > give_up_us) {
			soak_problem("the resident process does not end");
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return;
		}
		usleep(STEP_US);
	}
	if (status)
		soak_problem("the resident process ended with wait status %#x", (unsigned)status);
}

static int finish(int64_t begin_us)
{
	uint32_t n = atomic_load(&soak->n_problems);

	/* nothing may be left of what was started */
	if (waitpid(-1, NULL, WNOHANG) >= 0)
		soak_problem("processes are left at the end");
	soak_account_print(soak_now_us() - begin_us);
	if (!n) {
		printf("soak: clean (seed %llu)\n", (unsigned long long)soak->seed);
		return 0;
	}
	groups_print();
	daemons_print_log();
	printf("soak: %u problems, the first of them:\n", n);
	for (uint32_t i = 0; i < n && i < SOAK_PROBLEMS; i++)
		printf("  %s\n", soak->problem[i]);
	printf("soak: not clean; repeat with --seed %llu%s\n", (unsigned long long)soak->seed,
		soak->calm ? " --calm" : "");
	return 1;
}

int main(int argc, char **argv)
{
	struct options options = {.seconds = 600};
	int64_t begin_us = soak_now_us();
	pid_t resident;

	soak = mmap(NULL, sizeof(*soak), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (soak == MAP_FAILED)
		return 1;
	soak->seed = (uint64_t)time(NULL) % 1000000;
	soak->slack_ms = 1000;
	if (!parse(argc, argv, &options))
		return usage(argv[0]);
	if (!getenv("MOECOMM_TEST_BIN")) {
		fprintf(stderr, "soak: set MOECOMM_TEST_BIN to where moecommd is, or use "
				"scripts/soak.sh\n");
		return 2;
	}
	printf("soak: %lld s with seed %llu%s\n", (long long)options.seconds,
		(unsigned long long)soak->seed, soak->calm ? ", calm" : "");
	daemons_start();
	resident = soak_resident_start();
	if (wait_flag(&soak->resident_ready, "ready")) {
		/* its warm-up groups are gone */
		usleep(300000);
		daemons_take_baseline();
		groups_start();
		run(&options);
	}
	if (groups_over()) {
		atomic_store(&soak->quit, true);
		if (wait_flag(&soak->resident_done, "done"))
			check_resident();
		daemons_finish();
		end_resident(resident);
	} else {
		groups_print();
		groups_kill();
		kill(resident, SIGKILL);
		waitpid(resident, NULL, 0);
	}
	return finish(begin_us);
}
