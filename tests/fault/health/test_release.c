/* SPDX-License-Identifier: Apache-2.0 */
/* release: refused with names while anybody has memory on the GPU, and nothing is held after that.
 */
#include "fault/health/ranks.h"
#include "support/wire_client.h"

#define GPU_A "GPU-aaaaaaaa-0000-1111-2222-333333333333"
#define GPU_B "GPU-bbbbbbbb-0000-1111-2222-333333333333"

static struct mc_test_daemon daemon_;

static void release(int status, const char *uuid, const char *word)
{
	char *out, *err;

	assert_int_equal(ctl(&daemon_, &out, &err, "release", uuid, NULL), status);
	assert_words(status ? err : out, word, NULL);
	free(out);
	free(err);
}

static void members_keep_a_gpu_and_are_named(void **state)
{
	struct mc_wire_join join = {.group = "held", .world_size = 2};
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	char pid[32];
	size_t n_fds;

	(void)state;
	release(0, GPU_A, "released");
	n_fds = mc_test_count_fds(daemon_.pid);
	for (uint32_t r = 0; r < 2; r++) {
		mc_wire_client_open(&clients[r], daemon_.socket, "holder");
		join.rank = r;
		join.device_uuid = r ? GPU_B : GPU_A;
		join.label = r ? "second" : "first";
		mc_wire_join(&clients[r], &join);
	}
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_vote_yes(&clients[r], layouts[r].member_id);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_ready(&clients[r], SOON_MS);

	snprintf(pid, sizeof(pid), "rank 0 (pid %d", getpid());
	release(1, GPU_A, pid);
	release(1, GPU_A, "IN_USE");
	release(1, GPU_A, "group held");
	release(1, GPU_B, "rank 1 (pid");
	release(0, "GPU-of-nobody", "released");

	/* after the end it is still mapped by whoever has not let go */
	mc_wire_client_close(&clients[1]);
	mc_wire_expect_notice(&clients[0], MC_STATUS_PEER_LOST, NULL, NULL, SOON_MS);
	release(1, GPU_A, "still maps an ended epoch");
	release(0, GPU_B, "released");
	mc_wire_leave(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_OK, NULL, SOON_MS);
	release(0, GPU_A, "released");
	mc_wire_client_close(&clients[0]);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_layout_clear(&layouts[r]);
	mc_test_wait_fds(daemon_.pid, n_fds, SOON_MS);
}

static void a_wrong_command_line_is_told(void **state)
{
	char *out, *err;

	(void)state;
	assert_int_equal(ctl(&daemon_, &out, &err, "release", NULL), 2);
	free(out);
	free(err);
	assert_int_equal(ctl(&daemon_, &out, &err, "release", "", NULL), 2);
	free(out);
	free(err);
}

static int set_up(void **state)
{
	(void)state;
	mc_test_daemon_start(&daemon_, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_);
	return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(members_keep_a_gpu_and_are_named),
		TEST(a_wrong_command_line_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
