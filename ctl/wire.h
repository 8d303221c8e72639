/* SPDX-License-Identifier: Apache-2.0 */
/* One conversation with the daemon: every step ends within one deadline. */
#ifndef MC_CTL_WIRE_H
#define MC_CTL_WIRE_H

#include "ctl/ctl.h"
#include "moecomm.pb-c.h"
#include "proto/frame.h"

/* Long enough for a daemon on a busy machine, short enough for a person. */
#define MC_CTL_DEADLINE_MS 5000

struct mc_ctl_wire;

/*
 * Connects and greets. Returns MC_CTL_OK, or tells on stderr what is wrong and what to do and
 * returns the exit status for it.
 */
int mc_ctl_wire_open(const struct mc_ctl *ctl, struct mc_ctl_wire **ret_wire);
/* The same, but puts the sentence into ret_problem, for a caller that can go on without a daemon.
 */
int mc_ctl_wire_try(const struct mc_ctl *ctl, struct mc_ctl_wire **ret_wire, char *ret_problem,
	size_t n_problem);
/* NULL is allowed. Returns NULL. */
struct mc_ctl_wire *mc_ctl_wire_close(struct mc_ctl_wire *wire);

/* What the daemon said at the start, and where it was found. Valid until close. */
const Moecomm__Wire__Welcome *mc_ctl_wire_welcome(const struct mc_ctl_wire *wire);
const char *mc_ctl_wire_path(const struct mc_ctl_wire *wire);

/*
 * Sends a request and waits for its reply of the given type; a Done of another status than OK is a
 * refusal. Sets *ret_reply (mc_codec_free), or tells and returns as above. ret_reply may be NULL.
 */
int mc_ctl_wire_call(struct mc_ctl_wire *wire, uint16_t type, const ProtobufCMessage *request,
	uint16_t reply_type, ProtobufCMessage **ret_reply);

/* Status with ranks of one group. *ret_status is NULL when there is none: that is no problem here.
 */
int mc_ctl_wire_find(
	struct mc_ctl_wire *wire, const char *group, Moecomm__Wire__Status **ret_status);

/* The request that most commands make. group NULL: all. *ret_status is freed with mc_codec_free. */
int mc_ctl_wire_status(struct mc_ctl_wire *wire, const char *group, bool ranks, bool clients,
	Moecomm__Wire__Status **ret_status);
/* The same of all groups, but puts the sentence into ret_problem. */
int mc_ctl_wire_try_status(struct mc_ctl_wire *wire, bool ranks, Moecomm__Wire__Status **ret_status,
	char *ret_problem, size_t n_problem);

#endif
