/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures of ranks on GPUs, through the real daemon and the public interface:
 *
 *   gpu-life [--ranks N] [--devices N] [--memory-slack-mib N]
 *
 * Ranks are processes; more of them than GPUs share these. Exits 77 where there are fewer GPUs than
 * asked for. A case's times go to stdout.
 */
#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "gpu/life/life.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"
#include "support/fd_store.h"

#define HEARD_MS 1000
/* For the machine, beside what is promised. */
#define SLACK_MS    300
#define REPLACED_MS 4000
#define N_FDS(w)    (1u + 2u * (unsigned)(w))

static struct mc_fd_store store;
static struct mc_test_daemon daemon_;
static struct life life;
static size_t n_daemon_fds;
static long memory_slack_mib = 64;
static char *memory_before;

static double ms_between(int64_t from, int64_t to)
{
	return (double)(to - from) / 1e6;
}

static void expect_within(const char *what, double ms, double bound_ms)
{
	print_message("  %s: %.2f ms (bound %.0f)\n", what, ms, bound_ms);
	if (ms > bound_ms)
		fail_msg("%s: %.2f ms are more than %.0f", what, ms, bound_ms);
}

/* Runs moecommctl; returns its exit status and what it prints. */
static int ctl(const char *arguments, char **ret_out)
{
	char command[4096], *out = calloc(1, 65536);
	FILE *stream;
	int status;

	assert_non_null(out);
	snprintf(command, sizeof(command), "'%s/moecommctl' --socket '%s' %s 2>&1",
		getenv("MOECOMM_TEST_BIN"), daemon_.socket, arguments);
	stream = popen(command, "re");
	assert_non_null(stream);
	if (fread(out, 1, 65535, stream) == 0)
		out[0] = 0;
	status = pclose(stream);
	*ret_out = out;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static uint64_t epoch_of(void)
{
	return atomic_load(&life.view[0].epoch);
}

static void expect_blamed(int but, int rank, bool with_call)
{
	for (int r = 0; r < life.world_size; r++) {
		if (r == but)
			continue;
		if (atomic_load(&life.view[r].fault_rank) != rank ||
			(with_call && !atomic_load(&life.view[r].fault_call)))
			fail_msg("rank %d blames rank %d at call %llu: %s", r,
				atomic_load(&life.view[r].fault_rank),
				(unsigned long long)atomic_load(&life.view[r].fault_call),
				life.view[r].detail);
	}
}

/* ---- a rank dies ---- */

static void kill_one(int victim)
{
	int64_t begun = life_now_ns();

	life_mark(&life);
	life_kill(&life, victim);
	life_expect_failed(&life, victim, MOECOMM_PEER_LOST);
	expect_blamed(victim, victim, false);
	expect_within("SIGKILL to PEER_LOST on all survivors",
		ms_between(begun, life_last_failed(&life, victim)), HEARD_MS);
}

static void replace(int victim, bool use_graph)
{
	life_start_one(&life, victim, use_graph);
	for (int r = 0; r < life.world_size; r++)
		if (r != victim)
			life_command(&life, r, LIFE_REJOIN);
}

static void killed(bool use_graph)
{
	int victim = life.world_size - 1;
	uint64_t epoch;
	int64_t begun;
	double own_ms;

	life_start(&life, use_graph);
	epoch = epoch_of();
	kill_one(victim);
	/* the same processes, and a new one */
	replace(victim, use_graph);
	life_wait_rounds(&life, 20);
	assert_true(epoch_of() > epoch);

	/* once more without a pause in between, for the time */
	begun = life_now_ns();
	life_kill(&life, victim);
	replace(victim, use_graph);
	life_wait_rounds(&life, 20);
	own_ms = ms_between(0, atomic_load(&life.view[victim].own_start_ns));
	print_message("  the new process's own start: %.0f ms\n", own_ms);
	expect_within("SIGKILL to the first verified round of all, beyond that",
		ms_between(begun, life_last_first_ok(&life)) - own_ms, REPLACED_MS);
	kill_one(victim);
	life_stop(&life);
}

static void test_killed_between_ops_of_a_stream(void **state)
{
	(void)state;
	killed(false);
}

static void test_killed_under_replay(void **state)
{
	(void)state;
	killed(true);
}

/* ---- a rank stands still ---- */

static void stop_one(int victim)
{
	char wanted[64], *out = NULL;
	double longest = 0;

	life_mark(&life);
	assert_int_equal(kill(life.pid[victim], SIGSTOP), 0);
	/* told while the others still wait */
	for (int i = 0; i < 100; i++) {
		if (ctl("--json health", &out) == 4 && strstr(out, "\"problem\": \"stalled\""))
			break;
		free(out);
		out = NULL;
		life_sleep_us(30000);
	}
	if (!out)
		fail_msg("health does not say that rank %d is stalled", victim);
	snprintf(wanted, sizeof(wanted), "\"rank\": %d", victim);
	if (!strstr(out, wanted))
		fail_msg("health does not name rank %d: %s", victim, out);
	free(out);
	life_expect_failed(&life, victim, MOECOMM_TIMEOUT);
	expect_blamed(victim, victim, true);
	for (int r = 0; r < life.world_size; r++) {
		double ms = ms_between(
			atomic_load(&life.view[r].begun_ns), atomic_load(&life.view[r].failed_ns));

		if (r != victim && ms > longest)
			longest = ms;
	}
	print_message("  %s\n", life.view[!victim].detail);
	expect_within("SIGSTOP: begin of the round to TIMEOUT on all others", longest,
		LIFE_OP_TIMEOUT_MS * 1.1 + SLACK_MS);
	assert_true(longest > LIFE_OP_TIMEOUT_MS * 0.9);
	assert_int_equal(kill(life.pid[victim], SIGCONT), 0);
	life_expect_failed(&life, -1, MOECOMM_TIMEOUT);
}

static void test_stopped(void **state)
{
	uint64_t epoch;

	(void)state;
	for (int use_graph = 0; use_graph < 2; use_graph++) {
		life_start(&life, use_graph);
		epoch = epoch_of();
		stop_one(1);
		life_rejoin(&life, epoch);
		if (use_graph)
			stop_one(0);
		life_stop(&life);
	}
}

/* A short stop is no failure. */
static void test_stopped_and_continued(void **state)
{
	(void)state;
	life_start(&life, true);
	assert_int_equal(kill(life.pid[1], SIGSTOP), 0);
	life_sleep_us(LIFE_OP_TIMEOUT_MS * 1000L / 2);
	assert_int_equal(kill(life.pid[1], SIGCONT), 0);
	life_wait_rounds(&life, 50);
	for (int r = 0; r < life.world_size; r++)
		assert_int_equal(atomic_load(&life.view[r].n_failed), 0);
	life_stop(&life);
}

/* ---- aborts, while kernels wait for a rank that does not come ---- */

static void make_them_wait(void)
{
	life_mark(&life);
	life_command(&life, 0, LIFE_PAUSE);
	life_sleep_us(300000);
}

static void test_aborted(void **state)
{
	uint64_t epoch;
	char arguments[64], *out;
	int64_t begun;

	(void)state;
	for (int use_graph = 0; use_graph < 2; use_graph++) {
		life_start(&life, use_graph);
		epoch = epoch_of();
		make_them_wait();
		life_command(&life, 1, LIFE_ABORT);
		life_expect_failed(&life, -1, MOECOMM_ABORTED);
		expect_blamed(-1, 1, false);
		expect_within("abort by a member's other thread to ABORTED on all",
			ms_between(
				atomic_load(&life.view[1].acted_ns), life_last_failed(&life, -1)),
			HEARD_MS);
		life_rejoin(&life, epoch);
		epoch = epoch_of();
		make_them_wait();
		snprintf(arguments, sizeof(arguments), "abort %s", life.group);
		begun = life_now_ns();
		if (ctl(arguments, &out))
			fail_msg("moecommctl %s: %s", arguments, out);
		free(out);
		life_expect_failed(&life, -1, MOECOMM_ABORTED);
		expect_within("moecommctl abort to ABORTED on all",
			ms_between(begun, life_last_failed(&life, -1)), HEARD_MS);
		life_stop(&life);
	}
}

/* ---- differing ops ---- */

static void test_mismatch(void **state)
{
	uint64_t epoch;

	(void)state;
	for (int use_graph = 0; use_graph < 2; use_graph++) {
		life_start(&life, use_graph);
		epoch = epoch_of();
		life_mark(&life);
		life_command(&life, 1, LIFE_WRONG);
		life_expect_failed(&life, -1, MOECOMM_MISMATCH);
		print_message("  %s\n", life.view[0].detail);
		expect_within("the wrong call to MISMATCH on all",
			ms_between(
				atomic_load(&life.view[1].acted_ns), life_last_failed(&life, -1)),
			HEARD_MS);
		life_rejoin(&life, epoch);
		life_mark(&life);
		life_command(&life, 0, LIFE_WRONG);
		life_expect_failed(&life, -1, MOECOMM_MISMATCH);
		life_stop(&life);
	}
}

/* ---- between epochs ---- */

static void test_replay_between_epochs(void **state)
{
	uint64_t epoch;
	int64_t begun;

	(void)state;
	life_start(&life, true);
	epoch = epoch_of();
	/* rank 0 goes for the next epoch; the others stay behind in an epoch that has ended */
	life_command(&life, 0, LIFE_REJOIN);
	for (int r = 1; r < life.world_size; r++) {
		const struct life_view *view = &life.view[r];

		for (begun = life_now_ns(); !atomic_load(&view->n_failed);)
			if (life_now_ns() - begun > INT64_C(10000000000))
				fail_msg("rank %d does not hear that the epoch has ended", r);
			else
				life_sleep_us(200);
		if (atomic_load(&view->status) != MOECOMM_LEFT &&
			atomic_load(&view->status) != MOECOMM_STALE_EPOCH)
			fail_msg("rank %d hears %s: %s", r,
				moecomm_status_name(
					(enum moecomm_status)atomic_load(&view->status)),
				view->detail);
		assert_int_equal(atomic_load(&view->next_status), atomic_load(&view->status));
	}
	print_message("  a replay in the ended epoch: %.2f ms, %s\n",
		ms_between(0, atomic_load(&life.view[1].replay_ns)), life.view[1].detail);
	/* nobody comes, so that the rejoin ends, and rank 0 is in no epoch at all */
	atomic_store(&life.view[0].replay_ns, 0);
	for (begun = life_now_ns(); !atomic_load(&life.view[0].replay_ns) ||
				    atomic_load(&life.view[0].command) != LIFE_RUN;)
		if (life_now_ns() - begun > (LIFE_JOIN_TIMEOUT_MS + 5000) * INT64_C(1000000))
			fail_msg("the rejoin does not end");
		else
			life_sleep_us(1000);
	assert_int_equal(atomic_load(&life.view[0].rejoin_status), MOECOMM_JOIN_TIMEOUT);
	expect_within(
		"a replay in no epoch", ms_between(0, atomic_load(&life.view[0].replay_ns)), 500);
	assert_int_equal(atomic_load(&life.view[0].cuda_error), 0);
	life_rejoin(&life, epoch);
	life_stop(&life);
}

/* ---- the daemon ---- */

static void expect_nobody_noticed(uint64_t epoch)
{
	for (int r = 0; r < life.world_size; r++) {
		assert_int_equal(atomic_load(&life.view[r].n_failed), 0);
		assert_int_equal(atomic_load(&life.view[r].n_wrong), 0);
		assert_int_equal(atomic_load(&life.view[r].epoch), epoch);
	}
}

static void test_daemon_restarted_under_replay(void **state)
{
	uint64_t epoch;
	int64_t begun;

	(void)state;
	life_start(&life, true);
	epoch = epoch_of();
	mc_fd_store_wait_count(&store, "e", N_FDS(life.world_size), 20000);
	for (int i = 0; i < 3; i++) {
		mc_test_daemon_kill(&daemon_);
		life_wait_connected(&life, false);
		life_wait_rounds(&life, 50);
		begun = life_now_ns();
		mc_fd_store_restart(&store, &daemon_);
		life_wait_connected(&life, true);
		print_message("  the daemon's start to all ranks known again: %.0f ms\n",
			ms_between(begun, life_now_ns()));
		life_wait_rounds(&life, 50);
		expect_nobody_noticed(epoch);
	}
	/* and it still watches: what came from the store serves like the original */
	kill_one(1);
	life_start_one(&life, 1, true);
	for (int r = 0; r < life.world_size; r++)
		if (r != 1)
			life_command(&life, r, LIFE_REJOIN);
	life_wait_rounds(&life, 20);
	assert_true(epoch_of() > epoch);
	life_stop(&life);
	mc_fd_store_wait_count(&store, "e", 0, 20000);
}

/* Last: the daemon does not come back. */
static void test_daemon_killed_for_good(void **state)
{
	uint64_t epoch;

	(void)state;
	mc_test_wait_fds(daemon_.pid, n_daemon_fds, 10000);
	life_start(&life, true);
	epoch = epoch_of();
	mc_test_daemon_kill(&daemon_);
	life_wait_connected(&life, false);
	life_wait_rounds(&life, 200);
	expect_nobody_noticed(epoch);
	life_stop(&life);
	mc_fd_store_clear(&store);
}

/* After everything: what the GPUs' memory is used for is as before. */
static void test_memory_is_back(void **state)
{
	char *after, *at_before, *at_after;
	int n = 0;

	(void)state;
	/* the driver takes a moment to give back what a process left */
	for (int i = 0; i < 20; i++) {
		long worst = 0;

		after = life_ask_self("--memory");
		at_before = memory_before;
		at_after = after;
		for (n = 0; n < life.n_devices; n++) {
			long lost =
				strtol(at_before, &at_before, 10) - strtol(at_after, &at_after, 10);

			worst = lost > worst ? lost : worst;
		}
		print_message("  free MiB before %s, after %s\n", memory_before, after);
		free(after);
		if (worst <= memory_slack_mib)
			return;
		life_sleep_us(500000);
	}
	fail_msg("device memory is not back at the baseline");
}

/* ---- the stage ---- */

static int open_stage(void **state)
{
	(void)state;
	memory_before = life_ask_self("--memory");
	mc_fd_store_open(&store, 1000);
	mc_fd_store_start(&store, &daemon_, &(struct mc_test_daemon_options){.backend = "cuda"});
	life.socket = daemon_.socket;
	n_daemon_fds = mc_test_count_fds(daemon_.pid);
	return 0;
}

static int close_stage(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_);
	mc_fd_store_close(&store);
	free(memory_before);
	return 0;
}

/* After a case that failed, too. */
static int clear_ranks(void **state)
{
	char *log;

	(void)state;
	if (life.view) {
		if (!daemon_.pid)
			mc_fd_store_restart(&store, &daemon_);
		log = mc_test_daemon_log(&daemon_);
		print_message("log of moecommd:\n%s\n", log);
		free(log);
	}
	life_clear(&life);
	return 0;
}

/* Returns false after telling what is wrong. */
static bool parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"ranks", required_argument, NULL, 'r'},
		{"devices", required_argument, NULL, 'd'},
		{"memory-slack-mib", required_argument, NULL, 'm'},
		{NULL, 0, NULL, 0},
	};
	int option;

	life.world_size = life.n_devices = 2;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'r':
			life.world_size = atoi(optarg);
			break;
		case 'd':
			life.n_devices = atoi(optarg);
			break;
		case 'm':
			memory_slack_mib = atol(optarg);
			break;
		default:
			return false;
		}
	}
	if (life.world_size >= 2 && life.world_size <= LIFE_MAX_RANKS && life.n_devices >= 1)
		return true;
	fprintf(stderr, "gpu-life: --ranks must be 2 to %d, --devices at least 1\n",
		LIFE_MAX_RANKS);
	return false;
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_teardown(name, clear_ranks)
	const struct CMUnitTest tests[] = {
		TEST(test_killed_between_ops_of_a_stream),
		TEST(test_killed_under_replay),
		TEST(test_stopped),
		TEST(test_stopped_and_continued),
		TEST(test_aborted),
		TEST(test_mismatch),
		TEST(test_replay_between_epochs),
		TEST(test_daemon_restarted_under_replay),
		TEST(test_daemon_killed_for_good),
		TEST(test_memory_is_back),
	};
	char *count;
	int n;

	if (argc == 9 && !strcmp(argv[1], "--rank"))
		return life_rank_main(argv);
	if (argc == 2 && !strcmp(argv[1], "--count"))
		return life_print_count();
	if (argc == 2 && !strcmp(argv[1], "--memory"))
		return life_print_memory();
	if (!parse(argc, argv))
		return 2;
	count = life_ask_self("--count");
	n = atoi(count);
	free(count);
	if (n < life.n_devices) {
		printf("skipped: %d GPUs are needed, %d are here\n", life.n_devices, n);
		return 77;
	}
	if (life.n_devices > life.world_size)
		life.n_devices = life.world_size;
	return cmocka_run_group_tests(tests, open_stage, close_stage);
}
