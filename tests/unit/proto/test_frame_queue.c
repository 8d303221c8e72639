/* SPDX-License-Identifier: Apache-2.0 */
/* Outgoing frames: order, bound, partial sends. */
#include "unit/proto/test_support.h"

#include <errno.h>

#include "proto/frame.h"

static void frames_go_in_order(void **state)
{
	struct mc_frame_queue *queue = mc_frame_queue_new(1000);
	struct mc_frame_reader *reader = mc_frame_reader_new(100, 0);
	struct mc_frame *frame;
	int sockets[2];

	(void)state;
	socket_pair(sockets);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), 0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(mc_frame_queue_push(queue, (uint16_t)i, i, (const uint8_t *)"abcd",
					 i, NULL, 0),
			0);
	assert_int_equal(mc_frame_queue_bytes(queue), 5 * 16 + 10);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), 0);
	assert_int_equal(mc_frame_queue_bytes(queue), 0);
	/* empty and then not: the end is where it belongs again */
	assert_int_equal(mc_frame_queue_push(queue, 5, 5, NULL, 0, NULL, 0), 0);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), 0);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(mc_frame_reader_next(reader, sockets[1], &frame), 0);
		assert_int_equal(frame->type, i);
		assert_int_equal(frame->serial, i);
		assert_int_equal(frame->n_payload, i % 5);
	}
	mc_frame_reader_free(reader);
	assert_null(mc_frame_queue_free(queue));
	assert_null(mc_frame_queue_free(NULL));
	close_pair(sockets);
}

static void the_bound_is_exact(void **state)
{
	struct mc_frame_queue *queue = mc_frame_queue_new(100);
	uint8_t payload[100] = {0};
	int n_fds = count_fds();
	int sockets[2];

	(void)state;
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, payload, 85, NULL, 0), -ENOBUFS);
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, payload, 84, NULL, 0), 0);
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, payload, 0, &(int){0}, 1), -ENOBUFS);
	assert_int_equal(mc_frame_queue_bytes(queue), 100);
	assert_int_equal(count_fds(), n_fds);
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, payload, SIZE_MAX, NULL, 0), -EMSGSIZE);
	socket_pair(sockets);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), 0);
	/* room again once it is sent */
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, payload, 68, NULL, 0), 0);
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, payload, 1, NULL, 0), -ENOBUFS);
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, payload, 0, NULL, 0), 0);
	mc_frame_queue_free(queue);
	close_pair(sockets);
	assert_int_equal(count_fds(), n_fds);
}

static void a_peer_that_does_not_read_is_bounded(void **state)
{
	struct mc_frame_queue *queue = mc_frame_queue_new(MC_LIMIT_REPLY_BYTES);
	uint8_t payload[1000] = {0};
	unsigned n_pushed = 0;
	int sockets[2], r;

	(void)state;
	socket_pair(sockets);
	do {
		r = mc_frame_queue_push(queue, 1, n_pushed++, payload, sizeof(payload), NULL, 0);
		assert_true(mc_frame_queue_bytes(queue) <= MC_LIMIT_REPLY_BYTES);
		if (r == 0)
			assert_true(mc_frame_queue_flush(queue, sockets[0]) != -EPIPE);
	} while (r == 0 && n_pushed < 100000);
	assert_int_equal(r, -ENOBUFS);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), -EAGAIN);
	mc_frame_queue_free(queue);
	close_pair(sockets);
}

static void partial_sends_keep_fds_with_their_frames(void **state)
{
	enum { N_FRAMES = 12, N_PAYLOAD = 30000 };
	struct mc_frame_queue *queue = mc_frame_queue_new(1u << 20);
	struct mc_frame_reader *reader = mc_frame_reader_new(N_PAYLOAD, MC_LIMIT_FRAME_FDS);
	uint8_t *payload = malloc(N_PAYLOAD);
	int files[N_FRAMES], sockets[2], tiny = 1, n_before = count_fds();
	unsigned n_read = 0, n_again = 0;

	(void)state;
	assert_non_null(payload);
	socket_pair(sockets);
	assert_int_equal(setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &tiny, sizeof(tiny)), 0);
	for (unsigned i = 0; i < N_FRAMES; i++) {
		int fds[MC_LIMIT_FRAME_FDS];
		unsigned n_fds = i % 4 == 3 ? MC_LIMIT_FRAME_FDS : i % 4;

		files[i] = new_file();
		for (unsigned j = 0; j < n_fds; j++)
			fds[j] = files[i];
		memset(payload, (int)i, N_PAYLOAD);
		assert_int_equal(
			mc_frame_queue_push(queue, 1, i, payload, N_PAYLOAD, fds, n_fds), 0);
	}
	while (n_read < N_FRAMES) {
		struct mc_frame *frame;
		int r = mc_frame_queue_flush(queue, sockets[0]);

		assert_true(r == 0 || r == -EAGAIN);
		n_again += r == -EAGAIN;
		while ((r = mc_frame_reader_next(reader, sockets[1], &frame)) == 0) {
			assert_int_equal(frame->serial, n_read);
			assert_int_equal(
				frame->n_fds, n_read % 4 == 3 ? MC_LIMIT_FRAME_FDS : n_read % 4);
			for (unsigned j = 0; j < frame->n_fds; j++)
				assert_true(same_file(frame->fds[j], files[n_read]));
			memset(payload, (int)n_read, N_PAYLOAD);
			assert_int_equal(frame->n_payload, N_PAYLOAD);
			assert_memory_equal(frame->payload, payload, N_PAYLOAD);
			n_read++;
		}
		assert_int_equal(r, MC_FRAME_E_AGAIN);
	}
	/* frames really were cut: each is several times the buffer */
	assert_true(n_again > N_FRAMES);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), 0);
	for (unsigned i = 0; i < N_FRAMES; i++)
		close(files[i]);
	mc_frame_reader_free(reader);
	mc_frame_queue_free(queue);
	close_pair(sockets);
	free(payload);
	assert_int_equal(count_fds(), n_before);
}

static void the_queue_has_fds_of_its_own(void **state)
{
	struct mc_frame_queue *queue = mc_frame_queue_new(1000);
	struct mc_frame_reader *reader = mc_frame_reader_new(100, 2);
	int n_before = count_fds();
	int sockets[2], file = new_file(), same = dup(file);
	struct mc_frame *frame;

	(void)state;
	socket_pair(sockets);
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, NULL, 0, &file, 1), 0);
	close(file);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), 0);
	assert_int_equal(mc_frame_reader_next(reader, sockets[1], &frame), 0);
	assert_true(same_file(frame->fds[0], same));
	assert_int_equal(mc_frame_reader_next(reader, sockets[1], &frame), MC_FRAME_E_AGAIN);

	/* dropped unsent */
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, NULL, 0, &same, 1), 0);
	mc_frame_queue_free(queue);
	close(same);
	close_pair(sockets);
	mc_frame_reader_free(reader);
	assert_int_equal(count_fds(), n_before);
}

static void bad_fds_leave_the_queue_alone(void **state)
{
	struct mc_frame_queue *queue = mc_frame_queue_new(1000);
	int n_before = count_fds();
	int fds[MC_LIMIT_FRAME_FDS + 1] = {0, 0, -1};

	(void)state;
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, NULL, 0, fds, 3), -EBADF);
	assert_int_equal(
		mc_frame_queue_push(queue, 1, 1, NULL, 0, fds, MC_LIMIT_FRAME_FDS + 1), -EINVAL);
	assert_int_equal(mc_frame_queue_bytes(queue), 0);
	assert_int_equal(count_fds(), n_before);
	mc_frame_queue_free(queue);
}

static void a_peer_that_went_away_is_an_error_not_a_signal(void **state)
{
	struct mc_frame_queue *queue = mc_frame_queue_new(1000);
	int n_before = count_fds();
	int sockets[2];

	(void)state;
	socket_pair(sockets);
	close(sockets[1]);
	sockets[1] = -1;
	assert_int_equal(mc_frame_queue_push(queue, 1, 1, NULL, 0, &(int){0}, 1), 0);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), -EPIPE);
	assert_int_equal(mc_frame_queue_flush(queue, sockets[0]), -EPIPE);
	mc_frame_queue_free(queue);
	close_pair(sockets);
	assert_int_equal(count_fds(), n_before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_go_in_order),
		cmocka_unit_test(the_bound_is_exact),
		cmocka_unit_test(a_peer_that_does_not_read_is_bounded),
		cmocka_unit_test(partial_sends_keep_fds_with_their_frames),
		cmocka_unit_test(the_queue_has_fds_of_its_own),
		cmocka_unit_test(bad_fds_leave_the_queue_alone),
		cmocka_unit_test(a_peer_that_went_away_is_an_error_not_a_signal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
