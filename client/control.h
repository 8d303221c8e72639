/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread, and what other threads ask of it. It makes no device call. */
#ifndef MC_CLIENT_CONTROL_H
#define MC_CLIENT_CONTROL_H

#include "client/context.h"
#include "client/group.h"
#include "proto/codec.h"

/* A reply as handed over; fds that are not taken are closed by mc_reply_clear. */
struct mc_reply {
	uint16_t type;
	ProtobufCMessage *message;
	int fds[MC_LIMIT_FRAME_FDS];
	unsigned n_fds;
};
void mc_reply_clear(struct mc_reply *reply);

/* A request that waits for its reply; lives on the caller's stack. */
struct mc_call {
	struct mc_call *next;
	uint32_t serial;
	struct moecomm_group *group; /* of Join and Vote; may be NULL */
	bool done;
	enum moecomm_status status; /* OK: reply is set. Else detail says why */
	char detail[MC_ERROR_BYTES];
	struct mc_reply reply;
	pthread_cond_t cond;
};

/* Starts the thread on an open link, which the context takes over. Returns 0 or -errno. */
int mc_control_start(moecomm_context *context, struct mc_link *link);
/* Ends the thread, closes the link. */
void mc_control_stop(moecomm_context *context);

/*
 * Sends a request and waits for its reply at most timeout_ms. While the daemon is away the request
 * waits a moment for a reconnect. Returns MOECOMM_OK and sets *ret_reply (a Layout, Ready or a Done
 * of status 0), or a refusal's status with its detail as the thread's last error. group: whose
 * Notice ends the wait, and whose membership a Layout sets; or NULL.
 */
enum moecomm_status mc_control_request(moecomm_context *context, uint16_t type,
	const ProtobufCMessage *message, struct moecomm_group *group, int64_t timeout_ms,
	struct mc_reply *ret_reply);

/* Sends without waiting for the outcome; dropped when the daemon is away. */
void mc_control_post(moecomm_context *context, uint16_t type, const ProtobufCMessage *message);

#endif
