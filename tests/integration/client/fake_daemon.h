/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of ours only by its wire: a thread that answers one connection at a time, rightly or, as
 * the script says, wrongly. It arms real memory, so that a group joined through it runs ops.
 */
#ifndef MC_TESTS_FAKE_DAEMON_H
#define MC_TESTS_FAKE_DAEMON_H

#include <stdint.h>
#include "moecomm.pb-c.h"

enum fake_hello {
	FAKE_HELLO_GOOD,
	FAKE_HELLO_OTHER_MAJOR, /* Welcome of another major */
	FAKE_HELLO_REFUSE,      /* Done{VERSION} */
	FAKE_HELLO_GARBAGE,     /* not our protocol */
	FAKE_HELLO_BAD_PAYLOAD, /* a Welcome that does not decode */
	FAKE_HELLO_WRONG_TYPE,  /* a Ready */
	FAKE_HELLO_SILENT,
	FAKE_HELLO_HUGE, /* a header that announces 4 GiB */
};

enum fake_join {
	FAKE_JOIN_GOOD,
	FAKE_JOIN_SILENT,
	FAKE_JOIN_REFUSE,  /* Done{DENIED} */
	FAKE_JOIN_DONE_OK, /* Done{0}: not an answer to Join */
	FAKE_JOIN_READY,   /* a Ready instead of a Layout */
	FAKE_JOIN_BAD_PAYLOAD,
	FAKE_JOIN_NOTICE_FIRST, /* a Notice for the membership right behind the Layout */
	FAKE_JOIN_HELLO,        /* a request, which no daemon sends */
};

enum fake_fds {
	FAKE_FDS_GOOD,
	FAKE_FDS_NONE,
	FAKE_FDS_FEW,
	FAKE_FDS_MANY,
	FAKE_FDS_PIPE, /* the fd at bad_fd is … */
	FAKE_FDS_DIRECTORY,
	FAKE_FDS_DEVNULL,
	FAKE_FDS_SHORT,
	FAKE_FDS_UNSEALED,
	FAKE_FDS_READ_ONLY,
	FAKE_FDS_ZEROED, /* right in size, but with nothing in it */
};

enum fake_vote {
	FAKE_VOTE_GOOD,
	FAKE_VOTE_SILENT,
	FAKE_VOTE_WRONG_EPOCH,
	FAKE_VOTE_OTHER_PATH,
	FAKE_VOTE_DONE_OK,
	FAKE_VOTE_REFUSE,
};

struct fake_script {
	enum fake_hello hello;
	enum fake_join join;
	enum fake_fds fds;
	unsigned bad_fd; /* 0: board, 1: control block, 2 …: arenas */
	enum fake_vote vote;
	int cut_after; /* bytes sent on a connection before it is closed; 0: never */
	int deaf;      /* reads, but answers nothing after the group is ready */
	int resume_status;
	void (*edit)(Moecomm__Wire__Layout *layout);
};

struct fake_daemon;

/* Listens at path. The script may change later through fake_set_script. Asserts on failure. */
struct fake_daemon *fake_start(const char *path, const struct fake_script *script);
struct fake_daemon *fake_stop(struct fake_daemon *fake);
void fake_set_script(struct fake_daemon *fake, const struct fake_script *script);
/* How many frames of a type have come in since the start. */
unsigned fake_received(struct fake_daemon *fake, unsigned type);
/* How many bytes went out on the newest connection. */
int fake_sent(struct fake_daemon *fake);
/* Sends a Notice to a member (ids count from 1). */
void fake_notice(struct fake_daemon *fake, uint64_t member_id, uint32_t status, int rank,
	const char *detail);

#endif
