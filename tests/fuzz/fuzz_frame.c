/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame reader and the codec under arbitrary bytes. An input is read twice: as the stream of a
 * connection, and as one payload whose first byte picks its message type.
 */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/frame.h"

/* More than any payload here can cost, so that "too large" would mean that scan and decoder differ.
 */
#define PLENTY ((size_t)256 << 20)

/* A message that decoded can be encoded, and what that makes decodes to the same again. */
static void check_roundtrip(uint16_t type, const ProtobufCMessage *message)
{
	ProtobufCMessage *again = NULL;
	uint8_t *first = NULL, *second = NULL;
	size_t n_first, n_second;
	const char *field;
	int r;

	r = mc_codec_encode(message, &first, &n_first);
	/* a packed list grows when it is written unpacked */
	if (r == -EMSGSIZE)
		return;
	FUZZ_CHECK(r == 0);
	FUZZ_CHECK(mc_codec_decode(type, first, n_first, PLENTY, &again, &field) == 0);
	FUZZ_CHECK(mc_codec_encode(again, &second, &n_second) == 0);
	FUZZ_CHECK(n_first == n_second && memcmp(first, second, n_first) == 0);
	free(first);
	free(second);
	mc_codec_free(again);
}

static void check_payload(uint16_t type, const uint8_t *payload, size_t n_payload)
{
	ProtobufCMessage *message = NULL;
	const char *field = NULL;
	int plenty, bounded;

	plenty = mc_codec_decode(type, payload, n_payload, PLENTY, &message, &field);
	FUZZ_CHECK(plenty >= 0 && plenty <= MC_CODEC_E_FIELD && plenty != MC_CODEC_E_SIZE);
	FUZZ_CHECK(field);
	FUZZ_CHECK(plenty != MC_CODEC_E_FIELD || *field);
	FUZZ_CHECK((plenty == 0) == (message != NULL));
	if (message)
		check_roundtrip(type, message);
	message = mc_codec_free(message);

	/* the bound that a daemon sets changes nothing but what is too large */
	bounded =
		mc_codec_decode(type, payload, n_payload, MC_LIMIT_DECODE_BYTES, &message, &field);
	FUZZ_CHECK(bounded == plenty || bounded == MC_CODEC_E_SIZE);
	mc_codec_free(message);
}

/* What a stream amounts to, for comparison. */
struct outcome {
	unsigned n_frames;
	uint64_t hash;
	int end;
};

static void hash_bytes(struct outcome *outcome, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < n; i++)
		outcome->hash = (outcome->hash ^ at[i]) * UINT64_C(1099511628211);
}

/* Feeds the stream in pieces of n_piece bytes. */
static struct outcome read_stream(const uint8_t *data, size_t size, size_t n_piece, bool decode)
{
	struct mc_frame_reader *reader =
		mc_frame_reader_new(MC_LIMIT_REQUEST_BYTES, MC_LIMIT_REQUEST_FDS);
	struct outcome outcome = {.end = MC_FRAME_E_AGAIN};

	FUZZ_CHECK(reader);
	while (size > 0 && outcome.end == MC_FRAME_E_AGAIN) {
		size_t n = size < n_piece ? size : n_piece;

		size -= n;
		while (n > 0) {
			struct mc_frame *frame = NULL;
			size_t before = n;
			int r = mc_frame_reader_feed(reader, &data, &n, &frame);

			FUZZ_CHECK(n < before);
			if (r == 0) {
				FUZZ_CHECK(frame->n_payload <= MC_LIMIT_REQUEST_BYTES);
				FUZZ_CHECK(frame->n_fds == 0);
				outcome.n_frames++;
				hash_bytes(&outcome, &frame->type, sizeof(frame->type));
				hash_bytes(&outcome, &frame->serial, sizeof(frame->serial));
				hash_bytes(&outcome, frame->payload, frame->n_payload);
				if (decode)
					check_payload(
						frame->type, frame->payload, frame->n_payload);
			} else if (r != MC_FRAME_E_AGAIN) {
				FUZZ_CHECK(r > 0);
				outcome.end = r;
				break;
			}
		}
	}
	mc_frame_reader_free(reader);
	return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t pieces[] = {1, 7, 16, 4096};
	struct outcome whole;

	if (size == 0)
		return 0;
	whole = read_stream(data, size, size, true);
	/* how the bytes arrive makes no difference */
	for (unsigned i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct outcome cut = read_stream(data, size, pieces[i], false);

		FUZZ_CHECK(cut.n_frames == whole.n_frames);
		FUZZ_CHECK(cut.hash == whole.hash);
		FUZZ_CHECK(cut.end == whole.end);
	}
	if (size - 1 <= MC_LIMIT_REPLY_BYTES)
		check_payload(data[0] % (MC_FRAME_LAST + 2), data + 1, size - 1);
	return 0;
}
