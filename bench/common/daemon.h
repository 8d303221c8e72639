/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon of the bench's own, in a directory of its own, ended with it. */
#ifndef MC_BENCH_DAEMON_H
#define MC_BENCH_DAEMON_H

#include <sys/types.h>

struct mc_bench_daemon {
	pid_t pid; /* 0: none was started */
	char directory[64];
	char socket[96];
	const char *backend;
};

/*
 * Starts the moecommd that lies beside this program, else the one on the PATH, and waits until it
 * answers. Returns 0, or -errno after telling what failed.
 */
int mc_bench_daemon_start(const char *backend, struct mc_bench_daemon *ret_daemon);
/* kill -9; its directory stays. */
void mc_bench_daemon_kill(struct mc_bench_daemon *daemon);
/* Starts it again at the same socket. Returns as above. */
int mc_bench_daemon_restart(struct mc_bench_daemon *daemon);
/* Ends it and removes its directory. An all-zero one is allowed. */
void mc_bench_daemon_stop(struct mc_bench_daemon *daemon);

#endif
