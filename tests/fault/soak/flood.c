/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/soak/flood.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fault/soak/soak.h"
#include "moecomm.pb-c.h"
#include "proto/codec.h"
#include "proto/frame.h"
#include "proto/version.h"

#define MAX_GARBAGE 4096u

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", soak->socket);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Half of them begin like a frame, so that they get further than its magic. */
static void send_garbage(struct plan *draw)
{
	uint8_t bytes[MC_FRAME_HEADER_BYTES + MAX_GARBAGE];
	uint32_t n = 1 + plan_draw(draw, MAX_GARBAGE), at = 0;
	int fd = dial();

	if (fd < 0)
		return;
	if (plan_draw(draw, 2)) {
		mc_frame_header_write(bytes, (uint16_t)plan_draw(draw, 40), plan_draw(draw, 9), n,
			(uint16_t)plan_draw(draw, 3));
		at = MC_FRAME_HEADER_BYTES;
	}
	for (uint32_t i = 0; i < n; i++)
		bytes[at + i] = (uint8_t)plan_draw(draw, 256);
	if (send(fd, bytes, at + n, MSG_NOSIGNAL) > 0 && plan_draw(draw, 4) == 0)
		usleep(plan_draw(draw, 20000));
	close(fd);
}

static bool send_message(int fd, uint16_t type, uint32_t number, const ProtobufCMessage *message)
{
	uint8_t header[MC_FRAME_HEADER_BYTES], *payload = NULL;
	size_t n = 0;
	bool sent;

	if (mc_codec_encode(message, &payload, &n))
		return false;
	mc_frame_header_write(header, type, number, (uint32_t)n, 0);
	sent = send(fd, header, sizeof(header), MSG_NOSIGNAL) == (ssize_t)sizeof(header) &&
	       send(fd, payload, n, MSG_NOSIGNAL) == (ssize_t)n;
	free(payload);
	return sent;
}

static int greet(void)
{
	Moecomm__Wire__Hello hello = MOECOMM__WIRE__HELLO__INIT;
	int fd = dial();

	hello.major = MC_PROTO_MAJOR;
	hello.minor = MC_PROTO_MINOR;
	hello.label = (char *)"soak-flood";
	if (fd >= 0 && !send_message(fd, MC_FRAME_HELLO, 1, &hello.base)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int flood_queries(bool deaf, int64_t end_us)
{
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	static uint8_t sink[1 << 16];
	int fd = greet();

	request.has_ranks = request.ranks = 1;
	request.has_clients = request.clients = 1;
	for (uint32_t number = 2; soak_now_us() < end_us; number++) {
		struct pollfd ready = {.fd = fd, .events = POLLOUT | (deaf ? 0 : POLLIN)};

		if (fd < 0) /* the daemon is away, or was restarted */
			return 0;
		poll(&ready, 1, 50);
		if (ready.revents & POLLIN && recv(fd, sink, sizeof(sink), MSG_DONTWAIT) <= 0)
			break;
		if (ready.revents & (POLLERR | POLLHUP))
			break;
		if (ready.revents & POLLOUT &&
			!send_message(fd, MC_FRAME_STATUS_REQUEST, number, &request.base))
			break;
	}
	if (fd >= 0)
		close(fd);
	return soak_now_us() < end_us ? FLOOD_CUT_OFF : 0;
}

pid_t flood_start(enum plan_daemon_kind kind, uint32_t for_ms)
{
	int64_t end_us = soak_now_us() + for_ms * INT64_C(1000);
	struct plan draw = plan_new(soak->seed, (uint32_t)end_us);
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (kind != PLAN_FLOOD_GARBAGE)
		_exit(flood_queries(kind == PLAN_FLOOD_DEAF, end_us));
	while (soak_now_us() < end_us)
		send_garbage(&draw);
	_exit(0);
}
