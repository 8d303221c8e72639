/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/proto/wire_sample.h"

#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"

void wire_sample_clear(struct wire_sample *sample)
{
	free(sample->bytes);
	*sample = (struct wire_sample){0};
}

void wire_sample_raw(struct wire_sample *sample, const void *bytes, size_t n)
{
	if (n == 0)
		return;
	if (sample->n_allocated - sample->n_bytes < n) {
		sample->n_allocated = (sample->n_bytes + n) * 2;
		sample->bytes = realloc(sample->bytes, sample->n_allocated);
		if (!sample->bytes)
			abort();
	}
	memcpy(sample->bytes + sample->n_bytes, bytes, n);
	sample->n_bytes += n;
}

void wire_sample_varint(struct wire_sample *sample, uint64_t value)
{
	uint8_t bytes[10];
	size_t n = 0;

	for (; value > 0x7f; value >>= 7)
		bytes[n++] = (uint8_t)(value | 0x80);
	bytes[n++] = (uint8_t)value;
	wire_sample_raw(sample, bytes, n);
}

void wire_sample_tag(struct wire_sample *sample, uint32_t number, unsigned wire)
{
	wire_sample_varint(sample, (uint64_t)number << 3 | wire);
}

void wire_sample_number(struct wire_sample *sample, uint32_t number, uint64_t value)
{
	wire_sample_tag(sample, number, PROTOBUF_C_WIRE_TYPE_VARINT);
	wire_sample_varint(sample, value);
}

void wire_sample_bytes(struct wire_sample *sample, uint32_t number, const void *bytes, size_t n)
{
	wire_sample_tag(sample, number, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	wire_sample_varint(sample, n);
	wire_sample_raw(sample, bytes, n);
}

void wire_sample_field(struct wire_sample *sample, const ProtobufCMessageDescriptor *message,
	const ProtobufCFieldDescriptor *field)
{
	const struct mc_bound *bound = mc_bounds_find(mc_bounds_table(message), field);
	char text[64];
	size_t n = bound->min > 5 ? bound->min : 5;

	memset(text, 'a', sizeof(text));
	switch (field->type) {
	case PROTOBUF_C_TYPE_MESSAGE: {
		struct wire_sample inner = {0};

		wire_sample_message(&inner, field->descriptor, 0);
		wire_sample_bytes(sample, field->id, inner.bytes, inner.n_bytes);
		wire_sample_clear(&inner);
		break;
	}
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
		wire_sample_bytes(sample, field->id, text, n);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		wire_sample_number(sample, field->id, 1);
		break;
	default:
		wire_sample_number(sample, field->id, bound->min);
		break;
	}
}

void wire_sample_message(
	struct wire_sample *sample, const ProtobufCMessageDescriptor *message, uint32_t skip)
{
	for (unsigned i = 0; i < message->n_fields; i++)
		if (message->fields[i].id != skip)
			wire_sample_field(sample, message, &message->fields[i]);
}

void wire_sample_frame(struct wire_sample *sample, uint16_t type, uint32_t serial,
	const void *payload, size_t n_payload)
{
	uint8_t header[MC_FRAME_HEADER_BYTES];

	mc_frame_header_write(header, type, serial, (uint32_t)n_payload, 0);
	wire_sample_raw(sample, header, sizeof(header));
	wire_sample_raw(sample, payload, n_payload);
}

static void visit_inner(const ProtobufCMessageDescriptor *message,
	void (*visit)(const ProtobufCMessageDescriptor *message))
{
	visit(message);
	for (unsigned i = 0; i < message->n_fields; i++)
		if (message->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
			visit_inner(message->fields[i].descriptor, visit);
}

void wire_sample_visit(void (*visit)(const ProtobufCMessageDescriptor *message))
{
	for (uint16_t type = MC_FRAME_HELLO; type <= MC_FRAME_LAST; type++)
		visit_inner(mc_codec_descriptor(type), visit);
}
