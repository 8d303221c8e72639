/* SPDX-License-Identifier: Apache-2.0 */
/* From a frame to its handler. */
#include <inttypes.h>
#include <stdio.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/handlers.h"
#include "daemon/log.h"
#include "proto/codec.h"

static struct mc_log_limit malformed_limit, rate_limit;

static void refuse_and_close(
	struct mc_conn *conn, uint32_t serial, uint32_t status, const char *what, const char *field)
{
	mc_log_limited(&malformed_limit, LOG_WARNING, NULL,
		"closing the connection of client %s (pid %u, uid %u): %s%s%s", conn->label,
		conn->pid, conn->uid, what, *field ? ": " : "", field);
	conn->cut_off = "it does not keep to the protocol";
	mc_conn_done(conn, serial, status, "%s%s%s", what, *field ? ": " : "", field);
	mc_conn_close_when_sent(conn);
}

static void dispatch(struct mc_conn *conn, const struct mc_frame *frame, const void *message)
{
	switch (frame->type) {
	case MC_FRAME_HELLO:
		mc_handle_hello(conn, frame->serial, message);
		break;
	case MC_FRAME_JOIN:
		mc_handle_join(conn, frame->serial, message);
		break;
	case MC_FRAME_VOTE:
		mc_handle_vote(conn, frame->serial, message);
		break;
	case MC_FRAME_LEAVE:
		mc_handle_leave(conn, frame->serial, message);
		break;
	case MC_FRAME_ABORT:
		mc_handle_abort(conn, frame->serial, message);
		break;
	case MC_FRAME_OP_FAILED:
		mc_handle_op_failed(conn, frame->serial, message);
		break;
	case MC_FRAME_RESUME:
		mc_handle_resume(conn, frame->serial, message);
		break;
	case MC_FRAME_SET_DEADLINES:
		mc_handle_set_deadlines(conn, frame->serial, message);
		break;
	case MC_FRAME_STATUS_REQUEST:
		mc_handle_status(conn, frame->serial, message);
		break;
	case MC_FRAME_RELEASE:
		mc_handle_release(conn, frame->serial, message);
		break;
	case MC_FRAME_METRICS_REQUEST:
		mc_handle_metrics(conn, frame->serial);
		break;
	case MC_FRAME_HISTORY_REQUEST:
		mc_handle_history(conn, frame->serial, message);
		break;
	default:
		break;
	}
}

/* Requests whose answer grows with what the daemon serves. */
static bool is_query(uint16_t type)
{
	return type == MC_FRAME_STATUS_REQUEST || type == MC_FRAME_METRICS_REQUEST ||
	       type == MC_FRAME_HISTORY_REQUEST;
}

static void answer_query(struct mc_conn *conn, const struct mc_frame *frame, const void *message)
{
	uint64_t started_ns = uv_hrtime();

	conn->has_queried = true;
	dispatch(conn, frame, message);
	mc_quota_spend_turn(conn->daemon->quota, conn->uid, uv_now(conn->daemon->loop),
		(uv_hrtime() - started_ns) / 1000u);
}

static bool is_request(uint16_t type)
{
	switch (type) {
	case MC_FRAME_HELLO:
	case MC_FRAME_JOIN:
	case MC_FRAME_VOTE:
	case MC_FRAME_LEAVE:
	case MC_FRAME_ABORT:
	case MC_FRAME_OP_FAILED:
	case MC_FRAME_RESUME:
	case MC_FRAME_SET_DEADLINES:
	case MC_FRAME_STATUS_REQUEST:
	case MC_FRAME_RELEASE:
	case MC_FRAME_METRICS_REQUEST:
	case MC_FRAME_HISTORY_REQUEST:
		return true;
	default:
		return false;
	}
}

/*
 * What a member says about its own membership is never refused for what others of its user ask: a
 * vote or a leave that is lost costs the whole group. It costs us no more than a refusal would.
 */
static bool is_rated(const struct mc_conn *conn, uint16_t type)
{
	switch (type) {
	case MC_FRAME_VOTE:
	case MC_FRAME_LEAVE:
	case MC_FRAME_ABORT:
	case MC_FRAME_OP_FAILED:
		return !conn->n_members;
	default:
		return true;
	}
}

void mc_handle(struct mc_conn *conn, const struct mc_frame *frame)
{
	struct mc_daemon *daemon = conn->daemon;
	ProtobufCMessage *message;
	const char *field = "";
	int r;

	daemon->counters.requests++;
	if (!conn->said_hello && frame->type != MC_FRAME_HELLO) {
		refuse_and_close(conn, frame->serial, MC_STATUS_PROTOCOL,
			"the first message must be a hello", "");
		return;
	}
	if (is_rated(conn, frame->type) &&
		!mc_quota_request(daemon->quota, conn->uid, uv_now(daemon->loop))) {
		mc_log_limited(&rate_limit, LOG_WARNING, NULL,
			"uid %u asks more than %u times a second; refusing", conn->uid,
			daemon->config.max_requests_per_second_per_uid);
		mc_conn_done(conn, frame->serial, MC_STATUS_QUOTA,
			"more than %u requests a second of uid %u: slow down",
			daemon->config.max_requests_per_second_per_uid, conn->uid);
		return;
	}
	if (!is_request(frame->type)) {
		mc_conn_done(conn, frame->serial, MC_STATUS_UNSUPPORTED,
			"this daemon does not know requests of type %u", frame->type);
		return;
	}
	r = mc_codec_decode(frame->type, frame->payload, frame->n_payload, MC_LIMIT_DECODE_BYTES,
		&message, &field);
	if (r == MC_CODEC_E_FIELD) {
		mc_conn_done(conn, frame->serial, MC_STATUS_INVALID, "%s: %s: %s",
			mc_frame_type_name(frame->type), mc_codec_error_text(r), field);
		return;
	}
	if (r) {
		refuse_and_close(conn, frame->serial, MC_STATUS_PROTOCOL, mc_codec_error_text(r),
			mc_frame_type_name(frame->type));
		return;
	}
	if (is_query(frame->type))
		answer_query(conn, frame, message);
	else
		dispatch(conn, frame, message);
	mc_codec_free(message);
}
