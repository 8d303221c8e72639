/* SPDX-License-Identifier: Apache-2.0 */
/* What each field of each message may hold; internal to proto/. */
#ifndef MC_PROTO_CODEC_BOUNDS_H
#define MC_PROTO_CODEC_BOUNDS_H

#include <stdint.h>
#include "moecomm.pb-c.h"

enum mc_bound_kind {
	MC_BOUND_NUMBER = 1, /* min … max is the value's range, also of a list's elements */
	MC_BOUND_NAME = 2, /* a string of [A-Za-z0-9._:-]; min … max are bytes, here and below */
	MC_BOUND_LABEL =
		3,         /* a string without control bytes: it is printed to terminals and logs */
	MC_BOUND_TEXT = 4, /* the same, but tabs and newlines are allowed */
	MC_BOUND_BYTES = 5,
	MC_BOUND_LIST = 6, /* of submessages */
};

struct mc_bound {
	uint32_t number;  /* of the field */
	const char *name; /* of the field; a test asserts that it goes with the number */
	enum mc_bound_kind kind;
	uint64_t min;
	uint64_t max;
	uint32_t max_count; /* entries of a repeated field */
};

struct mc_bound_table {
	const ProtobufCMessageDescriptor *message;
	const struct mc_bound *bounds;
	unsigned n_bounds;
};

/* NULL when the message has no table: then every field gets mc_bounds_default. */
const struct mc_bound_table *mc_bounds_table(const ProtobufCMessageDescriptor *message);
/* table may be NULL. Never NULL: a field without a bound of its own gets a narrow one for its type.
 */
const struct mc_bound *mc_bounds_find(
	const struct mc_bound_table *table, const ProtobufCFieldDescriptor *field);

/* Checks the content of one field. Returns 1 when it is inside its bound. */
int mc_bounds_number(const struct mc_bound *bound, uint64_t value);
int mc_bounds_bytes(const struct mc_bound *bound, const uint8_t *data, uint64_t n_data);

/* Checks fields of a decoded message against each other. NULL, or the name of the field to blame.
 */
const char *mc_bounds_cross(const ProtobufCMessage *message);

#endif
