/* SPDX-License-Identifier: Apache-2.0 */
/* What the library makes of a board that other processes write: it is told, not believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/group.h"

/* As in client/verdict.c, which needs a connection for everything else that it does. */
void mc_verdict_set(struct mc_verdict *verdict, enum moecomm_status status, int rank, uint64_t call,
	const char *format, ...)
{
	va_list args;

	verdict->status = status;
	verdict->rank = rank;
	verdict->call = call;
	va_start(args, format);
	vsnprintf(verdict->detail, sizeof(verdict->detail), format, args);
	va_end(args);
}

static struct moecomm_group group;
static struct mc_board board;

static int setup(void **state)
{
	(void)state;
	memset(&group, 0, sizeof(group));
	memset(&board, 0, sizeof(board));
	group.rank = 1;
	group.world_size = 4;
	group.board = &board;
	return 0;
}

static struct mc_verdict explain(uint32_t status, uint32_t reporter)
{
	struct mc_verdict verdict = {.rank = -2};

	mc_fault_explain_abort(&group, mc_abort_word(status, reporter), &verdict);
	return verdict;
}

static void who_aborts_is_named(void **state)
{
	struct mc_verdict verdict = explain(MC_FAULT_ABORTED, 3);

	(void)state;
	assert_int_equal(verdict.status, MOECOMM_ABORTED);
	assert_int_equal(verdict.rank, 2);
	assert_non_null(strstr(verdict.detail, "rank 2"));
	verdict = explain(MC_FAULT_ABORTED, 0);
	assert_int_equal(verdict.rank, -1);
	assert_non_null(strstr(verdict.detail, "the daemon"));
	verdict = explain(MOECOMM_LEFT, 4);
	assert_int_equal(verdict.status, MOECOMM_LEFT);
	assert_int_equal(verdict.rank, 3);
}

/* Callers index by the rank they are given. */
static void a_rank_beyond_the_world_is_never_told(void **state)
{
	static const uint32_t reporters[] = {5, 64, 65, 1000, 0xffffff};

	(void)state;
	for (size_t i = 0; i < sizeof(reporters) / sizeof(reporters[0]); i++)
		for (uint32_t status = 0; status < 256; status++) {
			struct mc_verdict verdict = explain(status, reporters[i]);

			assert_int_not_equal(verdict.status, MOECOMM_OK);
			assert_int_equal(verdict.rank, -1);
		}
}

static void garbage_in_a_record_names_nobody(void **state)
{
	(void)state;
	for (uint32_t status = 1; status < 256; status++) {
		struct mc_verdict verdict;

		memset(&board.rank[1].fault, 0xfe, sizeof(board.rank[1].fault));
		board.rank[1].fault.status = status;
		verdict = explain(MC_FAULT_TIMEOUT, 2);
		assert_int_not_equal(verdict.status, MOECOMM_OK);
		assert_true(verdict.rank >= -1 && verdict.rank < 4);
		assert_true(strlen(verdict.detail) > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(who_aborts_is_named, setup),
		cmocka_unit_test_setup(a_rank_beyond_the_world_is_never_told, setup),
		cmocka_unit_test_setup(garbage_in_a_record_names_nobody, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
