/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outcomes as they travel: one table, the same numbers as enum moecomm_status of the public header
 * (client/status.c asserts it), for the daemon and moecommctl, which do not include that header.
 */
#ifndef MC_PROTO_STATUS_H
#define MC_PROTO_STATUS_H

/* X(number, NAME, "sentence"): a number never changes and is never reused. */
#define MC_STATUS_TABLE(X)                                                                         \
	X(0, OK, "the call succeeded")                                                             \
	X(1, INVALID, "an argument is wrong")                                                      \
	X(2, TOO_LARGE, "the op does not fit the group's capacity")                                \
	X(3, BUSY, "another op runs on this channel")                                              \
	X(4, UNREACHABLE, "no daemon answers at the socket")                                       \
	X(5, DENIED, "not permitted")                                                              \
	X(6, VERSION, "daemon and client speak different major versions")                          \
	X(7, UNSUPPORTED, "the other side does not know this request")                             \
	X(8, SPEC_MISMATCH, "ranks asked for different group specs")                               \
	X(9, JOIN_TIMEOUT, "not all ranks joined before the deadline")                             \
	X(10, QUOTA, "a bound on what one user may hold is reached")                               \
	X(11, IN_USE, "the group name or rank is taken")                                           \
	X(12, PROBE_FAILED, "the join probe found a pair of ranks that can't exchange data")       \
	X(13, PEER_LOST, "a peer process ended")                                                   \
	X(14, TIMEOUT, "a peer did not arrive before the deadline")                                \
	X(15, MISMATCH, "ranks called different ops or shapes")                                    \
	X(16, ABORTED, "the group was aborted")                                                    \
	X(17, STALE_EPOCH, "the group's epoch has ended; rejoin")                                  \
	X(18, DEVICE, "the device or its driver reported an error")                                \
	X(19, SENTINEL, "a payload equals the epoch's sentinel")                                   \
	X(20, CORRUPT, "a control block or header is damaged")                                     \
	X(21, PROTOCOL, "the other side sent something malformed")                                 \
	X(22, NO_MEMORY, "out of memory")                                                          \
	X(23, SYSTEM, "a system call failed")                                                      \
	X(24, TOPOLOGY, "these devices or hosts can't form a group")                               \
	X(25, NOT_FOUND, "no such group or membership")                                            \
	X(26, LEFT, "a member left the group")                                                     \
	X(27, SHUTDOWN, "the daemon is shutting down")

enum mc_status {
#define MC_STATUS_ENUM(number, name, text) MC_STATUS_##name = (number),
	MC_STATUS_TABLE(MC_STATUS_ENUM)
#undef MC_STATUS_ENUM
};

/* Never NULL; "UNKNOWN" and a matching sentence for a number of a later version. */
const char *mc_status_name(unsigned status);
const char *mc_status_text(unsigned status);

/* Life of a group; on the wire, so a number never changes. */
enum mc_group_state {
	MC_GROUP_FORMING = 1,
	MC_GROUP_ARMING = 2,
	MC_GROUP_PROBING = 3,
	MC_GROUP_READY = 4,
	MC_GROUP_FAILED = 5,
	MC_GROUP_DRAINING = 6,
	MC_GROUP_GONE = 7,
};
const char *mc_group_state_name(unsigned state);

/* Health, from progress; on the wire, so a number never changes. */
enum mc_health {
	MC_HEALTH_UNKNOWN = 0,
	MC_HEALTH_IDLE = 1, /* no op in flight */
	MC_HEALTH_PROGRESSING = 2,
	MC_HEALTH_STALLED = 3, /* others wait for it and it has not moved for the threshold */
	MC_HEALTH_FAILED = 4,
	MC_HEALTH_WAITING = 5, /* in an op, waiting for a stalled or lagging peer */
};
const char *mc_health_name(unsigned health);

#endif
