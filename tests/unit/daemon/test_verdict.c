/* SPDX-License-Identifier: Apache-2.0 */
/* Kept verdicts: who is told again, what forgets them, and that there are only so many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "daemon/groups/group.h"
#include "daemon/groups/verdict.h"

/* A group of 3 whose rank 2 never came. */
static struct mc_group group = {.name = "ep0"};
static struct mc_conn conns[2] = {{.id = 1, .pid = 100, .uid = 7}, {.id = 2, .pid = 101, .uid = 7}};
static struct mc_member members[2] = {{.rank = 0, .pid = 100, .uid = 7, .conn = &conns[0]},
	{.rank = 1, .pid = 101, .uid = 7, .conn = &conns[1]}};
static struct mc_epoch epoch = {.group = &group,
	.spec = {.world_size = 3, .join_timeout_ms = 1000},
	.member = {&members[0], &members[1]}};
static struct mc_verdicts verdicts;

static int keep(void **state)
{
	(void)state;
	mc_verdict_keep(&verdicts, &epoch, MC_STATUS_JOIN_TIMEOUT, "rank 2 did not join", 5000);
	return 0;
}

static int clear(void **state)
{
	(void)state;
	mc_verdicts_clear(&verdicts);
	assert_int_equal(verdicts.n, 0);
	return 0;
}

static const struct mc_verdict *retry(uint32_t rank, const struct mc_conn *conn, uint64_t now_ms)
{
	return mc_verdict_retry(&verdicts, "ep0", rank, &epoch.spec, conn, now_ms);
}

static void who_got_it_gets_it_again(void **state)
{
	struct mc_conn again = {.id = 99, .pid = 100, .uid = 7};

	(void)state;
	assert_non_null(retry(0, &conns[0], 5001));
	assert_non_null(retry(1, &conns[1], 5999));
	assert_non_null(retry(0, &again, 5999));
	assert_string_equal(retry(0, &again, 5999)->detail, "rank 2 did not join");
	assert_null(mc_verdict_retry(&verdicts, "ep1", 0, &epoch.spec, &conns[0], 5001));
}

static void its_time_ends(void **state)
{
	(void)state;
	assert_null(retry(0, &conns[0], 6000));
	assert_int_equal(verdicts.n, 0);
}

static void a_missing_rank_forgets_it(void **state)
{
	struct mc_conn late = {.id = 3, .pid = 102, .uid = 7};

	(void)state;
	assert_null(retry(2, &late, 5001));
	assert_null(retry(0, &conns[0], 5002));
}

static void another_process_or_user_forgets_it(void **state)
{
	struct mc_conn other = {.id = 4, .pid = 103, .uid = 7};

	(void)state;
	assert_null(retry(0, &other, 5001));
	assert_null(retry(1, &conns[1], 5002));
	keep(NULL);
	other.pid = 100;
	other.uid = 8;
	assert_null(retry(0, &other, 5001));
}

static void pids_that_can_not_be_seen_are_not_equal(void **state)
{
	struct mc_conn hidden = {.id = 5, .pid = 0, .uid = 7};

	(void)state;
	members[0].pid = 0;
	keep(NULL);
	assert_null(retry(0, &hidden, 5001));
	members[0].pid = 100;
}

static void there_are_only_so_many(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3 * MC_MAX_VERDICTS; i++) {
		snprintf(group.name, sizeof(group.name), "g%u", i);
		keep(NULL);
		keep(NULL);
	}
	strcpy(group.name, "ep0");
	assert_int_equal(verdicts.n, MC_MAX_VERDICTS);
	assert_null(retry(0, &conns[0], 5001));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_got_it_gets_it_again, keep, clear),
		cmocka_unit_test_setup_teardown(its_time_ends, keep, clear),
		cmocka_unit_test_setup_teardown(a_missing_rank_forgets_it, keep, clear),
		cmocka_unit_test_setup_teardown(another_process_or_user_forgets_it, keep, clear),
		cmocka_unit_test_setup_teardown(
			pids_that_can_not_be_seen_are_not_equal, keep, clear),
		cmocka_unit_test_setup_teardown(there_are_only_so_many, keep, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
