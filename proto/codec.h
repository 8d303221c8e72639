/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between protobuf-c structures and payload bytes, with the bounds that protobuf-c lacks: nesting
 * depth, allocation per message, string lengths, list lengths.
 */
#ifndef MC_PROTO_CODEC_H
#define MC_PROTO_CODEC_H

#include <stddef.h>
#include <stdint.h>
#include "moecomm.pb-c.h"
#include "proto/frame.h"

enum mc_codec_error {
	MC_CODEC_E_TYPE = 1,      /* unknown frame type */
	MC_CODEC_E_MALFORMED = 2, /* not a message of that type, or a required field is missing */
	MC_CODEC_E_DEPTH = 3,     /* nested deeper than MC_LIMIT_DECODE_DEPTH */
	MC_CODEC_E_SIZE = 4,      /* would allocate more than the bound */
	MC_CODEC_E_FIELD =
		5, /* a string, list or number is out of its bound; *ret_field names it */
};
const char *mc_codec_error_text(int error);

/* Message of a frame type, NULL for a type that this build does not know. */
const ProtobufCMessageDescriptor *mc_codec_descriptor(uint16_t type);

/*
 * Decodes a payload of a frame type. max_bytes bounds all that the message may allocate
 * (MC_LIMIT_DECODE_BYTES for requests, MC_LIMIT_DECODE_REPLY_BYTES for replies). Returns 0 and sets
 * *ret_message, which mc_codec_free frees, or a positive enum mc_codec_error and sets *ret_field
 * (static; "" when no field is to blame; may be NULL).
 *
 * Names of groups and jobs are [A-Za-z0-9._:-]; labels, ids and versions hold no control bytes;
 * details, reasons and causes none but tabs and newlines. proto/codec_bounds.c is the whole list.
 */
int mc_codec_decode(uint16_t type, const uint8_t *payload, size_t n_payload, size_t max_bytes,
	ProtobufCMessage **ret_message, const char **ret_field);
/* NULL is allowed. Returns NULL. */
ProtobufCMessage *mc_codec_free(ProtobufCMessage *message);

/*
 * Encodes. Returns 0 and sets *ret_payload (free() it) and *ret_bytes, -EINVAL when a required
 * field is missing, -EMSGSIZE when it is larger than MC_LIMIT_REPLY_BYTES, or -ENOMEM.
 */
int mc_codec_encode(const ProtobufCMessage *message, uint8_t **ret_payload, size_t *ret_bytes);

/*
 * Makes a text fit for a field, in place: cuts it to max_bytes (MC_LIMIT_LABEL_BYTES,
 * MC_LIMIT_DETAIL_BYTES, …), between two UTF-8 characters, and replaces control characters, which
 * the other side refuses, and what is no UTF-8, since such texts reach terminals, logs and JSON.
 * For whatever comes from outside: a program's name, an operator's reason, a driver's message.
 * Returns text; NULL is allowed.
 */
char *mc_codec_text_fit(char *text, size_t max_bytes);

#endif
