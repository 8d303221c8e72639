/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's fd store: what is put there comes back when the daemon starts again.
 *
 * Names: "s<serial>" a state, "e<epoch>-b", "e<epoch>-c<rank>", "e<epoch>-a<rank>" the board,
 * control blocks and arenas of an epoch; numbers of states and epochs in hex. Each fd has a name of
 * its own, since the manager promises no order. Short, because all names reach the next run in one
 * environment variable, and the kernel takes at most 128 KiB of one.
 */
#ifndef MC_DAEMON_STATE_STORE_H
#define MC_DAEMON_STATE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Keeps all names together below that limit; the unit's FileDescriptorStoreMax= is higher. */
#define MC_STORE_MAX_FDS 7000u
/* systemd takes 255. */
#define MC_STORE_NAME_BYTES 256u

struct mc_store {
	bool is_open; /* there is a manager with a store */
	uint32_t max_fds;
	uint32_t n_fds; /* what we have put there */
	int socket_fd;
	struct sockaddr_un address;
	socklen_t n_address;
	bool is_slow; /* the manager did not read in time; nothing waits for it until it does */
	/* taken out, but not told yet because of that; in order, before anything else is */
	char (*untold)[MC_STORE_NAME_BYTES];
	size_t n_untold, n_allocated;
};

enum mc_store_kind {
	MC_STORE_UNKNOWN,
	MC_STORE_STATE,
	MC_STORE_BOARD,
	MC_STORE_CONTROL,
	MC_STORE_ARENA,
};

/* One fd that the manager handed back. */
struct mc_store_entry {
	int fd; /* owned; -1: taken or closed */
	enum mc_store_kind kind;
	uint64_t number; /* of the state or epoch */
	uint32_t rank;
	char name[MC_STORE_NAME_BYTES];
};

/*
 * $NOTIFY_SOCKET tells whether there is a manager, $FDSTORE (set by systemd from 254 on, by our
 * unit before) how many fds it stores for us.
 */
void mc_store_open(struct mc_store *store);
void mc_store_close(struct mc_store *store);
/* What was stored by earlier runs, once. Sets *ret_entries (free() it). Returns how many. */
size_t mc_store_take(struct mc_store_entry **ret_entries);

void mc_store_name(enum mc_store_kind kind, uint64_t number, uint32_t rank,
	char ret_name[MC_STORE_NAME_BYTES]);
/* Whether n more fds have room. */
bool mc_store_has_room(const struct mc_store *store, uint32_t n);
/*
 * Puts a copy of the fd there; it stays the caller's. Returns 0 or -errno; -EAGAIN when the manager
 * does not read, which costs the caller a second once, and no time after that.
 */
int mc_store_put(struct mc_store *store, const char *name, int fd);
/* Takes everything of that name out, later when it must. n: how many that are. */
void mc_store_remove(struct mc_store *store, const char *name, uint32_t n);
/* Tells what could not be told yet. Returns whether nothing is left. */
bool mc_store_settle(struct mc_store *store);

#endif
