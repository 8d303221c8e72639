/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include "daemon/log.h"
#include "kernels/lamport.h"

void mc_store_open(struct mc_store *store)
{
	const char *socket = getenv("NOTIFY_SOCKET"), *max = getenv("FDSTORE");
	char *end;
	unsigned long n;

	memset(store, 0, sizeof(*store));
	if (!socket || !*socket || !max || *max < '0' || *max > '9')
		return;
	n = strtoul(max, &end, 10);
	if (*end || !n)
		return;
	store->is_open = true;
	store->max_fds = n < MC_STORE_MAX_FDS ? (uint32_t)n : MC_STORE_MAX_FDS;
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
	/* FDPOLL=0: a device's fd that reports a hang-up is still the memory that we want back */
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	r = sd_pid_notify_with_fds(0, 0, text, &fd, 1);
	if (r < 0)
		return r;
	store->n_fds++;
	return 0;
}

void mc_store_remove(struct mc_store *store, const char *name, uint32_t n)
{
	if (!store->is_open)
		return;
	sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
	store->n_fds -= n < store->n_fds ? n : store->n_fds;
}
