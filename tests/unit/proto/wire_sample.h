/* SPDX-License-Identifier: Apache-2.0 */
/* Writes messages byte by byte, so that tests and fuzz seeds can also write wrong ones. */
#ifndef TESTS_UNIT_PROTO_WIRE_SAMPLE_H
#define TESTS_UNIT_PROTO_WIRE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>
#include "proto/codec_bounds.h"

struct wire_sample {
	uint8_t *bytes;
	size_t n_bytes;
	size_t n_allocated;
};

void wire_sample_clear(struct wire_sample *sample);
void wire_sample_raw(struct wire_sample *sample, const void *bytes, size_t n);
void wire_sample_varint(struct wire_sample *sample, uint64_t value);
void wire_sample_tag(struct wire_sample *sample, uint32_t number, unsigned wire);
void wire_sample_number(struct wire_sample *sample, uint32_t number, uint64_t value);
void wire_sample_bytes(struct wire_sample *sample, uint32_t number, const void *bytes, size_t n);

/* One entry of a field with a value that its bound allows. */
void wire_sample_field(struct wire_sample *sample, const ProtobufCMessageDescriptor *message,
	const ProtobufCFieldDescriptor *field);
/* Every field of the message once, in the order of their numbers, but the one numbered skip. */
void wire_sample_message(
	struct wire_sample *sample, const ProtobufCMessageDescriptor *message, uint32_t skip);
/* A frame's header and that payload. */
void wire_sample_frame(struct wire_sample *sample, uint16_t type, uint32_t serial,
	const void *payload, size_t n_payload);

/*
 * Calls visit for the message of every frame type and every message in them (some more than once).
 */
void wire_sample_visit(void (*visit)(const ProtobufCMessageDescriptor *message));

#endif
