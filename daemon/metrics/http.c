/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/metrics/render.h"

/* A few scrapers, and room for connections that never say anything until their time is over. */
#define MAX_CONNECTIONS         64u
#define CONNECTION_MEMORY_BYTES 16384u
#define CONNECTION_TIMEOUT_S    3u
#define BACKLOG                 64
/* Turns of the library in one turn of our loop. */
#define MAX_RUNS 8u
/* Anybody on the host may ask: texts are made at most this often, whoever asks how often. */
#define FRESH_MS 200u

#define CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

#define FAIL(code, ...) (snprintf(ret_error, n_error, __VA_ARGS__), (code))

struct mc_metrics_http {
	struct mc_daemon *daemon;
	struct MHD_Daemon *server;
	uv_poll_t poll;
	uv_timer_t timer;  /* runs only while connections stand */
	unsigned n_open;   /* handles */
	uint64_t n_closed; /* connections that have gone */
	char *text;        /* the last answer */
	size_t n_text;
	uint64_t made_ms;
};

/* ---- answering ---- */

static bool refresh(struct mc_metrics_http *http)
{
	uint64_t now_ms = mc_now_ms();
	char *text;
	size_t n;

	if (http->text && now_ms - http->made_ms < FRESH_MS)
		return true;
	if (mc_metrics_render(http->daemon, &text, &n))
		return false;
	free(http->text);
	http->text = text;
	http->n_text = n;
	http->made_ms = now_ms;
	return true;
}

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type,
	const char *text, size_t n_text)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(n_text, (void *)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	r = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return r;
}

static enum MHD_Result reply_line(
	struct MHD_Connection *connection, unsigned status, const char *line)
{
	return reply(connection, status, "text/plain; charset=utf-8", line, strlen(line));
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *n_upload,
	void **request)
{
	static int seen;
	struct mc_metrics_http *http = data;

	(void)version;
	(void)upload;
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return reply_line(
			connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is served here\n");
	if (*n_upload) /* a body that nobody asked for */
		return MHD_NO;
	if (!*request) { /* headers only so far; an answer now would end the connection */
		*request = &seen;
		return MHD_YES;
	}
	if (strcmp(url, "/metrics"))
		return reply_line(connection, MHD_HTTP_NOT_FOUND,
			"moecommd serves its metrics at /metrics\n");
	if (!refresh(http))
		return reply_line(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
	return reply(connection, MHD_HTTP_OK, CONTENT_TYPE, http->text, http->n_text);
}

/* ---- the loop ---- */

static void run(struct mc_metrics_http *http);

static void on_timer(uv_timer_t *timer)
{
	run(timer->data);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	run(poll->data);
}

static void on_connection(void *data, struct MHD_Connection *connection, void **context,
	enum MHD_ConnectionNotificationCode code)
{
	struct mc_metrics_http *http = data;

	(void)connection;
	(void)context;
	http->n_closed += code == MHD_CONNECTION_NOTIFY_CLOSED;
}

static void run(struct mc_metrics_http *http)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;
	uint64_t before;
	unsigned n_runs = 0;
	bool again;

	/*
	 * At its limit the library stops watching the listening socket, and begins again at the
	 * first run after a connection has gone: without that run nobody would be served any more.
	 * Their number does not tell: as many may have come in the same run.
	 */
	do {
		before = http->n_closed;
		MHD_run(http->server);
		again = http->n_closed != before;
	} while (again && ++n_runs < MAX_RUNS);
	/* no connection: nothing to time out, and an idle daemon sleeps */
	if (again)
		uv_timer_start(&http->timer, on_timer, 1, 0);
	else if (MHD_get_timeout(http->server, &wait_ms) == MHD_YES)
		uv_timer_start(&http->timer, on_timer, wait_ms ? wait_ms : 1, 0);
	else
		uv_timer_stop(&http->timer);
}

/* ---- beginning and end ---- */

static bool parse_address(
	const char *text, uint32_t port, struct sockaddr_storage *ret_address, socklen_t *ret_n)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret_address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_address;

	memset(ret_address, 0, sizeof(*ret_address));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		*ret_n = sizeof(*v4);
		return true;
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1)
		return false;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	*ret_n = sizeof(*v6);
	return true;
}

static int listen_at(const struct mc_config *config, char *ret_error, size_t n_error)
{
	struct sockaddr_storage address;
	socklen_t n_address;
	int fd, on = 1, r;

	if (!parse_address(config->metrics_address, config->metrics_port, &address, &n_address))
		return FAIL(-EINVAL,
			"metrics_address = %s is not allowed: must be an IPv4 or IPv6 address",
			config->metrics_address);
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return FAIL(-errno, "cannot make a socket for metrics: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&address, n_address) || listen(fd, BACKLOG)) {
		r = -errno;
		close(fd);
		return FAIL(r, "cannot serve metrics at %s port %u: %s; set another metrics_port",
			config->metrics_address, config->metrics_port, strerror(-r));
	}
	return fd;
}

static void on_closed(uv_handle_t *handle)
{
	struct mc_metrics_http *http = handle->data;

	if (--http->n_open)
		return;
	free(http->text);
	free(http);
}

int mc_metrics_http_open(struct mc_daemon *daemon, struct mc_metrics_http **ret_http,
	char *ret_error, size_t n_error)
{
	const union MHD_DaemonInfo *info;
	struct mc_metrics_http *http;
	int r, fd = listen_at(&daemon->config, ret_error, n_error);

	if (fd < 0)
		return fd;
	http = calloc(1, sizeof(*http));
	if (!http) {
		close(fd);
		return FAIL(-ENOMEM, "out of memory");
	}
	http->daemon = daemon;
	http->server = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, http,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
		MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
		CONNECTION_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_END);
	if (!http->server) {
		close(fd);
		free(http);
		return FAIL(-EIO, "libmicrohttpd does not start");
	}
	info = MHD_get_daemon_info(http->server, MHD_DAEMON_INFO_EPOLL_FD);
	r = info ? uv_poll_init(daemon->loop, &http->poll, info->epoll_fd) : -EIO;
	if (r) {
		MHD_stop_daemon(http->server);
		free(http);
		return FAIL(r, "cannot watch the metrics socket: %s", uv_strerror(r));
	}
	uv_timer_init(daemon->loop, &http->timer);
	http->n_open = 2;
	http->poll.data = http->timer.data = http;
	uv_poll_start(&http->poll, UV_READABLE, on_readable);
	mc_log(LOG_INFO, "serving metrics at http://%s:%u/metrics", daemon->config.metrics_address,
		daemon->config.metrics_port);
	*ret_http = http;
	return 0;
}

struct mc_metrics_http *mc_metrics_http_close(struct mc_metrics_http *http)
{
	if (!http)
		return NULL;
	uv_close((uv_handle_t *)&http->poll, on_closed);
	uv_close((uv_handle_t *)&http->timer, on_closed);
	MHD_stop_daemon(http->server);
	return NULL;
}
