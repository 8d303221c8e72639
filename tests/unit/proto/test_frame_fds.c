/* SPDX-License-Identifier: Apache-2.0 */
/* fds of frames: whose they are, and that none is ever left behind. */
#include "unit/proto/test_support.h"

#include <errno.h>
#include <sys/resource.h>

#include "proto/fd_pass.h"
#include "proto/frame.h"

struct fixture {
	int n_before;
	int sockets[2];
	int files[MC_FD_PASS_MAX];
	struct mc_frame_reader *reader;
	uint8_t header[MC_FRAME_HEADER_BYTES];
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){.n_before = count_fds()};
	socket_pair(f.sockets);
	for (unsigned i = 0; i < MC_FD_PASS_MAX; i++)
		f.files[i] = new_file();
	f.reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
	*state = &f;
	return f.reader ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	mc_frame_reader_free(f->reader);
	mc_fd_pass_close(f->files, MC_FD_PASS_MAX);
	close_pair(f->sockets);
	return count_fds() == f->n_before ? 0 : -1;
}

static void send_part(struct fixture *f, const void *bytes, size_t n, unsigned n_fds)
{
	assert_int_equal(mc_fd_pass_send(f->sockets[0], bytes, n, f->files, n_fds), n);
}

static void send_header(struct fixture *f, uint32_t n_payload, uint16_t named, unsigned n_fds)
{
	mc_frame_header_write(f->header, 1, 1, n_payload, named);
	send_part(f, f->header, sizeof(f->header), n_fds);
}

static void expect_refused(struct fixture *f, int n_fds_before)
{
	struct mc_frame *frame;

	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_FDS);
	/* at once, not only when the reader goes */
	assert_int_equal(count_fds(), n_fds_before);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_FDS);
}

static void fds_arrive_close_on_exec_in_order(void **state)
{
	struct fixture *f = *state;
	struct mc_frame *frame;

	send_header(f, 0, MC_LIMIT_FRAME_FDS, MC_LIMIT_FRAME_FDS);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), 0);
	assert_int_equal(frame->n_fds, MC_LIMIT_FRAME_FDS);
	for (unsigned i = 0; i < frame->n_fds; i++) {
		assert_true(same_file(frame->fds[i], f->files[i]));
		assert_int_equal(fcntl(frame->fds[i], F_GETFD), FD_CLOEXEC);
	}
}

static void what_nobody_takes_is_closed(void **state)
{
	struct fixture *f = *state;
	int n = count_fds();
	struct mc_frame *frame;
	int taken;

	send_header(f, 0, 3, 3);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), 0);
	assert_int_equal(count_fds(), n + 3);
	taken = frame->fds[1];
	frame->fds[1] = -1;
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_AGAIN);
	assert_int_equal(count_fds(), n + 1);
	assert_true(same_file(taken, f->files[1]));
	close(taken);

	/* also when the reader goes, with a frame delivered or half read */
	send_header(f, 0, 3, 3);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), 0);
	f->reader = mc_frame_reader_free(f->reader);
	assert_int_equal(count_fds(), n);
	f->reader = mc_frame_reader_new(100, 3);
	send_header(f, 50, 3, 3);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_AGAIN);
	assert_int_equal(count_fds(), n + 3);
	f->reader = mc_frame_reader_free(f->reader);
	assert_int_equal(count_fds(), n);
}

static void frames_back_to_back_keep_their_own(void **state)
{
	struct fixture *f = *state;
	struct mc_frame *frame;

	for (unsigned i = 0; i < 8; i++) {
		mc_frame_header_write(f->header, 1, i, 4, i % 3 ? 1 : 0);
		assert_int_equal(mc_fd_pass_send(f->sockets[0], f->header, sizeof(f->header),
					 &f->files[i], i % 3 ? 1 : 0),
			sizeof(f->header));
		send_part(f, "data", 4, 0);
	}
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), 0);
		assert_int_equal(frame->serial, i);
		assert_int_equal(frame->n_fds, i % 3 ? 1 : 0);
		if (frame->n_fds)
			assert_true(same_file(frame->fds[0], f->files[i]));
	}
}

static void a_split_header_keeps_the_fds_of_its_first_byte(void **state)
{
	struct fixture *f = *state;
	struct mc_frame *frame;

	mc_frame_header_write(f->header, 1, 1, 2, 2);
	send_part(f, f->header, 1, 2);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_AGAIN);
	send_part(f, f->header + 1, sizeof(f->header) - 1, 0);
	send_part(f, "ab", 2, 0);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), 0);
	assert_int_equal(frame->n_fds, 2);
	assert_true(same_file(frame->fds[1], f->files[1]));
}

static void a_wrong_count_is_refused(void **state)
{
	static const struct {
		uint16_t named;
		unsigned sent;
	} cases[] = {{0, 1}, {1, 0}, {1, 2}, {2, 1}, {0, 66}, {66, 65}, {67, 67}, {0, 253},
		{253, 253}, {65535, 66}};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int n = count_fds();

		send_header(f, 0, cases[i].named, cases[i].sent);
		expect_refused(f, n);
		mc_frame_reader_free(f->reader);
		f->reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
	}
}

static void a_peer_that_may_send_none_sends_none(void **state)
{
	struct fixture *f = *state;
	int n = count_fds();

	mc_frame_reader_free(f->reader);
	f->reader = mc_frame_reader_new(100, MC_LIMIT_REQUEST_FDS);
	send_header(f, 0, 1, 1);
	expect_refused(f, n);
}

static void fds_on_a_later_byte_are_refused(void **state)
{
	struct fixture *f = *state;
	int n = count_fds();
	struct mc_frame *frame;

	/* with the payload */
	send_header(f, 4, 0, 0);
	send_part(f, "data", 4, 1);
	expect_refused(f, n);
	mc_frame_reader_free(f->reader);

	/* with the payload, when the header brought the fds that it names */
	f->reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
	send_header(f, 4, 2, 2);
	send_part(f, "data", 4, 2);
	expect_refused(f, n);
	mc_frame_reader_free(f->reader);

	/* with the rest of a header */
	f->reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
	mc_frame_header_write(f->header, 1, 1, 0, 1);
	send_part(f, f->header, 8, 0);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_AGAIN);
	send_part(f, f->header + 8, 8, 1);
	expect_refused(f, n);
}

static void fds_of_a_bad_frame_are_closed(void **state)
{
	struct fixture *f = *state;
	int n = count_fds();
	struct mc_frame *frame;

	mc_frame_header_write(f->header, 1, 1, 101, 5);
	send_part(f, f->header, sizeof(f->header), 5);
	assert_int_equal(
		mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_TOO_LARGE);
	assert_int_equal(count_fds(), n);
	mc_frame_reader_free(f->reader);

	f->reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
	mc_frame_header_write(f->header, 1, 1, 0, 5);
	f->header[0]++;
	send_part(f, f->header, sizeof(f->header), 5);
	assert_int_equal(mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_MAGIC);
	assert_int_equal(count_fds(), n);
	mc_frame_reader_free(f->reader);

	/* the peer goes away inside a frame that brought some */
	f->reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
	send_header(f, 4, 5, 5);
	close(f->sockets[0]);
	f->sockets[0] = -1;
	assert_int_equal(
		mc_frame_reader_next(f->reader, f->sockets[1], &frame), MC_FRAME_E_TRUNCATED);
	assert_int_equal(count_fds(), n - 1);
}

static void fds_that_the_kernel_drops_are_told(void **state)
{
	/* what the header names, what is sent, and for how many this process has room: MSG_CTRUNC
	 */
	static const struct {
		uint16_t named;
		unsigned sent;
		unsigned room;
	} cases[] = {{3, 3, 2}, {2, 3, 2}, {0, 1, 0}, {1, 1, 0}, {66, 66, 65}};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int n = count_fds();
		int highest = dup(f->sockets[0]);
		struct rlimit old, low;
		struct mc_frame *frame;
		int r;

		assert_true(highest >= 0);
		close(highest);
		send_header(f, 0, cases[i].named, cases[i].sent);
		assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
		low = old;
		low.rlim_cur = (rlim_t)highest + cases[i].room;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
		r = mc_frame_reader_next(f->reader, f->sockets[1], &frame);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		assert_int_equal(r, MC_FRAME_E_FDS);
		assert_int_equal(count_fds(), n);
		mc_frame_reader_free(f->reader);
		f->reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
	}
}

static void credentials_beside_fds_leave_room(void **state)
{
	struct fixture *f = *state;
	int on = 1, n = count_fds();

	assert_int_equal(setsockopt(f->sockets[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	send_header(f, 0, 253, 253);
	expect_refused(f, n);
}

static void more_fds_than_a_message_takes_are_not_sent(void **state)
{
	struct fixture *f = *state;
	int fds[MC_FD_PASS_MAX + 1];

	for (unsigned i = 0; i <= MC_FD_PASS_MAX; i++)
		fds[i] = f->files[0];
	assert_int_equal(mc_fd_pass_send(f->sockets[0], "x", 1, fds, MC_FD_PASS_MAX + 1), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(fds_arrive_close_on_exec_in_order),
		TEST(what_nobody_takes_is_closed),
		TEST(frames_back_to_back_keep_their_own),
		TEST(a_split_header_keeps_the_fds_of_its_first_byte),
		TEST(a_wrong_count_is_refused),
		TEST(a_peer_that_may_send_none_sends_none),
		TEST(fds_on_a_later_byte_are_refused),
		TEST(fds_of_a_bad_frame_are_closed),
		TEST(fds_that_the_kernel_drops_are_told),
		TEST(credentials_beside_fds_leave_room),
		TEST(more_fds_than_a_message_takes_are_not_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
