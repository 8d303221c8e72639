/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that form: interleavings, memory that is what it should be, leaving and coming back. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "integration/daemon/harness.h"
#include "kernels/lamport.h"

static void forms_at_every_size(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 5, 8, 17, 64};
	struct mc_wire_client clients[64];
	struct mc_wire_layout layouts[64];
	size_t n_fds;

	(void)state;
	harness_open(clients, 1);
	mc_wire_group_state(&clients[0], "none");
	harness_close(clients, 1);
	mc_test_sleep_ms(50);
	n_fds = mc_test_count_fds(harness_daemon.pid);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct mc_wire_join join = {.group = "ep0", .world_size = sizes[i]};

		harness_open(clients, sizes[i]);
		mc_wire_form(clients, layouts, &join);
		assert_int_equal(mc_wire_group_state(&clients[0], "ep0"), MC_GROUP_READY);
		for (uint32_t r = 0; r < sizes[i]; r++) {
			mc_wire_layout_clear(&layouts[r]);
			mc_wire_leave(&clients[r], layouts[r].member_id);
			mc_wire_expect_done(&clients[r], MC_STATUS_OK, NULL, SOON_MS);
		}
		assert_int_equal(mc_wire_group_state(&clients[0], "ep0"), 0);
		harness_close(clients, sizes[i]);
		mc_test_wait_fds(harness_daemon.pid, n_fds, SOON_MS);
	}
}

static void check_sealed(int fd, uint64_t n_bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, n_bytes);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, (off_t)n_bytes * 2), -1);
}

static void memory_is_armed_and_sealed(void **state)
{
	struct mc_wire_client clients[3];
	struct mc_wire_layout layouts[3];
	struct mc_wire_join join = {.group = "ep0",
		.world_size = 3,
		.max_rows = 512,
		.dispatch_row_bytes = 7168,
		.combine_row_bytes = 7168,
		.n_channels = 2,
		.op_timeout_ms = 1234,
		.warmup_timeout_ms = 5678};
	const struct mc_control *control;
	const struct mc_board *board;
	const uint8_t *arena;

	(void)state;
	harness_open(clients, 3);
	mc_wire_form(clients, layouts, &join);
	for (uint32_t r = 0; r < 3; r++) {
		/* everybody has the same sentinel and epoch, and an id and token of his own */
		assert_memory_equal(layouts[r].sentinel, layouts[0].sentinel, 16);
		assert_int_equal(layouts[r].epoch, layouts[0].epoch);
		if (r) {
			assert_memory_not_equal(layouts[r].token, layouts[0].token, 16);
			assert_int_not_equal(layouts[r].member_id, layouts[0].member_id);
		}
		check_sealed(layouts[r].board_fd, MC_BOARD_BYTES);
		check_sealed(layouts[r].control_fd, MC_CONTROL_BYTES);
		for (uint32_t peer = 0; peer < 3; peer++)
			check_sealed(layouts[r].arena_fd[peer], layouts[r].arena_bytes);
		control = harness_map(layouts[r].control_fd, MC_CONTROL_BYTES);
		assert_int_equal(control->rank, r);
		assert_int_equal(control->world_size, 3);
		assert_int_equal(control->epoch, layouts[r].epoch);
		assert_memory_equal(&control->sentinel, layouts[r].sentinel, 16);
		assert_true(control->canary_head == MC_CANARY_HEAD);
		assert_true(control->canary_tail == MC_CANARY_TAIL);
		assert_int_equal(control->channel[1].call, 1);
		munmap((void *)control, MC_CONTROL_BYTES);
		arena = harness_map(layouts[r].arena_fd[r], layouts[r].arena_bytes);
		for (uint64_t at = 0; at < layouts[r].arena_bytes; at += 16)
			if (memcmp(arena + at, layouts[r].sentinel, 16))
				fail_msg("arena of rank %u is not empty at %llu", r,
					(unsigned long long)at);
		munmap((void *)arena, layouts[r].arena_bytes);
	}
	board = harness_map(layouts[0].board_fd, MC_BOARD_BYTES);
	assert_int_equal(board->magic, MC_BOARD_MAGIC);
	assert_int_equal(board->world_size, 3);
	assert_int_equal(board->epoch, layouts[0].epoch);
	assert_int_equal(board->wait.abort_word, 0);
	assert_int_equal(board->wait.op_timeout_ms, 1234);
	assert_int_equal(board->wait.warmup_timeout_ms, 5678);
	assert_int_equal(board->wait.warmup_calls, 16);
	munmap((void *)board, MC_BOARD_BYTES);
	for (uint32_t r = 0; r < 3; r++)
		mc_wire_layout_clear(&layouts[r]);
	harness_close(clients, 3);
}

/* Four clients, two groups of two: all 24 orders of joining, each ends with both groups ready. */
static void two_groups_form_in_any_order(void **state)
{
	(void)state;
	for (unsigned order = 0; order < 24; order++) {
		struct mc_wire_client clients[4];
		struct mc_wire_layout layouts[4];
		unsigned left[4] = {0, 1, 2, 3}, n_left = 4, rest = order;

		harness_open(clients, 4);
		while (n_left) {
			unsigned i = rest % n_left, who = left[i];
			struct mc_wire_join join = {
				.group = who < 2 ? "a" : "b", .rank = who % 2, .world_size = 2};

			rest /= n_left;
			mc_wire_join(&clients[who], &join);
			memmove(&left[i], &left[i + 1], (--n_left - i) * sizeof(left[0]));
		}
		for (unsigned i = 0; i < 4; i++) {
			mc_wire_expect_layout(&clients[i], SOON_MS, &layouts[i]);
			mc_wire_vote_yes(&clients[i], layouts[i].member_id);
		}
		for (unsigned i = 0; i < 4; i++)
			mc_wire_expect_ready(&clients[i], SOON_MS);
		/* groups of equal shape share nothing */
		assert_memory_not_equal(layouts[0].sentinel, layouts[2].sentinel, 16);
		for (unsigned i = 0; i < 4; i++)
			for (unsigned j = 0; j < 4; j++) {
				struct stat a, b;

				fstat(layouts[i].arena_fd[0], &a);
				fstat(layouts[j].arena_fd[0], &b);
				assert_int_equal(a.st_ino == b.st_ino, i / 2 == j / 2);
			}
		for (unsigned i = 0; i < 4; i++) {
			mc_wire_leave(&clients[i], layouts[i].member_id);
			mc_wire_expect_done(&clients[i], MC_STATUS_OK, NULL, SOON_MS);
			mc_wire_layout_clear(&layouts[i]);
		}
		harness_close(clients, 4);
	}
}

static void rejoining_makes_the_next_epoch(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout first[2], second[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2};
	struct stat a, b;

	(void)state;
	harness_open(clients, 2);
	mc_wire_form(clients, first, &join);
	mc_wire_form(clients, second, &join);
	assert_int_equal(second[0].epoch, first[0].epoch + 1);
	assert_memory_not_equal(second[0].sentinel, first[0].sentinel, 16);
	fstat(first[0].arena_fd[0], &a);
	fstat(second[0].arena_fd[0], &b);
	assert_int_not_equal(a.st_ino, b.st_ino);
	for (int r = 0; r < 2; r++) {
		mc_wire_layout_clear(&first[r]);
		mc_wire_layout_clear(&second[r]);
	}
	harness_close(clients, 2);
}

/* Also of groups that were begun in the same millisecond: the fd store knows memory by its epoch.
 */
static void no_two_groups_have_the_same_epoch(void **state)
{
	enum { N_GROUPS = 24 };
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[N_GROUPS];
	char names[N_GROUPS][8];

	(void)state;
	harness_open(clients, 2);
	for (uint32_t r = 0; r < 2; r++) {
		for (unsigned i = 0; i < N_GROUPS; i++) {
			struct mc_wire_join join = {.group = names[i], .rank = r, .world_size = 2};

			snprintf(names[i], sizeof(names[i]), "g%u", i);
			mc_wire_join(&clients[r], &join);
		}
		if (r == 0)
			mc_wire_wait_joined(&clients[1], names[N_GROUPS - 1], 1, SOON_MS);
	}
	for (unsigned i = 0; i < N_GROUPS; i++) {
		mc_wire_expect_layout(&clients[0], SOON_MS, &layouts[i]);
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(layouts[i].epoch, layouts[j].epoch);
	}
	harness_drop(layouts, N_GROUPS);
	harness_close(clients, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(forms_at_every_size),
		HARNESS_TEST(memory_is_armed_and_sealed),
		HARNESS_TEST(two_groups_form_in_any_order),
		HARNESS_TEST(rejoining_makes_the_next_epoch),
		HARNESS_TEST(no_two_groups_have_the_same_epoch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
