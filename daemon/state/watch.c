/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct mc_watch {
	uv_poll_t poll;
	int fd;
	void (*ended)(void *data);
	void *data;
};

uint64_t mc_process_start_time(uint32_t pid)
{
	char path[64], text[1024], *at;
	unsigned long long start = 0;
	FILE *file;
	size_t n;

	if (!pid)
		return 0;
	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = 0;
	/* the name, field 2, is in parentheses and may hold any byte; the time is field 22 */
	at = strrchr(text, ')');
	for (int i = 2; at && i < 22; i++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, "%llu", &start) != 1)
		return 0;
	return start;
}

static void on_ended(uv_poll_t *poll, int status, int events)
{
	struct mc_watch *watch = poll->data;

	(void)status, (void)events;
	uv_poll_stop(poll);
	watch->ended(watch->data);
}

int mc_watch_new(uv_loop_t *loop, uint32_t pid, uint64_t start_time, void (*ended)(void *data),
	void *data, struct mc_watch **ret_watch)
{
	struct mc_watch *watch;
	int fd, r;

	if (!pid)
		return -ENOTSUP; /* of a pid namespace that we can't see into */
	fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0u);
	if (fd < 0)
		return -errno;
	/* the fd first: what it stands for can't change while we look at the number */
	if (start_time && mc_process_start_time(pid) != start_time) {
		close(fd);
		return -ESRCH;
	}
	watch = calloc(1, sizeof(*watch));
	if (!watch) {
		close(fd);
		return -ENOMEM;
	}
	r = uv_poll_init(loop, &watch->poll, fd);
	if (r) {
		close(fd);
		free(watch);
		return r;
	}
	watch->fd = fd;
	watch->ended = ended;
	watch->data = data;
	watch->poll.data = watch;
	uv_poll_start(&watch->poll, UV_READABLE, on_ended);
	*ret_watch = watch;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct mc_watch *watch = handle->data;

	free(watch);
}

struct mc_watch *mc_watch_free(struct mc_watch *watch)
{
	if (!watch)
		return NULL;
	uv_close((uv_handle_t *)&watch->poll, on_closed);
	close(watch->fd);
	return NULL;
}
