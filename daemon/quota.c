/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/quota.h"

#include <errno.h>
#include <stdlib.h>
#include <uthash.h>

/* Long enough for the largest reply, short enough for who waits behind it. */
#define TURN_US 20000u

struct user {
	uint32_t uid;
	uint64_t used[MC_QUOTA_N];
	/* request budget in thousandths of a request, so that slow rates refill evenly */
	uint64_t budget;
	uint64_t refilled_ms;
	uint64_t turn_ms, turn_us; /* the turn of the last query, and what its queries took */
	UT_hash_handle hh;
};

struct mc_quota {
	const struct mc_config *config;
	struct user *users;
};

struct mc_quota *mc_quota_new(const struct mc_config *config)
{
	struct mc_quota *quota = calloc(1, sizeof(*quota));

	if (quota)
		quota->config = config;
	return quota;
}

struct mc_quota *mc_quota_free(struct mc_quota *quota)
{
	struct user *user, *next;

	if (!quota)
		return NULL;
	HASH_ITER (hh, quota->users, user, next) {
		HASH_DEL(quota->users, user);
		free(user);
	}
	free(quota);
	return NULL;
}

uint64_t mc_quota_limit(const struct mc_quota *quota, enum mc_quota_kind kind)
{
	const struct mc_config *config = quota->config;

	switch (kind) {
	case MC_QUOTA_CONNECTIONS:
		return config->max_connections_per_uid;
	case MC_QUOTA_GROUPS:
		return config->max_groups_per_uid;
	case MC_QUOTA_ARENA_BYTES:
		return config->max_arena_bytes_per_uid;
	case MC_QUOTA_FDS:
		return config->max_fds_per_uid;
	case MC_QUOTA_QUEUED_BYTES:
		return config->max_queued_bytes_per_uid;
	case MC_QUOTA_N:
		break;
	}
	return 0;
}

const char *mc_quota_name(enum mc_quota_kind kind)
{
	static const char *const names[MC_QUOTA_N] = {"connections", "groups", "bytes of arenas",
		"file descriptors", "bytes of unread replies"};

	return names[kind];
}

static struct user *find(struct mc_quota *quota, uint32_t uid)
{
	struct user *user;

	HASH_FIND(hh, quota->users, &uid, sizeof(uid), user);
	return user;
}

static struct user *find_or_add(struct mc_quota *quota, uint32_t uid)
{
	struct user *user = find(quota, uid);

	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	HASH_ADD(hh, quota->users, uid, sizeof(user->uid), user);
	return user;
}

int mc_quota_charge(struct mc_quota *quota, uint32_t uid, enum mc_quota_kind kind, uint64_t n)
{
	struct user *user = find_or_add(quota, uid);
	uint64_t limit = mc_quota_limit(quota, kind);

	if (!user)
		return -ENOMEM;
	/* a reload may have lowered the limit below what is in use */
	if (user->used[kind] > limit || n > limit - user->used[kind])
		return -EDQUOT;
	user->used[kind] += n;
	return 0;
}

void mc_quota_release(struct mc_quota *quota, uint32_t uid, enum mc_quota_kind kind, uint64_t n)
{
	struct user *user = find(quota, uid);

	if (!user)
		return;
	user->used[kind] -= n < user->used[kind] ? n : user->used[kind];
	for (unsigned i = 0; i < MC_QUOTA_N; i++)
		if (user->used[i])
			return;
	/* the last connection takes the request budget with it: the connection bound limits that */
	HASH_DEL(quota->users, user);
	free(user);
}

uint64_t mc_quota_used(struct mc_quota *quota, uint32_t uid, enum mc_quota_kind kind)
{
	struct user *user = find(quota, uid);

	return user ? user->used[kind] : 0;
}

bool mc_quota_request(struct mc_quota *quota, uint32_t uid, uint64_t now_ms)
{
	struct user *user = find_or_add(quota, uid);
	uint64_t rate = quota->config->max_requests_per_second_per_uid;
	uint64_t most = rate * 1000u, passed;

	if (!user)
		return false;
	if (!user->refilled_ms) {
		user->budget = most;
	} else {
		passed = now_ms - user->refilled_ms;
		if (passed > 1000)
			passed = 1000;
		user->budget += passed * rate;
		if (user->budget > most)
			user->budget = most;
	}
	user->refilled_ms = now_ms ? now_ms : 1;
	if (user->budget < 1000)
		return false;
	user->budget -= 1000;
	return true;
}

void mc_quota_spend_turn(struct mc_quota *quota, uint32_t uid, uint64_t turn_ms, uint64_t used_us)
{
	struct user *user = find(quota, uid);

	if (!user)
		return;
	if (user->turn_ms != turn_ms)
		user->turn_us = 0;
	user->turn_ms = turn_ms;
	user->turn_us += used_us;
}

bool mc_quota_turn_is_over(struct mc_quota *quota, uint32_t uid, uint64_t turn_ms)
{
	struct user *user = find(quota, uid);

	return user && user->turn_ms == turn_ms && user->turn_us >= TURN_US;
}

unsigned mc_quota_n_users(const struct mc_quota *quota)
{
	return HASH_COUNT(quota->users);
}
