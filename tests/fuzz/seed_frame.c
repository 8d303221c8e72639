/* SPDX-License-Identifier: Apache-2.0 */
/* Writes seeds for fuzz_frame into a directory: seed_frame DIRECTORY */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/frame.h"
#include "unit/proto/wire_sample.h"

static const char *directory;
static int failed;

/* Writes the sample to a file and clears it. */
static void put(const char *name, struct wire_sample *sample)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/seed-%s", directory, name);
	file = fopen(path, "wb");
	if (!file || fwrite(sample->bytes, 1, sample->n_bytes, file) != sample->n_bytes ||
		fclose(file) != 0) {
		fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
		failed = 1;
	}
	wire_sample_clear(sample);
}

/* Only required fields. */
static void write_least(struct wire_sample *sample, const ProtobufCMessageDescriptor *message)
{
	for (unsigned i = 0; i < message->n_fields; i++)
		if (message->fields[i].label == PROTOBUF_C_LABEL_REQUIRED)
			wire_sample_field(sample, message, &message->fields[i]);
}

static void put_messages(void)
{
	struct wire_sample session = {0};

	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++) {
		const ProtobufCMessageDescriptor *message = mc_codec_descriptor(type);
		struct wire_sample full = {0}, least = {0}, out = {0};
		char name[64];
		uint8_t first = (uint8_t)type;

		wire_sample_message(&full, message, 0);
		write_least(&least, message);

		snprintf(name, sizeof(name), "frame-%s", mc_frame_type_name(type));
		wire_sample_frame(&out, type, type, full.bytes, full.n_bytes);
		put(name, &out);

		snprintf(name, sizeof(name), "payload-%s", mc_frame_type_name(type));
		wire_sample_raw(&out, &first, 1);
		wire_sample_raw(&out, full.bytes, full.n_bytes);
		put(name, &out);

		snprintf(name, sizeof(name), "least-%s", mc_frame_type_name(type));
		wire_sample_raw(&out, &first, 1);
		wire_sample_raw(&out, least.bytes, least.n_bytes);
		put(name, &out);

		wire_sample_frame(&session, type, type, least.bytes, least.n_bytes);
		wire_sample_clear(&full);
		wire_sample_clear(&least);
	}
	put("all-types-in-one-stream", &session);
}

static void put_wrong(void)
{
	struct wire_sample out = {0}, inner = {0};
	uint8_t header[MC_FRAME_HEADER_BYTES];
	uint8_t type;

	mc_frame_header_write(header, MC_FRAME_HELLO, 1, MC_LIMIT_REQUEST_BYTES + 1, 0);
	wire_sample_raw(&out, header, sizeof(header));
	put("header-too-large", &out);

	mc_frame_header_write(header, MC_FRAME_HELLO, 1, 4, 1);
	wire_sample_raw(&out, header, sizeof(header));
	put("header-names-fds", &out);

	mc_frame_header_write(header, MC_FRAME_HELLO, 1, 4, 0);
	wire_sample_raw(&out, header, sizeof(header));
	wire_sample_raw(&out, "\x08\x01", 2);
	put("truncated", &out);

	wire_sample_frame(&out, 9999, 1, "abc", 3);
	wire_sample_frame(&out, MC_FRAME_LEAVE, 2, "\x08\x01", 2);
	put("unknown-type", &out);

	wire_sample_raw(&out, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
	put("another-protocol", &out);

	/* an ACL, packed and not */
	type = MC_FRAME_JOIN;
	wire_sample_raw(&out, &type, 1);
	wire_sample_message(&out, mc_codec_descriptor(MC_FRAME_JOIN), 7);
	wire_sample_bytes(&out, 7, "\x01\x02\xff\xff\xff\xff\x0f", 7);
	wire_sample_number(&out, 7, 1000);
	put("packed-list", &out);

	/* fields of a later version, and a group */
	type = MC_FRAME_STATUS_REQUEST;
	wire_sample_raw(&out, &type, 1);
	wire_sample_number(&out, 1000, UINT64_MAX);
	wire_sample_bytes(&out, 1001, "later", 5);
	wire_sample_tag(&out, 1002, 5);
	wire_sample_raw(&out, "abcd", 4);
	wire_sample_tag(&out, 1003, 1);
	wire_sample_raw(&out, "abcdefgh", 8);
	put("unknown-fields", &out);

	wire_sample_raw(&out, &type, 1);
	wire_sample_tag(&out, 2, 3);
	wire_sample_tag(&out, 2, 4);
	put("group", &out);

	/* two groups in a status, as a list that the fuzzer can multiply */
	type = MC_FRAME_STATUS;
	wire_sample_raw(&out, &type, 1);
	wire_sample_message(&out, mc_codec_descriptor(MC_FRAME_STATUS), 0);
	wire_sample_message(&inner, &moecomm__wire__group_status__descriptor, 0);
	wire_sample_bytes(&out, 7, inner.bytes, inner.n_bytes);
	wire_sample_clear(&inner);
	put("two-groups", &out);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
		return 2;
	}
	directory = argv[1];
	put_messages();
	put_wrong();
	return failed;
}
