/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fd_store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/fd_count.h"

#define READY_TIMEOUT_MS 20000
#define FIRST_LISTEN_FD  3
/* Where the child moves what it is given, out of the way of the places it goes to. */
#define ASIDE_FD 2048

/* ---- what the daemon says; with the lock held ---- */

/* As systemd does: opens of one device node are different ones. */
static bool is_there(const struct mc_fd_store *store, int fd)
{
	for (size_t i = 0; i < store->n; i++)
		if (!syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, store->entry[i].fd, fd))
			return true;
	return false;
}

static void add(struct mc_fd_store *store, const char *name, int fd)
{
	snprintf(store->entry[store->n].name, sizeof(store->entry[0].name), "%s", name);
	store->entry[store->n++].fd = fd;
}

static void take(struct mc_fd_store *store, const char *name, int fd)
{
	if (store->n >= store->max_fds || store->n >= MC_TEST_STORE_FDS) {
		store->n_refused++;
		close(fd);
	} else if (is_there(store, fd)) {
		close(fd);
	} else {
		add(store, name, fd);
	}
}

static void remove_all(struct mc_fd_store *store, const char *name)
{
	for (size_t i = 0; i < store->n;) {
		if (strcmp(store->entry[i].name, name)) {
			i++;
			continue;
		}
		close(store->entry[i].fd);
		store->entry[i] = store->entry[--store->n];
	}
}

static void on_message(struct mc_fd_store *store, char *text, const int *fds, size_t n_fds)
{
	char *line, *rest = text;
	const char *name = "stored";
	bool is_store = false, is_remove = false;

	while ((line = strsep(&rest, "\n"))) {
		if (!strcmp(line, "READY=1"))
			store->is_ready = true;
		else if (!strcmp(line, "FDSTORE=1"))
			is_store = true;
		else if (!strcmp(line, "FDSTOREREMOVE=1"))
			is_remove = true;
		else if (!strncmp(line, "FDNAME=", 7))
			name = line + 7;
		else if (!strncmp(line, "STATUS=", 7))
			snprintf(store->status, sizeof(store->status), "%s", line + 7);
		else if (!strcmp(line, "WATCHDOG=1")) {
			store->last_ping_ms = mc_test_now_ms();
			store->n_pings++;
		}
	}
	if (is_remove)
		remove_all(store, name);
	for (size_t i = 0; i < n_fds; i++)
		if (is_store)
			take(store, name, fds[i]);
		else
			close(fds[i]);
}

/* Returns false when nothing came. */
static bool receive(struct mc_fd_store *store, int timeout_ms)
{
	union {
		struct cmsghdr align;
		char data[CMSG_SPACE(sizeof(int) * 64)];
	} control;
	char text[2048];
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text) - 1};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	struct pollfd poll_fd = {.fd = store->socket_fd, .events = POLLIN};
	int fds[64];
	size_t n_fds = 0;
	ssize_t n;

	if (poll(&poll_fd, 1, timeout_ms) != 1)
		return false;
	/* received and handled in one step: whoever finds nothing to receive has missed nothing */
	pthread_mutex_lock(&store->lock);
	n = recvmsg(store->socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0) {
		pthread_mutex_unlock(&store->lock);
		return false;
	}
	text[n] = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
	}
	on_message(store, text, fds, n_fds);
	pthread_mutex_unlock(&store->lock);
	return true;
}

static void *run(void *data)
{
	struct mc_fd_store *store = data;
	bool stop;

	do {
		receive(store, 20);
		pthread_mutex_lock(&store->lock);
		stop = store->stop;
		pthread_mutex_unlock(&store->lock);
	} while (!stop);
	return NULL;
}

/* ---- life ---- */

void mc_fd_store_open(struct mc_fd_store *store, unsigned max_fds)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memset(store, 0, sizeof(*store));
	store->max_fds = max_fds;
	pthread_mutex_init(&store->lock, NULL);
	store->socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(store->socket_fd >= 0);
	/* autobind: a name of its own, and no file */
	assert_int_equal(
		bind(store->socket_fd, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
	{
		socklen_t n = sizeof(address);

		assert_int_equal(getsockname(store->socket_fd, (struct sockaddr *)&address, &n), 0);
		snprintf(store->path, sizeof(store->path), "@%.*s",
			(int)(n - sizeof(sa_family_t) - 1), address.sun_path + 1);
	}
	snprintf(store->socket_env, sizeof(store->socket_env), "NOTIFY_SOCKET=%s", store->path);
	snprintf(store->fdstore_env, sizeof(store->fdstore_env), "FDSTORE=%u", max_fds);
	assert_int_equal(pthread_create(&store->thread, NULL, run, store), 0);
}

void mc_fd_store_close(struct mc_fd_store *store)
{
	pthread_mutex_lock(&store->lock);
	store->stop = true;
	pthread_mutex_unlock(&store->lock);
	pthread_join(store->thread, NULL);
	mc_fd_store_clear(store);
	close(store->socket_fd);
	pthread_mutex_destroy(&store->lock);
}

/* In the daemon's process, before it is executed. */
static void hand_over(void *data)
{
	struct mc_fd_store *store = data;
	char text[32];

	if (!store->n_listen)
		return;
	for (size_t i = 0; i < store->n_listen; i++) {
		store->listen_fd[i] = fcntl(store->listen_fd[i], F_DUPFD, ASIDE_FD);
		if (store->listen_fd[i] < 0)
			_exit(124);
	}
	for (size_t i = 0; i < store->n_listen; i++) {
		if (dup2(store->listen_fd[i], FIRST_LISTEN_FD + (int)i) < 0)
			_exit(124);
		close(store->listen_fd[i]);
	}
	snprintf(text, sizeof(text), "%zu", store->n_listen);
	setenv("LISTEN_FDS", text, 1);
	snprintf(text, sizeof(text), "%d", (int)getpid());
	setenv("LISTEN_PID", text, 1);
	setenv("LISTEN_FDNAMES", store->listen_names, 1);
}

static void prepare(struct mc_fd_store *store)
{
	size_t n_names = 1;
	char *at;

	while (receive(store, 0))
		;
	pthread_mutex_lock(&store->lock);
	store->is_ready = false;
	store->last_ping_ms = 0;
	store->n_pings = 0;
	for (size_t i = 0; i < store->n; i++)
		n_names += strlen(store->entry[i].name) + 1;
	free(store->listen_names);
	at = store->listen_names = calloc(1, n_names);
	for (size_t i = 0; i < store->n; i++) {
		at += sprintf(at, "%s%s", i ? ":" : "", store->entry[i].name);
		store->listen_fd[i] = store->entry[i].fd;
	}
	store->n_listen = store->n;
	pthread_mutex_unlock(&store->lock);
}

static void wait_ready(struct mc_fd_store *store, struct mc_test_daemon *daemon)
{
	uint64_t deadline = mc_test_now_ms() + READY_TIMEOUT_MS;
	bool is_ready;

	do {
		pthread_mutex_lock(&store->lock);
		is_ready = store->is_ready;
		pthread_mutex_unlock(&store->lock);
		if (mc_test_now_ms() > deadline) {
			char *log = mc_test_daemon_log(daemon);

			print_message("log of moecommd:\n%s\n", log);
			free(log);
			fail_msg("moecommd did not say READY within %d ms", READY_TIMEOUT_MS);
		}
		if (!is_ready)
			mc_test_sleep_ms(1);
	} while (!is_ready);
	daemon->is_ready = true;
}

void mc_fd_store_start(struct mc_fd_store *store, struct mc_test_daemon *ret_daemon,
	const struct mc_test_daemon_options *options)
{
	struct mc_test_daemon_options mine = {0};
	size_t n = 0;

	if (options)
		mine = *options;
	for (const char *const *env = mine.env; env && *env && n < 13; env++)
		store->env[n++] = *env;
	store->env[n++] = store->socket_env;
	if (store->max_fds)
		store->env[n++] = store->fdstore_env;
	store->env[n] = NULL;
	mine.env = store->env;
	mine.do_not_wait = true;
	mine.in_child = hand_over;
	mine.in_child_data = store;
	prepare(store);
	mc_test_daemon_start(ret_daemon, &mine);
	wait_ready(store, ret_daemon);
}

void mc_fd_store_restart(struct mc_fd_store *store, struct mc_test_daemon *daemon)
{
	prepare(store);
	mc_test_daemon_restart(daemon);
	wait_ready(store, daemon);
}

/* ---- looking and tampering ---- */

/* What a daemon has said before it died counts, even if the thread has not come to it yet. */
static void catch_up(struct mc_fd_store *store)
{
	while (receive(store, 0))
		;
}

static size_t count(struct mc_fd_store *store, const char *prefix)
{
	size_t n = 0;

	for (size_t i = 0; i < store->n; i++)
		n += !strncmp(store->entry[i].name, prefix, strlen(prefix));
	return n;
}

size_t mc_fd_store_count(struct mc_fd_store *store, const char *prefix)
{
	size_t n;

	catch_up(store);
	pthread_mutex_lock(&store->lock);
	n = count(store, prefix);
	pthread_mutex_unlock(&store->lock);
	return n;
}

void mc_fd_store_wait_count(struct mc_fd_store *store, const char *prefix, size_t n, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;
	size_t now;

	while ((now = mc_fd_store_count(store, prefix)) != n) {
		if (mc_test_now_ms() > deadline)
			fail_msg("%zu fds '%s…' are stored, not %zu", now, prefix, n);
		mc_test_sleep_ms(2);
	}
}

void mc_fd_store_find(struct mc_fd_store *store, const char *prefix, char ret_name[256])
{
	*ret_name = 0;
	catch_up(store);
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < store->n && !*ret_name; i++)
		if (!strncmp(store->entry[i].name, prefix, strlen(prefix)))
			snprintf(ret_name, 256, "%s", store->entry[i].name);
	pthread_mutex_unlock(&store->lock);
	if (!*ret_name)
		fail_msg("no stored fd is named %s…", prefix);
}

int mc_fd_store_dup(struct mc_fd_store *store, const char *name)
{
	int fd = -1;

	catch_up(store);
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < store->n && fd < 0; i++)
		if (!strcmp(store->entry[i].name, name))
			fd = fcntl(store->entry[i].fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&store->lock);
	if (fd < 0)
		fail_msg("no stored fd is named %s", name);
	return fd;
}

void mc_fd_store_replace(struct mc_fd_store *store, const char *name, int fd)
{
	catch_up(store);
	pthread_mutex_lock(&store->lock);
	remove_all(store, name);
	if (fd >= 0)
		add(store, name, fd);
	pthread_mutex_unlock(&store->lock);
}

void mc_fd_store_add(struct mc_fd_store *store, const char *name, int fd)
{
	assert_true(fd >= 0);
	catch_up(store);
	pthread_mutex_lock(&store->lock);
	add(store, name, fd);
	pthread_mutex_unlock(&store->lock);
}

void mc_fd_store_clear(struct mc_fd_store *store)
{
	pthread_mutex_lock(&store->lock);
	while (store->n)
		close(store->entry[--store->n].fd);
	free(store->listen_names);
	store->listen_names = NULL;
	pthread_mutex_unlock(&store->lock);
}

uint64_t mc_fd_store_ping_age(struct mc_fd_store *store)
{
	uint64_t last;

	pthread_mutex_lock(&store->lock);
	last = store->last_ping_ms;
	pthread_mutex_unlock(&store->lock);
	return last ? mc_test_now_ms() - last : UINT64_MAX;
}
