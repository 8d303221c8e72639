/* SPDX-License-Identifier: Apache-2.0 */
/* Watches a process that has no connection, and never takes another one for it. */
#ifndef MC_DAEMON_STATE_WATCH_H
#define MC_DAEMON_STATE_WATCH_H

#include <stdint.h>
#include <uv.h>

struct mc_watch;

/* When the process began, in clock ticks since boot; 0 when that can't be told. */
uint64_t mc_process_start_time(uint32_t pid);

/*
 * ended is called once, from the loop, when the process is gone; the watch stays until it is freed.
 * start_time tells it from a later process of the same number; 0: not known. Returns 0, -ESRCH when
 * that process is gone already, or another -errno when it can't be watched.
 */
int mc_watch_new(uv_loop_t *loop, uint32_t pid, uint64_t start_time, void (*ended)(void *data),
	void *data, struct mc_watch **ret_watch);
/* NULL is allowed. Returns NULL. No callback any more. */
struct mc_watch *mc_watch_free(struct mc_watch *watch);

#endif
