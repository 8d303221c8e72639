/* SPDX-License-Identifier: Apache-2.0 */
/* Links that drop writes or flip a byte, in the join probe and in ops: who says so, when, of whom.
 */
#include "fault/link/link.h"

#define PROBE_MS 600
#define OP_MS    2000
/* What the daemon grants a vote beyond the probe's deadline. */
#define VOTE_MS 2000

static struct mc_test_daemon daemon_process;

static int set_up(void **state)
{
	(void)state;
	mc_test_daemon_start(&daemon_process, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_process);
	return 0;
}

struct pair {
	int world_size, writer, reader;
};

static const struct pair pairs[] = {{2, 0, 1}, {2, 1, 0}, {3, 0, 2}, {4, 3, 1}, {6, 2, 5}};

#define FOR_EACH_PAIR(pair)                                                                        \
	for (const struct pair *pair = pairs; pair < pairs + sizeof(pairs) / sizeof(pairs[0]);     \
		pair++)

static void check_probe(const char *kind, const char *failure, bool at_once)
{
	FOR_EACH_PAIR(pair)
	{
		struct link_seen seen[LINK_WORLD];
		char inject[64], named[64], group[64];
		struct link_world world = {.socket = daemon_process.socket,
			.group = group,
			.world_size = pair->world_size,
			.inject = inject,
			.probe_timeout_ms = PROBE_MS};

		snprintf(group, sizeof(group), "%s-%d-%d-%d", kind, pair->world_size, pair->writer,
			pair->reader);
		snprintf(inject, sizeof(inject), "%s:%d>%d", kind, pair->writer, pair->reader);
		snprintf(named, sizeof(named), "rank %d from rank %d: %s", pair->reader,
			pair->writer, failure);
		link_run(&world, seen);
		for (int r = 0; r < pair->world_size; r++) {
			assert_int_equal(seen[r].join, MOECOMM_PROBE_FAILED);
			link_assert_says(&seen[r], r, named);
			assert_true(seen[r].join_ms < PROBE_MS + VOTE_MS + LINK_SLACK_MS);
		}
		/* the reader knows at its own deadline, or as soon as it reads something wrong */
		if (at_once)
			assert_true(seen[pair->reader].join_ms < PROBE_MS + LINK_SLACK_MS);
		else
			assert_true(seen[pair->reader].join_ms >= PROBE_MS);
	}
}

static void a_probe_that_is_dropped_names_the_pair(void **state)
{
	(void)state;
	check_probe("drop_probe", "what it wrote never arrived", false);
}

static void a_probe_with_a_flipped_byte_names_the_pair(void **state)
{
	(void)state;
	check_probe("flip_probe", "something else than it wrote arrived", true);
}

/* Whatever else is bad, all of it is named. */
static void every_bad_pair_of_a_rank_is_named(void **state)
{
	struct link_world world = {.socket = daemon_process.socket,
		.group = "all-into-1",
		.world_size = 4,
		.inject = "drop_probe:*>1",
		.probe_timeout_ms = PROBE_MS};
	struct link_seen seen[LINK_WORLD];

	(void)state;
	link_run(&world, seen);
	for (int r = 0; r < 4; r++) {
		assert_int_equal(seen[r].join, MOECOMM_PROBE_FAILED);
		link_assert_says(&seen[r], r, "rank 1 from rank 0: what it wrote never arrived");
		link_assert_says(&seen[r], r, "rank 1 from rank 2: what it wrote never arrived");
		link_assert_says(&seen[r], r, "rank 1 from rank 3: what it wrote never arrived");
	}
}

static void run_ops(const char *kind, const struct pair *pair, int from_call,
	struct link_seen ret_seen[LINK_WORLD])
{
	char inject[64], group[64];
	struct link_world world = {.socket = daemon_process.socket,
		.group = group,
		.world_size = pair->world_size,
		.inject = inject,
		.op_timeout_ms = OP_MS,
		.n_rounds = 200};

	snprintf(group, sizeof(group), "%s-%d-%d-%d", kind, pair->world_size, pair->writer,
		pair->reader);
	snprintf(
		inject, sizeof(inject), "%s:%d>%d@%d", kind, pair->writer, pair->reader, from_call);
	link_run(&world, ret_seen);
	for (int r = 0; r < pair->world_size; r++) {
		assert_int_equal(ret_seen[r].join, MOECOMM_OK);
		/* what came before was right, and nobody got further than the ring lets him */
		assert_in_range(ret_seen[r].n_rounds, from_call - 1, from_call);
	}
}

static void dropped_pushes_time_out_and_name_the_writer(void **state)
{
	(void)state;
	FOR_EACH_PAIR(pair)
	{
		struct link_seen seen[LINK_WORLD];
		char named[80];

		run_ops("drop_push", pair, 31, seen);
		for (int r = 0; r < pair->world_size; r++) {
			assert_int_equal(seen[r].status, MOECOMM_TIMEOUT);
			/* also those that are a call ahead and wait for the reader */
			assert_int_equal(seen[r].fault_rank, pair->writer);
			/* a rank that hears it from the daemon hears no call number */
			assert_true(seen[r].fault_call == 31 || seen[r].fault_call == 0);
			assert_true(seen[r].op_ms < OP_MS * 11 / 10 + LINK_SLACK_MS);
		}
		assert_int_equal(seen[pair->reader].fault_call, 31);
		assert_true(seen[pair->reader].op_ms >= OP_MS * 9 / 10);
		snprintf(named, sizeof(named), "rank %d did not arrive at call 31", pair->writer);
		link_assert_says(&seen[pair->reader], pair->reader, named);
	}
}

static void flipped_headers_are_found_and_name_the_writer(void **state)
{
	(void)state;
	FOR_EACH_PAIR(pair)
	{
		struct link_seen seen[LINK_WORLD];

		run_ops("flip_push", pair, 17, seen);
		for (int r = 0; r < pair->world_size; r++) {
			assert_int_equal(seen[r].status, MOECOMM_CORRUPT);
			assert_int_equal(seen[r].fault_rank, pair->writer);
			assert_true(seen[r].fault_call == 17 || seen[r].fault_call == 0);
			/* nobody waits for a deadline */
			assert_true(seen[r].op_ms < LINK_SLACK_MS);
		}
	}
}

/* Delays are no faults as long as the deadline is not reached. */
static void delays_below_the_deadline_are_harmless(void **state)
{
	struct link_world world = {.socket = daemon_process.socket,
		.group = "delays",
		.world_size = 4,
		.inject = "delay_ms:1=5,delay_ms:2=400@40,delay_ms:*=1",
		.op_timeout_ms = 5000,
		.n_rounds = 60};
	struct link_seen seen[LINK_WORLD];

	(void)state;
	link_run(&world, seen);
	for (int r = 0; r < 4; r++) {
		assert_int_equal(seen[r].status, 0);
		assert_int_equal(seen[r].n_rounds, 60);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_probe_that_is_dropped_names_the_pair),
		cmocka_unit_test(a_probe_with_a_flipped_byte_names_the_pair),
		cmocka_unit_test(every_bad_pair_of_a_rank_is_named),
		cmocka_unit_test(dropped_pushes_time_out_and_name_the_writer),
		cmocka_unit_test(flipped_headers_are_found_and_name_the_writer),
		cmocka_unit_test(delays_below_the_deadline_are_harmless),
	};

#ifndef MC_FAULT_INJECTION
	print_message("skipped: needs a build with MOECOMM_FAULT_INJECTION\n");
	return 77;
#endif
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
