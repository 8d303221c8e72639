/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include "daemon/log.h"
#include "kernels/lamport.h"

/* How long the loop may wait for a manager that does not read; sd_notify would wait for ever. */
#define SEND_TIMEOUT_S 1

static bool open_socket(struct mc_store *store, const char *path)
{
	const struct timeval limit = {.tv_sec = SEND_TIMEOUT_S};
	size_t n = path ? strlen(path) : 0;

	if (!n || n >= sizeof(store->address.sun_path) || (*path != '/' && *path != '@'))
		return false;
	store->address.sun_family = AF_UNIX;
	memcpy(store->address.sun_path, path, n);
	if (*path == '@')
		store->address.sun_path[0] = 0; /* abstract: its name is as long as it says */
	store->n_address = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*path == '/'));
	store->socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (store->socket_fd < 0) {
		mc_log(LOG_WARNING, "cannot reach the service manager's fd store: socket: %s",
			strerror(errno));
		return false;
	}
	setsockopt(store->socket_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return true;
}

void mc_store_open(struct mc_store *store)
{
	const char *max = getenv("FDSTORE");
	char *end;
	unsigned long n;

	memset(store, 0, sizeof(*store));
	store->socket_fd = -1;
	if (!max || *max < '0' || *max > '9')
		return;
	n = strtoul(max, &end, 10);
	if (*end || !n)
		return;
	store->is_open = open_socket(store, getenv("NOTIFY_SOCKET"));
	store->max_fds = n < MC_STORE_MAX_FDS ? (uint32_t)n : MC_STORE_MAX_FDS;
}

void mc_store_close(struct mc_store *store)
{
	if (store->is_open)
		close(store->socket_fd);
	store->is_open = false;
	free(store->untold);
	store->untold = NULL;
	store->n_untold = store->n_allocated = 0;
}

/* Returns 0 or -errno. fd: -1 for none. */
static int tell(struct mc_store *store, const char *text, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)text, strlen(text)};
	struct msghdr message = {.msg_name = &store->address,
		.msg_namelen = store->n_address,
		.msg_iov = &part,
		.msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	do
		n = sendmsg(store->socket_fd, &message,
			MSG_NOSIGNAL | (store->is_slow ? MSG_DONTWAIT : 0));
	while (n < 0 && errno == EINTR);
	store->is_slow = n < 0 && errno == EAGAIN;
	return n < 0 ? -errno : 0;
}

void mc_store_name(
	enum mc_store_kind kind, uint64_t number, uint32_t rank, char ret_name[MC_STORE_NAME_BYTES])
{
	if (kind == MC_STORE_STATE)
		snprintf(ret_name, MC_STORE_NAME_BYTES, "s%" PRIx64, number);
	else if (kind == MC_STORE_BOARD)
		snprintf(ret_name, MC_STORE_NAME_BYTES, "e%" PRIx64 "-b", number);
	else
		snprintf(ret_name, MC_STORE_NAME_BYTES, "e%" PRIx64 "-%c%u", number,
			kind == MC_STORE_CONTROL ? 'c' : 'a', rank);
}

/* Only what mc_store_name would write again is known: no two spellings of one name. */
static void parse(struct mc_store_entry *entry)
{
	static const enum mc_store_kind kinds[] = {
		MC_STORE_STATE, MC_STORE_BOARD, MC_STORE_CONTROL, MC_STORE_ARENA};
	const char *dash = strchr(entry->name, '-');
	char again[MC_STORE_NAME_BYTES];
	uint64_t number = strtoull(entry->name + (*entry->name ? 1 : 0), NULL, 16);
	unsigned long rank = dash && dash[1] ? strtoul(dash + 2, NULL, 10) : 0;

	entry->kind = MC_STORE_UNKNOWN;
	if (rank >= MC_MAX_WORLD_SIZE)
		return;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		mc_store_name(kinds[i], number, (uint32_t)rank, again);
		if (strcmp(again, entry->name))
			continue;
		entry->kind = kinds[i];
		entry->number = number;
		entry->rank = (uint32_t)rank;
		return;
	}
}

size_t mc_store_take(struct mc_store_entry **ret_entries)
{
	struct mc_store_entry *entries;
	char **names = NULL;
	/* also clears the variables and makes the fds close-on-exec */
	int n = sd_listen_fds_with_names(1, &names);

	*ret_entries = NULL;
	if (n <= 0) {
		if (n < 0)
			mc_log(LOG_WARNING, "cannot tell which fds the service manager kept: %s",
				strerror(-n));
		return 0;
	}
	entries = calloc((size_t)n, sizeof(*entries));
	for (int i = 0; i < n; i++) {
		if (entries) {
			entries[i].fd = SD_LISTEN_FDS_START + i;
			snprintf(entries[i].name, sizeof(entries[i].name), "%s", names[i]);
			parse(&entries[i]);
		}
		free(names[i]);
	}
	free(names);
	*ret_entries = entries;
	return entries ? (size_t)n : 0;
}

bool mc_store_has_room(const struct mc_store *store, uint32_t n)
{
	return store->is_open && n <= store->max_fds - store->n_fds;
}

int mc_store_put(struct mc_store *store, const char *name, int fd)
{
	char text[MC_STORE_NAME_BYTES + 64];
	int r;

	if (!mc_store_has_room(store, 1))
		return -ENOSPC;
	if (!mc_store_settle(store))
		return -EAGAIN;
	/* FDPOLL=0: a device's fd that reports a hang-up is still the memory that we want back */
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	r = tell(store, text, fd);
	if (r)
		return r;
	store->n_fds++;
	return 0;
}

static int tell_removed(struct mc_store *store, const char *name)
{
	char text[MC_STORE_NAME_BYTES + 64];

	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return tell(store, text, -1);
}

/* Out of memory it is lost: the next run of the daemon finds the fd and takes it out. */
static void put_off(struct mc_store *store, const char *name)
{
	if (store->n_untold == store->n_allocated) {
		size_t n = store->n_allocated ? 2 * store->n_allocated : 64;
		void *more = realloc(store->untold, n * sizeof(*store->untold));

		if (!more)
			return;
		store->untold = more;
		store->n_allocated = n;
	}
	snprintf(store->untold[store->n_untold++], sizeof(*store->untold), "%s", name);
}

bool mc_store_settle(struct mc_store *store)
{
	size_t n = 0;

	while (n < store->n_untold && tell_removed(store, store->untold[n]) != -EAGAIN)
		n++;
	if (n) {
		store->n_untold -= n;
		memmove(store->untold, store->untold + n, store->n_untold * sizeof(*store->untold));
	}
	return !store->n_untold;
}

void mc_store_remove(struct mc_store *store, const char *name, uint32_t n)
{
	if (!store->is_open)
		return;
	if (!mc_store_settle(store) || tell_removed(store, name) == -EAGAIN)
		put_off(store, name);
	store->n_fds -= n < store->n_fds ? n : store->n_fds;
}
