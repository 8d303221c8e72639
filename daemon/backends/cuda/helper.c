/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backends/cuda/helper.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/backends/cuda/helper_environment.h"
#include "daemon/log.h"
#include "proto/status.h"

/* How long a killed helper may take to die (a driver call can't be interrupted) before we let go.
 */
#define REAP_MS 2000u
/* Longest line of its stderr that is logged; what is longer is cut. */
#define LINE_BYTES 512u

struct mc_helper {
	uv_process_t process;
	uv_poll_t poll;
	uv_timer_t timer;
	uv_pipe_t errors;
	unsigned n_open; /* handles not yet closed */
	int socket_fd;
	uint32_t timeout_ms;
	bool running; /* its exit has not been seen */
	bool killed;
	mc_helper_cb cb; /* NULL: has been called, or cancelled */
	void *data;
	char last_line[LINE_BYTES]; /* of its stderr */
	char line[LINE_BYTES];
	size_t n_line;
	char chunk[1024];
};

static struct mc_log_limit stderr_limit;

static void closed(struct mc_helper *h)
{
	if (--h->n_open == 0) {
		if (h->socket_fd >= 0)
			close(h->socket_fd);
		free(h);
	}
}

static void on_closed(uv_handle_t *handle)
{
	closed(handle->data);
}

static void close_handle(uv_handle_t *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, on_closed);
}

static void on_reap_timeout(uv_timer_t *timer)
{
	struct mc_helper *h = timer->data;

	mc_log(LOG_WARNING,
		"arming helper %d does not die %u ms after SIGKILL: a driver call hangs; going on "
		"without it",
		(int)h->process.pid, REAP_MS);
	close_handle((uv_handle_t *)&h->process);
	close_handle((uv_handle_t *)&h->timer);
}

/* Ends everything but the wait for the process's exit. */
static void wind_up(struct mc_helper *h)
{
	close_handle((uv_handle_t *)&h->poll);
	close_handle((uv_handle_t *)&h->errors);
	if (!h->running) {
		close_handle((uv_handle_t *)&h->process);
		close_handle((uv_handle_t *)&h->timer);
		return;
	}
	if (!h->killed) {
		h->killed = true;
		/* it leads a process group of its own */
		if (kill(-h->process.pid, SIGKILL) && errno != ESRCH)
			kill(h->process.pid, SIGKILL);
		uv_timer_start(&h->timer, on_reap_timeout, REAP_MS, 0);
	}
}

static void finish(struct mc_helper *h, int status, const char *detail, const void *reply,
	size_t n_reply, int *fds, unsigned n_fds)
{
	mc_helper_cb cb = h->cb;

	h->cb = NULL;
	wind_up(h);
	if (cb)
		cb(h->data, status, detail, reply, n_reply, fds, n_fds);
	for (unsigned i = 0; i < n_fds; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

/* Takes the reply if it is there. Returns whether the run is over. */
static bool receive(struct mc_helper *h)
{
	_Alignas(16) unsigned char reply[MC_HELPER_REPLY_BYTES];
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * MC_ARM_MAX_FDS)];
	} control;
	struct iovec part = {reply, sizeof(reply)};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	int fds[MC_ARM_MAX_FDS];
	unsigned n_fds = 0;
	ssize_t n;

	do
		n = recvmsg(h->socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		/* its exit status says more: wait for that, or for the deadline */
		uv_poll_stop(&h->poll);
		return false;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		size_t n_bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n_bytes / sizeof(int) && n_fds < MC_ARM_MAX_FDS; i++)
			memcpy(&fds[n_fds++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		finish(h, MC_STATUS_SYSTEM,
			message.msg_flags & MSG_CTRUNC ? "the arming helper's fds did not all "
							 "arrive: the daemon's limit of open files "
							 "(LimitNOFILE) is reached"
						       : "the arming helper's reply is too long: "
							 "install daemon and helper of one release",
			NULL, 0, fds, n_fds);
	else
		finish(h, 0, "", reply, (size_t)n, fds, n_fds);
	return true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	receive(poll->data);
}

static void on_exit_seen(uv_process_t *process, int64_t exit_status, int signal_number)
{
	struct mc_helper *h = process->data;
	char detail[LINE_BYTES + 256];

	h->running = false;
	if (!h->cb) {
		close_handle((uv_handle_t *)&h->process);
		close_handle((uv_handle_t *)&h->timer);
		return;
	}
	/* reply and exit can arrive in either order */
	if (receive(h))
		return;
	/* what it said last is often still in the pipe */
	if (h->n_line == 0 && !h->last_line[0]) {
		uv_os_fd_t fd;
		ssize_t n = 0;

		if (uv_fileno((uv_handle_t *)&h->errors, &fd) == 0)
			n = read(fd, h->last_line, sizeof(h->last_line) - 1);
		h->last_line[n > 0 ? n : 0] = 0;
		h->last_line[strcspn(h->last_line, "\n")] = 0;
	}
	if (signal_number)
		snprintf(detail, sizeof(detail),
			"the arming helper was ended by signal %d (%s)%s%s", signal_number,
			strsignal(signal_number), h->last_line[0] ? ": " : "", h->last_line);
	else
		snprintf(detail, sizeof(detail),
			"the arming helper ended with status %d and no reply%s%s", (int)exit_status,
			h->last_line[0] ? ": " : "", h->last_line);
	finish(h, MC_STATUS_DEVICE, detail, NULL, 0, NULL, 0);
}

static void on_deadline(uv_timer_t *timer)
{
	struct mc_helper *h = timer->data;
	char detail[LINE_BYTES + 256];

	if (receive(h))
		return;
	snprintf(detail, sizeof(detail),
		"the arming helper did not answer within %u ms and was killed: the driver hangs or "
		"is very "
		"slow%s%s",
		h->timeout_ms, h->last_line[0] ? "; it last said: " : "", h->last_line);
	finish(h, MC_STATUS_DEVICE, detail, NULL, 0, NULL, 0);
}

static void log_line(struct mc_helper *h)
{
	h->line[h->n_line] = 0;
	h->n_line = 0;
	if (!h->line[0])
		return;
	memcpy(h->last_line, h->line, sizeof(h->line));
	mc_log_limited(&stderr_limit, LOG_WARNING, NULL, "arming helper: %s", h->line);
}

static void give_chunk(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
	struct mc_helper *h = handle->data;

	(void)suggested;
	*ret_buffer = uv_buf_init(h->chunk, sizeof(h->chunk));
}

static void on_errors(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
	struct mc_helper *h = stream->data;

	if (n < 0) {
		if (h->n_line)
			log_line(h);
		uv_read_stop(stream);
		return;
	}
	for (ssize_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)buffer->base[i];

		if (c == '\n')
			log_line(h);
		else if (h->n_line < sizeof(h->line) - 1)
			h->line[h->n_line++] = c < 32 || c == 127 ? '?' : (char)c;
	}
}

/* The handles come first, so that every failure later has one way out: through their closing. */
static void open_handles(uv_loop_t *loop, struct mc_helper *h)
{
	uv_timer_init(loop, &h->timer);
	uv_pipe_init(loop, &h->errors, 0);
	h->timer.data = h->errors.data = h;
	h->n_open = 2;
}

int mc_helper_start(uv_loop_t *loop, const char *path, const struct mc_arm_wire_request *request,
	uint32_t timeout_ms, mc_helper_cb cb, void *data, struct mc_helper **ret_helper,
	char *ret_detail, size_t n_detail)
{
	struct mc_helper *h = calloc(1, sizeof(*h));
	char *args[] = {(char *)path, NULL};
	char **environment = mc_helper_environment_new();
	uv_stdio_container_t stdio[3] = {0};
	uv_process_options_t options = {0};
	int pair[2] = {-1, -1};
	int r;

	if (!h || !environment) {
		snprintf(ret_detail, n_detail, "out of memory");
		free(h);
		mc_helper_environment_free(environment);
		return MC_STATUS_NO_MEMORY;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		snprintf(ret_detail, n_detail, "cannot start the arming helper: socketpair: %s",
			strerror(errno));
		free(h);
		mc_helper_environment_free(environment);
		return MC_STATUS_SYSTEM;
	}
	h->socket_fd = pair[0];
	h->timeout_ms = timeout_ms;
	h->data = data;
	open_handles(loop, h);

	r = uv_poll_init(loop, &h->poll, pair[0]);
	if (r)
		goto failed;
	h->poll.data = h;
	h->n_open++;
	if (send(pair[0], request, sizeof(*request), MSG_DONTWAIT | MSG_NOSIGNAL) !=
		(ssize_t)sizeof(*request)) {
		r = -errno;
		goto failed;
	}
	stdio[0].flags = UV_INHERIT_FD;
	stdio[0].data.fd = pair[1];
	stdio[1].flags = UV_IGNORE;
	stdio[2].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
	stdio[2].data.stream = (uv_stream_t *)&h->errors;
	options.file = path;
	options.args = args;
	options.env = environment;
	options.cwd = "/";
	options.stdio = stdio;
	options.stdio_count = 3;
	options.exit_cb = on_exit_seen;
	/* a process group of its own, so that a signal to ours passes it by and a kill takes all of
	 * it */
	options.flags = UV_PROCESS_DETACHED;
	r = uv_spawn(loop, &h->process, &options);
	h->process.data = h;
	h->n_open++;
	if (r)
		goto failed;
	h->running = true;
	close(pair[1]);
	mc_helper_environment_free(environment);
	h->cb = cb;
	uv_read_start((uv_stream_t *)&h->errors, give_chunk, on_errors);
	uv_poll_start(&h->poll, UV_READABLE, on_readable);
	uv_timer_start(&h->timer, on_deadline, timeout_ms, 0);
	*ret_helper = h;
	return 0;

failed:
	snprintf(ret_detail, n_detail, "cannot start the arming helper %s: %s", path,
		uv_strerror(r));
	close(pair[1]);
	mc_helper_environment_free(environment);
	if (h->poll.data)
		close_handle((uv_handle_t *)&h->poll);
	if (h->process.data)
		close_handle((uv_handle_t *)&h->process);
	close_handle((uv_handle_t *)&h->timer);
	close_handle((uv_handle_t *)&h->errors);
	return MC_STATUS_SYSTEM;
}

void mc_helper_cancel(struct mc_helper *h)
{
	if (!h)
		return;
	h->cb = NULL;
	wind_up(h);
}
