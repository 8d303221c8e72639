/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at a payload before anything is allocated for it; internal to proto/. */
#ifndef MC_PROTO_CODEC_SCAN_H
#define MC_PROTO_CODEC_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

/* Fields of one message type that the scan can count; a test asserts that none of ours has more. */
#define MC_CODEC_SCAN_FIELDS 32u

/*
 * Walks the wire format by the message's descriptor and checks structure, nesting and the bounds of
 * every field (proto/codec_bounds.c). Only fields that the descriptor knows as submessages are
 * descended into. Stricter than protobuf in two things that no encoder of ours does: a field that
 * is not repeated may come once only, and a string holds no NUL. Returns 0 or an
 * enum mc_codec_error and sets *ret_field (static; "" when no field is to blame).
 */
int mc_codec_scan(const ProtobufCMessageDescriptor *message, const uint8_t *data, size_t n_data,
	const char **ret_field);

#endif
