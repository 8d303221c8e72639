/* SPDX-License-Identifier: Apache-2.0 */
/* Every field of every message at and beyond its bound. */
#include "unit/proto/test_support.h"

#include "proto/codec.h"
#include "proto/codec_bounds.h"
#include "proto/codec_scan.h"
#include "unit/proto/wire_sample.h"

/* Scans the message with one field's value replaced by what `write` writes. */
static int scan_with(const ProtobufCMessageDescriptor *message, const struct wire_sample *value,
	uint32_t number, const char **ret_field)
{
	struct wire_sample sample = {0};
	int r;

	wire_sample_message(&sample, message, number);
	wire_sample_raw(&sample, value->bytes, value->n_bytes);
	r = mc_codec_scan(message, sample.bytes, sample.n_bytes, ret_field);
	wire_sample_clear(&sample);
	return r;
}

static void expect_number(const ProtobufCMessageDescriptor *message,
	const ProtobufCFieldDescriptor *field, uint64_t number, int expected)
{
	struct wire_sample value = {0};
	const char *blamed = "";

	wire_sample_number(&value, field->id, number);
	assert_int_equal(scan_with(message, &value, field->id, &blamed), expected);
	assert_string_equal(blamed, expected ? field->name : "");
	wire_sample_clear(&value);
}

static void expect_bytes(const ProtobufCMessageDescriptor *message,
	const ProtobufCFieldDescriptor *field, size_t n, int last, int expected)
{
	struct wire_sample value = {0};
	const char *blamed = "";
	uint8_t *bytes = malloc(n + 1);

	assert_non_null(bytes);
	memset(bytes, 'x', n + 1);
	if (n > 0)
		bytes[n - 1] = (uint8_t)last;
	wire_sample_bytes(&value, field->id, bytes, n);
	assert_int_equal(scan_with(message, &value, field->id, &blamed), expected);
	assert_string_equal(blamed, expected ? field->name : "");
	wire_sample_clear(&value);
	free(bytes);
}

static void expect_count(const ProtobufCMessageDescriptor *message,
	const ProtobufCFieldDescriptor *field, uint32_t n, int expected)
{
	struct wire_sample value = {0};
	const char *blamed = "";

	for (uint32_t i = 0; i < n; i++)
		wire_sample_field(&value, message, field);
	assert_int_equal(scan_with(message, &value, field->id, &blamed), expected);
	assert_string_equal(blamed, expected ? field->name : "");
	wire_sample_clear(&value);
}

static void check_field(
	const ProtobufCMessageDescriptor *message, const ProtobufCFieldDescriptor *field)
{
	const struct mc_bound *bound = mc_bounds_find(mc_bounds_table(message), field);

	if (field->label == PROTOBUF_C_LABEL_REPEATED && bound->max_count < UINT32_MAX) {
		expect_count(message, field, bound->max_count, 0);
		expect_count(message, field, bound->max_count + 1, MC_CODEC_E_FIELD);
	}
	switch (bound->kind) {
	case MC_BOUND_NUMBER:
		expect_number(message, field, bound->min, 0);
		expect_number(message, field, bound->max, 0);
		if (bound->min > 0)
			expect_number(message, field, bound->min - 1, MC_CODEC_E_FIELD);
		if (bound->max < UINT64_MAX) {
			expect_number(message, field, bound->max + 1, MC_CODEC_E_FIELD);
			expect_number(message, field, UINT64_MAX, MC_CODEC_E_FIELD);
		}
		break;
	case MC_BOUND_LIST:
		break;
	default:
		expect_bytes(message, field, bound->min, 'x', 0);
		expect_bytes(message, field, bound->max, 'x', 0);
		if (bound->min > 0)
			expect_bytes(message, field, bound->min - 1, 'x', MC_CODEC_E_FIELD);
		expect_bytes(message, field, bound->max + 1, 'x', MC_CODEC_E_FIELD);
		for (int c = 0; c < 256; c++) {
			int is_name = c > 0 && c < 128 &&
				      strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					     "0123456789._:-",
					      c) != NULL;
			int is_text = (c >= 32 && c != 127) || c == '\n' || c == '\t';
			int is_label = c >= 32 && c != 127;
			int fine = bound->kind == MC_BOUND_NAME    ? is_name
				   : bound->kind == MC_BOUND_TEXT  ? is_text
				   : bound->kind == MC_BOUND_LABEL ? is_label
								   : 1;

			expect_bytes(message, field, bound->max, c, fine ? 0 : MC_CODEC_E_FIELD);
		}
		break;
	}
}

static void check_message(const ProtobufCMessageDescriptor *message)
{
	for (unsigned i = 0; i < message->n_fields; i++)
		check_field(message, &message->fields[i]);
}

static void every_field_is_bounded(void **state)
{
	(void)state;
	wire_sample_visit(check_message);
}

static void check_table(const ProtobufCMessageDescriptor *message)
{
	const struct mc_bound_table *table = mc_bounds_table(message);

	/* what the scan counts in an array on its stack */
	assert_true(message->n_fields <= MC_CODEC_SCAN_FIELDS);
	for (unsigned i = 0; i < message->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &message->fields[i];
		const struct mc_bound *bound = mc_bounds_find(table, field);

		/* a field that the other side fills as it likes has a bound that somebody chose */
		if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES ||
			field->label == PROTOBUF_C_LABEL_REPEATED)
			assert_int_equal(bound->number, field->id);
	}
	for (unsigned i = 0; table && i < table->n_bounds; i++) {
		const struct mc_bound *bound = &table->bounds[i];
		const ProtobufCFieldDescriptor *field =
			protobuf_c_message_descriptor_get_field(message, bound->number);

		assert_non_null(field);
		assert_string_equal(field->name, bound->name);
		assert_int_equal(
			bound->kind == MC_BOUND_BYTES, field->type == PROTOBUF_C_TYPE_BYTES);
		assert_int_equal(
			bound->kind == MC_BOUND_LIST, field->type == PROTOBUF_C_TYPE_MESSAGE);
		assert_int_equal(bound->kind >= MC_BOUND_NAME && bound->kind <= MC_BOUND_TEXT,
			field->type == PROTOBUF_C_TYPE_STRING);
	}
}

static void the_table_names_the_fields_it_means(void **state)
{
	(void)state;
	wire_sample_visit(check_table);
}

static int roundtrip(uint16_t type, const ProtobufCMessage *message, const char **ret_field)
{
	ProtobufCMessage *back = NULL;
	uint8_t *payload;
	size_t n;
	int r;

	assert_int_equal(mc_codec_encode(message, &payload, &n), 0);
	r = mc_codec_decode(type, payload, n, MC_LIMIT_DECODE_REPLY_BYTES, &back, ret_field);
	mc_codec_free(back);
	free(payload);
	return r;
}

static Moecomm__Wire__GroupSpec spec_of(uint32_t world_size)
{
	Moecomm__Wire__GroupSpec spec = MOECOMM__WIRE__GROUP_SPEC__INIT;

	spec.world_size = world_size;
	spec.n_channels = 1;
	spec.max_rows = 1;
	return spec;
}

static void ranks_lie_inside_the_world(void **state)
{
	Moecomm__Wire__GroupSpec spec = spec_of(4);
	Moecomm__Wire__Join join = MOECOMM__WIRE__JOIN__INIT;
	const char *field;

	(void)state;
	join.group = "g";
	join.boot_id = "b";
	join.spec = &spec;
	join.rank = 3;
	assert_int_equal(roundtrip(MC_FRAME_JOIN, &join.base, &field), 0);
	join.rank = 4;
	assert_int_equal(roundtrip(MC_FRAME_JOIN, &join.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "rank");
}

static void members_of_a_layout_are_ranks_of_it(void **state)
{
	Moecomm__Wire__GroupSpec spec = spec_of(2);
	Moecomm__Wire__Member member[3] = {MOECOMM__WIRE__MEMBER__INIT, MOECOMM__WIRE__MEMBER__INIT,
		MOECOMM__WIRE__MEMBER__INIT};
	Moecomm__Wire__Member *members[3] = {&member[0], &member[1], &member[2]};
	Moecomm__Wire__Layout layout = MOECOMM__WIRE__LAYOUT__INIT;
	uint8_t id[16] = {0};
	const char *field;

	(void)state;
	layout.token.data = layout.sentinel.data = id;
	layout.token.len = layout.sentinel.len = sizeof(id);
	layout.spec = &spec;
	layout.members = members;
	layout.n_members = 2;
	member[1].rank = 1;
	assert_int_equal(roundtrip(MC_FRAME_LAYOUT, &layout.base, &field), 0);
	member[1].rank = 0;
	assert_int_equal(roundtrip(MC_FRAME_LAYOUT, &layout.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "members");
	member[1].rank = 2;
	assert_int_equal(roundtrip(MC_FRAME_LAYOUT, &layout.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "rank");
	layout.n_members = 3;
	member[1].rank = 1;
	assert_int_equal(roundtrip(MC_FRAME_LAYOUT, &layout.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "members");
}

static void ranks_of_a_status_lie_inside_their_groups(void **state)
{
	Moecomm__Wire__GroupSpec spec = spec_of(2);
	Moecomm__Wire__RankStatus rank[3] = {MOECOMM__WIRE__RANK_STATUS__INIT,
		MOECOMM__WIRE__RANK_STATUS__INIT, MOECOMM__WIRE__RANK_STATUS__INIT};
	Moecomm__Wire__RankStatus *ranks[3] = {&rank[0], &rank[1], &rank[2]};
	Moecomm__Wire__GroupStatus group = MOECOMM__WIRE__GROUP_STATUS__INIT;
	Moecomm__Wire__GroupStatus *groups[2] = {&group, &group};
	Moecomm__Wire__Status status = MOECOMM__WIRE__STATUS__INIT;
	uint32_t missing[1] = {1};
	uint8_t id[16] = {0};
	const char *field;

	(void)state;
	status.version = "0.1.0";
	status.backend = "host";
	status.instance.data = id;
	status.instance.len = sizeof(id);
	status.groups = groups;
	status.n_groups = 2;
	group.name = "g";
	group.spec = &spec;
	group.ranks = ranks;
	group.n_ranks = 2;
	group.missing = missing;
	group.n_missing = 1;
	group.has_n_joined = 1;
	group.n_joined = 2;
	assert_int_equal(roundtrip(MC_FRAME_STATUS, &status.base, &field), 0);
	missing[0] = 2;
	assert_int_equal(roundtrip(MC_FRAME_STATUS, &status.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "missing");
	missing[0] = 0;
	group.n_joined = 3;
	assert_int_equal(roundtrip(MC_FRAME_STATUS, &status.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "n_joined");
	group.n_joined = 0;
	rank[1].rank = 2;
	assert_int_equal(roundtrip(MC_FRAME_STATUS, &status.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "rank");
	rank[1].rank = 1;
	group.n_ranks = 3;
	assert_int_equal(roundtrip(MC_FRAME_STATUS, &status.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "ranks");
}

static void a_text_is_made_to_fit(void **state)
{
	static const struct {
		const char *text;
		size_t max;
		const char *expected;
	} cases[] = {
		{"", 0, ""},
		{"abc", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"a\tb\nc\x1b[31m\x7f", 20, "a b c?[31m?"},
		{"ab\u2026", 5, "ab\u2026"}, /* of three bytes */
		{"ab\u2026", 4, "ab"},
		{"ab\u2026", 3, "ab"},
		{"ab\u2026", 2, "ab"},
		{"\x80\x80\x80", 2, ""},
		/* what is no UTF-8, and control characters of two bytes */
		{"a\xff"
		 "b",
			20, "a?b"},
		{"a\xc2\x9b"
		 "31m",
			20, "a??31m"},
		{"\xc2\xa0\xc3\xbc\xf0\x9f\x98\x80", 20, "\xc2\xa0\xc3\xbc\xf0\x9f\x98\x80"},
		{"\xc0\xaf\xe0\x80\xaf", 20, "?????"},
		{"\xed\xa0\x80\xf4\x90\x80\x80\xf5", 20, "????????"},
		{"ab\xe2\x80", 20, "ab??"},
		{"\xe2\x80"
		 "c",
			20, "??c"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = strdup(cases[i].text);

		assert_non_null(text);
		assert_ptr_equal(mc_codec_text_fit(text, cases[i].max), text);
		assert_string_equal(text, cases[i].expected);
		free(text);
	}
	assert_null(mc_codec_text_fit(NULL, 10));
}

static void what_fits_is_accepted(void **state)
{
	Moecomm__Wire__Hello hello = MOECOMM__WIRE__HELLO__INIT;
	char label[301];
	const char *field;

	(void)state;
	for (int i = 0; i < 300; i++)
		label[i] = (char)(i % 255 + 1);
	label[300] = 0;
	hello.label = label;
	assert_int_equal(roundtrip(MC_FRAME_HELLO, &hello.base, &field), MC_CODEC_E_FIELD);
	assert_string_equal(field, "label");
	mc_codec_text_fit(label, MC_LIMIT_LABEL_BYTES);
	assert_int_equal(roundtrip(MC_FRAME_HELLO, &hello.base, &field), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_is_bounded),
		cmocka_unit_test(the_table_names_the_fields_it_means),
		cmocka_unit_test(a_text_is_made_to_fit),
		cmocka_unit_test(what_fits_is_accepted),
		cmocka_unit_test(ranks_lie_inside_the_world),
		cmocka_unit_test(members_of_a_layout_are_ranks_of_it),
		cmocka_unit_test(ranks_of_a_status_lie_inside_their_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
