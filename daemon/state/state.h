/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What outlives the daemon: groups, epochs and members, kept with their memory in the service
 * manager's fd store, so that the next run resumes them and no member notices.
 *
 *   save.c      writes the state
 *   restore.c   takes it back at the start; what can't be proven intact is dropped
 *   await.c     members that have not come back yet
 *
 * Without a store all of this does nothing: groups go on without us, and a rejoin starts afresh.
 */
#ifndef MC_DAEMON_STATE_STATE_H
#define MC_DAEMON_STATE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "daemon/state/store.h"

struct mc_daemon;
struct mc_epoch;
struct mc_member;

struct mc_state {
	struct mc_daemon *daemon;
	struct mc_store store;
	uint64_t serial; /* of the state in the store; 0: none */
	uv_timer_t save_timer;
	uv_timer_t resume_timer; /* how long members are awaited */
	bool handles_open;
};

/* Before the socket is there: resumes what the last run left. Returns 0 or -errno. */
int mc_state_open(struct mc_daemon *daemon);
/* The daemon stops: what is stored stays for the next run. Closes handles. Idempotent. */
void mc_state_close(struct mc_daemon *daemon);

/* A ready epoch: its memory goes into the store, and the state with it, before members are told. */
void mc_state_keep(struct mc_epoch *epoch);
/* The daemon lets go of the epoch's memory. */
void mc_state_forget(struct mc_epoch *epoch);
/* Something that is stored has changed; saved soon. */
void mc_state_changed(struct mc_daemon *daemon);
/* Saves now. */
void mc_state_save(struct mc_state *state);

/* ---- await.c ---- */

/* Watches the processes of members without a connection, for at most resume_timeout_ms. */
void mc_await_members(struct mc_daemon *daemon);
/* Members that nobody speaks for; the daemon stops. */
void mc_await_drop_all(struct mc_daemon *daemon);

/* ---- restore.c ---- */

/* Takes the entries; returns how many epochs live again. */
unsigned mc_state_restore(struct mc_state *state, struct mc_store_entry *entries, size_t n_entries);

#endif
