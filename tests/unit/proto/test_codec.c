/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding and encoding of every message, whole and damaged. */
#include "unit/proto/test_support.h"

#include <errno.h>

#include "proto/codec.h"
#include "proto/codec_scan.h"
#include "unit/proto/wire_sample.h"
#include "nest.pb-c.h"

static int decode(uint16_t type, const struct wire_sample *sample, size_t n, const char **ret_field)
{
	/* a copy of exactly that size, so that a sanitizer sees a read past its end */
	uint8_t *exact = malloc(n ? n : 1);
	ProtobufCMessage *message = NULL;
	int r;

	assert_non_null(exact);
	if (n)
		memcpy(exact, sample->bytes, n);
	r = mc_codec_decode(type, exact, n, MC_LIMIT_DECODE_REPLY_BYTES, &message, ret_field);
	assert_int_equal(r == 0, message != NULL);
	assert_null(mc_codec_free(message));
	free(exact);
	return r;
}

static void every_message_comes_back_the_same(void **state)
{
	(void)state;
	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++) {
		struct wire_sample sample = {0};
		ProtobufCMessage *message = NULL;
		const char *field = NULL;
		uint8_t *payload;
		size_t n;

		wire_sample_message(&sample, mc_codec_descriptor(type), 0);
		assert_int_equal(mc_codec_decode(type, sample.bytes, sample.n_bytes,
					 MC_LIMIT_DECODE_BYTES, &message, &field),
			0);
		assert_string_equal(field, "");
		assert_int_equal(mc_codec_encode(message, &payload, &n), 0);
		assert_int_equal(n, sample.n_bytes);
		assert_memory_equal(payload, sample.bytes, n);
		free(payload);
		mc_codec_free(message);
		wire_sample_clear(&sample);
	}
}

static void an_unknown_type_is_told(void **state)
{
	ProtobufCMessage *message = NULL;

	(void)state;
	assert_null(mc_codec_descriptor(0));
	assert_null(mc_codec_descriptor(MC_FRAME_LAST + 1));
	assert_int_equal(mc_codec_decode(0, NULL, 0, 100, &message, NULL), MC_CODEC_E_TYPE);
	assert_int_equal(mc_codec_decode(65535, NULL, 0, 100, &message, NULL), MC_CODEC_E_TYPE);
	assert_null(message);
	assert_null(mc_codec_free(NULL));
}

static void truncation_at_every_byte_is_refused(void **state)
{
	(void)state;
	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++) {
		const ProtobufCMessageDescriptor *message = mc_codec_descriptor(type);
		struct wire_sample sample = {0};

		for (unsigned i = 0; i < message->n_fields; i++) {
			size_t before = sample.n_bytes;
			int missing = 0;

			wire_sample_field(&sample, message, &message->fields[i]);
			/* inside a field: never a message */
			for (size_t n = before + 1; n < sample.n_bytes; n++)
				assert_int_not_equal(decode(type, &sample, n, NULL), 0);
			/* between fields: one, unless a required one is still to come */
			for (unsigned j = i + 1; j < message->n_fields; j++)
				missing |= message->fields[j].label == PROTOBUF_C_LABEL_REQUIRED;
			assert_int_equal(decode(type, &sample, sample.n_bytes, NULL),
				missing ? MC_CODEC_E_MALFORMED : 0);
		}
		wire_sample_clear(&sample);
	}
}

static void a_missing_required_field_is_named(void **state)
{
	(void)state;
	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++) {
		const ProtobufCMessageDescriptor *message = mc_codec_descriptor(type);

		for (unsigned i = 0; i < message->n_fields; i++) {
			struct wire_sample sample = {0};
			const char *field = NULL;
			int r;

			wire_sample_message(&sample, message, message->fields[i].id);
			r = decode(type, &sample, sample.n_bytes, &field);
			if (message->fields[i].label == PROTOBUF_C_LABEL_REQUIRED) {
				assert_int_equal(r, MC_CODEC_E_MALFORMED);
				assert_string_equal(field, message->fields[i].name);
			} else {
				assert_int_equal(r, 0);
			}
			wire_sample_clear(&sample);
		}
	}
}

static void a_field_that_comes_twice_is_refused(void **state)
{
	(void)state;
	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++) {
		const ProtobufCMessageDescriptor *message = mc_codec_descriptor(type);

		for (unsigned i = 0; i < message->n_fields; i++) {
			struct wire_sample sample = {0};
			const char *field = NULL;

			if (message->fields[i].label == PROTOBUF_C_LABEL_REPEATED)
				continue;
			wire_sample_message(&sample, message, 0);
			wire_sample_field(&sample, message, &message->fields[i]);
			assert_int_equal(decode(type, &sample, sample.n_bytes, &field),
				MC_CODEC_E_MALFORMED);
			assert_string_equal(field, message->fields[i].name);
			wire_sample_clear(&sample);
		}
	}
}

static void a_field_of_another_wire_type_is_refused(void **state)
{
	static const unsigned wires[] = {0, 1, 2, 5};

	(void)state;
	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++) {
		const ProtobufCMessageDescriptor *message = mc_codec_descriptor(type);

		for (unsigned i = 0; i < message->n_fields; i++) {
			const ProtobufCFieldDescriptor *field = &message->fields[i];
			int prefixed = field->type == PROTOBUF_C_TYPE_STRING ||
				       field->type == PROTOBUF_C_TYPE_BYTES ||
				       field->type == PROTOBUF_C_TYPE_MESSAGE;

			for (unsigned w = 0; w < 4; w++) {
				struct wire_sample sample = {0};

				if (wires[w] == (prefixed ? 2 : 0))
					continue;
				/* a packed list */
				if (wires[w] == 2 && field->label == PROTOBUF_C_LABEL_REPEATED)
					continue;
				wire_sample_message(&sample, message, field->id);
				wire_sample_tag(&sample, field->id, wires[w]);
				wire_sample_raw(&sample, "\0\0\0\0\0\0\0\0",
					wires[w] == 1   ? 8
					: wires[w] == 5 ? 4
							: 1);
				assert_int_equal(decode(type, &sample, sample.n_bytes, NULL),
					MC_CODEC_E_MALFORMED);
				wire_sample_clear(&sample);
			}
		}
	}
}

static void unknown_fields_pass_but_groups_do_not(void **state)
{
	struct wire_sample sample = {0};

	(void)state;
	wire_sample_message(&sample, mc_codec_descriptor(MC_FRAME_JOIN), 0);
	wire_sample_number(&sample, 1000, UINT64_MAX);
	wire_sample_bytes(&sample, 1001, "\x0a\xff\xff\xff\xff", 5);
	wire_sample_tag(&sample, 1002, 5);
	wire_sample_raw(&sample, "abcd", 4);
	wire_sample_tag(&sample, (1u << 29) - 1, 1);
	wire_sample_raw(&sample, "abcdefgh", 8);
	assert_int_equal(decode(MC_FRAME_JOIN, &sample, sample.n_bytes, NULL), 0);

	for (unsigned wire = 3; wire < 8; wire++) {
		size_t before = sample.n_bytes;

		if (wire == 5)
			continue;
		wire_sample_tag(&sample, 1003, wire);
		assert_int_equal(
			decode(MC_FRAME_JOIN, &sample, sample.n_bytes, NULL), MC_CODEC_E_MALFORMED);
		sample.n_bytes = before;
	}
	wire_sample_clear(&sample);
}

static void bad_tags_and_varints_are_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
	} cases[] = {
		{"\x00\x00", 2},                                          /* field number 0 */
		{"\xff\xff\xff\xff\x7f\x00", 6},                          /* tag above 32 bits */
		{"\x88\x80\x80\x80\x80\x00\x01", 7},                      /* tag of six bytes */
		{"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11},     /* above 64 bits */
		{"\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 12}, /* eleven bytes */
		{"\x0a\xff\xff\xff\xff\x07", 6},                          /* 2 GiB of string */
		{"\x0a\xff\xff\xff\xff\x0f", 6},                          /* 4 GiB */
		{"\x0a\xff\xff\xff\xff\x7f", 6},                          /* 32 GiB */
		{"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},     /* 2^64 - 1 */
		{"\x0a", 1},
		{"\x0a\x80", 2},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wire_sample sample = {0};

		wire_sample_raw(&sample, cases[i].bytes, cases[i].n);
		assert_int_equal(decode(MC_FRAME_STATUS_REQUEST, &sample, sample.n_bytes, NULL),
			MC_CODEC_E_MALFORMED);
		wire_sample_clear(&sample);
	}
}

static void a_million_entries_stop_at_the_bound(void **state)
{
	struct wire_sample sample = {0}, packed = {0};
	ProtobufCMessage *message = NULL;
	const char *field = NULL;

	(void)state;
	wire_sample_message(&sample, mc_codec_descriptor(MC_FRAME_JOIN), 7);
	wire_sample_message(&packed, mc_codec_descriptor(MC_FRAME_JOIN), 7);
	wire_sample_tag(&packed, 7, 2);
	wire_sample_varint(&packed, 1000000);
	for (unsigned i = 0; i < 1000000; i++) {
		wire_sample_number(&sample, 7, 0);
		wire_sample_varint(&packed, 0);
	}
	assert_int_equal(decode(MC_FRAME_JOIN, &sample, sample.n_bytes, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "allow_uid");
	assert_int_equal(decode(MC_FRAME_JOIN, &packed, packed.n_bytes, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "allow_uid");
	wire_sample_clear(&sample);
	wire_sample_clear(&packed);

	/* fields that nobody knows are bounded by what it costs to keep them */
	while (sample.n_bytes + 2 <= MC_LIMIT_REQUEST_BYTES)
		wire_sample_number(&sample, 15, 0);
	assert_int_equal(mc_codec_decode(MC_FRAME_STATUS_REQUEST, sample.bytes, sample.n_bytes,
				 MC_LIMIT_DECODE_BYTES, &message, &field),
		MC_CODEC_E_SIZE);
	assert_null(message);
	wire_sample_clear(&sample);
}

static void a_full_acl_fits_the_bound(void **state)
{
	struct wire_sample sample = {0};
	ProtobufCMessage *message = NULL;

	(void)state;
	wire_sample_message(&sample, mc_codec_descriptor(MC_FRAME_JOIN), 7);
	for (unsigned i = 0; i < MC_LIMIT_ACL_ENTRIES; i++)
		wire_sample_number(&sample, 7, UINT32_MAX);
	assert_int_equal(mc_codec_decode(MC_FRAME_JOIN, sample.bytes, sample.n_bytes,
				 MC_LIMIT_DECODE_BYTES, &message, NULL),
		0);
	assert_int_equal(((Moecomm__Wire__Join *)message)->n_allow_uid, MC_LIMIT_ACL_ENTRIES);
	mc_codec_free(message);
	wire_sample_clear(&sample);
}

static void a_small_budget_is_kept(void **state)
{
	(void)state;
	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++) {
		struct wire_sample sample = {0};
		ProtobufCMessage *message = NULL;
		size_t budget = 0;
		int r;

		/* whichever allocation fails, nothing leaks (the leak checker looks) */
		wire_sample_message(&sample, mc_codec_descriptor(type), 0);
		while ((r = mc_codec_decode(type, sample.bytes, sample.n_bytes, budget, &message,
				NULL)) == MC_CODEC_E_SIZE) {
			assert_null(message);
			budget += 8;
		}
		assert_int_equal(r, 0);
		assert_true(budget >= sizeof(ProtobufCMessage));
		assert_true(budget < 8192);
		mc_codec_free(message);
		wire_sample_clear(&sample);
	}
}

static void many_small_allocations_add_up(void **state)
{
	const ProtobufCMessageDescriptor *layout = mc_codec_descriptor(MC_FRAME_LAYOUT);
	const ProtobufCFieldDescriptor *members =
		protobuf_c_message_descriptor_get_field_by_name(layout, "members");
	struct wire_sample sample = {0};
	ProtobufCMessage *message = NULL;

	(void)state;
	/* no single one is larger than a few KiB, all together are */
	wire_sample_message(&sample, layout, members->id);
	for (unsigned i = 0; i < MC_LIMIT_WORLD_SIZE; i++)
		wire_sample_field(&sample, layout, members);
	assert_int_equal(mc_codec_decode(MC_FRAME_LAYOUT, sample.bytes, sample.n_bytes, 8192,
				 &message, NULL),
		MC_CODEC_E_SIZE);
	assert_null(message);
	wire_sample_clear(&sample);
}

/* depth messages, the outermost included, through one field */
static void nest(struct wire_sample *sample, unsigned depth, uint32_t number)
{
	struct wire_sample inner = {0};

	for (unsigned i = 1; i < depth; i++) {
		struct wire_sample outer = {0};

		wire_sample_bytes(&outer, number, inner.bytes, inner.n_bytes);
		wire_sample_clear(&inner);
		inner = outer;
	}
	*sample = inner;
}

static void nesting_is_bounded(void **state)
{
	static const unsigned too_deep[] = {MC_LIMIT_DECODE_DEPTH + 1, 100, 5000};
	const ProtobufCMessageDescriptor *message = &moecomm__test__nest__descriptor;

	(void)state;
	for (uint32_t number = 1; number <= 2; number++) {
		struct wire_sample sample;
		const char *field;

		nest(&sample, MC_LIMIT_DECODE_DEPTH, number);
		assert_int_equal(mc_codec_scan(message, sample.bytes, sample.n_bytes, &field), 0);
		wire_sample_clear(&sample);
		for (unsigned i = 0; i < 3; i++) {
			nest(&sample, too_deep[i], number);
			assert_int_equal(
				mc_codec_scan(message, sample.bytes, sample.n_bytes, &field),
				MC_CODEC_E_DEPTH);
			assert_string_equal(field, number == 1 ? "inner" : "list");
			wire_sample_clear(&sample);
		}
	}
}

static void nesting_in_unknown_fields_and_groups_costs_nothing(void **state)
{
	struct wire_sample bomb, sample = {0};

	(void)state;
	/* bytes of a field that nobody knows are not descended into */
	nest(&bomb, 5000, 1);
	wire_sample_bytes(&sample, 100, bomb.bytes, bomb.n_bytes);
	assert_int_equal(decode(MC_FRAME_STATUS_REQUEST, &sample, sample.n_bytes, NULL), 0);
	wire_sample_clear(&sample);
	wire_sample_clear(&bomb);

	for (unsigned i = 0; i < 60000; i++)
		wire_sample_tag(&sample, 1, 3);
	assert_int_equal(decode(MC_FRAME_STATUS_REQUEST, &sample, sample.n_bytes, NULL),
		MC_CODEC_E_MALFORMED);
	wire_sample_clear(&sample);
}

static void encoding_checks_the_message(void **state)
{
	Moecomm__Wire__Hello hello = MOECOMM__WIRE__HELLO__INIT;
	Moecomm__Wire__Resume resume = MOECOMM__WIRE__RESUME__INIT;
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	uint8_t *payload = NULL;
	char *text;
	size_t n = 0;

	(void)state;
	/* Resume.group is missing */
	assert_int_equal(mc_codec_encode(&resume.base, &payload, &n), -EINVAL);
	assert_null(payload);

	text = malloc(MC_LIMIT_REPLY_BYTES + 1);
	assert_non_null(text);
	memset(text, 'a', MC_LIMIT_REPLY_BYTES);
	text[MC_LIMIT_REPLY_BYTES] = 0;
	hello.label = text;
	assert_int_equal(mc_codec_encode(&hello.base, &payload, &n), -EMSGSIZE);
	assert_null(payload);
	free(text);

	/* an empty message is one */
	assert_int_equal(mc_codec_encode(&request.base, &payload, &n), 0);
	assert_non_null(payload);
	assert_int_equal(n, 0);
	free(payload);
}

static void errors_have_sentences(void **state)
{
	(void)state;
	for (int e = MC_CODEC_E_TYPE; e <= MC_CODEC_E_FIELD; e++)
		for (int f = e + 1; f <= MC_CODEC_E_FIELD + 1; f++)
			assert_string_not_equal(mc_codec_error_text(e), mc_codec_error_text(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_comes_back_the_same),
		cmocka_unit_test(an_unknown_type_is_told),
		cmocka_unit_test(truncation_at_every_byte_is_refused),
		cmocka_unit_test(a_missing_required_field_is_named),
		cmocka_unit_test(a_field_that_comes_twice_is_refused),
		cmocka_unit_test(a_field_of_another_wire_type_is_refused),
		cmocka_unit_test(unknown_fields_pass_but_groups_do_not),
		cmocka_unit_test(bad_tags_and_varints_are_refused),
		cmocka_unit_test(a_million_entries_stop_at_the_bound),
		cmocka_unit_test(a_full_acl_fits_the_bound),
		cmocka_unit_test(a_small_budget_is_kept),
		cmocka_unit_test(many_small_allocations_add_up),
		cmocka_unit_test(nesting_is_bounded),
		cmocka_unit_test(nesting_in_unknown_fields_and_groups_costs_nothing),
		cmocka_unit_test(encoding_checks_the_message),
		cmocka_unit_test(errors_have_sentences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
