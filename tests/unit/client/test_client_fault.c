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

/*
 * Rank 3 found out about rank 2. What it says itself, what a rank says that reads its record, and
 * what a rank says that has taken its record over are one sentence, from which everybody learns of
 * both: these sentences travel, so "this rank" would be somebody else.
 */
static void everybody_tells_the_same_story(void **state)
{
	static const uint32_t statuses[] = {
		MC_FAULT_MISMATCH, MC_FAULT_CORRUPT, MC_FAULT_TIMEOUT, MC_FAULT_PEER_LOST};
	static const uint32_t sides[][2][3] = {
		{{66, 1, 1}, {2, 1, 1}}, {{66, 1, 1}, {66, 2, 1}}, {{66, 1, 1}, {66, 1, 2}}};

	(void)state;
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < 3; k++) {
			struct mc_fault fault = {
				.status = statuses[i], .op = MC_OP_DISPATCH, .peer = 2, .call = 66};
			struct mc_verdict own = {.rank = -2}, read, taken;

			setup(NULL);
			board.rank[3].progress[0] = (struct mc_progress){
				.call = 66, .op = MC_OP_DISPATCH, .n_vectors = 2};
			board.rank[2].progress[0] = (struct mc_progress){
				.call = 66, .op = MC_OP_COMBINE, .n_vectors = 4};
			memcpy(fault.mine, sides[k][0], sizeof(fault.mine));
			memcpy(fault.theirs, sides[k][1], sizeof(fault.theirs));
			mc_fault_explain(&group, &fault, 3, NULL, &own);
			board.rank[3].fault = fault;
			read = explain(statuses[i], 4);
			board.rank[1].fault = fault;
			board.rank[1].fault.by = 4;
			taken = explain(statuses[i], 4);
			assert_int_equal(own.rank, 2);
			assert_string_equal(own.detail, read.detail);
			assert_string_equal(own.detail, taken.detail);
			assert_non_null(strstr(own.detail, "2"));
			assert_null(strstr(own.detail, "this rank"));
			if (statuses[i] == MC_FAULT_MISMATCH) {
				assert_non_null(strstr(own.detail, "rank 3 and rank 2 "));
				assert_true(k || strstr(own.detail, "rank 3 is at call 66"));
				assert_true(k != 1 ||
					    strstr(own.detail, "rank 3 sends 32 bytes in dispatch, "
							       "rank 2 sends 64 bytes in combine"));
			}
		}
}

/* Nothing is known about a peer here: the fault is the reporter's own. */
static void a_fault_of_the_reporter_names_it(void **state)
{
	static const uint32_t statuses[] = {MC_FAULT_BAD_COUNT, MC_FAULT_CORRUPT};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct mc_verdict verdict;

		board.rank[3].fault = (struct mc_fault){
			.status = statuses[i], .peer = i ? 3 : UINT32_MAX, .call = 5};
		verdict = explain(statuses[i], 4);
		assert_int_equal(verdict.rank, 3);
		assert_non_null(strstr(verdict.detail, "of rank 3"));
	}
}

/* The daemon's record for the dead knows of no call, so none is told. */
static void a_death_without_a_call_names_none(void **state)
{
	struct mc_verdict verdict;

	(void)state;
	board.rank[2].fault = (struct mc_fault){.status = MC_FAULT_PEER_LOST, .peer = 2};
	verdict = explain(MC_FAULT_PEER_LOST, 3);
	assert_int_equal(verdict.status, MOECOMM_PEER_LOST);
	assert_int_equal(verdict.rank, 2);
	assert_non_null(strstr(verdict.detail, "rank 2"));
	assert_null(strstr(verdict.detail, "call 0"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(who_aborts_is_named, setup),
		cmocka_unit_test_setup(a_rank_beyond_the_world_is_never_told, setup),
		cmocka_unit_test_setup(garbage_in_a_record_names_nobody, setup),
		cmocka_unit_test_setup(everybody_tells_the_same_story, setup),
		cmocka_unit_test_setup(a_fault_of_the_reporter_names_it, setup),
		cmocka_unit_test_setup(a_death_without_a_call_names_none, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
