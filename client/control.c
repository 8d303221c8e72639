/* SPDX-License-Identifier: Apache-2.0 */
#include "client/control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/resume.h"
#include "proto/status.h"

/* Back-off of reconnects: quick enough for a daemon that restarts, cheap enough for one that does
 * not. */
#define RETRY_FIRST_MS 100
#define RETRY_LAST_MS  2000
/* While a call waits for it. */
#define RETRY_WAITED_MS 25
/* How long a reconnect may take before it counts as failed; bounds the end of the thread too. */
#define DIAL_MS 1000
/* How long a request waits for a daemon that is just away. */
#define AWAY_MS 1000
/* Frames taken in one go before the thread looks at what else there is to do. */
#define FRAMES_A_ROUND 64

void mc_reply_clear(struct mc_reply *reply)
{
	for (unsigned i = 0; i < reply->n_fds; i++)
		if (reply->fds[i] >= 0)
			close(reply->fds[i]);
	reply->message = mc_codec_free(reply->message);
	reply->n_fds = 0;
}

static void wake(moecomm_context *context)
{
	uint64_t one = 1;

	/* can fail only when the counter is full: then the thread is awake anyway */
	if (write(context->wake_fd, &one, sizeof(one)) < 0)
		return;
}

/* ---- calls; with context->lock held ---- */

static void call_finish(struct mc_call *call, enum moecomm_status status, const char *detail)
{
	if (call->done)
		return;
	call->done = true;
	call->status = status;
	snprintf(call->detail, sizeof(call->detail), "%s", detail);
	pthread_cond_signal(&call->cond);
}

static struct mc_call *call_of_serial(moecomm_context *context, uint32_t serial)
{
	for (struct mc_call *call = context->calls; call; call = call->next)
		if (call->serial == serial && !call->done)
			return call;
	return NULL;
}

static void call_remove(moecomm_context *context, struct mc_call *call)
{
	for (struct mc_call **at = &context->calls; *at; at = &(*at)->next) {
		if (*at == call) {
			*at = call->next;
			return;
		}
	}
}

/* ---- sending; with context->lock held ---- */

static uint32_t next_serial(moecomm_context *context)
{
	/* 0 is the serial of what nobody asked for */
	if (++context->last_serial == 0)
		context->last_serial = 1;
	return context->last_serial;
}

static int send_locked(
	moecomm_context *context, uint16_t type, uint32_t serial, const uint8_t *payload, size_t n)
{
	int r = mc_frame_queue_push(context->link.queue, type, serial, payload, n, NULL, 0);

	if (r)
		return r;
	/* whatever is left, or wrong with the socket, is the control thread's business */
	if (mc_frame_queue_flush(context->link.queue, context->link.fd))
		wake(context);
	return 0;
}

int mc_control_send_locked(moecomm_context *context, uint16_t type, const ProtobufCMessage *message,
	uint32_t *ret_serial)
{
	uint32_t serial;
	uint8_t *payload = NULL;
	size_t n = 0;
	int r;

	if (context->link.fd < 0)
		return -ENOTCONN;
	r = mc_codec_encode(message, &payload, &n);
	if (r)
		return r;
	serial = next_serial(context);
	/* known before it is sent, so that the reply finds it */
	if (ret_serial)
		*ret_serial = serial;
	r = send_locked(context, type, serial, payload, n);
	free(payload);
	return r;
}

void mc_control_post(moecomm_context *context, uint16_t type, const ProtobufCMessage *message)
{
	pthread_mutex_lock(&context->lock);
	mc_control_send_locked(context, type, message, NULL);
	pthread_mutex_unlock(&context->lock);
}

/* Waits for the link to come back; with the lock held. */
static bool wait_for_link(moecomm_context *context, int64_t timeout_ms)
{
	struct timespec at =
		mc_clock_timespec(mc_clock_ms() + (timeout_ms < AWAY_MS ? timeout_ms : AWAY_MS));

	context->n_waiting++;
	while (context->link.fd < 0) {
		context->retry_now = true;
		if (!context->dialing)
			wake(context);
		if (pthread_cond_timedwait(&context->changed, &context->lock, &at) == ETIMEDOUT)
			break;
	}
	context->n_waiting--;
	return context->link.fd >= 0;
}

static enum moecomm_status finish_reply(struct mc_call *call, struct mc_reply *ret_reply)
{
	const Moecomm__Wire__Done *done;

	if (call->status != MOECOMM_OK)
		return mc_error(call->status, "%s", call->detail);
	if (call->reply.type == MC_FRAME_DONE) {
		done = (const Moecomm__Wire__Done *)call->reply.message;
		if (done->status) {
			enum moecomm_status status = (enum moecomm_status)done->status;

			mc_error(status, "%s",
				done->detail && *done->detail ? done->detail
							      : mc_status_text(status));
			mc_reply_clear(&call->reply);
			return status;
		}
	}
	*ret_reply = call->reply;
	return MOECOMM_OK;
}

enum moecomm_status mc_control_request(moecomm_context *context, uint16_t type,
	const ProtobufCMessage *message, struct moecomm_group *group, int64_t timeout_ms,
	struct mc_reply *ret_reply)
{
	struct timespec at = mc_clock_timespec(mc_clock_ms() + timeout_ms);
	struct mc_call call = {.group = group};
	pthread_condattr_t attributes;
	uint8_t *payload = NULL;
	size_t n = 0;
	int r = mc_codec_encode(message, &payload, &n);

	if (r)
		return mc_error(MOECOMM_NO_MEMORY, "cannot encode %s: %s", mc_frame_type_name(type),
			strerror(-r));
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&call.cond, &attributes);
	pthread_condattr_destroy(&attributes);

	pthread_mutex_lock(&context->lock);
	if (!wait_for_link(context, timeout_ms)) {
		call_finish(&call, MOECOMM_UNREACHABLE, context->away);
	} else {
		call.serial = next_serial(context);
		call.next = context->calls;
		context->calls = &call;
		r = send_locked(context, type, call.serial, payload, n);
		if (r)
			call_finish(&call, r == -ENOMEM ? MOECOMM_NO_MEMORY : MOECOMM_UNREACHABLE,
				r == -ENOMEM ? "out of memory"
					     : "the daemon does not read what it is sent");
		while (!call.done)
			if (pthread_cond_timedwait(&call.cond, &context->lock, &at) == ETIMEDOUT)
				break;
		if (!call.done) {
			char text[128];

			snprintf(text, sizeof(text), "the daemon did not answer %s within %lld ms",
				mc_frame_type_name(type), (long long)timeout_ms);
			call_finish(&call, MOECOMM_UNREACHABLE, text);
		}
		call_remove(context, &call);
	}
	pthread_mutex_unlock(&context->lock);
	free(payload);
	pthread_cond_destroy(&call.cond);
	return finish_reply(&call, ret_reply);
}

/* ---- receiving; the control thread ---- */

static struct moecomm_group *group_of_member(moecomm_context *context, uint64_t member_id)
{
	for (struct moecomm_group *group = context->groups; group; group = group->next)
		if (member_id && group->member_id == member_id)
			return group;
	return NULL;
}

static void on_notice(moecomm_context *context, const Moecomm__Wire__Notice *notice)
{
	struct moecomm_group *group = group_of_member(context, notice->member_id);
	struct mc_verdict verdict;

	/* one of an epoch that this rank has left already is no news */
	if (!group || group->epoch != notice->epoch)
		return;
	mc_verdict_set(&verdict,
		notice->status ? (enum moecomm_status)notice->status : MOECOMM_ABORTED,
		notice->has_rank && notice->rank < group->world_size ? (int)notice->rank : -1, 0,
		"%s",
		notice->detail && *notice->detail ? notice->detail
						  : mc_status_text(notice->status));
	mc_log("group %s, epoch %llu: %s: %s", group->name, (unsigned long long)notice->epoch,
		mc_status_name(notice->status), verdict.detail);
	mc_group_notice(group, &verdict);
	for (struct mc_call *call = context->calls; call; call = call->next)
		if (call->group == group)
			call_finish(call, verdict.status, verdict.detail);
}

/* A Layout nobody waits for any more: the rank must not stay a member that never votes. */
static void on_late_layout(moecomm_context *context, const Moecomm__Wire__Layout *layout)
{
	Moecomm__Wire__Leave leave = MOECOMM__WIRE__LEAVE__INIT;

	leave.member_id = layout->member_id;
	mc_control_send_locked(context, MC_FRAME_LEAVE, &leave.base, NULL);
}

/* Takes *io_message over when a call waits for it. */
static void on_reply(
	moecomm_context *context, struct mc_frame *frame, ProtobufCMessage **io_message)
{
	struct mc_call *call = call_of_serial(context, frame->serial);

	if (call) {
		if (frame->type == MC_FRAME_LAYOUT && call->group)
			mc_resume_remember(call->group, (const Moecomm__Wire__Layout *)*io_message);
		call->reply.type = frame->type;
		call->reply.message = *io_message;
		*io_message = NULL;
		for (unsigned i = 0; i < frame->n_fds; i++) {
			call->reply.fds[i] = frame->fds[i];
			frame->fds[i] = -1;
		}
		call->reply.n_fds = frame->n_fds;
		call_finish(call, MOECOMM_OK, "");
	} else if (frame->type == MC_FRAME_DONE && frame->serial == 0) {
		const Moecomm__Wire__Done *done = (const Moecomm__Wire__Done *)*io_message;

		/* its last words before it closes a connection */
		mc_log("the daemon says: %s: %s", mc_status_name(done->status),
			done->detail ? done->detail : "");
	} else if (frame->type == MC_FRAME_DONE) {
		mc_resume_outcome(context, frame->serial, (const Moecomm__Wire__Done *)*io_message);
	} else if (frame->type == MC_FRAME_LAYOUT) {
		on_late_layout(context, (const Moecomm__Wire__Layout *)*io_message);
	}
}

/* Returns false and says why when the daemon does not keep to the protocol. */
static bool on_frame(moecomm_context *context, struct mc_frame *frame, char *ret_detail)
{
	ProtobufCMessage *message = NULL;
	const char *field = "";
	int r;

	/* additions within a major version: not for us */
	if (frame->type > MC_FRAME_STATUS && frame->n_fds == 0)
		return true;
	if (frame->type != MC_FRAME_DONE && frame->type != MC_FRAME_LAYOUT &&
		frame->type != MC_FRAME_READY && frame->type != MC_FRAME_NOTICE) {
		snprintf(ret_detail, MC_ERROR_BYTES,
			"the daemon sent %s, which is not for a client",
			mc_frame_type_name(frame->type));
		return false;
	}
	if (frame->n_fds && frame->type != MC_FRAME_LAYOUT) {
		snprintf(ret_detail, MC_ERROR_BYTES, "the daemon sent fds with %s",
			mc_frame_type_name(frame->type));
		return false;
	}
	r = mc_codec_decode(frame->type, frame->payload, frame->n_payload,
		MC_LIMIT_DECODE_REPLY_BYTES, &message, &field);
	if (r) {
		snprintf(ret_detail, MC_ERROR_BYTES, "the daemon sent a bad %s: %s%s%s",
			mc_frame_type_name(frame->type), mc_codec_error_text(r),
			field && *field ? ": " : "", field ? field : "");
		return false;
	}
	pthread_mutex_lock(&context->lock);
	if (frame->type == MC_FRAME_NOTICE)
		on_notice(context, (const Moecomm__Wire__Notice *)message);
	else
		on_reply(context, frame, &message);
	pthread_mutex_unlock(&context->lock);
	mc_codec_free(message);
	return true;
}

/* The connection is of no use any more: everybody who waits for it hears why. */
static void lose_link(moecomm_context *context, enum moecomm_status status, const char *why)
{
	pthread_mutex_lock(&context->lock);
	mc_log("daemon at %s is away: %s", context->address.sun_path, why);
	mc_link_close(&context->link);
	snprintf(context->away, sizeof(context->away), "the daemon is away: %.900s", why);
	for (struct mc_call *call = context->calls; call; call = call->next)
		call_finish(call, status, why);
	mc_resume_lost(context);
	for (struct moecomm_group *group = context->groups; group; group = group->next)
		mc_group_probe_lost(group, why);
	pthread_mutex_unlock(&context->lock);
}

/* Reads what there is. Returns false when the link is gone. */
static bool receive(moecomm_context *context)
{
	char why[MC_ERROR_BYTES];
	struct mc_frame *frame;

	for (int i = 0; i < FRAMES_A_ROUND; i++) {
		/* only this thread closes or replaces the link, so reading it needs no lock */
		int r = mc_frame_reader_next(context->link.reader, context->link.fd, &frame);

		if (r == MC_FRAME_E_AGAIN || r == -EAGAIN || r == -EINTR)
			return true;
		if (r == 0) {
			if (on_frame(context, frame, why))
				continue;
			lose_link(context, MOECOMM_PROTOCOL, why);
			return false;
		}
		if (r == MC_FRAME_E_CLOSED || r == -ECONNRESET || r == -EPIPE)
			lose_link(context, MOECOMM_UNREACHABLE, "the daemon closed the connection");
		else if (r == MC_FRAME_E_TRUNCATED)
			lose_link(context, MOECOMM_UNREACHABLE,
				"the daemon closed the connection inside a message");
		else if (r > 0)
			lose_link(context, MOECOMM_PROTOCOL, mc_frame_error_text(r));
		else
			lose_link(context, r == -ENOMEM ? MOECOMM_NO_MEMORY : MOECOMM_SYSTEM,
				strerror(-r));
		return false;
	}
	/* more may be buffered: do not sleep on it */
	wake(context);
	return true;
}

static void drain_wake(moecomm_context *context)
{
	uint64_t n;

	if (read(context->wake_fd, &n, sizeof(n)) < 0)
		return;
}

/* One round on a link: waits, sends, receives. */
static void serve(moecomm_context *context)
{
	struct pollfd fds[2] = {{.fd = context->link.fd, .events = POLLIN},
		{.fd = context->wake_fd, .events = POLLIN}};
	int r;

	pthread_mutex_lock(&context->lock);
	if (mc_frame_queue_bytes(context->link.queue))
		fds[0].events |= POLLOUT;
	pthread_mutex_unlock(&context->lock);
	r = poll(fds, 2, -1);
	if (r < 0)
		return;
	if (fds[1].revents)
		drain_wake(context);
	if (fds[0].revents & POLLOUT) {
		/* a socket that can't be written tells the same to the reader, with what came
		 * before */
		pthread_mutex_lock(&context->lock);
		mc_frame_queue_flush(context->link.queue, context->link.fd);
		pthread_mutex_unlock(&context->lock);
	}
	receive(context);
}

/* Dials again after a while; returns the next back-off. */
static int reconnect(moecomm_context *context, int wait_ms)
{
	struct pollfd woken = {.fd = context->wake_fd, .events = POLLIN};
	struct mc_link link = MC_LINK_INIT;
	char detail[MC_ERROR_BYTES];
	enum moecomm_status status;
	bool is_woken = poll(&woken, 1, wait_ms) > 0;

	pthread_mutex_lock(&context->lock);
	/* under the lock: from here on only the end of the context wakes */
	drain_wake(context);
	context->dialing = !context->stop && (!is_woken || context->retry_now);
	context->retry_now = false;
	if (!context->dialing) {
		pthread_mutex_unlock(&context->lock);
		return wait_ms;
	}
	pthread_mutex_unlock(&context->lock);
	status = mc_link_open(
		&context->address, context->label, DIAL_MS, context->wake_fd, &link, detail);
	pthread_mutex_lock(&context->lock);
	context->dialing = false;
	if (status == MOECOMM_OK) {
		context->link = link;
		mc_log("connected to the daemon at %s again", context->address.sun_path);
		mc_resume_all(context);
		pthread_cond_broadcast(&context->changed);
		wait_ms = RETRY_FIRST_MS;
	} else {
		snprintf(
			context->away, sizeof(context->away), "the daemon is away: %.900s", detail);
		wait_ms = wait_ms * 2 < RETRY_LAST_MS ? wait_ms * 2 : RETRY_LAST_MS;
		/* somebody waits for no longer than AWAY_MS: a long back-off would fail him */
		if (context->n_waiting)
			wait_ms = RETRY_WAITED_MS;
	}
	pthread_mutex_unlock(&context->lock);
	if (status == MOECOMM_OK)
		receive(context);
	return wait_ms;
}

static void *run(void *data)
{
	moecomm_context *context = data;
	int wait_ms = RETRY_FIRST_MS;
	bool stop, connected;

	for (;;) {
		pthread_mutex_lock(&context->lock);
		stop = context->stop;
		connected = context->link.fd >= 0;
		pthread_mutex_unlock(&context->lock);
		if (stop)
			return NULL;
		if (connected)
			serve(context);
		else
			wait_ms = reconnect(context, wait_ms);
	}
}

int mc_control_start(moecomm_context *context, struct mc_link *link)
{
	sigset_t all, before;
	int r;

	context->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (context->wake_fd < 0)
		return -errno;
	context->link = *link;
	/* the program's signals are for the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&context->thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r) {
		close(context->wake_fd);
		context->link = (struct mc_link)MC_LINK_INIT;
		return -r;
	}
	pthread_setname_np(context->thread, "moecomm-control");
	*link = (struct mc_link)MC_LINK_INIT;
	return 0;
}

void mc_control_stop(moecomm_context *context)
{
	pthread_mutex_lock(&context->lock);
	context->stop = true;
	wake(context);
	pthread_mutex_unlock(&context->lock);
	pthread_join(context->thread, NULL);
	mc_link_close(&context->link);
	close(context->wake_fd);
}
