/* SPDX-License-Identifier: Apache-2.0 */
#include "client/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/socket_path.h"
#include "client/socket_trust.h"
#include "proto/codec.h"
#include "proto/status.h"
#include "proto/version.h"

/* What may wait to be sent: a burst of requests of all groups; beyond it the daemon does not read.
 */
#define QUEUE_BYTES (512u << 10)
/* Above those of a driver with eight GPUs, below what select() takes. */
#define HIGH_FD 512

void mc_link_close(struct mc_link *link)
{
	if (link->fd >= 0)
		close(link->fd);
	link->reader = mc_frame_reader_free(link->reader);
	link->queue = mc_frame_queue_free(link->queue);
	link->fd = -1;
}

/*
 * The daemon hears of a death when the socket closes. The kernel closes a dead process's fds from
 * the highest to the lowest, and those of a GPU's driver take their time to let go of what it held
 * there: a quarter of a second was measured for an idle context.
 */
static int first_to_close(int fd)
{
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

	/* not to be had below a low limit of open files: then later */
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static enum moecomm_status dial(
	const struct sockaddr_un *address, int timeout_ms, int *ret_fd, char *ret_detail)
{
	/* a full backlog makes connect wait for this long; the socket is made non-blocking after */
	struct timeval limit = {
		.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 + 1};
	int fd = first_to_close(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int r;

	if (fd < 0) {
		snprintf(ret_detail, MC_ERROR_BYTES, "cannot make a socket: %s", strerror(errno));
		return MOECOMM_SYSTEM;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	do {
		r = connect(fd, (const struct sockaddr *)address, sizeof(*address));
	} while (r < 0 && errno == EINTR);
	if (r == 0) {
		int flags = fcntl(fd, F_GETFL);

		if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) {
			*ret_fd = fd;
			return MOECOMM_OK;
		}
	}
	r = errno;
	close(fd);
	switch (r) {
	case ENOENT:
	case ENOTDIR:
		snprintf(ret_detail, MC_ERROR_BYTES,
			"no daemon at %s: there is no such socket; start moecommd, or set "
			"MOECOMM_SOCKET",
			address->sun_path);
		return MOECOMM_UNREACHABLE;
	case ECONNREFUSED:
		snprintf(ret_detail, MC_ERROR_BYTES,
			"no daemon at %s: nobody listens on the socket; start moecommd",
			address->sun_path);
		return MOECOMM_UNREACHABLE;
	case EAGAIN:
		snprintf(ret_detail, MC_ERROR_BYTES, "the daemon at %s does not accept connections",
			address->sun_path);
		return MOECOMM_UNREACHABLE;
	case EACCES:
	case EPERM:
		mc_socket_path_explain_denied(address->sun_path, ret_detail, MC_ERROR_BYTES);
		return MOECOMM_DENIED;
	default:
		snprintf(ret_detail, MC_ERROR_BYTES, "cannot connect to %s: %s", address->sun_path,
			strerror(r));
		return MOECOMM_SYSTEM;
	}
}

/* Waits for the socket; 0 when it is ready, else the status. */
static enum moecomm_status wait_for(
	const struct mc_link *link, short events, int64_t deadline, int cancel_fd, char *ret_detail)
{
	struct pollfd fds[2] = {
		{.fd = link->fd, .events = events}, {.fd = cancel_fd, .events = POLLIN}};

	for (;;) {
		int64_t left = deadline - mc_clock_ms();
		int r = left > 0 ? poll(fds, 2, (int)left) : 0;

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0) {
			snprintf(ret_detail, MC_ERROR_BYTES, "poll: %s", strerror(errno));
			return MOECOMM_SYSTEM;
		}
		if (r == 0 || fds[1].revents) {
			snprintf(ret_detail, MC_ERROR_BYTES,
				"something accepts connections at the socket but does not answer a "
				"greeting");
			return MOECOMM_UNREACHABLE;
		}
		return MOECOMM_OK;
	}
}

static enum moecomm_status send_hello(struct mc_link *link, const char *label, char *ret_detail)
{
	Moecomm__Wire__Hello hello = MOECOMM__WIRE__HELLO__INIT;
	uint8_t *payload = NULL;
	size_t n = 0;
	int r;

	hello.major = MC_PROTO_MAJOR;
	hello.minor = MC_PROTO_MINOR;
	hello.has_features = 1;
	hello.features = MC_PROTO_FEATURES;
	hello.label = (char *)label;
	hello.version = (char *)mc_version_string();
	r = mc_codec_encode(&hello.base, &payload, &n);
	if (r == 0)
		r = mc_frame_queue_push(link->queue, MC_FRAME_HELLO, 1, payload, n, NULL, 0);
	free(payload);
	if (r) {
		snprintf(ret_detail, MC_ERROR_BYTES, "cannot greet the daemon: %s", strerror(-r));
		return r == -ENOMEM ? MOECOMM_NO_MEMORY : MOECOMM_SYSTEM;
	}
	return MOECOMM_OK;
}

static enum moecomm_status take_welcome(
	struct mc_link *link, const Moecomm__Wire__Welcome *welcome, char *ret_detail)
{
	if (mc_version_check(
		    "the daemon", welcome->major, welcome->minor, ret_detail, MC_ERROR_BYTES))
		return MOECOMM_VERSION;
	link->backend = welcome->backend && strcmp(welcome->backend, "cuda") == 0
				? MOECOMM_BACKEND_CUDA
				: MOECOMM_BACKEND_HOST;
	snprintf(link->version, sizeof(link->version), "%s",
		welcome->version ? welcome->version : "?");
	return MOECOMM_OK;
}

static enum moecomm_status take_answer(
	struct mc_link *link, const struct mc_frame *frame, char *ret_detail)
{
	ProtobufCMessage *message = NULL;
	const char *field = "";
	enum moecomm_status status;
	int r;

	if (frame->type != MC_FRAME_WELCOME && frame->type != MC_FRAME_DONE) {
		snprintf(ret_detail, MC_ERROR_BYTES, "the daemon answered a greeting with %s",
			mc_frame_type_name(frame->type));
		return MOECOMM_PROTOCOL;
	}
	r = mc_codec_decode(frame->type, frame->payload, frame->n_payload,
		MC_LIMIT_DECODE_REPLY_BYTES, &message, &field);
	if (r) {
		snprintf(ret_detail, MC_ERROR_BYTES,
			"the daemon answered a greeting with a bad %s: %s %s",
			mc_frame_type_name(frame->type), mc_codec_error_text(r),
			field ? field : "");
		return MOECOMM_PROTOCOL;
	}
	if (frame->type == MC_FRAME_WELCOME) {
		status = take_welcome(link, (const Moecomm__Wire__Welcome *)message, ret_detail);
	} else {
		const Moecomm__Wire__Done *done = (const Moecomm__Wire__Done *)message;

		status = done->status ? (enum moecomm_status)done->status : MOECOMM_PROTOCOL;
		snprintf(ret_detail, MC_ERROR_BYTES, "%s",
			done->detail && *done->detail ? done->detail : mc_status_text(status));
	}
	mc_codec_free(message);
	return status;
}

static enum moecomm_status greet(
	struct mc_link *link, const char *label, int64_t deadline, int cancel_fd, char *ret_detail)
{
	enum moecomm_status status = send_hello(link, label, ret_detail);
	struct mc_frame *frame;
	int r;

	while (status == MOECOMM_OK) {
		r = mc_frame_queue_flush(link->queue, link->fd);
		if (r == -EAGAIN) {
			status = wait_for(link, POLLOUT, deadline, cancel_fd, ret_detail);
			continue;
		}
		/* a daemon that refuses may have answered and closed before it read the greeting */
		r = mc_frame_reader_next(link->reader, link->fd, &frame);
		if (r == MC_FRAME_E_AGAIN || r == -EAGAIN || r == -EINTR) {
			status = wait_for(link, POLLIN, deadline, cancel_fd, ret_detail);
		} else if (r == 0) {
			return take_answer(link, frame, ret_detail);
		} else if (r == MC_FRAME_E_CLOSED || r == MC_FRAME_E_TRUNCATED ||
			   r == -ECONNRESET || r == -EPIPE) {
			snprintf(ret_detail, MC_ERROR_BYTES,
				"the daemon closed the connection before it answered a greeting");
			status = MOECOMM_UNREACHABLE;
		} else if (r == -ENOMEM) {
			snprintf(ret_detail, MC_ERROR_BYTES, "out of memory");
			status = MOECOMM_NO_MEMORY;
		} else {
			snprintf(ret_detail, MC_ERROR_BYTES,
				"what answers at the socket is no moecommd: %s",
				r > 0 ? mc_frame_error_text(r) : strerror(-r));
			status = r > 0 ? MOECOMM_PROTOCOL : MOECOMM_SYSTEM;
		}
	}
	return status;
}

enum moecomm_status mc_link_open(const struct sockaddr_un *address, const char *label,
	int timeout_ms, int cancel_fd, struct mc_link *ret_link, char ret_detail[MC_ERROR_BYTES])
{
	int64_t deadline = mc_clock_ms() + timeout_ms;
	struct mc_link link = MC_LINK_INIT;
	enum moecomm_status status = dial(address, timeout_ms, &link.fd, ret_detail);
	int r;

	/* before a byte is sent: a stranger learns nothing but that somebody came */
	if (status == MOECOMM_OK) {
		r = mc_socket_trust_check(link.fd, address->sun_path, ret_detail, MC_ERROR_BYTES);
		if (r)
			status = r == -EPERM ? MOECOMM_DENIED : MOECOMM_SYSTEM;
	}
	if (status == MOECOMM_OK) {
		link.reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, MC_LIMIT_FRAME_FDS);
		link.queue = mc_frame_queue_new(QUEUE_BYTES);
		if (link.reader && link.queue) {
			status = greet(&link, label, deadline, cancel_fd, ret_detail);
		} else {
			snprintf(ret_detail, MC_ERROR_BYTES, "out of memory");
			status = MOECOMM_NO_MEMORY;
		}
	}
	if (status == MOECOMM_OK)
		*ret_link = link;
	else
		mc_link_close(&link);
	return status;
}
