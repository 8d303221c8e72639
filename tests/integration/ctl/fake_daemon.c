/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/ctl/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>
#include "proto/codec.h"
#include "proto/limits.h"
#include "proto/status.h"

static void say_bytes(int fd, const void *bytes, size_t n_bytes)
{
	/* the client may be gone, which is its right */
	(void)!send(fd, bytes, n_bytes, MSG_NOSIGNAL);
}

static void say(int fd, uint16_t type, uint32_t serial, const ProtobufCMessage *message)
{
	uint8_t header[MC_FRAME_HEADER_BYTES], *payload = NULL;
	size_t n_payload = 0;

	if (mc_codec_encode(message, &payload, &n_payload) < 0)
		abort();
	mc_frame_header_write(header, type, serial, (uint32_t)n_payload, 0);
	say_bytes(fd, header, sizeof(header));
	say_bytes(fd, payload, n_payload);
	free(payload);
}

static void say_done(int fd, uint32_t serial, uint32_t status, const char *detail)
{
	Moecomm__Wire__Done done = MOECOMM__WIRE__DONE__INIT;

	done.status = status;
	done.detail = (char *)detail;
	say(fd, MC_FRAME_DONE, serial, &done.base);
}

static void say_welcome(int fd, uint32_t serial)
{
	Moecomm__Wire__Welcome welcome = MOECOMM__WIRE__WELCOME__INIT;
	uint8_t instance[16] = {1};

	welcome.major = MC_PROTO_MAJOR;
	welcome.minor = MC_PROTO_MINOR;
	welcome.version = (char *)"9.8.7";
	welcome.backend = (char *)"host";
	welcome.instance.data = instance;
	welcome.instance.len = sizeof(instance);
	say(fd, MC_FRAME_WELCOME, serial, &welcome.base);
}

static void on_abort(struct fake_daemon *daemon, int fd, const struct mc_frame *frame)
{
	ProtobufCMessage *message = NULL;
	const char *field;
	Moecomm__Wire__Abort *request;

	if (mc_codec_decode(frame->type, frame->payload, frame->n_payload, MC_LIMIT_DECODE_BYTES,
		    &message, &field))
		abort();
	request = (Moecomm__Wire__Abort *)message;
	pthread_mutex_lock(&daemon->lock);
	snprintf(daemon->aborted, sizeof(daemon->aborted), "%s|%s",
		request->group ? request->group : "", request->reason ? request->reason : "");
	pthread_mutex_unlock(&daemon->lock);
	if (request->group && !strcmp(request->group, "nobody"))
		say_done(fd, frame->serial, MC_STATUS_NOT_FOUND, "no group named nobody");
	else
		say_done(fd, frame->serial, MC_STATUS_OK, NULL);
	mc_codec_free(message);
}

/* Returns whether the conversation goes on. */
static bool answer(struct fake_daemon *daemon, int fd, const struct mc_frame *frame)
{
	static const uint8_t damage[] = {0xff, 0xff, 0xff, 0xff, 0x01, 0x02};
	uint8_t header[MC_FRAME_HEADER_BYTES];

	if (frame->type == MC_FRAME_HELLO) {
		switch (daemon->manner) {
		case FAKE_OTHER_MAJOR:
			say_done(fd, frame->serial, MC_STATUS_VERSION,
				"client speaks protocol 1.0, this daemon 2.0");
			return false;
		case FAKE_CLOSES:
			return false;
		case FAKE_CLOSES_MIDWAY:
			mc_frame_header_write(header, MC_FRAME_WELCOME, frame->serial, 40, 0);
			say_bytes(fd, header, sizeof(header));
			return false;
		case FAKE_GARBAGE:
			say_bytes(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
			return false;
		case FAKE_SILENT:
			return true;
		default:
			say_welcome(fd, frame->serial);
			return true;
		}
	}
	switch (daemon->manner) {
	case FAKE_WRONG_REPLY:
		say_welcome(fd, frame->serial);
		break;
	case FAKE_DAMAGED:
		mc_frame_header_write(header, MC_FRAME_STATUS, frame->serial, sizeof(damage), 0);
		say_bytes(fd, header, sizeof(header));
		say_bytes(fd, damage, sizeof(damage));
		break;
	case FAKE_UNSUPPORTED:
		say_done(fd, frame->serial, MC_STATUS_UNSUPPORTED, "unknown request");
		break;
	default:
		if (frame->type == MC_FRAME_ABORT) {
			on_abort(daemon, fd, frame);
			break;
		}
		/* what nobody asked for comes in between, and must not be taken for the answer */
		say_done(fd, 0, MC_STATUS_OK, "unasked");
		say(fd, MC_FRAME_STATUS, frame->serial, &daemon->status->base);
	}
	return true;
}

static void converse(struct fake_daemon *daemon, int fd)
{
	struct mc_frame_reader *reader = mc_frame_reader_new(MC_LIMIT_REQUEST_BYTES, 0);
	struct mc_frame *frame;

	for (;;) {
		struct pollfd fds[] = {
			{.fd = fd, .events = POLLIN}, {.fd = daemon->stop_fd[0], .events = POLLIN}};
		int r = mc_frame_reader_next(reader, fd, &frame);

		if (r == 0 && answer(daemon, fd, frame))
			continue;
		if (r != MC_FRAME_E_AGAIN)
			break;
		if (poll(fds, 2, -1) < 0 || fds[1].revents)
			break;
	}
	mc_frame_reader_free(reader);
}

static void *serve(void *argument)
{
	struct fake_daemon *daemon = argument;

	for (;;) {
		struct pollfd fds[] = {{.fd = daemon->listen_fd, .events = POLLIN},
			{.fd = daemon->stop_fd[0], .events = POLLIN}};
		int fd;

		if (poll(fds, 2, -1) < 0 || fds[1].revents)
			return NULL;
		fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			continue;
		converse(daemon, fd);
		close(fd);
	}
}

void fake_daemon_start(struct fake_daemon *daemon, const char *directory, enum fake_manner manner,
	Moecomm__Wire__Status *status)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*daemon = (struct fake_daemon){.manner = manner, .status = status};
	pthread_mutex_init(&daemon->lock, NULL);
	assert_true(snprintf(daemon->path, sizeof(daemon->path), "%s/fake.sock", directory) > 0);
	memcpy(address.sun_path, daemon->path, sizeof(daemon->path));
	daemon->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(daemon->listen_fd >= 0);
	assert_int_equal(bind(daemon->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(daemon->listen_fd, 16), 0);
	assert_int_equal(pipe2(daemon->stop_fd, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&daemon->thread, NULL, serve, daemon), 0);
}

char *fake_daemon_aborted(struct fake_daemon *daemon)
{
	char *ret;

	pthread_mutex_lock(&daemon->lock);
	ret = strdup(daemon->aborted);
	pthread_mutex_unlock(&daemon->lock);
	assert_non_null(ret);
	return ret;
}

void fake_daemon_stop(struct fake_daemon *daemon)
{
	close(daemon->stop_fd[1]);
	pthread_join(daemon->thread, NULL);
	pthread_mutex_destroy(&daemon->lock);
	close(daemon->stop_fd[0]);
	close(daemon->listen_fd);
	unlink(daemon->path);
}
