/* SPDX-License-Identifier: Apache-2.0 */
/* Who may do what; nothing is given before a refusal. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "integration/daemon/harness.h"

#define NOBODY   65534u
#define STRANGER 65500u
#define GID      65501u

static void try_to_join(uint32_t status, const char *text)
{
	struct mc_wire_client client;
	struct mc_wire_join join = {.group = "ep0", .world_size = 2, .rank = 1};

	mc_wire_client_open(&client, harness_daemon.socket, "stranger");
	mc_wire_join(&client, &join);
	if (status) {
		mc_wire_expect_done(&client, status, text, SOON_MS);
	} else {
		struct mc_wire_layout layout;

		mc_wire_expect_layout(&client, SOON_MS, &layout);
		mc_wire_layout_clear(&layout);
	}
	mc_wire_client_close(&client);
}

static void is_denied(void)
{
	try_to_join(MC_STATUS_DENIED, "allow_uid");
}

static void is_let_in(void)
{
	try_to_join(MC_STATUS_OK, NULL);
}

/* One who waits as rank 0; the function acts as the other uid and gid. */
static void with_a_waiting_rank(
	const struct mc_wire_join *join, uint32_t uid, uint32_t gid, void (*function)(void))
{
	struct mc_wire_client client, watcher;

	harness_open(&client, 1);
	harness_open(&watcher, 1);
	mc_wire_join(&client, join);
	mc_wire_wait_state(&watcher, "ep0", MC_GROUP_FORMING, SOON_MS);
	harness_as(uid, gid, function);
	harness_close(&client, 1);
	harness_close(&watcher, 1);
}

static void other_users_are_denied(void **state)
{
	const struct mc_wire_join join = {.group = "ep0", .world_size = 2};

	(void)state;
	with_a_waiting_rank(&join, STRANGER, STRANGER, is_denied);
}

static void named_users_are_let_in(void **state)
{
	static const uint32_t uids[] = {NOBODY, STRANGER};
	const struct mc_wire_join join = {
		.group = "ep0", .world_size = 2, .allow_uid = uids, .n_allow_uid = 2};

	(void)state;
	with_a_waiting_rank(&join, STRANGER, STRANGER, is_let_in);
}

static void named_groups_are_let_in(void **state)
{
	static const uint32_t gids[] = {GID};
	const struct mc_wire_join join = {
		.group = "ep0", .world_size = 2, .allow_gid = gids, .n_allow_gid = 1};

	(void)state;
	with_a_waiting_rank(&join, STRANGER, STRANGER, is_denied);
	with_a_waiting_rank(&join, STRANGER, GID, is_let_in);
}

static void the_mismatch_of_a_stranger_hurts_nobody_body(void)
{
	struct mc_wire_client client;
	struct mc_wire_join join = {.group = "ep0", .world_size = 3, .rank = 1, .job = "other"};

	mc_wire_client_open(&client, harness_daemon.socket, "stranger");
	mc_wire_join(&client, &join);
	mc_wire_expect_done(&client, MC_STATUS_DENIED, NULL, SOON_MS);
	mc_wire_client_close(&client);
}

static void the_mismatch_of_a_stranger_hurts_nobody(void **state)
{
	struct mc_wire_client client, watcher;
	const struct mc_wire_join join = {.group = "ep0", .world_size = 2};

	(void)state;
	harness_open(&client, 1);
	harness_open(&watcher, 1);
	mc_wire_join(&client, &join);
	mc_wire_wait_joined(&watcher, "ep0", 1, SOON_MS);
	harness_close(&watcher, 1);
	harness_as(STRANGER, STRANGER, the_mismatch_of_a_stranger_hurts_nobody_body);
	mc_wire_expect_silence(&client, 100);
	harness_close(&client, 1);
}

static struct mc_wire_layout stolen;

static void tries_to_take_over(void)
{
	Moecomm__Wire__Abort abort_ = MOECOMM__WIRE__ABORT__INIT;
	Moecomm__Wire__SetDeadlines deadlines = MOECOMM__WIRE__SET_DEADLINES__INIT;
	Moecomm__Wire__Resume resume = MOECOMM__WIRE__RESUME__INIT;
	struct mc_wire_client client;

	mc_wire_client_open(&client, harness_daemon.socket, "stranger");
	abort_.group = "ep0";
	mc_wire_send(&client, MC_FRAME_ABORT, &abort_.base);
	mc_wire_expect_done(&client, MC_STATUS_DENIED, "creator", SOON_MS);
	deadlines.group = "ep0";
	deadlines.has_op_timeout_ms = 1;
	deadlines.op_timeout_ms = 1;
	mc_wire_send(&client, MC_FRAME_SET_DEADLINES, &deadlines.base);
	mc_wire_expect_done(&client, MC_STATUS_DENIED, "creator", SOON_MS);
	mc_wire_leave(&client, stolen.member_id);
	mc_wire_expect_done(&client, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	mc_wire_vote_yes(&client, stolen.member_id);
	mc_wire_expect_done(&client, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	/* even with the token: another user's membership is not his */
	resume.member_id = stolen.member_id;
	resume.token.data = stolen.token;
	resume.token.len = sizeof(stolen.token);
	resume.group = "ep0";
	resume.epoch = stolen.epoch;
	mc_wire_send(&client, MC_FRAME_RESUME, &resume.base);
	mc_wire_expect_done(&client, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	mc_wire_client_close(&client);
}

static void strangers_cannot_take_over_or_end_a_group(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	const struct mc_wire_join join = {.group = "ep0", .world_size = 2};

	(void)state;
	harness_open(clients, 2);
	mc_wire_form(clients, layouts, &join);
	stolen = layouts[0];
	harness_as(STRANGER, STRANGER, tries_to_take_over);
	assert_int_equal(mc_wire_group_state(&clients[0], "ep0"), MC_GROUP_READY);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
}

static void cannot_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", harness_daemon.socket);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), -1);
	assert_int_equal(errno, EACCES);
	close(fd);
}

static void the_socket_s_mode_keeps_others_out(void **state)
{
	struct stat st;

	(void)state;
	harness_restart_with("");
	assert_int_equal(stat(harness_daemon.socket, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	harness_as(STRANGER, STRANGER, cannot_connect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(other_users_are_denied),
		HARNESS_TEST(named_users_are_let_in),
		HARNESS_TEST(named_groups_are_let_in),
		HARNESS_TEST(the_mismatch_of_a_stranger_hurts_nobody),
		HARNESS_TEST(strangers_cannot_take_over_or_end_a_group),
		HARNESS_TEST(the_socket_s_mode_keeps_others_out),
	};

	if (geteuid()) {
		puts("skipped: only root can act as other users");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
