/* SPDX-License-Identifier: Apache-2.0 */
/* A member may write anything to its board: no command of an operator may fail because of it. */
#include <sys/mman.h>
#include "fault/health/ranks.h"
#include "kernels/lamport.h"
#include "support/wire_client.h"

#define WORLD    3
#define N_ROUNDS 200

static struct mc_test_daemon daemon_;
static struct mc_wire_client clients[WORLD];
static struct mc_wire_layout layouts[WORLD];
static struct mc_board *board;

/* xorshift: the same bytes in every run */
static uint64_t random_state = 88172645463325252ull;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* What an answer has to be: decoded, which checks every field, and not cut off. */
static void ask(void)
{
	Moecomm__Wire__MetricsRequest metrics = MOECOMM__WIRE__METRICS_REQUEST__INIT;
	Moecomm__Wire__HistoryRequest history = MOECOMM__WIRE__HISTORY_REQUEST__INIT;
	struct mc_wire_client asker;
	struct mc_wire_reply reply;

	mc_wire_client_open(&asker, daemon_.socket, "asker");
	mc_wire_status(&asker, NULL, true, true, &reply);
	mc_wire_reply_clear(&reply);
	mc_wire_status(&asker, "hostile", true, false, &reply);
	mc_wire_reply_clear(&reply);
	mc_wire_send(&asker, MC_FRAME_METRICS_REQUEST, &metrics.base);
	mc_wire_expect(&asker, MC_FRAME_METRICS, SOON_MS, &reply);
	mc_wire_reply_clear(&reply);
	mc_wire_send(&asker, MC_FRAME_HISTORY_REQUEST, &history.base);
	mc_wire_expect(&asker, MC_FRAME_HISTORY, SOON_MS, &reply);
	mc_wire_reply_clear(&reply);
	mc_wire_client_close(&asker);
}

static void ask_by_program(void)
{
	static const char *const commands[][3] = {{"status"}, {"groups", "-v"}, {"health"},
		{"explain", "hostile"}, {"metrics"}, {"dump"}, {"--json", "status"},
		{"--json", "explain", "hostile"}, {"top", "--once", "-d0.1"}};

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		char *out, *err;
		int status = ctl(
			&daemon_, &out, &err, commands[i][0], commands[i][1], commands[i][2], NULL);

		if ((status != 0 && status != 4) || *err || !*out)
			fail_msg("%s exits with %d: %s", commands[i][0], status, err);
		free(out);
		free(err);
	}
}

static void a_board_full_of_ones_is_shown(void **state)
{
	(void)state;
	memset(board, 0xff, sizeof(*board));
	ask();
	ask_by_program();
}

static void a_board_of_random_bytes_is_shown(void **state)
{
	(void)state;
	for (int round = 0; round < N_ROUNDS; round++) {
		uint64_t *at = (uint64_t *)board;

		for (size_t i = 0; i < sizeof(*board) / sizeof(*at); i++)
			at[i] = next_random();
		/* small numbers get past more checks than large ones */
		for (uint32_t r = 0; r < WORLD; r++) {
			board->rank[r].fault.status = (uint32_t)next_random() % 300;
			board->rank[r].fault.peer = (uint32_t)next_random() % (2 * WORLD);
			board->rank[r].fault.channel = (uint32_t)next_random() % 20;
		}
		ask();
		if (round == 0)
			ask_by_program();
	}
}

/* Every fault status and op number of a byte, also those that no build knows. */
static void every_number_is_shown(void **state)
{
	(void)state;
	memset(board, 0, sizeof(*board));
	for (uint32_t n = 0; n < 300; n += n < 40 ? 1 : 13) {
		board->rank[1].fault.status = n;
		board->rank[1].fault.peer = n;
		board->rank[0].progress[0].op = (uint8_t)n;
		board->rank[0].progress[0].call = UINT32_MAX - n;
		board->rank[0].progress[0].left = (uint8_t)n;
		ask();
	}
	ask_by_program();
}

/* Counters that go backwards or jump leave the histogram sane: counts only grow. */
static void lying_counters_do_not_go_backwards(void **state)
{
	char *out, *err;
	unsigned long before = 0;

	(void)state;
	memset(board, 0, sizeof(*board));
	for (uint32_t i = 0; i < 6; i++) {
		static const uint32_t counts[] = {5, 3, UINT32_MAX, 0, 1u << 31, 7};
		unsigned long count;
		const char *line;

		board->rank[0].waits[MC_OP_DISPATCH].bucket[2] = counts[i];
		board->rank[0].waits[MC_OP_DISPATCH].sum_ns = UINT64_MAX / (i + 1);
		assert_int_equal(ctl(&daemon_, &out, &err, "metrics", NULL), 0);
		line = strstr(out, "moecomm_op_wait_seconds_count{op=\"dispatch\"} ");
		assert_non_null(line);
		count = strtoul(strchr(line, ' '), NULL, 10);
		assert_true(count >= before);
		before = count;
		free(out);
		free(err);
	}
}

static int set_up(void **state)
{
	static const struct mc_test_daemon_options options = {
		.config = "[groups]\nstall_ms = 50\n"};
	static const struct mc_wire_join join = {
		.group = "hostile", .world_size = WORLD, .n_channels = 8};

	(void)state;
	mc_test_daemon_start(&daemon_, &options);
	for (int r = 0; r < WORLD; r++)
		mc_wire_client_open(&clients[r], daemon_.socket, "hostile");
	mc_wire_form(clients, layouts, &join);
	board = mmap(
		NULL, MC_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, layouts[0].board_fd, 0);
	assert_ptr_not_equal(board, MAP_FAILED);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	munmap(board, MC_BOARD_BYTES);
	for (int r = 0; r < WORLD; r++) {
		mc_wire_layout_clear(&layouts[r]);
		mc_wire_client_close(&clients[r]);
	}
	mc_test_daemon_finish(&daemon_);
	return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_board_full_of_ones_is_shown),
		TEST(a_board_of_random_bytes_is_shown),
		TEST(every_number_is_shown),
		TEST(lying_counters_do_not_go_backwards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
