/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: what runs in its process. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include "gpu/life/life.h"
#include "gpu/life/work.h"

struct rank {
	struct work work;
	struct life_view *view;
	moecomm_context *context;
	moecomm_group *group;
	bool has_failed; /* in this epoch */
};

int64_t life_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void life_sleep_us(long us)
{
	nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

int life_print_count(void)
{
	int n = 0;

	if (cudaGetDeviceCount(&n))
		n = 0;
	printf("%d\n", n);
	return 0;
}

int life_print_memory(void)
{
	int n = 0;

	if (cudaGetDeviceCount(&n))
		n = 0;
	for (int i = 0; i < n; i++) {
		size_t n_free, total;

		if (cudaSetDevice(i) || cudaMemGetInfo(&n_free, &total))
			return 1;
		printf("%zu ", n_free >> 20);
	}
	return 0;
}

static void cuda_failed(struct rank *rank, int error)
{
	if (error)
		atomic_store(&rank->view->cuda_error, error);
}

/* Returns true while the epoch is well. */
static bool look(struct rank *rank, int64_t begun)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	struct life_view *view = rank->view;
	enum moecomm_status status;
	int64_t now;

	if (moecomm_group_query(rank->group, &info))
		return false;
	atomic_store(&view->epoch, info.epoch);
	atomic_store(&view->connected, info.daemon_connected);
	if (info.status == MOECOMM_OK)
		return true;
	if (rank->has_failed)
		return false;
	atomic_store(&view->failed_ns, life_now_ns());
	rank->has_failed = true;
	atomic_store(&view->begun_ns, begun);
	atomic_store(&view->status, (int)info.status);
	atomic_store(&view->fault_rank, info.fault_rank);
	atomic_store(&view->fault_call, info.fault_call);
	snprintf(view->detail, sizeof(view->detail), "%s", info.detail);
	/* the context is whole, the next op says the same, and a replay does nothing, at once */
	cuda_failed(rank, work_plain(&rank->work));
	cuda_failed(rank, work_run(&rank->work, rank->group, false, &status));
	atomic_store(&view->next_status, (int)status);
	now = life_now_ns();
	cuda_failed(rank, work_replay(&rank->work));
	atomic_store(&view->replay_ns, life_now_ns() - now);
	cuda_failed(rank, work_plain(&rank->work));
	atomic_fetch_add(&view->n_failed, 1);
	return false;
}

static void run_round(struct rank *rank)
{
	struct life_view *view = rank->view;
	int64_t begun = life_now_ns(), ended;
	enum moecomm_status status;

	cuda_failed(
		rank, work_run(&rank->work, rank->group, atomic_load(&view->use_graph), &status));
	ended = life_now_ns();
	if (!look(rank, begun))
		return;
	if (status || !work_verify(&rank->work)) {
		fprintf(stderr, "rank %d: round %llu is wrong (status %d: %s)\n", rank->work.rank,
			(unsigned long long)rank->work.round, (int)status,
			status ? moecomm_last_error() : "");
		atomic_fetch_add(&view->n_wrong, 1);
		rank->work.round++;
		return;
	}
	if (ended - begun > atomic_load(&view->slowest_ns))
		atomic_store(&view->slowest_ns, ended - begun);
	if (!atomic_load(&view->first_ok_ns))
		atomic_store(&view->first_ok_ns, ended);
	atomic_store(&view->last_ok_ns, ended);
	atomic_fetch_add(&view->n_ok, 1);
}

static void rejoin(struct rank *rank)
{
	struct life_view *view = rank->view;
	enum moecomm_status status;
	int64_t now;

	/* before anything of the new epoch can be told */
	atomic_store(&view->first_ok_ns, 0);
	/* the daemon may hear of an end later than we do */
	for (int i = 0; i < 300; i++) {
		status = moecomm_group_rejoin(rank->group);
		if (!status || status == MOECOMM_JOIN_TIMEOUT)
			break;
		life_sleep_us(10000);
	}
	atomic_store(&view->rejoin_status, (int)status);
	if (status) {
		snprintf(view->detail, sizeof(view->detail), "%s", moecomm_last_error());
		/* in no epoch at all: still at once, still without harm */
		now = life_now_ns();
		cuda_failed(rank, work_replay(&rank->work));
		atomic_store(&view->replay_ns, life_now_ns() - now);
		cuda_failed(rank, work_plain(&rank->work));
		return;
	}
	rank->has_failed = false;
	rank->work.is_first = true;
	look(rank, 0);
	/* the first thing that runs in the new epoch is the graph of an old one */
	run_round(rank);
	atomic_fetch_add(&view->n_rejoins, 1);
}

/* Returns false at the end. */
static bool obey(struct rank *rank)
{
	struct life_view *view = rank->view;
	int command = atomic_load(&view->command);
	enum moecomm_status status;
	int64_t now = life_now_ns();

	switch (command) {
	case LIFE_STOP:
		return false;
	case LIFE_PAUSE:
		look(rank, now);
		life_sleep_us(1000);
		return true;
	case LIFE_WRONG:
		atomic_store(&view->acted_ns, now);
		cuda_failed(rank, work_wrong(&rank->work, rank->group, &status));
		look(rank, now);
		break;
	case LIFE_REJOIN:
		rejoin(rank);
		break;
	default: /* ABORT is the other thread's */
		if (rank->has_failed)
			life_sleep_us(200);
		else
			run_round(rank);
		return true;
	}
	atomic_compare_exchange_strong(&view->command, &command, LIFE_RUN);
	return true;
}

static void *abort_when_told(void *data)
{
	struct rank *rank = data;
	int command;

	while ((command = atomic_load(&rank->view->command)) != LIFE_STOP) {
		if (command == LIFE_ABORT) {
			atomic_store(&rank->view->acted_ns, life_now_ns());
			moecomm_group_abort(rank->group, "as told");
			atomic_compare_exchange_strong(&rank->view->command, &command, LIFE_RUN);
		}
		life_sleep_us(200);
	}
	return NULL;
}

static enum moecomm_status attach(struct rank *rank, char **argv)
{
	struct moecomm_connect_options connect = MOECOMM_CONNECT_OPTIONS_INIT;
	struct moecomm_group_options group = MOECOMM_GROUP_OPTIONS_INIT;
	enum moecomm_status status;

	connect.socket_path = argv[3];
	connect.wait_ms = 5000;
	group.name = argv[4];
	group.rank = rank->work.rank;
	group.world_size = rank->work.world_size;
	group.backend = MOECOMM_BACKEND_CUDA;
	group.shared_gpu = group.world_size > atoi(argv[7]);
	group.op_timeout_ms = LIFE_OP_TIMEOUT_MS;
	group.warmup_timeout_ms = LIFE_WARMUP_TIMEOUT_MS;
	group.warmup_calls = LIFE_WARMUP_CALLS;
	group.join_timeout_ms = LIFE_JOIN_TIMEOUT_MS;
	group.max_rows = WORK_ROWS;
	group.dispatch_row_bytes = WORK_ROW_BYTES;
	group.combine_row_bytes = WORK_HIDDEN * 2;
	status = moecomm_connect(&connect, &rank->context);
	if (!status)
		status = moecomm_group_join(rank->context, &group, &rank->group);
	if (!status)
		cuda_failed(rank, work_capture(&rank->work, rank->group, &status));
	if (status || !rank->work.graph)
		fprintf(stderr, "rank %d: %s\n", rank->work.rank, moecomm_last_error());
	return status;
}

/* argv: "--rank", then the view's fd, socket, group, rank, world size, GPUs, begin in ns. */
int life_rank_main(char **argv)
{
	struct rank rank = {0};
	int number = atoi(argv[5]);
	pthread_t thread;
	int64_t now;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rank.view = mmap(NULL, LIFE_MAX_RANKS * sizeof(*rank.view), PROT_READ | PROT_WRITE,
		MAP_SHARED, atoi(argv[2]), 0);
	if (rank.view == MAP_FAILED)
		return 1;
	rank.view += number;
	if (work_open(&rank.work, number, atoi(argv[6]), number % atoi(argv[7])))
		return 1;
	atomic_store(&rank.view->own_start_ns, life_now_ns() - atoll(argv[8]));
	if (attach(&rank, argv) || !rank.work.graph)
		return 1;
	if (pthread_create(&thread, NULL, abort_when_told, &rank))
		return 1;
	look(&rank, 0);
	while (obey(&rank))
		;
	pthread_join(thread, NULL);
	now = life_now_ns();
	moecomm_group_leave(rank.group);
	moecomm_disconnect(rank.context);
	atomic_store(&rank.view->left_ns, life_now_ns() - now);
	cuda_failed(&rank, work_plain(&rank.work));
	work_close(&rank.work);
	return 0;
}
