/* SPDX-License-Identifier: Apache-2.0 */
/* What a client may do to the daemon: nothing that others notice, and its memory stays flat. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include "integration/daemon/harness.h"
#include "proto/codec.h"

/*
 * What the daemon may grow by under abuse, beyond what one connection's bounds allow. A sanitizer
 * keeps freed memory back: there only a leak of more than that would show, which it reports itself.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLAT_KIB (1024u << 10)
#else
#define FLAT_KIB 8192u
#endif

/* An encoded frame; free() it. */
static uint8_t *encode(uint16_t type, const ProtobufCMessage *message, size_t *ret_n)
{
	uint8_t *payload, *frame;
	size_t n;

	assert_int_equal(mc_codec_encode(message, &payload, &n), 0);
	frame = malloc(MC_FRAME_HEADER_BYTES + n);
	assert_non_null(frame);
	mc_frame_header_write(frame, type, 1, (uint32_t)n, 0);
	memcpy(frame + MC_FRAME_HEADER_BYTES, payload, n);
	free(payload);
	*ret_n = MC_FRAME_HEADER_BYTES + n;
	return frame;
}

static uint8_t *encode_hello(uint32_t major, size_t *ret_n)
{
	Moecomm__Wire__Hello hello = MOECOMM__WIRE__HELLO__INIT;

	hello.major = major;
	hello.minor = 7;
	hello.label = "hostile";
	return encode(MC_FRAME_HELLO, &hello.base, ret_n);
}

static uint8_t *encode_join(size_t *ret_n)
{
	Moecomm__Wire__Join join = MOECOMM__WIRE__JOIN__INIT;
	Moecomm__Wire__GroupSpec spec = MOECOMM__WIRE__GROUP_SPEC__INIT;

	spec.world_size = 2;
	spec.n_channels = 1;
	spec.max_rows = 8;
	spec.has_dispatch_row_bytes = 1;
	spec.dispatch_row_bytes = 64;
	join.group = "ep0";
	join.spec = &spec;
	join.boot_id = (char *)mc_wire_boot_id();
	return encode(MC_FRAME_JOIN, &join.base, ret_n);
}

/* The daemon still serves, and holds nothing of those who are gone. */
static void is_well(size_t n_fds, uint64_t rss_kib)
{
	struct mc_wire_client client;
	uint64_t now_kib;

	harness_open(&client, 1);
	assert_int_equal(mc_wire_group_state(&client, "ep0"), 0);
	harness_close(&client, 1);
	mc_test_wait_fds(harness_daemon.pid, n_fds, SOON_MS);
	now_kib = mc_test_process_number(harness_daemon.pid, "VmRSS");
	print_message("resident: %llu KiB before, %llu KiB after\n", (unsigned long long)rss_kib,
		(unsigned long long)now_kib);
	assert_true(now_kib < rss_kib + FLAT_KIB);
}

static void measure(size_t *ret_n_fds, uint64_t *ret_rss_kib)
{
	struct mc_wire_client client;

	harness_open(&client, 1);
	mc_wire_group_state(&client, "ep0");
	harness_close(&client, 1);
	mc_test_sleep_ms(50);
	*ret_n_fds = mc_test_count_fds(harness_daemon.pid);
	*ret_rss_kib = mc_test_process_number(harness_daemon.pid, "VmRSS");
}

static void frames_cut_at_every_byte(void **state)
{
	size_t n_hello, n_join, n_fds;
	uint64_t rss_kib;
	uint8_t *hello = encode_hello(MC_PROTO_MAJOR, &n_hello), *join = encode_join(&n_join);
	uint8_t *both = malloc(n_hello + n_join);

	(void)state;
	measure(&n_fds, &rss_kib);
	memcpy(both, hello, n_hello);
	memcpy(both + n_hello, join, n_join);
	for (size_t n = 0; n <= n_hello + n_join; n++) {
		int fd = mc_wire_socket(harness_daemon.socket);

		assert_true(mc_wire_send_bytes(fd, both, n));
		close(fd);
	}
	is_well(n_fds, rss_kib);
	free(both);
	free(join);
	free(hello);
}

static void frames_with_every_byte_damaged(void **state)
{
	size_t n_hello, n_join, n_fds;
	uint64_t rss_kib;
	uint8_t *hello = encode_hello(MC_PROTO_MAJOR, &n_hello), *join = encode_join(&n_join);

	(void)state;
	measure(&n_fds, &rss_kib);
	for (size_t at = 0; at < n_join; at++)
		for (int bit = 0; bit < 8; bit += 3) {
			int fd = mc_wire_socket(harness_daemon.socket);

			join[at] ^= 1u << bit;
			mc_wire_send_bytes(fd, hello, n_hello);
			mc_wire_send_bytes(fd, join, n_join);
			join[at] ^= 1u << bit;
			close(fd);
		}
	mc_test_sleep_ms(100);
	is_well(n_fds, rss_kib);
	free(join);
	free(hello);
}

static void random_bytes_leave_memory_flat(void **state)
{
	uint64_t rss_kib, started = mc_test_now_ms();
	size_t n_hello, n_fds;
	uint8_t *hello = encode_hello(MC_PROTO_MAJOR, &n_hello), junk[65536];
	uint32_t seed = 12345;

	(void)state;
	measure(&n_fds, &rss_kib);
	for (int round = 0; mc_test_now_ms() - started < 3000; round++) {
		int fd = mc_wire_socket(harness_daemon.socket);
		size_t n;

		for (size_t i = 0; i < sizeof(junk); i++) {
			seed = seed * 1664525u + 1013904223u;
			junk[i] = (uint8_t)(seed >> 24);
		}
		n = seed % sizeof(junk);
		/* also behind a good hello, and as the payload of a good header */
		if (round % 3)
			mc_wire_send_bytes(fd, hello, n_hello);
		if (round % 3 == 2)
			mc_frame_header_write(junk, (uint16_t)(1 + round % 20), 1,
				(uint32_t)(n > 16 ? n - 16 : 0), 0);
		mc_wire_send_bytes(fd, junk, n < 16 ? 16 : n);
		close(fd);
	}
	is_well(n_fds, rss_kib);
	free(hello);
}

/* A header that promises the limit, and then nothing, on many connections at once. */
static void promised_payloads_cost_nothing(void **state)
{
	size_t n_hello, n_fds;
	uint64_t rss_kib, now_kib;
	uint8_t *hello = encode_hello(MC_PROTO_MAJOR, &n_hello), header[MC_FRAME_HEADER_BYTES];
	int fds[500];

	(void)state;
	measure(&n_fds, &rss_kib);
	mc_frame_header_write(header, MC_FRAME_JOIN, 1, MC_LIMIT_REQUEST_BYTES, 0);
	for (int i = 0; i < 500; i++) {
		fds[i] = mc_wire_socket(harness_daemon.socket);
		mc_wire_send_bytes(fds[i], hello, n_hello);
		mc_wire_send_bytes(fds[i], header, sizeof(header));
	}
	mc_test_sleep_ms(200);
	now_kib = mc_test_process_number(harness_daemon.pid, "VmRSS");
	assert_true(now_kib < rss_kib + FLAT_KIB);
	for (int i = 0; i < 500; i++)
		close(fds[i]);
	is_well(n_fds, rss_kib);
	free(hello);
}

static void fds_from_a_client_are_closed(void **state)
{
	struct mc_wire_client client;
	size_t n_hello, n_fds;
	uint64_t rss_kib;
	uint8_t *hello = encode_hello(MC_PROTO_MAJOR, &n_hello);

	(void)state;
	measure(&n_fds, &rss_kib);
	for (int i = 0; i < 50; i++) {
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int) * 8)];
		} control;
		struct iovec data = {.iov_base = hello, .iov_len = n_hello};
		struct msghdr message = {.msg_iov = &data,
			.msg_iovlen = 1,
			.msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes)};
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		int passed[8], fd = mc_wire_socket(harness_daemon.socket);

		for (int j = 0; j < 8; j++)
			passed[j] = STDERR_FILENO;
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(passed));
		memcpy(CMSG_DATA(header), passed, sizeof(passed));
		assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), n_hello);
		memset(&client, 0, sizeof(client));
		client.fd = fd;
		client.reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, MC_LIMIT_FRAME_FDS);
		mc_wire_expect_closed(&client, SOON_MS);
		mc_wire_client_close(&client);
	}
	is_well(n_fds, rss_kib);
	free(hello);
}

static void another_major_is_refused_naming_both(void **state)
{
	struct mc_wire_client client = {0};
	struct mc_wire_reply reply;
	Moecomm__Wire__Done *done;
	size_t n;
	uint8_t *hello = encode_hello(MC_PROTO_MAJOR + 41, &n);

	(void)state;
	client.fd = mc_wire_socket(harness_daemon.socket);
	client.reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, MC_LIMIT_FRAME_FDS);
	mc_wire_send_bytes(client.fd, hello, n);
	mc_wire_expect(&client, MC_FRAME_DONE, SOON_MS, &reply);
	done = (Moecomm__Wire__Done *)reply.message;
	assert_int_equal(done->status, MC_STATUS_VERSION);
	assert_non_null(strstr(done->detail, "42"));
	assert_non_null(strstr(done->detail, "1"));
	mc_wire_reply_clear(&reply);
	mc_wire_expect_closed(&client, SOON_MS);
	mc_wire_client_close(&client);
	free(hello);
}

static void hello_comes_first_and_in_time(void **state)
{
	struct mc_wire_client client = {0};
	size_t n;
	uint8_t *join;

	(void)state;
	harness_restart_with("[limits]\nhello_timeout_ms = 200\n");
	join = encode_join(&n);
	client.fd = mc_wire_socket(harness_daemon.socket);
	client.reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, MC_LIMIT_FRAME_FDS);
	mc_wire_send_bytes(client.fd, join, n);
	mc_wire_expect_done(&client, MC_STATUS_PROTOCOL, "hello", SOON_MS);
	mc_wire_expect_closed(&client, SOON_MS);
	mc_wire_client_close(&client);
	/* and one that says nothing at all */
	client.fd = mc_wire_socket(harness_daemon.socket);
	client.reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, MC_LIMIT_FRAME_FDS);
	mc_wire_expect_closed(&client, SOON_MS);
	mc_wire_client_close(&client);
	free(join);
}

static void unknown_requests_are_answered(void **state)
{
	struct mc_wire_client client;
	uint8_t header[MC_FRAME_HEADER_BYTES];

	(void)state;
	harness_open(&client, 1);
	mc_frame_header_write(header, 4711, 9, 0, 0);
	mc_wire_send_bytes(client.fd, header, sizeof(header));
	mc_wire_expect_done(&client, MC_STATUS_UNSUPPORTED, "4711", SOON_MS);
	/* replies are no requests */
	mc_frame_header_write(header, MC_FRAME_READY, 10, 0, 0);
	mc_wire_send_bytes(client.fd, header, sizeof(header));
	mc_wire_expect_done(&client, MC_STATUS_UNSUPPORTED, NULL, SOON_MS);
	assert_int_equal(mc_wire_group_state(&client, "ep0"), 0);
	harness_close(&client, 1);
}

/* Asks for more than fits and never reads. */
static void who_never_reads_is_cut_off(void **state)
{
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	struct mc_wire_client greedy, other;
	uint64_t rss_kib, most_kib = 0, deadline = mc_test_now_ms() + 20000, now_kib;
	size_t n, n_fds;
	uint8_t *frame;
	bool is_cut = false;

	(void)state;
	measure(&n_fds, &rss_kib);
	request.has_clients = 1;
	request.clients = 1;
	frame = encode(MC_FRAME_STATUS_REQUEST, &request.base, &n);
	harness_open(&greedy, 1);
	harness_open(&other, 1);
	while (!is_cut && mc_test_now_ms() < deadline) {
		struct pollfd poll_fd = {.fd = greedy.fd, .events = POLLOUT};

		poll(&poll_fd, 1, 50);
		is_cut = poll_fd.revents & (POLLHUP | POLLERR) ||
			 (send(greedy.fd, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
				 errno != EAGAIN);
		now_kib = mc_test_process_number(harness_daemon.pid, "VmRSS");
		most_kib = now_kib > most_kib ? now_kib : most_kib;
	}
	assert_true(is_cut);
	print_message(
		"resident while it did not read: %llu KiB at most\n", (unsigned long long)most_kib);
	/* the queue's bound, and what small frames cost beside their bytes */
	assert_true(most_kib < rss_kib + 4 * 4096 + FLAT_KIB);
	mc_test_daemon_wait_log(&harness_daemon, "is cut off", SOON_MS);
	/* others were served all the time */
	assert_int_equal(mc_wire_group_state(&other, "ep0"), 0);
	harness_close(&greedy, 1);
	harness_close(&other, 1);
	is_well(n_fds, rss_kib);
	free(frame);
}

static void a_storm_of_connections(void **state)
{
	size_t n_fds;
	uint64_t rss_kib;
	int fds[200];

	(void)state;
	measure(&n_fds, &rss_kib);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 200; i++)
			fds[i] = mc_wire_socket(harness_daemon.socket);
		for (int i = 0; i < 200; i++)
			close(fds[i]);
	}
	is_well(n_fds, rss_kib);
}

static void connections_beyond_the_bound_are_told(void **state)
{
	struct mc_wire_client clients[4], extra = {0};

	(void)state;
	harness_restart_with("[limits]\nmax_connections_per_uid = 4\n");
	harness_open(clients, 4);
	extra.fd = mc_wire_socket(harness_daemon.socket);
	extra.reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, MC_LIMIT_FRAME_FDS);
	mc_wire_expect_done(&extra, MC_STATUS_QUOTA, "4 of 4 connections", SOON_MS);
	mc_wire_expect_closed(&extra, SOON_MS);
	mc_wire_client_close(&extra);
	/* one goes, one may come */
	mc_wire_client_close(&clients[3]);
	mc_test_sleep_ms(100);
	mc_wire_client_open(&clients[3], harness_daemon.socket, "test");
	harness_close(clients, 4);
}

static void too_many_requests_are_refused_clearly(void **state)
{
	struct mc_wire_client client;
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	struct mc_wire_reply reply;
	unsigned n_refused = 0;

	(void)state;
	harness_restart_with("[limits]\nmax_requests_per_second_per_uid = 20\n");
	harness_open(&client, 1);
	for (int i = 0; i < 60; i++)
		mc_wire_send(&client, MC_FRAME_STATUS_REQUEST, &request.base);
	for (int i = 0; i < 60; i++) {
		assert_true(mc_wire_receive(&client, SOON_MS, &reply));
		if (reply.type == MC_FRAME_DONE) {
			assert_int_equal(
				((Moecomm__Wire__Done *)reply.message)->status, MC_STATUS_QUOTA);
			n_refused++;
		}
		mc_wire_reply_clear(&reply);
	}
	assert_in_range(n_refused, 30, 45);
	/* later it may again */
	mc_test_sleep_ms(500);
	assert_int_equal(mc_wire_group_state(&client, "ep0"), 0);
	harness_close(&client, 1);
}

static uint64_t cpu_ms(void)
{
	struct timespec used;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(harness_daemon.pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &used), 0);
	return (uint64_t)used.tv_sec * 1000u + (uint64_t)used.tv_nsec / 1000000u;
}

static void running_out_of_fds_hurts_only_newcomers(void **state)
{
	const struct mc_test_daemon_options options = {.max_fds = 40};
	struct mc_wire_client first, late;
	uint64_t used_ms;
	int fds[100];

	(void)state;
	mc_test_daemon_finish(&harness_daemon);
	mc_test_daemon_start(&harness_daemon, &options);
	mc_test_daemon_expect_error(&harness_daemon, "a connection was refused");
	harness_open(&first, 1);
	for (int i = 0; i < 100; i++)
		fds[i] = mc_wire_socket(harness_daemon.socket);
	mc_test_daemon_wait_log(&harness_daemon, "raise LimitNOFILE=", SOON_MS);
	mc_test_sleep_ms(200);
	/* it does not spin, and whoever was there is served */
	used_ms = cpu_ms();
	mc_test_sleep_ms(500);
	assert_true(cpu_ms() - used_ms < 100);
	assert_int_equal(mc_wire_group_state(&first, "ep0"), 0);
	for (int i = 0; i < 100; i++)
		close(fds[i]);
	mc_test_sleep_ms(100);
	harness_open(&late, 1);
	assert_int_equal(mc_wire_group_state(&late, "ep0"), 0);
	harness_close(&late, 1);
	harness_close(&first, 1);
}

/* A group whose memory can't be had is told so; the daemon and its other groups go on. */
static void a_group_that_runs_out_of_fds_is_told(void **state)
{
	const struct mc_test_daemon_options options = {.max_fds = 60};
	struct mc_wire_client client;
	struct mc_wire_layout layout;
	struct mc_wire_join join = {.group = "big", .world_size = 32};

	(void)state;
	mc_test_daemon_finish(&harness_daemon);
	mc_test_daemon_start(&harness_daemon, &options);
	mc_test_daemon_expect_error(&harness_daemon, "Too many open files");
	harness_open(&client, 1);
	for (join.rank = 0; join.rank < 32; join.rank++)
		mc_wire_join(&client, &join);
	mc_wire_expect_done(&client, MC_STATUS_SYSTEM, "Too many open files", SOON_MS);
	for (int r = 1; r < 32; r++)
		mc_wire_expect_done(&client, MC_STATUS_SYSTEM, NULL, SOON_MS);
	join = (struct mc_wire_join){.group = "small", .world_size = 1};
	mc_wire_form(&client, &layout, &join);
	mc_wire_layout_clear(&layout);
	harness_close(&client, 1);
}

/* 1,000 queries a second while 50 groups come and go, and somebody sends junk. */
static void queries_while_groups_come_and_go(void **state)
{
	struct mc_wire_client query, members[2];
	struct mc_wire_layout layouts[2];
	size_t n_fds, n_queries = 0, n_groups = 0;
	uint64_t rss_kib, started, took_ms;

	(void)state;
	measure(&n_fds, &rss_kib);
	harness_open(&query, 1);
	started = mc_test_now_ms();
	while (n_groups < 50) {
		char name[32];
		struct mc_wire_join join = {.group = name, .world_size = 2};
		int junk = mc_wire_socket(harness_daemon.socket);

		snprintf(name, sizeof(name), "g%zu", n_groups++);
		mc_wire_send_bytes(junk, name, sizeof(name));
		close(junk);
		harness_open(members, 2);
		mc_wire_form(members, layouts, &join);
		for (int i = 0; i < 40; i++, n_queries++)
			assert_int_equal(mc_wire_group_state(&query, name), MC_GROUP_READY);
		harness_drop(layouts, 2);
		harness_close(members, 2);
	}
	took_ms = mc_test_now_ms() - started;
	print_message("%zu queries and %zu groups in %llu ms\n", n_queries, n_groups,
		(unsigned long long)took_ms);
	harness_close(&query, 1);
	is_well(n_fds, rss_kib);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(frames_cut_at_every_byte),
		HARNESS_TEST(frames_with_every_byte_damaged),
		HARNESS_TEST(random_bytes_leave_memory_flat),
		HARNESS_TEST(promised_payloads_cost_nothing),
		HARNESS_TEST(fds_from_a_client_are_closed),
		HARNESS_TEST(another_major_is_refused_naming_both),
		HARNESS_TEST(hello_comes_first_and_in_time),
		HARNESS_TEST(unknown_requests_are_answered),
		HARNESS_TEST(who_never_reads_is_cut_off),
		HARNESS_TEST(a_storm_of_connections),
		HARNESS_TEST(connections_beyond_the_bound_are_told),
		HARNESS_TEST(too_many_requests_are_refused_clearly),
		HARNESS_TEST(running_out_of_fds_hurts_only_newcomers),
		HARNESS_TEST(a_group_that_runs_out_of_fds_is_told),
		HARNESS_TEST(queries_while_groups_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
