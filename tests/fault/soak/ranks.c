/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: joins, runs ops until one fails or the group stops, rejoins. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fault/soak/plan.h"
#include "fault/soak/soak.h"

#define WATCH_US 4000
/* After that long a shorter stall may take the place of a longer one. */
#define FORGET_US     INT64_C(10000000)
#define JOIN_LIMIT_US INT64_C(60000000)
/* A second op after a failed one is not even tried by the library. */
#define AT_ONCE_US INT64_C(500000)

struct rank {
	uint32_t group_number, rank, world_size;
	bool resident;
	struct soak_slot *slot;
	moecomm_context *context;
	struct plan draw; /* pauses; nothing that others must agree with */
	pthread_mutex_t lock;
	moecomm_group *group; /* by lock for the watcher */
	atomic_bool watch;
};

/* ---- the other threads of a rank ---- */

/* Takes no lock and does nothing but wake up: when it is late, the machine is. */
static void *beat(void *data)
{
	struct rank *rank = data;
	int64_t last_us = soak_now_us(), now_us;

	while (atomic_load(&rank->watch)) {
		usleep(2 * WATCH_US);
		now_us = soak_now_us();
		if (now_us - last_us > SOAK_STALL_US &&
			(now_us - last_us > atomic_load(&rank->slot->stall_us) ||
				now_us - atomic_load(&rank->slot->stall_end_us) > FORGET_US)) {
			atomic_store(&rank->slot->stall_us, now_us - last_us);
			atomic_store(&rank->slot->stall_end_us, now_us);
		}
		last_us = now_us;
	}
	return NULL;
}

static void *watch(void *data)
{
	struct rank *rank = data;

	while (atomic_load(&rank->watch)) {
		struct moecomm_group_info info = {.size = sizeof(info)};

		pthread_mutex_lock(&rank->lock);
		if (rank->group) {
			uint32_t abort = SOAK_ABORT;

			if (moecomm_group_query(rank->group, &info) == MOECOMM_OK)
				atomic_store(&rank->slot->attached, info.daemon_connected);
			if (atomic_compare_exchange_strong(
				    &rank->slot->command, &abort, SOAK_GO_ON))
				moecomm_group_abort(rank->group, "soak");
		}
		pthread_mutex_unlock(&rank->lock);
		usleep(WATCH_US);
	}
	return NULL;
}

static void set_group(struct rank *rank, moecomm_group *group)
{
	pthread_mutex_lock(&rank->lock);
	rank->group = group;
	pthread_mutex_unlock(&rank->lock);
}

static void leave(struct rank *rank)
{
	moecomm_group *group = rank->group;

	set_group(rank, NULL);
	moecomm_group_leave(group);
}

/* ---- joining ---- */

/* Outcomes that can follow from what the soak does to others and to the daemon. */
static bool join_may_fail_with(enum moecomm_status status)
{
	switch (status) {
	case MOECOMM_UNREACHABLE:
	case MOECOMM_JOIN_TIMEOUT:
	case MOECOMM_QUOTA:
	case MOECOMM_IN_USE:
	case MOECOMM_PEER_LOST:
	case MOECOMM_STALE_EPOCH:
	case MOECOMM_ABORTED:
	case MOECOMM_LEFT:
	case MOECOMM_SHUTDOWN:
		return true;
	default:
		return false;
	}
}

static enum moecomm_status try_join(struct rank *rank)
{
	struct moecomm_group_options o = MOECOMM_GROUP_OPTIONS_INIT;
	moecomm_group *group = NULL;
	enum moecomm_status status;
	char name[16];

	if (rank->group)
		return moecomm_group_rejoin(rank->group);
	snprintf(name, sizeof(name), "g%u", rank->group_number);
	o.name = name;
	o.rank = (int)rank->rank;
	o.world_size = (int)rank->world_size;
	o.backend = MOECOMM_BACKEND_HOST;
	o.n_channels = 2;
	o.max_rows = 16;
	o.dispatch_row_bytes = 8 * 64;
	o.combine_row_bytes = 73 * 4;
	o.op_timeout_ms = SOAK_OP_MS;
	o.warmup_timeout_ms = SOAK_WARMUP_MS;
	o.warmup_calls = 8;
	o.join_timeout_ms = SOAK_JOIN_MS;
	status = moecomm_group_join(rank->context, &o, &group);
	if (status == MOECOMM_OK)
		set_group(rank, group);
	return status;
}

static bool stops(const struct rank *rank)
{
	return atomic_load(&soak->quit) || atomic_load(&soak->group[rank->group_number].stop);
}

static bool enter(struct rank *rank)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	int64_t begin = soak_now_us();
	enum moecomm_status status;

	atomic_store(&rank->slot->state, SOAK_JOINING);
	for (;;) {
		status = try_join(rank);
		if ((uint32_t)status < SOAK_STATUSES)
			atomic_fetch_add(&rank->slot->joins[status], 1);
		if (status == MOECOMM_OK)
			break;
		if (!join_may_fail_with(status))
			soak_problem("rank %u of group g%u can't join: %s: %s", rank->rank,
				rank->group_number, moecomm_status_name(status),
				moecomm_last_error());
		if (stops(rank))
			return false;
		if (soak_now_us() - begin > JOIN_LIMIT_US) {
			soak_problem("rank %u of group g%u could not join for a minute: %s",
				rank->rank, rank->group_number, moecomm_last_error());
			return false;
		}
		usleep(10000 + plan_draw(&rank->draw, 30000));
	}
	moecomm_group_query(rank->group, &info);
	atomic_store(&rank->slot->round, 0);
	atomic_store(&rank->slot->first_ok_us, 0);
	atomic_store(&rank->slot->attached, true);
	atomic_store(&rank->slot->epoch, info.epoch);
	atomic_store(&rank->slot->state, SOAK_RUNNING);
	return true;
}

/* ---- running ---- */

static void record_failure(struct rank *rank, int status, uint64_t round)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	struct soak_slot *slot = rank->slot;
	uint32_t n = atomic_load(&slot->n_failures);
	struct soak_failure *failure = &slot->failure[n % SOAK_FAILURES];
	int64_t at_us = soak_now_us();
	bool stop;
	int again;

	/* before the query, which would replace it */
	snprintf(failure->detail, sizeof(failure->detail), "%s", moecomm_last_error());
	moecomm_group_query(rank->group, &info);
	failure->epoch = atomic_load(&slot->epoch);
	failure->round = round;
	failure->status = (uint32_t)status;
	failure->rank = info.fault_rank;
	failure->at_us = at_us;
	atomic_store(&slot->n_failures, n + 1);
	if (info.state != MOECOMM_GROUP_FAILED || info.status != (enum moecomm_status)status)
		soak_problem("rank %u of group g%u: an op ended with %s, but a query says %s",
			rank->rank, rank->group_number,
			moecomm_status_name((enum moecomm_status)status),
			moecomm_status_name(info.status));
	again = soak_round(rank->group, rank->group_number, rank->rank, rank->world_size,
		failure->epoch, round, &stop);
	if (again != status || soak_now_us() - at_us > AT_ONCE_US + soak->slack_ms * 1000)
		soak_problem("rank %u of group g%u: the op after one that ended with %s ended with "
			     "%s after %lld us",
			rank->rank, rank->group_number,
			moecomm_status_name((enum moecomm_status)status),
			moecomm_status_name((enum moecomm_status)again),
			(long long)(soak_now_us() - at_us));
}

/* Obeys; returns true when the rank is to leave. */
static bool obey(struct rank *rank, bool *ret_odd)
{
	struct soak_slot *slot = rank->slot;
	uint32_t command = atomic_load(&slot->command);

	*ret_odd = false;
	if (command == SOAK_GO_ON || command == SOAK_ABORT)
		return false;
	if (command == SOAK_SLEEP) {
		usleep(atomic_load(&slot->argument) * 1000u);
		atomic_store(&slot->woke_us, soak_now_us());
	}
	atomic_store(&slot->command, SOAK_GO_ON);
	*ret_odd = command == SOAK_MISMATCH;
	return command == SOAK_LEAVE;
}

enum ending {
	ENDING_FAILED, /* rejoin */
	ENDING_LEFT,   /* told to leave */
	ENDING_STOP,   /* the group stops */
};

static enum ending run_epoch(struct rank *rank)
{
	struct soak_slot *slot = rank->slot;
	uint64_t epoch = atomic_load(&slot->epoch);
	bool stop = false, odd;
	int status;

	for (uint64_t round = 0;; round++) {
		if (obey(rank, &odd))
			return ENDING_LEFT;
		if (plan_draw(&rank->draw, 256) == 0)
			usleep(plan_draw(&rank->draw, 2000));
		status = odd ? soak_odd_op(rank->group, rank->group_number, rank->rank,
				       rank->world_size, epoch, round)
			     : soak_round(rank->group, rank->group_number, rank->rank,
				       rank->world_size, epoch, round, &stop);
		if (status > 0) {
			record_failure(rank, status, round);
			return ENDING_FAILED;
		}
		if (status == 0)
			atomic_fetch_add(&slot->n_ops, 1);
		atomic_store(&slot->round, round + 1);
		if (round == 0)
			atomic_store(&slot->first_ok_us, soak_now_us());
		if (stop)
			return ENDING_STOP;
	}
}

/* Until the group's life ends; true: until it was told to leave. */
static bool live(struct rank *rank)
{
	enum ending ending = ENDING_FAILED;
	pthread_t watcher, beater;

	pthread_mutex_init(&rank->lock, NULL);
	atomic_store(&rank->watch, true);
	if (pthread_create(&watcher, NULL, watch, rank) ||
		pthread_create(&beater, NULL, beat, rank))
		abort();
	while (ending == ENDING_FAILED && enter(rank))
		ending = run_epoch(rank);
	leave(rank);
	atomic_store(&rank->watch, false);
	pthread_join(watcher, NULL);
	pthread_join(beater, NULL);
	pthread_mutex_destroy(&rank->lock);
	return ending == ENDING_LEFT;
}

static moecomm_context *attach(const char *label)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	moecomm_context *context = NULL;
	int64_t begin = soak_now_us();

	o.socket_path = soak->socket;
	o.label = label;
	o.wait_ms = 20000;
	/* a daemon that is killed in the middle of a greeting is no reason to give up */
	while (moecomm_connect(&o, &context)) {
		if (soak_now_us() - begin > JOIN_LIMIT_US) {
			soak_problem("%s can't connect: %s", label, moecomm_last_error());
			return NULL;
		}
		usleep(20000);
	}
	return context;
}

static void rank_init(struct rank *rank, uint32_t group, uint32_t number, moecomm_context *context)
{
	memset(rank, 0, sizeof(*rank));
	rank->group_number = group;
	rank->rank = number;
	rank->world_size = atomic_load(&soak->group[group].world_size);
	rank->slot = &soak->group[group].slot[number];
	rank->context = context;
	rank->draw = plan_new((uint64_t)getpid(), number);
}

/* Ends with its parent. In a session of its own: when a shell's end orphans a process group, the
 * kernel lets all stopped members of it go on. */
static void be_child(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	setsid();
}

pid_t soak_rank_start(uint32_t group, uint32_t number)
{
	struct soak_slot *slot = &soak->group[group].slot[number];
	struct rank rank;
	pid_t parent = getpid(), pid;
	char label[32];

	atomic_store(&slot->state, SOAK_JOINING);
	atomic_store(&slot->command, SOAK_GO_ON);
	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	be_child(parent);
	snprintf(label, sizeof(label), "soak-g%u-%u", group, number);
	rank_init(&rank, group, number, attach(label));
	if (rank.context)
		atomic_store(&slot->state, live(&rank) ? SOAK_ABSENT : SOAK_DONE);
	moecomm_disconnect(rank.context);
	exit(rank.context ? 0 : 1);
}

/* ---- the process that stays ---- */

struct resident {
	uint32_t group;
	moecomm_context *context;
};

static void *reside(void *data)
{
	struct resident *resident = data;
	struct soak_group *group = &soak->group[resident->group];
	uint32_t seen = 0;
	struct rank rank;

	while (!atomic_load(&soak->quit)) {
		if (atomic_load(&group->life) == seen) {
			usleep(WATCH_US);
			continue;
		}
		seen = atomic_load(&group->life);
		do
			rank_init(&rank, resident->group, 0, resident->context);
		while (live(&rank));
		atomic_store(&group->slot[0].state, SOAK_DONE);
	}
	return NULL;
}

/* What the library keeps for good is there after a first life of each thread and of a group. */
static void *warm_up(void *data)
{
	struct resident *resident = data;
	struct moecomm_group_options o = MOECOMM_GROUP_OPTIONS_INIT;
	moecomm_group *group = NULL;
	char name[32];
	bool stop;

	snprintf(name, sizeof(name), "resident-%u", resident->group);
	o.name = name;
	o.max_rows = 16;
	o.dispatch_row_bytes = 8 * 64;
	o.combine_row_bytes = 73 * 4;
	o.n_channels = 2;
	if (moecomm_group_join(resident->context, &o, &group)) {
		soak_problem("the resident process can't join: %s", moecomm_last_error());
		return NULL;
	}
	for (uint64_t i = 0; i < 200; i++)
		soak_round(group, resident->group, 0, 1, 1, i, &stop);
	moecomm_group_leave(group);
	return NULL;
}

static void run_all(struct resident *resident, void *(*body)(void *))
{
	pthread_t thread[SOAK_RESIDENT];

	for (uint32_t i = 0; i < SOAK_RESIDENT; i++)
		if (pthread_create(&thread[i], NULL, body, &resident[i]))
			abort();
	for (uint32_t i = 0; i < SOAK_RESIDENT; i++)
		pthread_join(thread[i], NULL);
	/* a joined thread can stay listed for a moment */
	usleep(50000);
}

pid_t soak_resident_start(void)
{
	struct resident resident[SOAK_RESIDENT];
	moecomm_context *context;
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	be_child(parent);
	context = attach("soak-resident");
	if (!context)
		exit(1);
	for (uint32_t i = 0; i < SOAK_RESIDENT; i++)
		resident[i] = (struct resident){i, context};
	run_all(resident, warm_up);
	soak_holdings_take(0, &soak->resident_before);
	atomic_store(&soak->resident_ready, true);
	run_all(resident, reside);
	soak_holdings_take(0, &soak->resident_after);
	atomic_store(&soak->resident_done, true);
	while (!atomic_load(&soak->resident_may_go))
		usleep(WATCH_US);
	moecomm_disconnect(context);
	exit(0);
}
