/* SPDX-License-Identifier: Apache-2.0 */
/* The judgement from progress to health, without a daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "daemon/health/health.h"

#define STALL_MS 2000u

static struct mc_health_view *view;
static uint8_t is_stopped[MC_MAX_WORLD_SIZE];

static int set_up(void **state)
{
	(void)state;
	view = calloc(1, sizeof(*view));
	assert_non_null(view);
	memset(is_stopped, 0, sizeof(is_stopped));
	for (uint32_t r = 0; r < MC_MAX_WORLD_SIZE; r++)
		for (uint32_t c = 0; c < MC_MAX_CHANNELS; c++)
			view->rank[r].age_ms[c] = 3600000; /* never anything */
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	free(view);
	return 0;
}

static void at(uint32_t rank, uint32_t channel, uint32_t call, int left, uint64_t age_ms)
{
	view->rank[rank].progress[channel].call = call;
	view->rank[rank].progress[channel].op = MC_OP_DISPATCH;
	view->rank[rank].progress[channel].left = (uint8_t)left;
	view->rank[rank].age_ms[channel] = age_ms;
}

static void judge(uint32_t world_size)
{
	mc_health_judge(view, world_size, 2, STALL_MS, is_stopped);
}

static void assert_health(uint32_t rank, enum mc_health health)
{
	if (view->rank[rank].health != health)
		fail_msg("rank %u is %s, wanted %s", rank, mc_health_name(view->rank[rank].health),
			mc_health_name(health));
}

static void nothing_yet_is_idle(void **state)
{
	(void)state;
	judge(3);
	for (uint32_t r = 0; r < 3; r++)
		assert_health(r, MC_HEALTH_IDLE);
}

static void all_left_is_idle_however_long(void **state)
{
	(void)state;
	at(0, 0, 7, 1, 100000);
	at(1, 0, 7, 1, 100000);
	judge(2);
	assert_health(0, MC_HEALTH_IDLE);
	assert_health(1, MC_HEALTH_IDLE);
}

static void a_call_that_has_just_begun_is_progress(void **state)
{
	(void)state;
	at(0, 0, 8, 0, STALL_MS - 1);
	at(1, 0, 7, 1, 100000); /* idle for long before it */
	judge(2);
	assert_health(0, MC_HEALTH_PROGRESSING);
	assert_health(1, MC_HEALTH_PROGRESSING);
	assert_int_equal(view->rank[1].lag[0], 1);
	assert_int_equal(view->rank[1].awaited_ms, STALL_MS - 1);
}

static void one_behind_for_the_threshold_is_stalled(void **state)
{
	(void)state;
	at(0, 0, 8, 0, STALL_MS);
	at(1, 0, 7, 1, STALL_MS + 5);
	at(2, 0, 8, 0, STALL_MS);
	judge(3);
	assert_health(0, MC_HEALTH_WAITING);
	assert_health(1, MC_HEALTH_STALLED);
	assert_health(2, MC_HEALTH_WAITING);
}

static void a_rank_that_never_entered_is_stalled(void **state)
{
	(void)state;
	at(0, 0, 1, 0, STALL_MS);
	judge(2);
	assert_health(0, MC_HEALTH_WAITING);
	assert_health(1, MC_HEALTH_STALLED);
}

static void a_laggard_that_moves_elsewhere_moves(void **state)
{
	(void)state;
	at(0, 0, 8, 0, STALL_MS);
	at(1, 0, 7, 1, STALL_MS);
	at(1, 1, 3, 0, 10);
	judge(2);
	assert_health(1, MC_HEALTH_PROGRESSING);
}

static void a_stopped_one_in_the_same_call_is_stalled(void **state)
{
	(void)state;
	for (uint32_t r = 0; r < 3; r++)
		at(r, 0, 8, 0, STALL_MS);
	is_stopped[1] = 1;
	judge(3);
	assert_health(0, MC_HEALTH_WAITING);
	assert_health(1, MC_HEALTH_STALLED);
	assert_health(2, MC_HEALTH_WAITING);
}

static void all_stuck_in_one_call_are_all_stalled(void **state)
{
	(void)state;
	at(0, 0, 8, 0, STALL_MS);
	at(1, 0, 8, 0, STALL_MS);
	judge(2);
	assert_health(0, MC_HEALTH_STALLED);
	assert_health(1, MC_HEALTH_STALLED);
}

/* cuda posts every 16th call: numbers that differ are no lag while nobody waits. */
static void sparse_posts_without_a_waiter_are_no_lag(void **state)
{
	(void)state;
	view->is_sparse = true;
	at(0, 0, 48, 1, 100);
	at(1, 0, 32, 1, STALL_MS - 1);
	judge(2);
	assert_int_equal(view->rank[1].lag[0], 0);
	assert_int_equal(view->rank[0].progress[0].call, 47);
	assert_int_equal(view->rank[1].progress[0].call, 47);
	assert_int_equal(view->rank[1].awaited_ms, 0);
	assert_health(0, MC_HEALTH_PROGRESSING);
	assert_health(1, MC_HEALTH_PROGRESSING);
	/* and however old they are */
	at(0, 0, 48, 1, 100000);
	at(1, 0, 32, 1, 100000);
	judge(2);
	assert_health(0, MC_HEALTH_IDLE);
	assert_health(1, MC_HEALTH_IDLE);
}

static void a_sparse_waiter_shows_who_is_one_behind(void **state)
{
	(void)state;
	view->is_sparse = true;
	at(0, 0, 1000, 0, STALL_MS);
	at(1, 0, 992, 1, 100000);
	at(2, 0, 1000, 0, STALL_MS);
	judge(3);
	assert_int_equal(view->rank[1].lag[0], 1);
	assert_int_equal(view->rank[1].progress[0].call, 999);
	assert_int_equal(view->rank[0].lag[0], 0);
	assert_int_equal(view->rank[2].lag[0], 0);
	assert_health(0, MC_HEALTH_WAITING);
	assert_health(1, MC_HEALTH_STALLED);
	assert_health(2, MC_HEALTH_WAITING);
	/* not yet for long */
	at(0, 0, 1000, 0, 5);
	at(1, 0, 992, 1, 100000);
	at(2, 0, 992, 1, 100000);
	judge(3);
	assert_health(0, MC_HEALTH_PROGRESSING);
	assert_health(1, MC_HEALTH_PROGRESSING);
	assert_int_equal(view->rank[1].awaited_ms, 5);
}

/* A heartbeat of a later call says nothing against the rank that waits in the one before. */
static void a_sparse_waiter_behind_a_heartbeat_is_not_awaited(void **state)
{
	(void)state;
	view->is_sparse = true;
	at(0, 0, 15, 0, STALL_MS);
	at(1, 0, 16, 1, STALL_MS);
	judge(2);
	assert_int_equal(view->rank[0].lag[0], 1);
	assert_int_equal(view->rank[0].awaited_ms, 0);
	assert_int_equal(view->rank[1].lag[0], 0);
}

static void a_sparse_rank_that_never_entered_is_stalled(void **state)
{
	(void)state;
	view->is_sparse = true;
	at(0, 0, 1, 0, STALL_MS);
	judge(2);
	assert_int_equal(view->rank[1].lag[0], 1);
	assert_int_equal(view->rank[1].progress[0].call, 0);
	assert_health(0, MC_HEALTH_WAITING);
	assert_health(1, MC_HEALTH_STALLED);
}

static void sparse_call_numbers_wrap(void **state)
{
	(void)state;
	view->is_sparse = true;
	at(0, 0, 3, 0, STALL_MS);
	at(1, 0, UINT32_MAX - 15u, 1, 100000);
	judge(2);
	assert_int_equal(view->rank[1].lag[0], 1);
	assert_int_equal(view->rank[1].progress[0].call, 2);
	assert_health(1, MC_HEALTH_STALLED);
}

static void a_fault_is_failed_and_others_wait(void **state)
{
	(void)state;
	at(0, 0, 8, 0, STALL_MS);
	at(1, 0, 8, 0, STALL_MS);
	view->rank[1].fault.status = MC_FAULT_TIMEOUT;
	judge(2);
	assert_health(0, MC_HEALTH_WAITING);
	assert_health(1, MC_HEALTH_FAILED);
}

static void call_numbers_wrap(void **state)
{
	(void)state;
	at(0, 0, 2, 0, STALL_MS);
	at(1, 0, UINT32_MAX, 1, STALL_MS);
	judge(2);
	assert_health(0, MC_HEALTH_WAITING);
	assert_health(1, MC_HEALTH_STALLED);
	assert_int_equal(view->rank[1].lag[0], 3);
	assert_int_equal(view->rank[0].lag[0], 0);
}

static void waits_fall_into_their_buckets(void **state)
{
	(void)state;
	assert_int_equal(mc_wait_bucket(0), 0);
	assert_int_equal(mc_wait_bucket(1024), 0);
	assert_int_equal(mc_wait_bucket(1025), 1);
	assert_int_equal(mc_wait_bucket(4096), 1);
	assert_int_equal(mc_wait_bucket(4097), 2);
	assert_int_equal(mc_wait_bucket(UINT64_C(1024) << 24), 12);
	assert_int_equal(mc_wait_bucket((UINT64_C(1024) << 24) + 1), 13);
	assert_int_equal(mc_wait_bucket(UINT64_MAX), MC_WAIT_BUCKETS - 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_yet_is_idle),
		TEST(all_left_is_idle_however_long),
		TEST(a_call_that_has_just_begun_is_progress),
		TEST(one_behind_for_the_threshold_is_stalled),
		TEST(a_rank_that_never_entered_is_stalled),
		TEST(a_laggard_that_moves_elsewhere_moves),
		TEST(a_stopped_one_in_the_same_call_is_stalled),
		TEST(all_stuck_in_one_call_are_all_stalled),
		TEST(sparse_posts_without_a_waiter_are_no_lag),
		TEST(a_sparse_waiter_shows_who_is_one_behind),
		TEST(a_sparse_waiter_behind_a_heartbeat_is_not_awaited),
		TEST(a_sparse_rank_that_never_entered_is_stalled),
		TEST(sparse_call_numbers_wrap),
		TEST(a_fault_is_failed_and_others_wait),
		TEST(call_numbers_wrap),
		TEST(waits_fall_into_their_buckets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
