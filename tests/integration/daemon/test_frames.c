/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile messages in good frames: a million repeated entries, unknown and missing fields. They are
 * refused, and the daemon's memory stays flat.
 */
#include "integration/daemon/harness.h"
#include "proto/codec.h"
#include "unit/proto/wire_sample.h"

/* A sanitizer keeps freed memory back; it reports leaks itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLAT_KIB (1024u << 10)
#else
#define FLAT_KIB 4096u
#endif

#define FIELD_ALLOW_UID 7
#define FIELD_UNKNOWN   99

static uint64_t resident_kib(void)
{
	return mc_test_process_number(harness_daemon.pid, "VmRSS");
}

/* The most that it ever had: what came and went between two looks counts too. */
static uint64_t most_resident_kib(void)
{
	return mc_test_process_number(harness_daemon.pid, "VmHWM");
}

static void send_payload(struct mc_wire_client *client, uint16_t type, const struct wire_sample *p)
{
	struct wire_sample frame = {0};

	wire_sample_frame(&frame, type, 77, p->bytes, p->n_bytes);
	mc_wire_send_bytes(client->fd, frame.bytes, frame.n_bytes);
	wire_sample_clear(&frame);
}

/* Sends a Join that no encoder writes: refused, and the end of the connection. */
static void expect_closed(const struct wire_sample *payload, const char *text)
{
	struct mc_wire_client client;

	harness_open(&client, 1);
	send_payload(&client, MC_FRAME_JOIN, payload);
	mc_wire_expect_done(&client, MC_STATUS_PROTOCOL, text, SOON_MS);
	mc_wire_expect_closed(&client, SOON_MS);
	mc_wire_client_close(&client);
}

/*
 * Sends a Join that is one in form but beyond a bound: refused naming the field. The connection
 * stays, for the sake of the groups that it may hold.
 */
static void expect_refused(const struct wire_sample *payload, const char *field)
{
	struct mc_wire_client client;

	harness_open(&client, 1);
	send_payload(&client, MC_FRAME_JOIN, payload);
	mc_wire_expect_done(&client, MC_STATUS_INVALID, field, SOON_MS);
	assert_int_equal(mc_wire_group_state(&client, "ep0"), 0);
	mc_wire_client_close(&client);
}

static void start_join(struct wire_sample *sample)
{
	wire_sample_message(sample, mc_codec_descriptor(MC_FRAME_JOIN), FIELD_ALLOW_UID);
}

/* As many entries as a frame holds, in frame after frame, until a million have been sent. */
static void a_million_repeated_entries(void **state)
{
	struct wire_sample repeated = {0}, packed = {0}, unknown = {0}, longer = {0};
	struct mc_wire_client client;
	unsigned n_entries = 0, n_sent = 0;
	size_t n_fds;
	uint64_t before;

	(void)state;
	start_join(&repeated);
	while (repeated.n_bytes + 2 <= MC_LIMIT_REQUEST_BYTES) {
		wire_sample_number(&repeated, FIELD_ALLOW_UID, 1);
		n_entries++;
	}
	start_join(&packed);
	wire_sample_tag(&packed, FIELD_ALLOW_UID, 2);
	wire_sample_varint(&packed, 60000);
	for (unsigned i = 0; i < 60000; i++)
		wire_sample_varint(&packed, 1);
	while (unknown.n_bytes + 3 <= MC_LIMIT_REQUEST_BYTES)
		wire_sample_number(&unknown, FIELD_UNKNOWN, 1);

	/* what is kept for good is there after the first of each */
	expect_refused(&repeated, "allow_uid");
	expect_refused(&packed, "allow_uid");
	mc_test_sleep_ms(50);
	n_fds = mc_test_count_fds(harness_daemon.pid);
	before = most_resident_kib();
	while (n_sent < 1000000) {
		expect_refused(&repeated, "allow_uid");
		expect_refused(&packed, "allow_uid");
		expect_closed(&unknown, NULL);
		n_sent += n_entries + 60000;
	}
	/* all of a million in one message: refused by its header, before there is room made for it
	 */
	start_join(&longer);
	for (unsigned i = 0; i < 1000000; i++)
		wire_sample_number(&longer, FIELD_ALLOW_UID, 1);
	harness_open(&client, 1);
	send_payload(&client, MC_FRAME_JOIN, &longer);
	mc_wire_expect_closed(&client, SOON_MS);
	mc_wire_client_close(&client);

	print_message("%u entries; resident at most: %llu KiB before, %llu KiB after\n",
		n_sent + 1000000, (unsigned long long)before,
		(unsigned long long)most_resident_kib());
	assert_true(most_resident_kib() < before + FLAT_KIB);
	assert_true(resident_kib() < before + FLAT_KIB);
	mc_test_wait_fds(harness_daemon.pid, n_fds, SOON_MS);
	harness_open(&client, 1);
	assert_int_equal(mc_wire_group_state(&client, "ep0"), 0);
	harness_close(&client, 1);
	wire_sample_clear(&repeated);
	wire_sample_clear(&packed);
	wire_sample_clear(&unknown);
	wire_sample_clear(&longer);
}

static void missing_required_fields(void **state)
{
	const ProtobufCMessageDescriptor *join = mc_codec_descriptor(MC_FRAME_JOIN);

	(void)state;
	for (unsigned i = 0; i < join->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &join->fields[i];
		struct wire_sample sample = {0};

		if (field->label != PROTOBUF_C_LABEL_REQUIRED)
			continue;
		wire_sample_message(&sample, join, field->id);
		expect_closed(&sample, "a required field is missing: Join");
		wire_sample_clear(&sample);
	}
}

/* What a newer client may say is passed over; what no encoder writes is not. */
static void unknown_fields(void **state)
{
	struct wire_sample fine = {0}, group = {0};
	struct mc_wire_client client;
	struct mc_wire_reply reply;

	(void)state;
	wire_sample_number(&fine, FIELD_UNKNOWN, 5);
	wire_sample_bytes(&fine, FIELD_UNKNOWN + 1, "from the future", 15);
	harness_open(&client, 1);
	send_payload(&client, MC_FRAME_STATUS_REQUEST, &fine);
	mc_wire_expect(&client, MC_FRAME_STATUS, SOON_MS, &reply);
	mc_wire_reply_clear(&reply);
	mc_wire_client_close(&client);
	start_join(&group);
	wire_sample_tag(&group, FIELD_UNKNOWN, 3);
	expect_closed(&group, NULL);
	wire_sample_clear(&fine);
	wire_sample_clear(&group);
}

/* The connection ends after every byte of every request, right behind a good hello. */
static void every_request_cut_at_every_byte(void **state)
{
	static const uint16_t types[] = {MC_FRAME_JOIN, MC_FRAME_VOTE, MC_FRAME_LEAVE,
		MC_FRAME_ABORT, MC_FRAME_OP_FAILED, MC_FRAME_RESUME, MC_FRAME_SET_DEADLINES,
		MC_FRAME_STATUS_REQUEST};
	struct mc_wire_client client;
	size_t n_fds;
	uint64_t before;

	(void)state;
	harness_open(&client, 1);
	harness_close(&client, 1);
	mc_test_sleep_ms(50);
	n_fds = mc_test_count_fds(harness_daemon.pid);
	before = resident_kib();
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		struct wire_sample payload = {0}, frame = {0};

		wire_sample_message(&payload, mc_codec_descriptor(types[t]), 0);
		wire_sample_frame(&frame, types[t], 7, payload.bytes, payload.n_bytes);
		for (size_t n = 0; n < frame.n_bytes; n++) {
			harness_open(&client, 1);
			mc_wire_send_bytes(client.fd, frame.bytes, n);
			mc_wire_client_close(&client);
		}
		wire_sample_clear(&payload);
		wire_sample_clear(&frame);
	}
	mc_test_wait_fds(harness_daemon.pid, n_fds, SOON_MS);
	assert_true(resident_kib() < before + FLAT_KIB);
	/* none of them was taken for a request */
	harness_open(&client, 1);
	assert_int_equal(mc_wire_group_state(&client, "ep0"), 0);
	harness_close(&client, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(a_million_repeated_entries),
		HARNESS_TEST(missing_required_fields),
		HARNESS_TEST(unknown_fields),
		HARNESS_TEST(every_request_cut_at_every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
