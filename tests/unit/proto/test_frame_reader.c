/* SPDX-License-Identifier: Apache-2.0 */
/* The incremental reader: bytes, without fds. */
#include "unit/proto/test_support.h"

#include <malloc.h>

#include "proto/frame.h"
#include "unit/proto/wire_sample.h"

static int feed(struct mc_frame_reader *reader, const struct wire_sample *stream,
	struct mc_frame **ret_frame)
{
	const uint8_t *at = stream->bytes;
	size_t n = stream->n_bytes;

	return mc_frame_reader_feed(reader, &at, &n, ret_frame);
}

static void the_header_is_little_endian(void **state)
{
	static const uint8_t expected[MC_FRAME_HEADER_BYTES] = {0x6d, 0x6d, 0x43, 0x31, 0x78, 0x56,
		0x34, 0x12, 0x02, 0x01, 0x04, 0x03, 0xdd, 0xcc, 0xbb, 0xaa};
	uint8_t header[MC_FRAME_HEADER_BYTES];

	(void)state;
	mc_frame_header_write(header, 0x0102, 0xaabbccdd, 0x12345678, 0x0304);
	assert_memory_equal(header, expected, sizeof(expected));
}

static void frames_come_one_by_one(void **state)
{
	struct mc_frame_reader *reader = mc_frame_reader_new(5000, 0);
	struct wire_sample stream = {0};
	struct mc_frame *frame;
	const uint8_t *at;
	size_t n;
	uint8_t big[5000];

	(void)state;
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)(i * 7);
	wire_sample_frame(&stream, 1, 10, "abc", 3);
	wire_sample_frame(&stream, 2, 11, NULL, 0);
	wire_sample_frame(&stream, 3, 12, big, sizeof(big));
	wire_sample_frame(&stream, 65535, UINT32_MAX, big, 4097);
	wire_sample_frame(&stream, 5, 14, big, 1);

	at = stream.bytes;
	n = stream.n_bytes;
	assert_int_equal(mc_frame_reader_feed(reader, &at, &n, &frame), 0);
	assert_int_equal(frame->type, 1);
	assert_int_equal(frame->serial, 10);
	assert_int_equal(frame->n_fds, 0);
	assert_int_equal(frame->n_payload, 3);
	assert_memory_equal(frame->payload, "abc", 3);
	/* nothing of the next frame is taken before it is asked for */
	assert_int_equal(at - stream.bytes, MC_FRAME_HEADER_BYTES + 3);
	assert_int_equal(mc_frame_reader_feed(reader, &at, &n, &frame), 0);
	assert_int_equal(frame->type, 2);
	assert_int_equal(frame->n_payload, 0);
	assert_int_equal(mc_frame_reader_feed(reader, &at, &n, &frame), 0);
	assert_int_equal(frame->n_payload, sizeof(big));
	assert_memory_equal(frame->payload, big, sizeof(big));
	assert_int_equal(mc_frame_reader_feed(reader, &at, &n, &frame), 0);
	assert_int_equal(frame->type, 65535);
	assert_int_equal(frame->serial, UINT32_MAX);
	assert_memory_equal(frame->payload, big, 4097);
	assert_int_equal(mc_frame_reader_feed(reader, &at, &n, &frame), 0);
	assert_int_equal(frame->n_payload, 1);
	assert_int_equal(mc_frame_reader_feed(reader, &at, &n, &frame), MC_FRAME_E_AGAIN);
	assert_int_equal(n, 0);
	wire_sample_clear(&stream);
	assert_null(mc_frame_reader_free(reader));
	assert_null(mc_frame_reader_free(NULL));
}

static void a_byte_at_a_time_is_enough(void **state)
{
	struct mc_frame_reader *reader = mc_frame_reader_new(100, 0);
	struct wire_sample stream = {0};
	unsigned n_frames = 0;
	int sockets[2];

	(void)state;
	socket_pair(sockets);
	wire_sample_frame(&stream, 1, 1, "hello", 5);
	wire_sample_frame(&stream, 2, 2, NULL, 0);
	wire_sample_frame(&stream, 3, 3, "x", 1);
	for (size_t i = 0; i < stream.n_bytes; i++) {
		struct mc_frame *frame = NULL;
		int whole = i + 1 == 21 || i + 1 == 37 || i + 1 == 54;

		assert_int_equal(send(sockets[0], stream.bytes + i, 1, 0), 1);
		assert_int_equal(mc_frame_reader_next(reader, sockets[1], &frame),
			whole ? 0 : MC_FRAME_E_AGAIN);
		if (whole) {
			assert_int_equal(frame->serial, ++n_frames);
			assert_int_equal(frame->type, n_frames);
		}
	}
	assert_int_equal(n_frames, 3);
	wire_sample_clear(&stream);
	mc_frame_reader_free(reader);
	close_pair(sockets);
}

static void a_stream_that_ends_is_closed_or_truncated(void **state)
{
	struct wire_sample stream = {0};

	(void)state;
	wire_sample_frame(&stream, 1, 1, "hello", 5);
	for (size_t n = 0; n <= stream.n_bytes; n++) {
		struct mc_frame_reader *reader = mc_frame_reader_new(100, 0);
		struct mc_frame *frame;
		int sockets[2], r;

		socket_pair(sockets);
		assert_int_equal(send(sockets[0], stream.bytes, n, 0), (int)n);
		close(sockets[0]);
		sockets[0] = -1;
		r = mc_frame_reader_next(reader, sockets[1], &frame);
		if (n == stream.n_bytes) {
			assert_int_equal(r, 0);
			assert_memory_equal(frame->payload, "hello", 5);
			r = mc_frame_reader_next(reader, sockets[1], &frame);
		}
		assert_int_equal(r, n % stream.n_bytes ? MC_FRAME_E_TRUNCATED : MC_FRAME_E_CLOSED);
		/* and stays so */
		assert_int_equal(mc_frame_reader_next(reader, sockets[1], &frame), r);
		mc_frame_reader_free(reader);
		close_pair(sockets);
	}
	wire_sample_clear(&stream);
}

static void another_protocol_is_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct mc_frame_reader *reader = mc_frame_reader_new(100, 0);
		struct wire_sample stream = {0}, good = {0};
		struct mc_frame *frame;

		wire_sample_frame(&stream, 1, 1, "hello", 5);
		wire_sample_frame(&good, 1, 1, "hello", 5);
		stream.bytes[i] ^= 0x20;
		assert_int_equal(feed(reader, &stream, &frame), MC_FRAME_E_MAGIC);
		/* one wrong byte and the stream is lost: what follows is not believed */
		assert_int_equal(feed(reader, &good, &frame), MC_FRAME_E_MAGIC);
		wire_sample_clear(&stream);
		wire_sample_clear(&good);
		mc_frame_reader_free(reader);
	}
}

static void a_payload_above_the_limit_is_refused_by_its_header(void **state)
{
	static const uint32_t sizes[] = {101, 102, 65536, 0x7fffffff, 0x80000000, 0xffffffff};

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct mc_frame_reader *reader = mc_frame_reader_new(100, 0);
		uint8_t header[MC_FRAME_HEADER_BYTES];
		struct wire_sample stream = {0};
		struct mc_frame *frame;

		mc_frame_header_write(header, 1, 1, sizes[i], 0);
		wire_sample_raw(&stream, header, sizeof(header));
		assert_int_equal(feed(reader, &stream, &frame), MC_FRAME_E_TOO_LARGE);
		wire_sample_clear(&stream);
		mc_frame_reader_free(reader);
	}
}

static void fds_that_did_not_come_are_missed(void **state)
{
	static const uint16_t counts[] = {1, 2, MC_LIMIT_FRAME_FDS, 253, 65535};

	(void)state;
	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct mc_frame_reader *reader = mc_frame_reader_new(100, MC_LIMIT_FRAME_FDS);
		uint8_t header[MC_FRAME_HEADER_BYTES];
		struct wire_sample stream = {0};
		struct mc_frame *frame;

		mc_frame_header_write(header, 1, 1, 0, counts[i]);
		wire_sample_raw(&stream, header, sizeof(header));
		assert_int_equal(feed(reader, &stream, &frame), MC_FRAME_E_FDS);
		wire_sample_clear(&stream);
		mc_frame_reader_free(reader);
	}
}

/* The sanitizers' allocator has no mallinfo, but this. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_bytes(void)
{
	struct mallinfo2 info;

	if (__sanitizer_get_current_allocated_bytes)
		return __sanitizer_get_current_allocated_bytes();
	info = mallinfo2();
	return info.uordblks + info.hblkhd;
}

static void a_header_alone_costs_little(void **state)
{
	struct mc_frame_reader *reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, 0);
	uint8_t header[MC_FRAME_HEADER_BYTES];
	uint8_t *part = calloc(1, 100000);
	struct wire_sample stream = {0};
	struct mc_frame *frame;
	size_t before;

	(void)state;
	assert_non_null(part);
	mc_frame_header_write(header, 1, 1, MC_LIMIT_REPLY_BYTES, 0);
	wire_sample_raw(&stream, header, sizeof(header));
	wire_sample_raw(&stream, "x", 1);
	before = heap_bytes();
	assert_int_equal(feed(reader, &stream, &frame), MC_FRAME_E_AGAIN);
	assert_true(heap_bytes() < before + 16384);
	/* and what it costs stays near what has come */
	stream.n_bytes = 0;
	wire_sample_raw(&stream, part, 100000);
	before = heap_bytes();
	assert_int_equal(feed(reader, &stream, &frame), MC_FRAME_E_AGAIN);
	assert_true(heap_bytes() < before + 300000);
	wire_sample_clear(&stream);
	free(part);
	mc_frame_reader_free(reader);
}

static void types_and_errors_have_names(void **state)
{
	(void)state;
	for (unsigned type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++)
		assert_string_not_equal(mc_frame_type_name(type), "unknown");
	assert_string_equal(mc_frame_type_name(MC_FRAME_OP_FAILED), "OpFailed");
	assert_string_equal(mc_frame_type_name(0), "unknown");
	assert_string_equal(mc_frame_type_name(UINT32_MAX), "unknown");
	for (int e = MC_FRAME_E_CLOSED; e <= MC_FRAME_E_AGAIN; e++)
		for (int f = e + 1; f <= MC_FRAME_E_AGAIN + 1; f++)
			assert_string_not_equal(mc_frame_error_text(e), mc_frame_error_text(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_header_is_little_endian),
		cmocka_unit_test(frames_come_one_by_one),
		cmocka_unit_test(a_byte_at_a_time_is_enough),
		cmocka_unit_test(a_stream_that_ends_is_closed_or_truncated),
		cmocka_unit_test(another_protocol_is_refused),
		cmocka_unit_test(a_payload_above_the_limit_is_refused_by_its_header),
		cmocka_unit_test(fds_that_did_not_come_are_missed),
		cmocka_unit_test(a_header_alone_costs_little),
		cmocka_unit_test(types_and_errors_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
