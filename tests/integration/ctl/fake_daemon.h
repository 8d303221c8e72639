/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for the daemon that says what a test wants to be said, in a thread of the test. */
#ifndef MC_TEST_CTL_FAKE_DAEMON_H
#define MC_TEST_CTL_FAKE_DAEMON_H

#include <pthread.h>
#include "moecomm.pb-c.h"

enum fake_manner {
	FAKE_HONEST = 1,    /* Welcome, then the canned status for any request but Abort */
	FAKE_OTHER_MAJOR,   /* refuses the Hello naming both versions */
	FAKE_CLOSES,        /* closes after the Hello */
	FAKE_CLOSES_MIDWAY, /* half a Welcome, then closes */
	FAKE_GARBAGE,       /* bytes of another protocol */
	FAKE_SILENT,        /* reads and never answers */
	FAKE_WRONG_REPLY,   /* a Welcome where a Status is due */
	FAKE_DAMAGED,       /* a Status that is no protobuf */
	FAKE_UNSUPPORTED,   /* does not know the request */
};

struct fake_daemon {
	char path[108];
	int listen_fd;
	int stop_fd[2];
	enum fake_manner manner;
	Moecomm__Wire__Status *status; /* the test's; read only while a client asks */
	pthread_mutex_t lock;          /* of the following */
	char aborted[160];             /* "group|reason" of the last Abort */
	pthread_t thread;
};

void fake_daemon_start(struct fake_daemon *daemon, const char *directory, enum fake_manner manner,
	Moecomm__Wire__Status *status);
/* "group|reason" of the last Abort; free() it. */
char *fake_daemon_aborted(struct fake_daemon *daemon);
void fake_daemon_stop(struct fake_daemon *daemon);

#endif
