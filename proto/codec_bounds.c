/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec_bounds.h"

#include <string.h>

#include "proto/limits.h"

/*
 * Numbers of enums that a later minor version may extend: whatever fits a byte passes, since they
 * travel on in bytes (the abort word); the name tables know what to say to an unknown one.
 */
#define ENUM_MAX 255u
/* A list without a bound of its own is bounded by what decoding may allocate. */
#define BY_BUDGET UINT32_MAX
#define RANK_MAX  (MC_LIMIT_WORLD_SIZE - 1u)
#define ID_BYTES  16u /* instance, token, sentinel */

#define NUMBER(number, name, min, max)                                                             \
	{                                                                                          \
		number, name, MC_BOUND_NUMBER, min, max, 1                                         \
	}
#define NUMBERS(number, name, min, max, count)                                                     \
	{                                                                                          \
		number, name, MC_BOUND_NUMBER, min, max, count                                     \
	}
#define NAME(number, name, min)                                                                    \
	{                                                                                          \
		number, name, MC_BOUND_NAME, min, MC_LIMIT_NAME_BYTES, 1                           \
	}
#define LABEL(number, name)                                                                        \
	{                                                                                          \
		number, name, MC_BOUND_LABEL, 0, MC_LIMIT_LABEL_BYTES, 1                           \
	}
#define UUID(number, name)                                                                         \
	{                                                                                          \
		number, name, MC_BOUND_LABEL, 0, MC_LIMIT_UUID_BYTES, 1                            \
	}
#define TEXT(number, name)                                                                         \
	{                                                                                          \
		number, name, MC_BOUND_TEXT, 0, MC_LIMIT_DETAIL_BYTES, 1                           \
	}
#define LONG_TEXT(number, name, max)                                                               \
	{                                                                                          \
		number, name, MC_BOUND_TEXT, 0, max, 1                                             \
	}
#define ID(number, name)                                                                           \
	{                                                                                          \
		number, name, MC_BOUND_BYTES, ID_BYTES, ID_BYTES, 1                                \
	}
#define LIST(number, name, count)                                                                  \
	{                                                                                          \
		number, name, MC_BOUND_LIST, 0, 0, count                                           \
	}
#define TIMEOUT(number, name) NUMBER(number, name, 0, MC_LIMIT_TIMEOUT_MS)

static const struct mc_bound hello[] = {LABEL(4, "label"), LABEL(5, "version")};

static const struct mc_bound welcome[] = {
	LABEL(4, "version"), ID(5, "instance"), LABEL(6, "backend"), UUID(7, "boot_id")};

static const struct mc_bound done[] = {NUMBER(1, "status", 0, ENUM_MAX), TEXT(2, "detail")};

/* Rows and row bytes are for mc_layout_make to judge, which adds them up in 64 bits. */
static const struct mc_bound group_spec[] = {
	NUMBER(1, "world_size", 1, MC_LIMIT_WORLD_SIZE),
	NUMBER(2, "n_channels", 1, MC_LIMIT_CHANNELS),
	NUMBER(6, "backend", 0, ENUM_MAX),
	NUMBER(7, "path", 0, ENUM_MAX),
	NAME(9, "job", 0),
	TIMEOUT(10, "op_timeout_ms"),
	TIMEOUT(11, "warmup_timeout_ms"),
	TIMEOUT(13, "join_timeout_ms"),
	TIMEOUT(14, "probe_timeout_ms"),
};

static const struct mc_bound join[] = {
	NAME(1, "group", 1),
	NUMBER(2, "rank", 0, RANK_MAX),
	UUID(4, "boot_id"),
	UUID(5, "device_uuid"),
	LABEL(6, "label"),
	NUMBERS(7, "allow_uid", 0, UINT32_MAX, MC_LIMIT_ACL_ENTRIES),
	NUMBERS(8, "allow_gid", 0, UINT32_MAX, MC_LIMIT_ACL_ENTRIES),
};

static const struct mc_bound member[] = {
	NUMBER(1, "rank", 0, RANK_MAX), UUID(4, "device_uuid"), LABEL(5, "label")};

static const struct mc_bound layout[] = {
	ID(2, "token"),
	ID(4, "sentinel"),
	LIST(14, "members", MC_LIMIT_WORLD_SIZE),
	TIMEOUT(15, "probe_timeout_ms"),
};

static const struct mc_bound pair_failure[] = {
	NUMBER(1, "peer", 0, RANK_MAX), NUMBER(2, "result", 1, ENUM_MAX), TEXT(3, "detail")};

static const struct mc_bound vote[] = {LIST(2, "failures", MC_LIMIT_WORLD_SIZE)};

static const struct mc_bound ready[] = {NUMBER(2, "path", 0, ENUM_MAX), TEXT(3, "reason")};

static const struct mc_bound abort_[] = {NAME(2, "group", 0), TEXT(3, "reason")};

/* A failure that says OK would end an epoch with success. */
static const struct mc_bound op_failed[] = {
	NUMBER(2, "status", 1, ENUM_MAX), NUMBER(3, "peer", 0, RANK_MAX), TEXT(4, "detail")};

static const struct mc_bound notice[] = {
	NUMBER(3, "status", 1, ENUM_MAX), NUMBER(4, "rank", 0, RANK_MAX), TEXT(5, "detail")};

static const struct mc_bound resume[] = {
	ID(2, "token"), NAME(3, "group", 1), NUMBER(4, "rank", 0, RANK_MAX)};

static const struct mc_bound set_deadlines[] = {
	NAME(2, "group", 0), TIMEOUT(3, "op_timeout_ms"), TIMEOUT(4, "warmup_timeout_ms")};

static const struct mc_bound status_request[] = {NAME(1, "group", 0)};

static const struct mc_bound rank_progress[] = {
	NUMBER(1, "channel", 0, MC_LIMIT_CHANNELS - 1), NUMBER(3, "op", 0, ENUM_MAX)};

static const struct mc_bound rank_status[] = {
	NUMBER(1, "rank", 0, RANK_MAX),
	NUMBER(3, "health", 0, ENUM_MAX),
	LIST(4, "progress", MC_LIMIT_CHANNELS),
	NUMBER(5, "fault_status", 0, ENUM_MAX),
	NUMBER(6, "fault_peer", 0, RANK_MAX),
	TEXT(8, "fault_detail"),
};

static const struct mc_bound holder[] = {NUMBER(2, "rank", 0, RANK_MAX)};

static const struct mc_bound group_status[] = {
	NAME(1, "name", 1),
	NUMBER(2, "state", 0, ENUM_MAX),
	NUMBER(6, "path", 0, ENUM_MAX),
	NUMBER(7, "health", 0, ENUM_MAX),
	NUMBER(10, "n_joined", 0, MC_LIMIT_WORLD_SIZE),
	NUMBERS(11, "missing", 0, RANK_MAX, MC_LIMIT_WORLD_SIZE),
	TEXT(12, "cause"),
	LIST(13, "ranks", MC_LIMIT_WORLD_SIZE),
	LIST(14, "holders", BY_BUDGET),
};

static const struct mc_bound client_status[] = {LABEL(4, "label")};

static const struct mc_bound gpu_status[] = {
	UUID(1, "uuid"), LABEL(2, "name"), NUMBERS(4, "holder_pid", 0, UINT32_MAX, BY_BUDGET)};

static const struct mc_bound status[] = {
	LABEL(1, "version"),
	LABEL(2, "backend"),
	ID(4, "instance"),
	LABEL(6, "socket"),
	LIST(7, "groups", BY_BUDGET),
	LIST(8, "clients", BY_BUDGET),
	LIST(9, "gpus", BY_BUDGET),
	TEXT(14, "not_ready"),
};

/* An empty uuid would mean any GPU. */
static const struct mc_bound release[] = {
	{1, "device_uuid", MC_BOUND_LABEL, 1, MC_LIMIT_UUID_BYTES, 1}};

static const struct mc_bound metrics[] = {LONG_TEXT(1, "text", MC_LIMIT_REPLY_BYTES)};

static const struct mc_bound history_request[] = {NAME(1, "group", 0)};

static const struct mc_bound event[] = {
	NAME(2, "group", 1), NUMBER(4, "state", 0, ENUM_MAX), TEXT(5, "cause")};

static const struct mc_bound ending[] = {
	NAME(1, "group", 1),
	NUMBER(4, "status", 0, ENUM_MAX),
	TEXT(5, "detail"),
	NUMBER(6, "world_size", 1, MC_LIMIT_WORLD_SIZE),
	NUMBER(8, "op", 0, ENUM_MAX),
	NUMBER(10, "channel", 0, MC_LIMIT_CHANNELS - 1),
	NUMBER(13, "was_state", 0, ENUM_MAX),
	NUMBERS(14, "missing", 0, RANK_MAX, MC_LIMIT_WORLD_SIZE),
};

static const struct mc_bound history[] = {
	LIST(1, "events", BY_BUDGET),
	LIST(2, "endings", BY_BUDGET),
	LONG_TEXT(3, "config", MC_LIMIT_CONFIG_BYTES),
};

#define TABLE(message, bounds)                                                                     \
	{                                                                                          \
		&moecomm__wire__##message##__descriptor, bounds,                                   \
			sizeof(bounds) / sizeof((bounds)[0])                                       \
	}

static const struct mc_bound_table tables[] = {
	TABLE(hello, hello),
	TABLE(welcome, welcome),
	TABLE(done, done),
	TABLE(group_spec, group_spec),
	TABLE(join, join),
	TABLE(member, member),
	TABLE(layout, layout),
	TABLE(pair_failure, pair_failure),
	TABLE(vote, vote),
	TABLE(ready, ready),
	TABLE(abort, abort_),
	TABLE(op_failed, op_failed),
	TABLE(notice, notice),
	TABLE(resume, resume),
	TABLE(set_deadlines, set_deadlines),
	TABLE(status_request, status_request),
	TABLE(rank_progress, rank_progress),
	TABLE(rank_status, rank_status),
	TABLE(holder, holder),
	TABLE(group_status, group_status),
	TABLE(client_status, client_status),
	TABLE(gpu_status, gpu_status),
	TABLE(status, status),
	TABLE(release, release),
	TABLE(metrics, metrics),
	TABLE(history_request, history_request),
	TABLE(event, event),
	TABLE(ending, ending),
	TABLE(history, history),
};

const struct mc_bound_table *mc_bounds_table(const ProtobufCMessageDescriptor *message)
{
	for (unsigned i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		if (tables[i].message == message)
			return &tables[i];
	return NULL;
}

/* What a field gets that has no bound of its own. */
static const struct mc_bound default_u32 = {0, "", MC_BOUND_NUMBER, 0, UINT32_MAX, BY_BUDGET};
static const struct mc_bound default_u64 = {0, "", MC_BOUND_NUMBER, 0, UINT64_MAX, BY_BUDGET};
static const struct mc_bound default_string = {
	0, "", MC_BOUND_LABEL, 0, MC_LIMIT_LABEL_BYTES, BY_BUDGET};
static const struct mc_bound default_bytes = {
	0, "", MC_BOUND_BYTES, 0, MC_LIMIT_LABEL_BYTES, BY_BUDGET};
static const struct mc_bound default_list = {0, "", MC_BOUND_LIST, 0, 0, BY_BUDGET};

const struct mc_bound *mc_bounds_find(
	const struct mc_bound_table *table, const ProtobufCFieldDescriptor *field)
{
	for (unsigned i = 0; table && i < table->n_bounds; i++)
		if (table->bounds[i].number == field->id)
			return &table->bounds[i];
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return &default_u32;
	case PROTOBUF_C_TYPE_STRING:
		return &default_string;
	case PROTOBUF_C_TYPE_BYTES:
		return &default_bytes;
	case PROTOBUF_C_TYPE_MESSAGE:
		return &default_list;
	default:
		return &default_u64;
	}
}

int mc_bounds_number(const struct mc_bound *bound, uint64_t value)
{
	return value >= bound->min && value <= bound->max;
}

static int byte_ok(enum mc_bound_kind kind, uint8_t c)
{
	switch (kind) {
	case MC_BOUND_NAME:
		return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		       c == '.' || c == '_' || c == ':' || c == '-';
	case MC_BOUND_TEXT:
		return (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
	case MC_BOUND_BYTES:
		return 1;
	default:
		return c >= 0x20 && c != 0x7f;
	}
}

int mc_bounds_bytes(const struct mc_bound *bound, const uint8_t *data, uint64_t n_data)
{
	if (!mc_bounds_number(bound, n_data))
		return 0;
	for (uint64_t i = 0; i < n_data; i++)
		if (!byte_ok(bound->kind, data[i]))
			return 0;
	return 1;
}

static const char *cross_layout(const Moecomm__Wire__Layout *m)
{
	uint64_t seen = 0;

	if (m->n_members > m->spec->world_size)
		return "members";
	for (size_t i = 0; i < m->n_members; i++) {
		uint32_t rank = m->members[i]->rank;

		if (rank >= m->spec->world_size)
			return "rank";
		if (seen & UINT64_C(1) << rank)
			return "members";
		seen |= UINT64_C(1) << rank;
	}
	return NULL;
}

static const char *cross_group_status(const Moecomm__Wire__GroupStatus *m)
{
	if (m->has_n_joined && m->n_joined > m->spec->world_size)
		return "n_joined";
	for (size_t i = 0; i < m->n_missing; i++)
		if (m->missing[i] >= m->spec->world_size)
			return "missing";
	if (m->n_ranks > m->spec->world_size)
		return "ranks";
	for (size_t i = 0; i < m->n_ranks; i++)
		if (m->ranks[i]->rank >= m->spec->world_size)
			return "rank";
	return NULL;
}

const char *mc_bounds_cross(const ProtobufCMessage *message)
{
	if (message->descriptor == &moecomm__wire__join__descriptor) {
		const Moecomm__Wire__Join *m = (const Moecomm__Wire__Join *)message;

		return m->rank < m->spec->world_size ? NULL : "rank";
	}
	if (message->descriptor == &moecomm__wire__layout__descriptor)
		return cross_layout((const Moecomm__Wire__Layout *)message);
	if (message->descriptor == &moecomm__wire__status__descriptor) {
		const Moecomm__Wire__Status *m = (const Moecomm__Wire__Status *)message;
		const char *field = NULL;

		for (size_t i = 0; i < m->n_groups && !field; i++)
			field = cross_group_status(m->groups[i]);
		return field;
	}
	return NULL;
}
