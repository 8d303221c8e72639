/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/socket_path.h"

/* Connections taken in one turn of the loop, so that a storm of them can't starve the others. */
#define ACCEPTS_A_TURN 64
/* Pause after an accept error that would come back at once. */
#define ACCEPT_PAUSE_MS 100

struct mc_server {
	struct mc_daemon *daemon;
	struct mc_socket_path path;
	int fd;
	int reserve_fd; /* given up for a moment to refuse a connection when no fd is left */
	bool accepts;   /* since mc_server_accept */
	uv_poll_t poll;
	uv_timer_t pause;
	unsigned n_open; /* handles */
};

static struct mc_log_limit accept_limit;

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
	struct mc_server *server = timer->data;

	uv_poll_start(&server->poll, UV_READABLE, on_readable);
}

static void pause_accepting(struct mc_server *server, int error)
{
	mc_log_limited(&accept_limit, LOG_ERR, NULL, "cannot accept connections for a moment: %s",
		strerror(error));
	uv_poll_stop(&server->poll);
	uv_timer_start(&server->pause, on_pause_over, ACCEPT_PAUSE_MS, 0);
}

/* No fd is left: the client in front is refused rather than left hanging. */
static void refuse_one(struct mc_server *server, int error)
{
	int fd;

	mc_log_limited(&accept_limit, LOG_ERR, NULL,
		"a connection was refused: %s; raise LimitNOFILE= of the service", strerror(error));
	if (server->reserve_fd >= 0)
		close(server->reserve_fd);
	fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		close(fd);
	server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (server->reserve_fd < 0)
		pause_accepting(server, errno);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct mc_server *server = poll->data;
	int fd;

	(void)events;
	if (status < 0) {
		pause_accepting(server, -status);
		return;
	}
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			mc_conn_accept(server->daemon, fd);
			continue;
		}
		if (errno == EAGAIN || errno == EINTR)
			return;
		if (errno == ECONNABORTED)
			continue;
		if (errno == EMFILE || errno == ENFILE)
			refuse_one(server, errno);
		else
			pause_accepting(server, errno);
		return;
	}
}

int mc_server_open(
	struct mc_daemon *daemon, struct mc_server **ret_server, char *ret_error, size_t n_error)
{
	struct mc_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server) {
		snprintf(ret_error, n_error, "out of memory");
		return -ENOMEM;
	}
	server->daemon = daemon;
	server->fd = mc_socket_path_bind(&daemon->config, &server->path, ret_error, n_error);
	if (server->fd < 0) {
		r = server->fd;
		free(server);
		return r;
	}
	server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	r = uv_poll_init(daemon->loop, &server->poll, server->fd);
	if (r) {
		snprintf(ret_error, n_error, "cannot watch the socket: %s", uv_strerror(r));
		close(server->fd);
		if (server->reserve_fd >= 0)
			close(server->reserve_fd);
		mc_socket_path_release(&server->path);
		free(server);
		return r;
	}
	uv_timer_init(daemon->loop, &server->pause);
	server->n_open = 2;
	server->poll.data = server;
	server->pause.data = server;
	*ret_server = server;
	return 0;
}

void mc_server_accept(struct mc_server *server)
{
	if (server->accepts)
		return;
	server->accepts = true;
	uv_poll_start(&server->poll, UV_READABLE, on_readable);
}

static void on_closed(uv_handle_t *handle)
{
	struct mc_server *server = handle->data;

	if (--server->n_open == 0)
		free(server);
}

struct mc_server *mc_server_close(struct mc_server *server)
{
	if (!server)
		return NULL;
	uv_close((uv_handle_t *)&server->poll, on_closed);
	uv_close((uv_handle_t *)&server->pause, on_closed);
	/* the file goes first: who connects after that finds nothing instead of a dead socket */
	mc_socket_path_release(&server->path);
	close(server->fd);
	if (server->reserve_fd >= 0)
		close(server->reserve_fd);
	return NULL;
}
