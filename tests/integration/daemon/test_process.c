/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a process: its socket, signals, configuration, watchdog, and what idling costs. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "integration/daemon/harness.h"
#include "kernels/lamport.h"

static bool answers(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
	return r == 0;
}

static void it_binds_again_after_kill_9(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		mc_test_daemon_kill(&harness_daemon);
		assert_int_equal(access(harness_daemon.socket, F_OK), 0);
		assert_false(answers(harness_daemon.socket));
		mc_test_daemon_restart(&harness_daemon);
		assert_true(answers(harness_daemon.socket));
	}
	mc_test_daemon_stop(&harness_daemon);
	assert_int_equal(access(harness_daemon.socket, F_OK), -1);
}

static void a_second_daemon_refuses_and_leaves_the_socket_alone(void **state)
{
	struct mc_test_daemon second = harness_daemon;
	struct stat before, after;

	(void)state;
	assert_int_equal(stat(harness_daemon.socket, &before), 0);
	second.pid = 0;
	second.options.do_not_wait = true;
	mc_test_daemon_restart(&second);
	assert_int_equal(mc_test_daemon_wait_exit(&second, SOON_MS), 1);
	mc_test_daemon_expect_error(&harness_daemon, "another moecommd (pid ");
	mc_test_daemon_wait_log(&harness_daemon, "another moecommd (pid ", SOON_MS);
	assert_int_equal(stat(harness_daemon.socket, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_true(answers(harness_daemon.socket));
}

static void a_newer_daemon_s_socket_is_never_removed(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	/* somebody else's socket has taken the place of ours */
	assert_int_equal(unlink(harness_daemon.socket), 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", harness_daemon.socket);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 16), 0);
	mc_test_daemon_stop(&harness_daemon);
	assert_true(answers(harness_daemon.socket));
	/* nor does one start over a socket that somebody answers on, lock or not */
	harness_daemon.options.do_not_wait = true;
	mc_test_daemon_restart(&harness_daemon);
	assert_int_equal(mc_test_daemon_wait_exit(&harness_daemon, SOON_MS), 1);
	mc_test_daemon_expect_error(&harness_daemon, "another daemon answers at");
	assert_true(answers(harness_daemon.socket));
	close(fd);
	/* and something that is no socket is not removed either */
	assert_int_equal(unlink(harness_daemon.socket), 0);
	close(open(harness_daemon.socket, O_CREAT | O_WRONLY, 0600));
	mc_test_daemon_restart(&harness_daemon);
	assert_int_equal(mc_test_daemon_wait_exit(&harness_daemon, SOON_MS), 1);
	mc_test_daemon_expect_error(&harness_daemon, "is not a socket");
	assert_int_equal(access(harness_daemon.socket, F_OK), 0);
}

static void a_directory_of_others_is_refused(void **state)
{
	char directory[112];

	(void)state;
	mc_test_daemon_stop(&harness_daemon);
	snprintf(directory, sizeof(directory), "%s/run", harness_daemon.directory);
	harness_daemon.options.do_not_wait = true;
	assert_int_equal(chmod(directory, 0777), 0);
	mc_test_daemon_restart(&harness_daemon);
	assert_int_equal(mc_test_daemon_wait_exit(&harness_daemon, SOON_MS), 1);
	mc_test_daemon_expect_error(&harness_daemon, "can be written by everybody");
	assert_true(mc_test_daemon_log_has(&harness_daemon, "can be written by everybody"));
	assert_int_equal(chmod(directory, 0755), 0);
	if (geteuid())
		return;
	assert_int_equal(chown(directory, 65534, 65534), 0);
	mc_test_daemon_restart(&harness_daemon);
	assert_int_equal(mc_test_daemon_wait_exit(&harness_daemon, SOON_MS), 1);
	mc_test_daemon_expect_error(&harness_daemon, "belongs to uid 65534");
	assert_true(mc_test_daemon_log_has(&harness_daemon, "belongs to uid 65534"));
}

static void sigterm_tells_who_waits_and_spares_who_runs(void **state)
{
	struct mc_wire_client running[2], waiting;
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2};
	struct mc_wire_reply reply;
	struct mc_board *board;
	uint64_t started;

	(void)state;
	harness_open(running, 2);
	mc_wire_form(running, layouts, &join);
	board = harness_map(layouts[0].board_fd, MC_BOARD_BYTES);
	harness_open(&waiting, 1);
	join.group = "ep1";
	mc_wire_join(&waiting, &join);
	mc_wire_wait_state(&running[0], "ep1", MC_GROUP_FORMING, SOON_MS);
	started = mc_test_now_ms();
	mc_test_daemon_stop(&harness_daemon);
	assert_true(mc_test_now_ms() - started < 4000);
	mc_wire_expect_done(&waiting, MC_STATUS_SHUTDOWN, NULL, SOON_MS);
	/* nothing but the end of the connection, and no op is disturbed */
	assert_true(mc_wire_receive(&running[0], SOON_MS, &reply));
	assert_int_equal(reply.type, 0);
	assert_int_equal(board->wait.abort_word, 0);
	mc_test_daemon_wait_notify(&harness_daemon, "STOPPING=1", SOON_MS);
	munmap(board, MC_BOARD_BYTES);
	harness_drop(layouts, 2);
	harness_close(running, 2);
	harness_close(&waiting, 1);
}

static void sigterm_while_arming_ends_it(void **state)
{
	struct mc_wire_client client;
	struct mc_wire_join join = {
		.group = "ep0", .world_size = 1, .max_rows = 1 << 18, .dispatch_row_bytes = 1024};

	(void)state;
	join.world_size = 2;
	harness_open(&client, 1);
	mc_wire_join(&client, &join);
	join.rank = 1;
	mc_wire_join(&client, &join);
	mc_wire_wait_state(&client, "ep0", MC_GROUP_ARMING, SOON_MS);
	mc_test_daemon_stop(&harness_daemon);
	harness_close(&client, 1);
}

static void write_config(const char *text)
{
	FILE *file = fopen(harness_daemon.config_path, "we");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void sighup_reloads_what_can_change(void **state)
{
	(void)state;
	write_config("[groups]\nstall_ms = 150\n[daemon]\nsocket_mode = 0600\n");
	assert_int_equal(kill(harness_daemon.pid, SIGHUP), 0);
	mc_test_daemon_wait_notify(&harness_daemon, "RELOADING=1", SOON_MS);
	mc_test_daemon_wait_notify(&harness_daemon, "READY=1", SOON_MS);
	assert_true(mc_test_daemon_log_has(&harness_daemon, "stall_ms is now 150"));
	assert_true(mc_test_daemon_log_has(&harness_daemon, "socket_mode stays 0666"));
	/* a broken file changes nothing and stops nothing */
	write_config("[groups]\nstall_ms = soon\n");
	assert_int_equal(kill(harness_daemon.pid, SIGHUP), 0);
	mc_test_daemon_expect_error(&harness_daemon, "the configuration was not reloaded");
	mc_test_daemon_wait_log(&harness_daemon, "moecommd.conf:2: stall_ms = soon", SOON_MS);
	assert_true(answers(harness_daemon.socket));
}

static void a_bad_configuration_is_named_and_ends_the_start(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{"[limits]\nmax_connections = 0\n",
			":2: max_connections = 0 is not allowed: must be a number from 1"},
		{"[daemon]\nbackend = tpu\n",
			":2: backend = tpu is not allowed: must be one of auto|host|cuda"},
		{"[daemon]\n\nnoise = 1\n", ":3: [daemon] noise is not a setting"},
		{"nonsense\n", ":1: neither [section] nor name = value"},
		{"[groups]\nstall_ms = 5000\nstall_ms = 6000\n", ":3: stall_ms is set twice"},
		{"[limits]\nmax_queue_bytes = 5X\n",
			":2: max_queue_bytes = 5X is not allowed: must be bytes"},
		{"[daemon]\nsocket = relative\n",
			":2: socket = relative is not allowed: must be an absolute path"},
	};
	static const char *const check[] = {"--check-config", NULL};

	(void)state;
	mc_test_daemon_stop(&harness_daemon);
	mc_test_daemon_expect_error(&harness_daemon, "moecommd.conf:");
	harness_daemon.options.do_not_wait = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_config(cases[i].text);
		harness_daemon.options.args = i % 2 ? check : NULL;
		mc_test_daemon_restart(&harness_daemon);
		assert_int_equal(mc_test_daemon_wait_exit(&harness_daemon, SOON_MS), 1);
		mc_test_daemon_wait_log(&harness_daemon, cases[i].error, SOON_MS);
	}
	write_config("[groups]\nstall_ms = 5000 ; a comment\n");
	harness_daemon.options.args = check;
	mc_test_daemon_restart(&harness_daemon);
	assert_int_equal(mc_test_daemon_wait_exit(&harness_daemon, SOON_MS), 0);
	/* checking only checks */
	assert_int_equal(access(harness_daemon.socket, F_OK), -1);
}

static void the_watchdog_is_fed_while_a_large_ring_is_armed(void **state)
{
	static const char *const env[] = {"WATCHDOG_USEC=500000", NULL};
	const struct mc_test_daemon_options options = {.env = env};
	/* 2 ranks × 256 MiB */
	struct mc_wire_join join = {
		.group = "ep0", .world_size = 2, .max_rows = 131072, .dispatch_row_bytes = 1024};
	struct mc_wire_client client;
	struct mc_wire_layout layouts[2];
	uint64_t last, now, worst = 0, until;
	unsigned n_pings = 0;
	char text[256];

	(void)state;
	mc_test_daemon_finish(&harness_daemon);
	mc_test_daemon_start(&harness_daemon, &options);
	harness_open(&client, 1);
	mc_test_daemon_wait_notify(&harness_daemon, "WATCHDOG=1", SOON_MS);
	last = mc_test_now_ms();
	until = last + 2500;
	for (; join.rank < 2; join.rank++)
		mc_wire_join(&client, &join);
	while ((now = mc_test_now_ms()) < until) {
		if (!mc_test_daemon_next_notify(&harness_daemon, text, sizeof(text), 100) ||
			!strstr(text, "WATCHDOG=1"))
			continue;
		now = mc_test_now_ms();
		worst = now - last > worst ? now - last : worst;
		last = now;
		n_pings++;
	}
	for (int r = 0; r < 2; r++) {
		mc_wire_expect_layout(&client, 30000, &layouts[r]);
		assert_true(layouts[r].arena_bytes >= UINT64_C(256) << 20);
	}
	print_message("%u pings, %llu ms apart at most, 500 allowed\n", n_pings,
		(unsigned long long)worst);
	assert_true(worst < 500);
	assert_true(n_pings >= 6);
	harness_drop(layouts, 2);
	harness_close(&client, 1);
}

/*
 * The kernel lets an ordinary user have only so many fds on their way to receivers that have not
 * taken them yet. Two groups of 64 need 8,448 at once: what is too many waits.
 */
static void fds_in_flight_beyond_the_kernel_s_bound_wait(void **state)
{
	const struct mc_test_daemon_options options = {
		.uid = 65534, .max_fds = 5000, .config = "[daemon]\nsocket_mode = 0666\n"};
	struct mc_wire_client clients[128];
	struct pollfd looks[128];
	struct mc_wire_layout layout;

	(void)state;
	if (geteuid()) {
		print_message("only root can start a daemon as another user\n");
		skip();
	}
	mc_test_daemon_finish(&harness_daemon);
	mc_test_daemon_start(&harness_daemon, &options);
	harness_open(clients, 128);
	for (uint32_t i = 0; i < 128; i++) {
		struct mc_wire_join join = {
			.group = i < 64 ? "a" : "b", .rank = i % 64, .world_size = 64};

		mc_wire_join(&clients[i], &join);
	}
	/* nobody reads until all that fits is on its way; then whoever has something does: a client
	 * that has nothing yet waits for the others to take theirs */
	mc_test_sleep_ms(500);
	for (uint32_t i = 0; i < 128; i++)
		looks[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
	for (uint32_t n_left = 128; n_left;) {
		assert_true(poll(looks, 128, 20000) > 0);
		for (uint32_t i = 0; i < 128; i++) {
			if (looks[i].fd < 0 || !looks[i].revents)
				continue;
			mc_wire_expect_layout(&clients[i], 20000, &layout);
			mc_wire_vote_yes(&clients[i], layout.member_id);
			mc_wire_layout_clear(&layout);
			looks[i].fd = -1; /* poll passes it by */
			n_left--;
		}
	}
	for (uint32_t i = 0; i < 128; i++)
		mc_wire_expect_ready(&clients[i], 20000);
	harness_close(clients, 128);
}

static void idling_costs_nothing(void **state)
{
	struct mc_wire_client client;
	uint64_t wakeups, rss_kib;

	(void)state;
	harness_open(&client, 1);
	mc_wire_group_state(&client, "none");
	mc_test_sleep_ms(1200); /* the last status line for the service manager */
	wakeups = mc_test_process_number(harness_daemon.pid, "voluntary_ctxt_switches");
	mc_test_sleep_ms(3000);
	wakeups = mc_test_process_number(harness_daemon.pid, "voluntary_ctxt_switches") - wakeups;
	rss_kib = mc_test_process_number(harness_daemon.pid, "VmRSS");
	print_message("idle: %llu wake-ups in 3 s, %llu KiB resident\n",
		(unsigned long long)wakeups, (unsigned long long)rss_kib);
	assert_int_equal(wakeups, 0);
	harness_close(&client, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(it_binds_again_after_kill_9),
		HARNESS_TEST(a_second_daemon_refuses_and_leaves_the_socket_alone),
		HARNESS_TEST(a_newer_daemon_s_socket_is_never_removed),
		HARNESS_TEST(a_directory_of_others_is_refused),
		HARNESS_TEST(sigterm_tells_who_waits_and_spares_who_runs),
		HARNESS_TEST(sigterm_while_arming_ends_it),
		HARNESS_TEST(sighup_reloads_what_can_change),
		HARNESS_TEST(a_bad_configuration_is_named_and_ends_the_start),
		HARNESS_TEST(the_watchdog_is_fed_while_a_large_ring_is_armed),
		HARNESS_TEST(fds_in_flight_beyond_the_kernel_s_bound_wait),
		HARNESS_TEST(idling_costs_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
