/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client's connection: frames in and out, hello first, its identity, its bounds.
 *
 * A handler may send on any connection and may end any connection with mc_conn_doom; a connection
 * is really closed only between two turns of the loop, so that no handler sees one vanish.
 */
#ifndef MC_DAEMON_CONN_H
#define MC_DAEMON_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "moecomm.pb-c.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/status.h"

struct mc_daemon;
struct mc_member;

struct mc_conn {
	struct mc_daemon *daemon;
	uint64_t id;
	int fd;
	uint32_t pid; /* a label only */
	uint32_t uid, gid;
	char label[MC_LIMIT_LABEL_BYTES + 1];
	uint64_t opened_ms;
	uint64_t n_requests;
	bool said_hello;
	bool has_queried;     /* once asked for status or the like, which takes us time */
	bool doomed;          /* no request is handled any more */
	bool close_when_sent; /* doomed once the queue is empty */
	const char *cut_off;  /* why we end it; NULL: its peer does */
	bool closing;
	bool wants_write;
	struct mc_frame_reader *reader;
	struct mc_frame_queue *queue;
	size_t charged_bytes; /* of the queue, to the uid */
	size_t charged_fds;   /* likewise: copies of a group's, until they are sent */
	uv_poll_t poll;
	uv_timer_t timer; /* until hello: its deadline; later: waits out a full fd table of the
			     kernel */
	unsigned n_open;  /* handles */
	struct mc_member *members;
	uint32_t n_members;
	struct mc_conn *prev, *next; /* of the daemon */
};

/* Takes the socket over. A refused one (bounds, out of memory) is closed and logged. */
void mc_conn_accept(struct mc_daemon *daemon, int fd);
/* The same with an identity given by the caller, for tests. Returns 0 or -errno; then fd is closed.
 */
int mc_conn_new(struct mc_daemon *daemon, int fd, uint32_t pid, uint32_t uid, uint32_t gid,
	struct mc_conn **ret_conn);

/* Ends the connection soon; what is queued is lost. Idempotent. */
void mc_conn_doom(struct mc_conn *conn);
/* Ends the connection when what is queued has been sent. */
void mc_conn_close_when_sent(struct mc_conn *conn);
/* Ends it now; only outside of handlers. */
void mc_conn_close(struct mc_conn *conn);

/* Queues a message. A client that does not read is cut off; nothing is returned, as nothing can be
 * done. */
void mc_conn_send(struct mc_conn *conn, uint16_t type, uint32_t serial,
	const ProtobufCMessage *message, const int *fds, unsigned n_fds);
/* Done{status, detail}. */
void mc_conn_done(struct mc_conn *conn, uint32_t serial, uint32_t status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Whether the peer is in the group, by its primary or a supplementary group. */
bool mc_conn_has_gid(const struct mc_conn *conn, uint32_t gid);

#endif
