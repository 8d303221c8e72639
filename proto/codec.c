/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/codec_bounds.h"
#include "proto/codec_scan.h"
#include "proto/limits.h"

const char *mc_codec_error_text(int error)
{
	switch ((enum mc_codec_error)error) {
	case MC_CODEC_E_TYPE:
		return "unknown frame type";
	case MC_CODEC_E_MALFORMED:
		return "not a message of its type, or a required field is missing";
	case MC_CODEC_E_DEPTH:
		return "nested too deep";
	case MC_CODEC_E_SIZE:
		return "takes too much memory to decode";
	case MC_CODEC_E_FIELD:
		return "a field is out of its bounds";
	}
	return "unknown decoding error";
}

const ProtobufCMessageDescriptor *mc_codec_descriptor(uint16_t type)
{
	switch ((enum mc_frame_type)type) {
	case MC_FRAME_HELLO:
		return &moecomm__wire__hello__descriptor;
	case MC_FRAME_WELCOME:
		return &moecomm__wire__welcome__descriptor;
	case MC_FRAME_DONE:
		return &moecomm__wire__done__descriptor;
	case MC_FRAME_JOIN:
		return &moecomm__wire__join__descriptor;
	case MC_FRAME_LAYOUT:
		return &moecomm__wire__layout__descriptor;
	case MC_FRAME_VOTE:
		return &moecomm__wire__vote__descriptor;
	case MC_FRAME_READY:
		return &moecomm__wire__ready__descriptor;
	case MC_FRAME_LEAVE:
		return &moecomm__wire__leave__descriptor;
	case MC_FRAME_ABORT:
		return &moecomm__wire__abort__descriptor;
	case MC_FRAME_OP_FAILED:
		return &moecomm__wire__op_failed__descriptor;
	case MC_FRAME_NOTICE:
		return &moecomm__wire__notice__descriptor;
	case MC_FRAME_RESUME:
		return &moecomm__wire__resume__descriptor;
	case MC_FRAME_SET_DEADLINES:
		return &moecomm__wire__set_deadlines__descriptor;
	case MC_FRAME_STATUS_REQUEST:
		return &moecomm__wire__status_request__descriptor;
	case MC_FRAME_STATUS:
		return &moecomm__wire__status__descriptor;
	case MC_FRAME_RELEASE:
		return &moecomm__wire__release__descriptor;
	case MC_FRAME_METRICS_REQUEST:
		return &moecomm__wire__metrics_request__descriptor;
	case MC_FRAME_METRICS:
		return &moecomm__wire__metrics__descriptor;
	case MC_FRAME_HISTORY_REQUEST:
		return &moecomm__wire__history_request__descriptor;
	case MC_FRAME_HISTORY:
		return &moecomm__wire__history__descriptor;
	}
	return NULL;
}

/* What malloc spends beside the bytes asked for; makes many tiny allocations cost what they cost.
 */
#define ALLOCATION_OVERHEAD 16u

/*
 * Memory that one decode may take. It counts what is ever allocated, also what is freed again
 * meanwhile: simple, never too small, and honest messages stay far below.
 */
struct budget {
	size_t n_left;
};

static void *budget_alloc(void *data, size_t n)
{
	struct budget *budget = data;

	if (n > budget->n_left || budget->n_left - n < ALLOCATION_OVERHEAD)
		return NULL;
	budget->n_left -= n + ALLOCATION_OVERHEAD;
	return malloc(n);
}

static void budget_free(void *data, void *at)
{
	(void)data;
	free(at);
}

int mc_codec_decode(uint16_t type, const uint8_t *payload, size_t n_payload, size_t max_bytes,
	ProtobufCMessage **ret_message, const char **ret_field)
{
	const ProtobufCMessageDescriptor *descriptor = mc_codec_descriptor(type);
	struct budget budget = {max_bytes};
	ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
	ProtobufCMessage *message;
	const char *field = "";
	int r;

	if (!ret_field)
		ret_field = &field;
	*ret_field = "";
	if (!descriptor)
		return MC_CODEC_E_TYPE;
	r = mc_codec_scan(descriptor, payload, n_payload, ret_field);
	if (r)
		return r;
	/* the scan found it well-formed, so that all that can fail now is memory */
	message = protobuf_c_message_unpack(descriptor, &allocator, n_payload, payload);
	if (!message)
		return MC_CODEC_E_SIZE;
	field = mc_bounds_cross(message);
	if (field) {
		*ret_field = field;
		mc_codec_free(message);
		return MC_CODEC_E_FIELD;
	}
	*ret_message = message;
	return 0;
}

ProtobufCMessage *mc_codec_free(ProtobufCMessage *message)
{
	/* budget_alloc takes from malloc, as protobuf-c does by itself */
	if (message)
		protobuf_c_message_free_unpacked(message, NULL);
	return NULL;
}

int mc_codec_encode(const ProtobufCMessage *message, uint8_t **ret_payload, size_t *ret_bytes)
{
	uint8_t *payload;
	size_t n;

	/* what protobuf-c would follow blindly: lists without memory, required fields left out */
	if (!protobuf_c_message_check(message))
		return -EINVAL;
	n = protobuf_c_message_get_packed_size(message);
	if (n > MC_LIMIT_REPLY_BYTES)
		return -EMSGSIZE;
	payload = malloc(n ? n : 1);
	if (!payload)
		return -ENOMEM;
	*ret_bytes = protobuf_c_message_pack(message, payload);
	*ret_payload = payload;
	return 0;
}
