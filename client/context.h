/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context: the connection, its control thread, and the memberships on it.
 *
 * Locks: context->lock, then group->lock (client/group.h). The control thread alone reads the
 * socket; whoever holds the lock may send.
 */
#ifndef MC_CLIENT_CONTEXT_H
#define MC_CLIENT_CONTEXT_H

#include <pthread.h>
#include <stdbool.h>
#include "client/link.h"

struct mc_call;

struct moecomm_context {
	struct sockaddr_un address;
	char label[MC_LIMIT_LABEL_BYTES + 1];
	unsigned generation; /* of the process that made it; see mc_context_generation */
	pthread_t thread;
	int wake_fd; /* eventfd: something to send, to stop, or to reconnect for */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* link came or went */
	struct mc_link link;    /* fd -1 while the daemon is away */
	bool stop;
	bool retry_now;     /* a call waits: do not sit out the back-off */
	bool dialing;       /* waking the thread now would only end its try to connect */
	unsigned n_waiting; /* calls that wait for the daemon to come back */
	uint32_t last_serial;
	struct mc_call *calls;        /* that wait for a reply */
	struct moecomm_group *groups; /* memberships, by group->next */
	char away[MC_ERROR_BYTES];    /* why the daemon is away */
};

/*
 * Counts forks: a context or group of the parent is useless in the child (no control thread, memory
 * not mapped), and using it there must be an error rather than a crash.
 */
unsigned mc_context_generation(void);

#endif
