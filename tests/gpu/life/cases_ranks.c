/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls the ranks. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "gpu/life/stage.h"

/* For the machine, beside what is promised. */
#define SLACK_MS    300
#define REPLACED_MS 4000

/* ---- a rank dies ---- */

static void killed(bool use_graph)
{
	int victim = stage.life.world_size - 1;
	uint64_t epoch;
	int64_t begun;
	double own_ms;

	life_start(&stage.life, use_graph);
	epoch = stage_epoch();
	stage_kill_one(victim);
	/* the same processes, and a new one */
	stage_replace(victim, use_graph);
	life_wait_rounds(&stage.life, 20);
	assert_true(stage_epoch() > epoch);

	/* once more without a pause in between, for the time */
	begun = life_now_ns();
	life_kill(&stage.life, victim);
	stage_replace(victim, use_graph);
	life_wait_rounds(&stage.life, 20);
	own_ms = stage_ms(0, atomic_load(&stage.life.view[victim].own_start_ns));
	print_message("  the new process's own start: %.0f ms\n", own_ms);
	stage_expect_within("SIGKILL to the first verified round of all, beyond that",
		stage_ms(begun, life_last_first_ok(&stage.life)) - own_ms, REPLACED_MS);
	stage_kill_one(victim);
	life_stop(&stage.life);
}

void test_killed_between_ops_of_a_stream(void **state)
{
	(void)state;
	killed(false);
}

void test_killed_under_replay(void **state)
{
	(void)state;
	killed(true);
}

/* ---- a rank stands still ---- */

static void stop_one(int victim)
{
	char wanted[64], *out = NULL;
	double longest = 0;

	life_mark(&stage.life);
	assert_int_equal(kill(stage.life.pid[victim], SIGSTOP), 0);
	/* told while the others still wait */
	for (int i = 0; i < 100; i++) {
		if (stage_ctl("--json health", &out) == 4 &&
			strstr(out, "\"problem\": \"stalled\""))
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
	life_expect_failed(&stage.life, victim, MOECOMM_TIMEOUT);
	stage_expect_blamed(victim, victim, true);
	for (int r = 0; r < stage.life.world_size; r++) {
		double ms = stage_ms(atomic_load(&stage.life.view[r].begun_ns),
			atomic_load(&stage.life.view[r].failed_ns));

		if (r != victim && ms > longest)
			longest = ms;
	}
	print_message("  %s\n", stage.life.view[!victim].detail);
	stage_expect_within("SIGSTOP: begin of the round to TIMEOUT on all others", longest,
		LIFE_OP_TIMEOUT_MS * 1.1 + SLACK_MS);
	assert_true(longest > LIFE_OP_TIMEOUT_MS * 0.9);
	assert_int_equal(kill(stage.life.pid[victim], SIGCONT), 0);
	life_expect_failed(&stage.life, -1, MOECOMM_TIMEOUT);
}

void test_stopped(void **state)
{
	uint64_t epoch;

	(void)state;
	for (int use_graph = 0; use_graph < 2; use_graph++) {
		life_start(&stage.life, use_graph);
		epoch = stage_epoch();
		stop_one(1);
		life_rejoin(&stage.life, epoch);
		if (use_graph)
			stop_one(0);
		life_stop(&stage.life);
	}
}

/* A short stop is no failure. */
void test_stopped_and_continued(void **state)
{
	(void)state;
	life_start(&stage.life, true);
	assert_int_equal(kill(stage.life.pid[1], SIGSTOP), 0);
	life_sleep_us(LIFE_OP_TIMEOUT_MS * 1000L / 2);
	assert_int_equal(kill(stage.life.pid[1], SIGCONT), 0);
	life_wait_rounds(&stage.life, 50);
	for (int r = 0; r < stage.life.world_size; r++)
		assert_int_equal(atomic_load(&stage.life.view[r].n_failed), 0);
	life_stop(&stage.life);
}

/* ---- aborts, while kernels wait for a rank that does not come ---- */

static void make_them_wait(void)
{
	life_mark(&stage.life);
	life_command(&stage.life, 0, LIFE_PAUSE);
	life_sleep_us(300000);
}

void test_aborted(void **state)
{
	uint64_t epoch;
	char arguments[64], *out;
	int64_t begun;

	(void)state;
	for (int use_graph = 0; use_graph < 2; use_graph++) {
		life_start(&stage.life, use_graph);
		epoch = stage_epoch();
		make_them_wait();
		life_command(&stage.life, 1, LIFE_ABORT);
		life_expect_failed(&stage.life, -1, MOECOMM_ABORTED);
		stage_expect_blamed(-1, 1, false);
		stage_expect_within("abort by a member's other thread to ABORTED on all",
			stage_ms(atomic_load(&stage.life.view[1].acted_ns),
				life_last_failed(&stage.life, -1)),
			STAGE_HEARD_MS);
		life_rejoin(&stage.life, epoch);
		epoch = stage_epoch();
		make_them_wait();
		snprintf(arguments, sizeof(arguments), "abort %s", stage.life.group);
		begun = life_now_ns();
		if (stage_ctl(arguments, &out))
			fail_msg("moecommctl %s: %s", arguments, out);
		free(out);
		life_expect_failed(&stage.life, -1, MOECOMM_ABORTED);
		stage_expect_within("moecommctl abort to ABORTED on all",
			stage_ms(begun, life_last_failed(&stage.life, -1)), STAGE_HEARD_MS);
		life_stop(&stage.life);
	}
}

/* ---- differing ops ---- */

void test_mismatch(void **state)
{
	uint64_t epoch;

	(void)state;
	for (int use_graph = 0; use_graph < 2; use_graph++) {
		life_start(&stage.life, use_graph);
		epoch = stage_epoch();
		life_mark(&stage.life);
		life_command(&stage.life, 1, LIFE_WRONG);
		life_expect_failed(&stage.life, -1, MOECOMM_MISMATCH);
		print_message("  %s\n", stage.life.view[0].detail);
		stage_expect_within("the wrong call to MISMATCH on all",
			stage_ms(atomic_load(&stage.life.view[1].acted_ns),
				life_last_failed(&stage.life, -1)),
			STAGE_HEARD_MS);
		life_rejoin(&stage.life, epoch);
		life_mark(&stage.life);
		life_command(&stage.life, 0, LIFE_WRONG);
		life_expect_failed(&stage.life, -1, MOECOMM_MISMATCH);
		life_stop(&stage.life);
	}
}

/* ---- between epochs ---- */

void test_replay_between_epochs(void **state)
{
	uint64_t epoch;
	int64_t begun;

	(void)state;
	life_start(&stage.life, true);
	epoch = stage_epoch();
	/* rank 0 goes for the next epoch; the others stay behind in an epoch that has ended */
	life_command(&stage.life, 0, LIFE_REJOIN);
	for (int r = 1; r < stage.life.world_size; r++) {
		const struct life_view *view = &stage.life.view[r];

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
		stage_ms(0, atomic_load(&stage.life.view[1].replay_ns)), stage.life.view[1].detail);
	/* nobody comes, so that the rejoin ends, and rank 0 is in no epoch at all */
	atomic_store(&stage.life.view[0].replay_ns, 0);
	for (begun = life_now_ns(); !atomic_load(&stage.life.view[0].replay_ns) ||
				    atomic_load(&stage.life.view[0].command) != LIFE_RUN;)
		if (life_now_ns() - begun > (LIFE_JOIN_TIMEOUT_MS + 5000) * INT64_C(1000000))
			fail_msg("the rejoin does not end");
		else
			life_sleep_us(1000);
	assert_int_equal(atomic_load(&stage.life.view[0].rejoin_status), MOECOMM_JOIN_TIMEOUT);
	stage_expect_within("a replay in no epoch",
		stage_ms(0, atomic_load(&stage.life.view[0].replay_ns)), 500);
	assert_int_equal(atomic_load(&stage.life.view[0].cuda_error), 0);
	life_rejoin(&stage.life, epoch);
	life_stop(&stage.life);
}
