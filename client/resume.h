/* SPDX-License-Identifier: Apache-2.0 */
/* Memberships over a change of connection. All with context->lock held. */
#ifndef MC_CLIENT_RESUME_H
#define MC_CLIENT_RESUME_H

#include "client/control.h"

/* Sends; -ENOTCONN when the daemon is away. ret_serial may be NULL. */
int mc_control_send_locked(moecomm_context *context, uint16_t type, const ProtobufCMessage *message,
	uint32_t *ret_serial);

/* Keeps what a Layout says about the membership, before any later frame is looked at. */
void mc_resume_remember(struct moecomm_group *group, const Moecomm__Wire__Layout *layout);
/* The connection is gone. */
void mc_resume_lost(moecomm_context *context);
/* There is a new connection: takes every membership over to it. */
void mc_resume_all(moecomm_context *context);
/* A Done that nobody waits for: perhaps the answer to a Resume. */
void mc_resume_outcome(moecomm_context *context, uint32_t serial, const Moecomm__Wire__Done *done);

#endif
