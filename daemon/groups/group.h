/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups, their epochs and members.
 *
 *   group: a name, who may join, and its epochs. Goes away with its last member.
 *   epoch: one life of the group's memory: forming → arming → probing → ready → (draining →)
 * failed. Its number is given when it is armed. An ended epoch stays for as long as somebody still
 *          maps its memory (the holders); the daemon itself drops that memory at the end.
 *   member: one rank of one epoch, on one connection.
 */
#ifndef MC_DAEMON_GROUPS_GROUP_H
#define MC_DAEMON_GROUPS_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>
#include <uv.h>
#include "daemon/backends/backend.h"
#include "daemon/conn.h"
#include "daemon/groups/spec.h"
#include "daemon/groups/verdict.h"
#include "proto/limits.h"
#include "proto/status.h"

#define MC_TOKEN_BYTES 16u
#define MC_NO_RANK     UINT32_MAX

struct mc_daemon;
struct mc_health_log;
struct mc_history;
struct mc_watch;

struct mc_member {
	uint64_t id;
	uint8_t token[MC_TOKEN_BYTES];
	struct mc_epoch *epoch;
	uint32_t rank;
	struct mc_conn *conn; /* NULL: awaited after a restart of the daemon (daemon/state) */
	uint32_t pid, uid, gid;
	uint64_t start_time;    /* of the process: no later one of that number is taken for it */
	struct mc_watch *watch; /* of the process, while there is no connection */
	bool is_unwatchable;
	char label[MC_LIMIT_LABEL_BYTES + 1];
	char device_uuid[MC_LIMIT_UUID_BYTES + 1];
	uint32_t join_serial, vote_serial;
	bool join_pending; /* a Join waits for its answer */
	bool vote_pending;
	bool voted;
	uint32_t charged_fds; /* of its layout, to the group's uid, until it shows that it has read
				 it */
	struct mc_member *conn_prev, *conn_next; /* of the connection */
	UT_hash_handle hh;                       /* by id */
};

/* What is remembered of the member that was dropped last: often the one whose end is to blame. */
struct mc_dropped {
	uint32_t rank, pid, uid; /* pid 0: none was dropped */
	char label[MC_LIMIT_LABEL_BYTES + 1];
	char device_uuid[MC_LIMIT_UUID_BYTES + 1];
};

struct mc_epoch {
	struct mc_group *group;
	uint64_t number; /* 0 until armed */
	enum mc_group_state state;
	struct mc_spec spec;
	struct mc_layout layout;
	struct mc_vector sentinel;
	struct mc_member *member[MC_MAX_WORLD_SIZE];
	uint32_t n_members;
	struct mc_dropped dropped;
	uint32_t n_votes;
	struct mc_arm *arm;
	struct mc_arm_result memory;
	bool has_memory;
	bool is_stored;         /* the memory is in the service manager's fd store too */
	uint64_t charged_bytes; /* to the group's uid, until the epoch is freed */
	uint32_t charged_fds;   /* until the daemon drops the memory */
	struct mc_board *board; /* mapped while has_memory */
	struct mc_health_log *health;
	uint64_t started_ms, ended_ms;
	/* how it ended */
	uint32_t status;
	uint32_t fault_rank; /* whose doing; MC_NO_RANK */
	char detail[MC_LIMIT_DETAIL_BYTES + 1];
	/* draining: the lowest calls that those who left had entered; beyond them nobody is served
	 */
	uint32_t left_call[MC_MAX_CHANNELS];
	uint32_t n_left, last_left_rank;
	uint64_t last_left_ms;
	uv_timer_t timer;      /* join deadline, probe deadline, or draining */
	uint32_t join_wait_ms; /* how long its first member waits for the others */
	bool is_retry;         /* all who have joined got JOIN_TIMEOUT before; see join.c */
	bool freeing;
	struct mc_epoch *prev, *next; /* of the group, newest last */
};

struct mc_group {
	char name[MC_LIMIT_NAME_BYTES + 1];
	struct mc_groups *groups;
	uint32_t uid, gid; /* of who created it */
	char job[MC_LIMIT_NAME_BYTES + 1];
	uint32_t allow_uid[MC_LIMIT_ACL_ENTRIES], allow_gid[MC_LIMIT_ACL_ENTRIES];
	uint32_t n_allow_uid, n_allow_gid;
	uint64_t last_epoch; /* highest number given to it */
	uint64_t created_ms, changed_ms;
	char cause[256];
	struct mc_epoch *epochs; /* the newest is the group's state */
	UT_hash_handle hh;
};

struct mc_groups {
	struct mc_daemon *daemon;
	struct mc_group *by_name;
	struct mc_member *by_id;
	uint64_t next_member_id;
	uint64_t highest_epoch; /* given to any group */
	struct mc_verdicts verdicts;
	struct mc_history *history;
	uint64_t arena_bytes; /* of all epochs that somebody maps */
	uint32_t n_ready;
	uv_timer_t tick; /* health; runs only while an epoch is ready */
};

struct mc_groups *mc_groups_new(struct mc_daemon *daemon);
/* Tells who waits for a group that the daemon stops, ends everything. Closes its handles. */
void mc_groups_shut(struct mc_groups *groups);
/* After the loop has run empty. NULL is allowed. Returns NULL. */
struct mc_groups *mc_groups_free(struct mc_groups *groups);

/* ---- registry ---- */

struct mc_group *mc_group_find(struct mc_groups *groups, const char *name);
/* The member of that id if it belongs to the connection; else NULL. */
struct mc_member *mc_member_of(struct mc_groups *groups, const struct mc_conn *conn, uint64_t id);
struct mc_member *mc_member_find(struct mc_groups *groups, uint64_t id);
/* The newest epoch unless it has ended; else NULL. */
struct mc_epoch *mc_group_live(const struct mc_group *group);
struct mc_epoch *mc_group_newest(const struct mc_group *group);
/* Notes, logs and shows a transition. */
void mc_epoch_set_state(struct mc_epoch *epoch, enum mc_group_state state, int level,
	const char *format, ...) __attribute__((format(printf, 4, 5)));
struct mc_group *mc_group_new(struct mc_groups *groups, const char *name);
/* Of a group without an epoch. */
void mc_group_discard(struct mc_group *group);
struct mc_epoch *mc_epoch_new(struct mc_group *group);
struct mc_member *mc_member_new(struct mc_epoch *epoch, uint32_t rank, struct mc_conn *conn);
/* A member of an earlier run of the daemon, without a connection; the caller fills it in. */
struct mc_member *mc_member_adopt(struct mc_epoch *epoch, uint32_t rank, uint64_t id);
/*
 * Its layout was read, or never will be. Until then the layout's fds are on their way, which the
 * kernel bounds for the daemon as a whole: who does not read would take that room from all users.
 */
void mc_member_release_fds(struct mc_member *member);
/* Takes it out of its epoch and connection and frees it. The epoch stays. */
void mc_member_drop(struct mc_member *member);
/* Moves a membership to another connection. */
void mc_member_move(struct mc_member *member, struct mc_conn *conn);
/* Frees the epoch if it has ended and nobody holds it, and the group with its last one. */
void mc_epoch_collect(struct mc_epoch *epoch);
/* "rank 3 (pid 17, uid 0, trainer)" */
const char *mc_member_text(const struct mc_member *member, char *ret_text, size_t n_text);

/* ---- life ---- */

/* join.c: handles a Join; the answer comes now or when the group has formed. */
void mc_group_join(struct mc_groups *groups, struct mc_conn *conn, uint32_t serial,
	const Moecomm__Wire__Join *join);
/* arm.c: all ranks are there; makes the memory and sends the layouts. */
void mc_epoch_arm(struct mc_epoch *epoch);
/* probe.c */
void mc_epoch_probe(struct mc_epoch *epoch);
void mc_member_vote(struct mc_member *member, uint32_t serial, const Moecomm__Wire__Vote *vote);

/*
 * end.c: ends an epoch in whatever state it is: waiting joins and votes are answered, ops end
 * through the board's abort word, members get a Notice, the memory is dropped. fault_rank and
 * reporter are ranks or MC_NO_RANK. May free the epoch and its group.
 */
void mc_epoch_end(struct mc_epoch *epoch, uint32_t status, uint32_t fault_rank, uint32_t reporter,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
void mc_member_notice(struct mc_member *member);
/* leave.c: a member leaves in order, or its connection ended. */
void mc_member_leave(struct mc_member *member);
void mc_member_lost(struct mc_member *member);
/* Goes on with draining after a restart of the daemon. */
void mc_epoch_drain_on(struct mc_epoch *epoch);
void mc_groups_conn_gone(struct mc_groups *groups, struct mc_conn *conn);

/* Who may end a group or change its deadlines without being a member: its creator, root, ourselves.
 */
bool mc_group_may_operate(const struct mc_group *group, const struct mc_conn *conn);
bool mc_group_may_join(const struct mc_group *group, const struct mc_conn *conn);

/* Starts or stops the health tick with the number of ready epochs. */
void mc_groups_update_tick(struct mc_groups *groups);
/* After stall_ms has changed. */
void mc_groups_retime_tick(struct mc_groups *groups);

#endif
