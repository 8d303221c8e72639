/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec_scan.h"

#include <stdbool.h>

#include "proto/codec.h"
#include "proto/codec_bounds.h"
#include "proto/limits.h"

struct cursor {
	const uint8_t *at;
	size_t n_left;
};

struct value {
	ProtobufCWireType wire;
	uint64_t number;     /* varint */
	const uint8_t *data; /* length-prefixed */
	size_t n_data;
};

static bool read_varint(struct cursor *cursor, unsigned max_bytes, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < max_bytes && cursor->n_left > 0; i++) {
		uint8_t byte = *cursor->at++;

		cursor->n_left--;
		/* of a tenth byte only the lowest bit has a place */
		if (i == 9 && (byte & 0x7e))
			return false;
		value |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (!(byte & 0x80)) {
			*ret_value = value;
			return true;
		}
	}
	return false;
}

static bool skip(struct cursor *cursor, uint64_t n)
{
	if (n > cursor->n_left)
		return false;
	cursor->at += n;
	cursor->n_left -= n;
	return true;
}

static bool read_value(struct cursor *cursor, struct value *ret_value)
{
	uint64_t n;

	switch (ret_value->wire) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		return read_varint(cursor, 10, &ret_value->number);
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		return skip(cursor, 8);
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		return skip(cursor, 4);
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		if (!read_varint(cursor, 5, &n))
			return false;
		ret_value->data = cursor->at;
		ret_value->n_data = n;
		return skip(cursor, n);
	default:
		/* groups, which proto2 abolished before we began */
		return false;
	}
}

static ProtobufCWireType wire_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return PROTOBUF_C_WIRE_TYPE_32BIT;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return PROTOBUF_C_WIRE_TYPE_64BIT;
	default:
		return PROTOBUF_C_WIRE_TYPE_VARINT;
	}
}

/* A list of numbers in one length-prefixed value. */
static int scan_packed(const struct mc_bound *bound, const struct value *value, uint32_t *io_count)
{
	struct cursor cursor = {value->data, value->n_data};

	while (cursor.n_left > 0) {
		uint64_t number;

		if (!read_varint(&cursor, 10, &number))
			return MC_CODEC_E_MALFORMED;
		if (*io_count == bound->max_count || !mc_bounds_number(bound, number))
			return MC_CODEC_E_FIELD;
		++*io_count;
	}
	return 0;
}

static int scan_message(const ProtobufCMessageDescriptor *message, struct cursor cursor,
	unsigned depth, const char **ret_field);

static int scan_field(const ProtobufCFieldDescriptor *field, const struct mc_bound *bound,
	const struct value *value, unsigned depth, uint32_t *io_count, const char **ret_field)
{
	ProtobufCWireType wire = wire_of(field->type);

	*ret_field = field->name;
	if (value->wire != wire) {
		if (field->label == PROTOBUF_C_LABEL_REPEATED &&
			wire == PROTOBUF_C_WIRE_TYPE_VARINT &&
			value->wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
			return scan_packed(bound, value, io_count);
		return MC_CODEC_E_MALFORMED;
	}
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		if (*io_count == bound->max_count)
			return MC_CODEC_E_FIELD;
	} else if (*io_count > 0) {
		return MC_CODEC_E_MALFORMED;
	}
	++*io_count;

	switch (field->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		return scan_message(field->descriptor, (struct cursor){value->data, value->n_data},
			depth + 1, ret_field);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
		return mc_bounds_bytes(bound, value->data, value->n_data) ? 0 : MC_CODEC_E_FIELD;
	default:
		if (wire == PROTOBUF_C_WIRE_TYPE_VARINT && !mc_bounds_number(bound, value->number))
			return MC_CODEC_E_FIELD;
		return 0;
	}
}

static int scan_message(const ProtobufCMessageDescriptor *message, struct cursor cursor,
	unsigned depth, const char **ret_field)
{
	const struct mc_bound_table *table = mc_bounds_table(message);
	uint32_t counts[MC_CODEC_SCAN_FIELDS] = {0};

	/* *ret_field names the field that led here, which is the one to blame */
	if (depth > MC_LIMIT_DECODE_DEPTH)
		return MC_CODEC_E_DEPTH;
	if (message->n_fields > MC_CODEC_SCAN_FIELDS)
		return MC_CODEC_E_TYPE;

	while (cursor.n_left > 0) {
		const ProtobufCFieldDescriptor *field;
		struct value value = {0};
		uint64_t tag;
		int r;

		*ret_field = "";
		if (!read_varint(&cursor, 5, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
			return MC_CODEC_E_MALFORMED;
		field = protobuf_c_message_descriptor_get_field(message, (unsigned)(tag >> 3));
		if (field)
			*ret_field = field->name;
		value.wire = (ProtobufCWireType)(tag & 7);
		if (!read_value(&cursor, &value))
			return MC_CODEC_E_MALFORMED;
		/* of a later version; what it costs to keep is counted when decoding */
		if (!field)
			continue;
		r = scan_field(field, mc_bounds_find(table, field), &value, depth,
			&counts[field - message->fields], ret_field);
		if (r)
			return r;
	}

	for (unsigned i = 0; i < message->n_fields; i++) {
		if (message->fields[i].label == PROTOBUF_C_LABEL_REQUIRED && counts[i] == 0) {
			*ret_field = message->fields[i].name;
			return MC_CODEC_E_MALFORMED;
		}
	}
	*ret_field = "";
	return 0;
}

int mc_codec_scan(const ProtobufCMessageDescriptor *message, const uint8_t *data, size_t n_data,
	const char **ret_field)
{
	const char *field = "";
	int r;

	r = scan_message(message, (struct cursor){data, n_data}, 1, &field);
	*ret_field = field;
	return r;
}
