/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "client/socket_path.h"
#include "client/socket_trust.h"
#include "proto/codec.h"
#include "proto/limits.h"
#include "proto/status.h"
#include "proto/version.h"

#define STRINGIFY_(x) #x
#define STRINGIFY(x)  STRINGIFY_(x)

struct mc_ctl_wire {
	int fd;
	int64_t deadline_ms;
	uint32_t serial;
	struct mc_frame_reader *reader;
	struct mc_frame_queue *queue;
	Moecomm__Wire__Welcome *welcome;
	struct sockaddr_un address;
	char problem[2048];
	uint32_t refused; /* status of the last refusal */
};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((format(printf, 3, 4))) static int problem(
	struct mc_ctl_wire *wire, int exit_status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(wire->problem, sizeof(wire->problem), format, arguments);
	va_end(arguments);
	return exit_status;
}

static int no_answer(struct mc_ctl_wire *wire)
{
	return problem(wire, MC_CTL_UNREACHABLE,
		"the daemon at %s does not answer within " STRINGIFY(
			MC_CTL_DEADLINE_MS) " ms: it is stopped or overloaded; its log says more "
					    "(journalctl -u moecommd)",
		wire->address.sun_path);
}

/* Waits for the socket until the deadline. Returns MC_CTL_OK or a problem. */
static int await(struct mc_ctl_wire *wire, short events)
{
	struct pollfd fd = {.fd = wire->fd, .events = events};
	int64_t left;
	int r;

	do {
		left = wire->deadline_ms - now_ms();
		r = left > 0 ? poll(&fd, 1, (int)left) : 0;
	} while (r < 0 && errno == EINTR);
	return r > 0 ? MC_CTL_OK : no_answer(wire);
}

static int dial(struct mc_ctl_wire *wire)
{
	const char *path = wire->address.sun_path;
	char denied[1024];
	int r;

	for (;;) {
		if (connect(wire->fd, (struct sockaddr *)&wire->address, sizeof(wire->address)) ==
			0)
			return MC_CTL_OK;
		/* the listen queue is full: the daemon is busy, not away */
		if (errno != EAGAIN && errno != EINTR)
			break;
		if (now_ms() >= wire->deadline_ms)
			return no_answer(wire);
		poll(NULL, 0, 10);
	}
	r = errno;
	if (r == EACCES || r == EPERM) {
		mc_socket_path_explain_denied(path, denied, sizeof(denied));
		return problem(wire, MC_CTL_UNREACHABLE, "%s", denied);
	}
	return problem(wire, MC_CTL_UNREACHABLE,
		"no daemon at %s (%s): start one (systemctl start moecommd, or moecommd --socket "
		"%s), or "
		"name another socket with --socket",
		path,
		r == ENOENT         ? "no such socket"
		: r == ECONNREFUSED ? "nobody listens"
				    : strerror(r),
		path);
}

static int send_request(struct mc_ctl_wire *wire, uint16_t type, const ProtobufCMessage *request)
{
	uint8_t *payload = NULL;
	size_t n_payload = 0;
	int r = mc_codec_encode(request, &payload, &n_payload);

	if (r == 0)
		r = mc_frame_queue_push(
			wire->queue, type, ++wire->serial, payload, n_payload, NULL, 0);
	free(payload);
	if (r < 0)
		return problem(wire, MC_CTL_REFUSED, "cannot make the request: %s", strerror(-r));
	while ((r = mc_frame_queue_flush(wire->queue, wire->fd)) == -EAGAIN) {
		r = await(wire, POLLOUT);
		if (r)
			return r;
	}
	/* a daemon that refuses and closes leaves its reason to be read */
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		return problem(wire, MC_CTL_UNREACHABLE, "cannot send to the daemon at %s: %s",
			wire->address.sun_path, strerror(-r));
	return MC_CTL_OK;
}

static int receive(struct mc_ctl_wire *wire, struct mc_frame **ret_frame)
{
	const char *path = wire->address.sun_path;
	int r;

	for (;;) {
		r = mc_frame_reader_next(wire->reader, wire->fd, ret_frame);
		if (r == 0 && (*ret_frame)->serial == wire->serial)
			return MC_CTL_OK;
		/* a notice, which nobody here waits for; but not for ever */
		if (r == 0 && now_ms() >= wire->deadline_ms)
			return no_answer(wire);
		if (r == 0)
			continue;
		if (r != MC_FRAME_E_AGAIN)
			break;
		r = await(wire, POLLIN);
		if (r)
			return r;
	}
	if (r == MC_FRAME_E_CLOSED || r == MC_FRAME_E_TRUNCATED || r == -ECONNRESET)
		return problem(wire, MC_CTL_UNREACHABLE,
			"the daemon at %s closed the connection without an answer; its log says "
			"why "
			"(journalctl -u moecommd)",
			path);
	return problem(wire, MC_CTL_UNREACHABLE, "what answers at %s is not moecommd: %s", path,
		r > 0 ? mc_frame_error_text(r) : strerror(-r));
}

static int refusal(struct mc_ctl_wire *wire, const Moecomm__Wire__Done *done)
{
	const char *detail =
		done->detail && *done->detail ? done->detail : mc_status_text(done->status);

	wire->refused = done->status;
	if (done->status == MC_STATUS_UNSUPPORTED)
		return problem(wire, MC_CTL_REFUSED,
			"the daemon at %s does not know this request (%s): it is of an older "
			"release",
			wire->address.sun_path, detail);
	return problem(
		wire, MC_CTL_REFUSED, "refused: %s: %s", mc_status_name(done->status), detail);
}

static int call(struct mc_ctl_wire *wire, uint16_t type, const ProtobufCMessage *request,
	uint16_t reply_type, ProtobufCMessage **ret_reply)
{
	ProtobufCMessage *reply = NULL;
	struct mc_frame *frame;
	const char *field = "";
	int r;

	wire->deadline_ms = now_ms() + MC_CTL_DEADLINE_MS;
	r = send_request(wire, type, request);
	if (!r)
		r = receive(wire, &frame);
	if (r)
		return r;
	if (frame->type != reply_type && frame->type != MC_FRAME_DONE)
		return problem(wire, MC_CTL_UNREACHABLE,
			"the daemon at %s answered with %s instead of %s", wire->address.sun_path,
			mc_frame_type_name(frame->type), mc_frame_type_name(reply_type));
	r = mc_codec_decode(frame->type, frame->payload, frame->n_payload,
		MC_LIMIT_DECODE_REPLY_BYTES, &reply, &field);
	if (r)
		return problem(wire, MC_CTL_UNREACHABLE,
			"the answer of the daemon at %s is damaged: %s%s%s", wire->address.sun_path,
			r > 0 ? mc_codec_error_text(r) : strerror(-r), *field ? ": " : "", field);
	if (frame->type == MC_FRAME_DONE && ((Moecomm__Wire__Done *)reply)->status != MC_STATUS_OK)
		r = refusal(wire, (Moecomm__Wire__Done *)reply);
	else if (frame->type != reply_type)
		r = problem(wire, MC_CTL_UNREACHABLE, "the daemon at %s answered without a %s",
			wire->address.sun_path, mc_frame_type_name(reply_type));
	if (r || !ret_reply)
		reply = mc_codec_free(reply);
	if (!r && ret_reply)
		*ret_reply = reply;
	return r;
}

static int told(struct mc_ctl_wire *wire, int r)
{
	if (r)
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, wire->problem);
	return r;
}

static int greet(struct mc_ctl_wire *wire)
{
	Moecomm__Wire__Hello hello = MOECOMM__WIRE__HELLO__INIT;
	ProtobufCMessage *reply = NULL;
	char detail[256];
	int r;

	hello.major = MC_PROTO_MAJOR;
	hello.minor = MC_PROTO_MINOR;
	hello.label = (char *)"moecommctl";
	hello.version = (char *)mc_version_string();
	r = call(wire, MC_FRAME_HELLO, &hello.base, MC_FRAME_WELCOME, &reply);
	if (r)
		return r;
	wire->welcome = (Moecomm__Wire__Welcome *)reply;
	if (mc_version_check(
		    "moecommd", wire->welcome->major, wire->welcome->minor, detail, sizeof(detail)))
		return problem(wire, MC_CTL_REFUSED, "%s", detail);
	return MC_CTL_OK;
}

static int set_up(struct mc_ctl_wire *wire, const struct mc_ctl *ctl)
{
	int r = mc_socket_path_resolve(ctl->socket, &wire->address);

	if (r < 0)
		return problem(wire, MC_CTL_USAGE,
			"the socket's path is longer than the %zu bytes that the "
			"system allows",
			sizeof(wire->address.sun_path) - 1);
	wire->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	wire->reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, 0);
	wire->queue = mc_frame_queue_new(2 * MC_LIMIT_REQUEST_BYTES);
	if (wire->fd < 0 || !wire->reader || !wire->queue)
		return problem(
			wire, MC_CTL_UNREACHABLE, "cannot make a socket: %s", strerror(errno));
	wire->deadline_ms = now_ms() + MC_CTL_DEADLINE_MS;
	r = dial(wire);
	if (r)
		return r;
	if (mc_socket_trust_check(
		    wire->fd, wire->address.sun_path, wire->problem, sizeof(wire->problem)))
		return MC_CTL_UNREACHABLE;
	return greet(wire);
}

int mc_ctl_wire_try(const struct mc_ctl *ctl, struct mc_ctl_wire **ret_wire, char *ret_problem,
	size_t n_problem)
{
	struct mc_ctl_wire *wire = calloc(1, sizeof(*wire));
	int r;

	if (!wire) {
		snprintf(ret_problem, n_problem, "out of memory");
		return MC_CTL_UNREACHABLE;
	}
	wire->fd = -1;
	r = set_up(wire, ctl);
	if (r) {
		snprintf(ret_problem, n_problem, "%s", wire->problem);
		wire = mc_ctl_wire_close(wire);
		return r;
	}
	*ret_wire = wire;
	return MC_CTL_OK;
}

int mc_ctl_wire_open(const struct mc_ctl *ctl, struct mc_ctl_wire **ret_wire)
{
	char text[2048];
	int r = mc_ctl_wire_try(ctl, ret_wire, text, sizeof(text));

	if (r)
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
	return r;
}

struct mc_ctl_wire *mc_ctl_wire_close(struct mc_ctl_wire *wire)
{
	if (!wire)
		return NULL;
	if (wire->fd >= 0)
		close(wire->fd);
	mc_frame_reader_free(wire->reader);
	mc_frame_queue_free(wire->queue);
	if (wire->welcome)
		mc_codec_free(&wire->welcome->base);
	free(wire);
	return NULL;
}

const Moecomm__Wire__Welcome *mc_ctl_wire_welcome(const struct mc_ctl_wire *wire)
{
	return wire->welcome;
}

const char *mc_ctl_wire_path(const struct mc_ctl_wire *wire)
{
	return wire->address.sun_path;
}

int mc_ctl_wire_call(struct mc_ctl_wire *wire, uint16_t type, const ProtobufCMessage *request,
	uint16_t reply_type, ProtobufCMessage **ret_reply)
{
	return told(wire, call(wire, type, request, reply_type, ret_reply));
}

static int ask_status(struct mc_ctl_wire *wire, const char *group, bool ranks, bool clients,
	Moecomm__Wire__Status **ret_status)
{
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int r;

	request.group = (char *)group;
	request.has_ranks = request.has_clients = 1;
	request.ranks = ranks;
	request.clients = clients;
	wire->refused = MC_STATUS_OK;
	r = call(wire, MC_FRAME_STATUS_REQUEST, &request.base, MC_FRAME_STATUS, &reply);
	if (!r)
		*ret_status = (Moecomm__Wire__Status *)reply;
	return r;
}

int mc_ctl_wire_status(struct mc_ctl_wire *wire, const char *group, bool ranks, bool clients,
	Moecomm__Wire__Status **ret_status)
{
	return told(wire, ask_status(wire, group, ranks, clients, ret_status));
}

int mc_ctl_wire_try_status(struct mc_ctl_wire *wire, bool ranks, Moecomm__Wire__Status **ret_status,
	char *ret_problem, size_t n_problem)
{
	int r = ask_status(wire, NULL, ranks, false, ret_status);

	if (r)
		snprintf(ret_problem, n_problem, "%s", wire->problem);
	return r;
}

int mc_ctl_wire_find(
	struct mc_ctl_wire *wire, const char *group, Moecomm__Wire__Status **ret_status)
{
	int r;

	*ret_status = NULL;
	r = ask_status(wire, group, true, false, ret_status);
	if (r == MC_CTL_REFUSED && wire->refused == MC_STATUS_NOT_FOUND)
		return MC_CTL_OK;
	return told(wire, r);
}
