/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/conn.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/handlers.h"
#include "daemon/inject.h"
#include "daemon/log.h"
#include "proto/codec.h"

/* Requests of one connection in one turn of the loop, so that a busy client can't starve others. */
#define REQUESTS_A_TURN 32
/* How long to wait when the kernel has too many fds of ours in flight. */
#define FD_RETRY_MS 10
/* A queue from which on its memory is worth giving back when its connection ends. */
#define TRIM_BYTES (256u << 10)

static struct mc_log_limit refuse_limit, broken_limit, slow_limit;

static void on_io(uv_poll_t *poll, int status, int events);

/* ---- ending ---- */

static void on_reap(uv_idle_t *idle)
{
	struct mc_daemon *daemon = idle->data;
	struct mc_conn *conn, *next;
	bool again;

	uv_idle_stop(idle);
	/* closing one can doom others (their queues overflow with its notices) */
	do {
		again = false;
		DL_FOREACH_SAFE (daemon->conns, conn, next) {
			if (conn->doomed) {
				mc_conn_close(conn);
				again = true;
				break;
			}
		}
	} while (again);
}

void mc_conn_doom(struct mc_conn *conn)
{
	if (conn->doomed)
		return;
	conn->doomed = true;
	conn->daemon->reaper.data = conn->daemon;
	uv_idle_start(&conn->daemon->reaper, on_reap);
}

static void on_goodbye_deadline(uv_timer_t *timer)
{
	mc_conn_doom(timer->data);
}

void mc_conn_close_when_sent(struct mc_conn *conn)
{
	if (conn->doomed)
		return;
	conn->close_when_sent = true;
	if (!mc_frame_queue_bytes(conn->queue)) {
		mc_conn_doom(conn);
		return;
	}
	/* nothing more is read from it, and one that does not read is not waited for */
	uv_poll_start(&conn->poll, UV_WRITABLE, on_io);
	conn->wants_write = true;
	uv_timer_start(&conn->timer, on_goodbye_deadline, conn->daemon->config.hello_timeout_ms, 0);
}

/* Makes what is charged to the user what it is now; dooms the connection when that is too much. */
static void recharge(struct mc_conn *conn, enum mc_quota_kind kind, size_t now, size_t *io_charged)
{
	struct mc_quota *quota = conn->daemon->quota;

	if (now < *io_charged) {
		mc_quota_release(quota, conn->uid, kind, *io_charged - now);
	} else if (now > *io_charged &&
		   mc_quota_charge(quota, conn->uid, kind, now - *io_charged)) {
		mc_log_limited(&slow_limit, LOG_WARNING, NULL,
			"client %s (pid %u, uid %u) is cut off: the connections of its user do not "
			"read their replies (%s)",
			conn->label, conn->pid, conn->uid, mc_quota_name(kind));
		conn->cut_off = "its user's connections do not read their replies";
		mc_conn_doom(conn);
		return;
	}
	*io_charged = now;
}

static void charge_queue(struct mc_conn *conn)
{
	recharge(conn, MC_QUOTA_QUEUED_BYTES, mc_frame_queue_bytes(conn->queue),
		&conn->charged_bytes);
	recharge(conn, MC_QUOTA_FDS, mc_frame_queue_fds(conn->queue), &conn->charged_fds);
}

static void on_closed(uv_handle_t *handle)
{
	struct mc_conn *conn = handle->data;

	if (--conn->n_open == 0)
		free(conn);
}

void mc_conn_close(struct mc_conn *conn)
{
	struct mc_daemon *daemon = conn->daemon;
	size_t n_queued;

	if (conn->closing)
		return;
	conn->closing = true;
	conn->doomed = true;
	mc_groups_conn_gone(daemon->groups, conn);
	DL_DELETE(daemon->conns, conn);
	daemon->n_conns--;
	conn->reader = mc_frame_reader_free(conn->reader);
	n_queued = mc_frame_queue_bytes(conn->queue);
	conn->queue = mc_frame_queue_free(conn->queue);
	/* thousands of small frames lie between what lives on: only trimming gives their pages back
	 */
	if (n_queued > TRIM_BYTES)
		malloc_trim(0);
	mc_quota_release(daemon->quota, conn->uid, MC_QUOTA_QUEUED_BYTES, conn->charged_bytes);
	mc_quota_release(daemon->quota, conn->uid, MC_QUOTA_FDS, 1 + conn->charged_fds);
	mc_quota_release(daemon->quota, conn->uid, MC_QUOTA_CONNECTIONS, 1);
	uv_close((uv_handle_t *)&conn->poll, on_closed);
	uv_close((uv_handle_t *)&conn->timer, on_closed);
	close(conn->fd);
	conn->fd = -1;
	mc_daemon_update_status(daemon);
}

/* ---- sending ---- */

static void watch(struct mc_conn *conn, bool wants_write)
{
	if (conn->wants_write == wants_write)
		return;
	conn->wants_write = wants_write;
	uv_poll_start(&conn->poll,
		(conn->close_when_sent ? 0 : UV_READABLE) | (wants_write ? UV_WRITABLE : 0), on_io);
}

static void flush(struct mc_conn *conn);

static void on_retry(uv_timer_t *timer)
{
	struct mc_conn *conn = timer->data;

	if (!conn->doomed)
		flush(conn);
}

static void flush(struct mc_conn *conn)
{
	int r = mc_frame_queue_flush(conn->queue, conn->fd);

	charge_queue(conn);
	if (r == 0) {
		watch(conn, false);
		if (conn->close_when_sent)
			mc_conn_doom(conn);
	} else if (r == -EAGAIN) {
		watch(conn, true);
	} else if (r == -ETOOMANYREFS && conn->said_hello) {
		/* clients have yet to take fds that are on their way; being writable says nothing
		 */
		watch(conn, false);
		uv_timer_start(&conn->timer, on_retry, FD_RETRY_MS, 0);
	} else {
		mc_conn_doom(conn);
	}
}

void mc_conn_send(struct mc_conn *conn, uint16_t type, uint32_t serial,
	const ProtobufCMessage *message, const int *fds, unsigned n_fds)
{
	uint8_t *payload;
	size_t n_payload;
	int r;

	if (conn->doomed)
		return;
	r = mc_codec_encode(message, &payload, &n_payload);
	if (!r) {
		if (mc_inject_hit("queue_full"))
			r = -ENOBUFS;
		else
			r = mc_frame_queue_push(
				conn->queue, type, serial, payload, n_payload, fds, n_fds);
		free(payload);
	}
	if (r == -ENOBUFS)
		mc_log_limited(&slow_limit, LOG_WARNING, NULL,
			"client %s (pid %u, uid %u) is cut off: it does not read its replies",
			conn->label, conn->pid, conn->uid);
	else if (r)
		mc_log_limited(&slow_limit, LOG_ERR, NULL,
			"cannot send %s to client %s (pid %u): %s", mc_frame_type_name(type),
			conn->label, conn->pid, strerror(-r));
	if (r) {
		conn->cut_off = r == -ENOBUFS ? "it does not read its replies"
					      : "a reply could not be sent";
		mc_conn_doom(conn);
	} else {
		flush(conn);
	}
}

void mc_conn_done(struct mc_conn *conn, uint32_t serial, uint32_t status, const char *format, ...)
{
	Moecomm__Wire__Done done = MOECOMM__WIRE__DONE__INIT;
	char detail[MC_LIMIT_DETAIL_BYTES + 1];
	va_list args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	mc_codec_text_fit(detail, MC_LIMIT_DETAIL_BYTES);
	done.status = status;
	if (*detail)
		done.detail = detail;
	if (status)
		conn->daemon->counters.refused[status % MC_COUNTED_STATUSES]++;
	mc_conn_send(conn, MC_FRAME_DONE, serial, &done.base, NULL, 0);
}

/* ---- receiving ---- */

static void broken(struct mc_conn *conn, const char *what)
{
	mc_log_limited(&broken_limit, LOG_WARNING, NULL,
		"closing the connection of client %s (pid %u, uid %u): %s", conn->label, conn->pid,
		conn->uid, what);
	conn->cut_off = "it does not keep to the protocol";
	/* a client of ours that has a fault reads why; anybody else loses nothing */
	mc_conn_done(conn, 0, MC_STATUS_PROTOCOL, "the daemon closes the connection: %s", what);
	mc_conn_close_when_sent(conn);
}

static void receive(struct mc_conn *conn)
{
	struct mc_frame *frame;
	int r;

	for (int i = 0; i < REQUESTS_A_TURN && !conn->doomed && !conn->close_when_sent; i++) {
		/* what is left in the socket brings us back in the next turn */
		if (conn->has_queried && mc_quota_turn_is_over(conn->daemon->quota, conn->uid,
						 uv_now(conn->daemon->loop)))
			return;
		r = mc_frame_reader_next(conn->reader, conn->fd, &frame);
		if (r == MC_FRAME_E_AGAIN || r == -EAGAIN || r == -EINTR)
			return;
		if (r == MC_FRAME_E_CLOSED || r == -ECONNRESET || r == -EPIPE) {
			mc_conn_doom(conn);
			return;
		}
		if (r) {
			broken(conn, r > 0 ? mc_frame_error_text(r) : strerror(-r));
			return;
		}
		conn->n_requests++;
		mc_handle(conn, frame);
	}
}

static void on_io(uv_poll_t *poll, int status, int events)
{
	struct mc_conn *conn = poll->data;

	if (conn->doomed)
		return;
	if (status < 0) {
		mc_conn_doom(conn);
		return;
	}
	if (events & UV_WRITABLE)
		flush(conn);
	if (conn->doomed || !(events & (UV_READABLE | UV_DISCONNECT)))
		return;
	receive(conn);
}

static void on_hello_deadline(uv_timer_t *timer)
{
	struct mc_conn *conn = timer->data;

	if (!conn->said_hello && !conn->doomed)
		broken(conn, "no hello came");
}

/* ---- beginning ---- */

int mc_conn_new(struct mc_daemon *daemon, int fd, uint32_t pid, uint32_t uid, uint32_t gid,
	struct mc_conn **ret_conn)
{
	struct mc_conn *conn = NULL;
	bool charged_conn = false, charged_fd = false;
	int r;

	if (daemon->n_conns >= daemon->config.max_connections) {
		r = -EDQUOT;
		goto fail;
	}
	r = mc_quota_charge(daemon->quota, uid, MC_QUOTA_CONNECTIONS, 1);
	if (r)
		goto fail;
	charged_conn = true;
	r = mc_quota_charge(daemon->quota, uid, MC_QUOTA_FDS, 1);
	if (r)
		goto fail;
	charged_fd = true;
	r = -ENOMEM;
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		goto fail;
	conn->reader = mc_frame_reader_new(MC_LIMIT_REQUEST_BYTES, MC_LIMIT_REQUEST_FDS);
	conn->queue = mc_frame_queue_new(daemon->config.max_queue_bytes);
	if (!conn->reader || !conn->queue)
		goto fail;
	conn->daemon = daemon;
	conn->fd = fd;
	conn->pid = pid;
	conn->uid = uid;
	conn->gid = gid;
	snprintf(conn->label, sizeof(conn->label), "without a name");
	r = uv_poll_init(daemon->loop, &conn->poll, fd);
	if (r)
		goto fail;
	uv_timer_init(daemon->loop, &conn->timer);
	conn->n_open = 2;
	conn->poll.data = conn;
	conn->timer.data = conn;
	conn->id = ++daemon->next_conn_id;
	conn->opened_ms = mc_now_ms();
	uv_poll_start(&conn->poll, UV_READABLE, on_io);
	uv_timer_start(&conn->timer, on_hello_deadline, daemon->config.hello_timeout_ms, 0);
	DL_APPEND(daemon->conns, conn);
	daemon->n_conns++;
	daemon->counters.connections++;
	if (ret_conn)
		*ret_conn = conn;
	mc_daemon_update_status(daemon);
	return 0;

fail:
	if (conn) {
		mc_frame_reader_free(conn->reader);
		mc_frame_queue_free(conn->queue);
		free(conn);
	}
	if (charged_fd)
		mc_quota_release(daemon->quota, uid, MC_QUOTA_FDS, 1);
	if (charged_conn)
		mc_quota_release(daemon->quota, uid, MC_QUOTA_CONNECTIONS, 1);
	close(fd);
	return r;
}

/* A refused client is told why, as far as its socket takes it at once. */
static void send_refusal(int fd, const char *detail)
{
	Moecomm__Wire__Done done = MOECOMM__WIRE__DONE__INIT;
	struct mc_frame_queue *queue = mc_frame_queue_new(MC_LIMIT_REQUEST_BYTES);
	uint8_t *payload;
	size_t n_payload;

	done.status = MC_STATUS_QUOTA;
	done.detail = (char *)detail;
	if (queue && !mc_codec_encode(&done.base, &payload, &n_payload)) {
		if (!mc_frame_queue_push(queue, MC_FRAME_DONE, 0, payload, n_payload, NULL, 0))
			mc_frame_queue_flush(queue, fd);
		free(payload);
	}
	mc_frame_queue_free(queue);
}

void mc_conn_accept(struct mc_daemon *daemon, int fd)
{
	struct ucred cred = {.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
	socklen_t n_cred = sizeof(cred);
	char detail[160];
	int r;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n_cred)) {
		close(fd);
		return;
	}
	if (daemon->n_conns >= daemon->config.max_connections ||
		mc_quota_used(daemon->quota, cred.uid, MC_QUOTA_CONNECTIONS) >=
			daemon->config.max_connections_per_uid) {
		snprintf(detail, sizeof(detail),
			"uid %u holds %llu of %u connections, all users %u of %u: close some",
			cred.uid,
			(unsigned long long)mc_quota_used(
				daemon->quota, cred.uid, MC_QUOTA_CONNECTIONS),
			daemon->config.max_connections_per_uid, daemon->n_conns,
			daemon->config.max_connections);
		mc_log_limited(&refuse_limit, LOG_WARNING, NULL,
			"a connection of pid %u was refused: %s", (unsigned)cred.pid, detail);
		send_refusal(fd, detail);
		daemon->counters.refused[MC_STATUS_QUOTA]++;
		close(fd);
		return;
	}
	r = mc_conn_new(daemon, fd, (uint32_t)cred.pid, cred.uid, cred.gid, NULL);
	if (r)
		mc_log_limited(&refuse_limit, LOG_WARNING, NULL,
			"a connection of pid %u, uid %u was refused: %s", (unsigned)cred.pid,
			cred.uid, strerror(-r));
}

bool mc_conn_has_gid(const struct mc_conn *conn, uint32_t gid)
{
	gid_t groups[256];
	socklen_t n_bytes = sizeof(groups);

	if (conn->gid == gid)
		return true;
	/* more groups than fit: ERANGE, and only the primary one counts */
	if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n_bytes))
		return false;
	for (size_t i = 0; i < n_bytes / sizeof(groups[0]); i++)
		if (groups[i] == gid)
			return true;
	return false;
}
