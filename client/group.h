/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's membership.
 *
 * An op takes its channel's busy flag, then looks at `failed`; whoever ends the epoch sets
 * `failed`, then waits for the busy flags. Both orders are sequentially consistent, so one sees the
 * other: an op never runs on memory that is being unmapped.
 */
#ifndef MC_CLIENT_GROUP_H
#define MC_CLIENT_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "client/backends/backend.h"
#include "client/error.h"
#include "kernels/layout.h"
#include "proto/limits.h"

/* How an epoch ended, in words. */
struct mc_verdict {
	enum moecomm_status status; /* OK: it has not */
	int rank;                   /* whose doing; -1: nobody's in particular */
	uint64_t call;
	char detail[512];
};

enum mc_group_phase {
	MC_GROUP_PHASE_OUT,     /* no membership */
	MC_GROUP_PHASE_JOINING, /* a Notice ends the join */
	MC_GROUP_PHASE_MEMBER,  /* a Notice ends the epoch */
};

struct moecomm_group {
	/* what was asked for at join; constant */
	moecomm_context *context;
	unsigned generation;
	char name[MC_LIMIT_NAME_BYTES + 1];
	char job[MC_LIMIT_NAME_BYTES + 1];
	uint32_t rank, world_size;
	struct mc_layout_spec spec;
	enum moecomm_backend backend; /* resolved */
	enum moecomm_path path_override;
	bool shared_gpu;
	uint32_t op_timeout_ms, warmup_timeout_ms, warmup_calls;
	uint32_t join_timeout_ms, probe_timeout_ms;
	uint32_t *allow_uid, *allow_gid; /* owned */
	uint32_t n_allow_uid, n_allow_gid;
	const struct mc_client_backend *ops;
	struct mc_backend_rank *mapping; /* the backend's; owned */
	struct mc_layout layout;         /* follows from the spec alone: the same in every epoch */
	uint64_t arena_bytes;            /* as allocated */

	/* by context->lock */
	struct moecomm_group *next;
	uint64_t member_id; /* 0: none, or the daemon has forgotten it */
	uint8_t token[16];
	uint64_t epoch;         /* whose Notices count; 0: none any more */
	bool attached;          /* the connection carries the membership */
	uint32_t resume_serial; /* of a Resume in flight; 0: none */

	/* by lock */
	pthread_mutex_t lock;
	pthread_cond_t ended; /* verdict was set */
	enum mc_group_phase phase;
	uint64_t life; /* counts joins: what was seen in one ends no later one */
	struct mc_verdict verdict;
	struct mc_verdict join_notice; /* a Notice that came while joining */
	bool mapped;
	atomic_bool daemon_connected; /* a copy of `attached`, read without context->lock */
	uint64_t ready_epoch;         /* the epoch that ops run or ran in; 0: none yet */
	enum moecomm_path path;
	char path_reason[256];

	/* what ops touch; board is stable while a busy flag is held and failed is 0 */
	_Atomic uint32_t failed; /* enum moecomm_status */
	struct mc_board *board;
	atomic_bool changing; /* a rejoin or leave is under way */
	struct {
		_Alignas(64) atomic_bool busy;
		_Atomic uint64_t calls;
	} channel[MC_MAX_CHANNELS];
};

/*
 * Ends the epoch for this rank: the first verdict stands, except that a later one of the same
 * status adds the rank that the first could not name. Makes ops in flight and later ones leave.
 * reporter: a rank + 1, or 0 for the daemon. life: in which it was seen; nothing is done when
 * another thread has rejoined since. Returns true when this verdict ended it. Any thread; takes
 * group->lock.
 */
bool mc_group_fail(struct moecomm_group *group, uint64_t life, const struct mc_verdict *verdict,
	uint32_t reporter);
/* The present one. Takes group->lock. */
uint64_t mc_group_life(struct moecomm_group *group);
/* The same for an op that failed: waits a moment for the daemon's fuller account where there is
 * one, tells the daemon, and returns what the op returns. */
enum moecomm_status mc_group_op_failed(
	struct moecomm_group *group, const struct mc_fault *fault, const char *backend_text);
/* Takes a fault in that stands on the board but that no op has met yet (ops run on a stream). */
void mc_group_look_at_board(struct moecomm_group *group, bool tell);
/* A Notice for this membership. From the control thread, with context->lock held. */
void mc_group_notice(struct moecomm_group *group, const struct mc_verdict *verdict);
/* The daemon went away: a group that forms can't become ready any more, so its probe ends, on all
 * ranks that can be told. With context->lock held. */
void mc_group_probe_lost(struct moecomm_group *group, const char *why);
/* The status that ended the epoch; its sentence becomes the thread's last error. */
enum moecomm_status mc_group_explain(struct moecomm_group *group);
/* The group if this process may use it, else sets the error. */
bool mc_group_usable(const moecomm_group *group);
/* Leaves within about timeout_ms and frees. */
void mc_group_leave_within(struct moecomm_group *group, int timeout_ms);
/* Fills a verdict. */
void mc_verdict_set(struct mc_verdict *verdict, enum moecomm_status status, int rank, uint64_t call,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- membership.c: one life of a membership ---- */

/* Joins, maps, probes and votes; leaves nothing behind when it fails. */
enum moecomm_status mc_membership_enter(struct moecomm_group *group);
/*
 * Ends this rank's part in the epoch and unmaps once its ops have ended; at most about timeout_ms.
 * false: an op is still running and the memory was left mapped. The daemon is not told yet.
 */
bool mc_membership_end(struct moecomm_group *group, int timeout_ms);
/* Tells the daemon that this rank is no member any more; waits at most wait_ms for its answer. */
void mc_membership_leave(struct moecomm_group *group, int wait_ms);

/* ---- layout_check.c ---- */

struct mc_reply;
/*
 * Checks all that a Layout claims against what this rank asked for, by computing it again, and
 * fills *ret_epoch; its fds stay the reply's. PROTOCOL when anything differs.
 */
enum moecomm_status mc_layout_check(const struct moecomm_group *group, const struct mc_reply *reply,
	struct mc_backend_epoch *ret_epoch, uint32_t *ret_probe_timeout_ms);

/* ---- fault.c: an op's fault in words ---- */

/*
 * Turns a fault into a verdict. owner: the rank whose record it is. The sentence travels to other
 * ranks, so it names ranks by number, never as "this rank".
 */
void mc_fault_explain(const struct moecomm_group *group, const struct mc_fault *fault,
	uint32_t owner, const char *backend_text, struct mc_verdict *ret_verdict);
/* What the board says about an abort word that an op has not met yet. */
void mc_fault_explain_abort(
	const struct moecomm_group *group, uint32_t abort_word, struct mc_verdict *ret_verdict);

#endif
