/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: what runs in its process. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <moecomm.h>
#include "fault/restart/ranks.h"

#define ROWS 3

struct rank {
	int rank, world_size, pace_us, row_bytes;
	bool rejoin;
	struct rank_view *view;
	moecomm_context *context;
	moecomm_group *group;
	uint64_t round;
	uint8_t *input, *output;
	bool has_failed; /* in this epoch */
};

int64_t ranks_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void sleep_us(long us)
{
	struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

	nanosleep(&time, NULL);
}

static uint8_t byte_of(int rank, uint64_t round, size_t at)
{
	return (uint8_t)(at * 7u + (size_t)rank * 31u + round * 131u + (round >> 8));
}

static enum moecomm_status dispatch(
	struct rank *rank, int64_t rows, const void *input, void *output, int64_t row_bytes)
{
	struct moecomm_tensor tensor = {input, output, row_bytes};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = rows;
	return moecomm_dispatch(rank->group, &args, NULL);
}

static bool is_right(const struct rank *rank)
{
	size_t n = (size_t)ROWS * (size_t)rank->row_bytes;

	for (int r = 0; r < rank->world_size; r++)
		for (size_t i = 0; i < n; i++)
			if (rank->output[(size_t)r * n + i] != byte_of(r, rank->round, i))
				return false;
	return true;
}

static void look(struct rank *rank)
{
	struct moecomm_group_info info = {.size = sizeof(info)};

	if (moecomm_group_query(rank->group, &info))
		return;
	atomic_store(&rank->view->connected, info.daemon_connected);
	atomic_store(&rank->view->epoch, info.epoch);
}

static void note_failure(struct rank *rank, enum moecomm_status status, int64_t now)
{
	struct moecomm_group_info info = {.size = sizeof(info), .fault_rank = -1};
	struct rank_view *view = rank->view;
	int64_t begin;

	moecomm_group_query(rank->group, &info);
	snprintf(view->detail, sizeof(view->detail), "%s",
		info.detail[0] ? info.detail : moecomm_last_error());
	atomic_store(&view->status, (int)status);
	atomic_store(&view->fault_rank, info.fault_rank);
	atomic_store(&view->fault_call, info.fault_call);
	atomic_store(&view->failed_ns, now);
	/* whoever calls again hears the same, at once */
	begin = ranks_now_ns();
	if (dispatch(rank, ROWS, rank->input, rank->output, rank->row_bytes) == MOECOMM_OK)
		atomic_fetch_add(&view->n_wrong, 1);
	atomic_store(&view->again_ns, ranks_now_ns() - begin);
	rank->has_failed = true;
	atomic_fetch_add(&view->n_failed, 1);
}

static void run_round(struct rank *rank)
{
	size_t n = (size_t)ROWS * (size_t)rank->row_bytes;
	struct rank_view *view = rank->view;
	enum moecomm_status status;
	int64_t begin, end;

	for (size_t i = 0; i < n; i++)
		rank->input[i] = byte_of(rank->rank, rank->round, i);
	begin = ranks_now_ns();
	status = dispatch(rank, ROWS, rank->input, rank->output, rank->row_bytes);
	end = ranks_now_ns();
	if (status) {
		note_failure(rank, status, end);
		return;
	}
	if (!is_right(rank)) {
		atomic_fetch_add(&view->n_wrong, 1);
		fprintf(stderr, "rank %d: round %llu is wrong\n", rank->rank,
			(unsigned long long)rank->round);
	}
	if (end - begin > atomic_load(&view->slowest_ns))
		atomic_store(&view->slowest_ns, end - begin);
	rank->round++;
	atomic_store(&view->round, rank->round);
	atomic_store(&view->last_ok_ns, end);
	atomic_fetch_add(&view->n_ok, 1);
}

/* All go on from the largest round that one of them has reached. */
static bool agree(struct rank *rank)
{
	uint64_t all[RANKS_MAX], mine = rank->round;
	enum moecomm_status status = dispatch(rank, 1, &mine, all, sizeof(mine));

	if (status) {
		note_failure(rank, status, ranks_now_ns());
		return false;
	}
	for (int r = 0; r < rank->world_size; r++)
		if (all[r] > rank->round)
			rank->round = all[r];
	return true;
}

static bool rejoin(struct rank *rank)
{
	enum moecomm_status status = moecomm_group_rejoin(rank->group);

	atomic_store(&rank->view->rejoin_status, (int)status);
	if (status) {
		snprintf(
			rank->view->detail, sizeof(rank->view->detail), "%s", moecomm_last_error());
		sleep_us(10000);
		return false;
	}
	atomic_store(&rank->view->rejoined_ns, ranks_now_ns());
	rank->has_failed = false;
	look(rank);
	if (!agree(rank))
		return false;
	atomic_fetch_add(&rank->view->n_rejoins, 1);
	return true;
}

static bool obey(struct rank *rank)
{
	struct rank_view *view = rank->view;
	int command = atomic_load(&view->command);
	uint64_t number = 0, numbers[RANKS_MAX];

	switch (command) {
	case RANK_STOP:
		return false;
	case RANK_PAUSE:
		look(rank);
		sleep_us(1000);
		return true;
	case RANK_SKIP:
		rank->round++;
		break;
	case RANK_ABORT:
		moecomm_group_abort(rank->group, "as told");
		break;
	case RANK_WRONG:
		if (dispatch(rank, 1, &number, numbers, sizeof(number)))
			note_failure(rank, MOECOMM_MISMATCH, ranks_now_ns());
		break;
	case RANK_REJOIN:
		rejoin(rank);
		break;
	default:
		if (rank->round && rank->round == atomic_load(&view->pause_at)) {
			atomic_store(&view->is_paused, true);
			look(rank);
			sleep_us(1000);
			return true;
		}
		atomic_store(&view->is_paused, false);
		if (!rank->has_failed)
			run_round(rank);
		else if (rank->rejoin)
			rejoin(rank);
		else
			sleep_us(500);
		if (rank->round % 16 == 0 || rank->has_failed)
			look(rank);
		if (rank->pace_us)
			sleep_us(rank->pace_us);
		return true;
	}
	atomic_compare_exchange_strong(&view->command, &command, RANK_RUN);
	return true;
}

static int attach(struct rank *rank, char **argv)
{
	struct moecomm_connect_options connect = MOECOMM_CONNECT_OPTIONS_INIT;
	struct moecomm_group_options group = MOECOMM_GROUP_OPTIONS_INIT;
	enum moecomm_status status;

	connect.socket_path = argv[3];
	connect.wait_ms = 5000;
	group.name = argv[4];
	group.rank = rank->rank;
	group.world_size = rank->world_size;
	group.op_timeout_ms = atoi(argv[7]);
	group.warmup_timeout_ms = atoi(argv[8]);
	group.warmup_calls = atoi(argv[9]);
	group.join_timeout_ms = atoi(argv[10]);
	group.backend = MOECOMM_BACKEND_HOST;
	group.max_rows = ROWS;
	group.dispatch_row_bytes = rank->row_bytes;
	status = moecomm_connect(&connect, &rank->context);
	if (!status)
		do
			status = moecomm_group_join(rank->context, &group, &rank->group);
		while (status && rank->rejoin && status != MOECOMM_INVALID &&
			atomic_load(&rank->view->command) != RANK_STOP && (sleep_us(10000), true));
	atomic_store(&rank->view->join_status, (int)status);
	if (status)
		fprintf(stderr, "rank %d: %s\n", rank->rank, moecomm_last_error());
	return (int)status;
}

bool ranks_main(int argc, char **argv, int *ret_status)
{
	struct rank rank = {0};
	int64_t begin;

	if (argc != 14 || strcmp(argv[1], "--rank"))
		return false;
	*ret_status = 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rank.rank = atoi(argv[5]);
	rank.world_size = atoi(argv[6]);
	rank.rejoin = atoi(argv[11]);
	rank.pace_us = atoi(argv[12]);
	rank.row_bytes = atoi(argv[13]);
	rank.view = mmap(NULL, RANKS_MAX * sizeof(*rank.view), PROT_READ | PROT_WRITE, MAP_SHARED,
		atoi(argv[2]), 0);
	rank.input = malloc((size_t)ROWS * (size_t)rank.row_bytes);
	rank.output = malloc((size_t)RANKS_MAX * ROWS * (size_t)rank.row_bytes);
	if (rank.view == MAP_FAILED || !rank.input || !rank.output)
		return true;
	rank.view += rank.rank;
	if (!attach(&rank, argv)) {
		look(&rank);
		atomic_store(&rank.view->has_joined, true);
		/* a replacement meets survivors that agree on the round; so does everybody at first
		 */
		agree(&rank);
		while (obey(&rank))
			;
		*ret_status = 0;
	}
	begin = ranks_now_ns();
	moecomm_group_leave(rank.group);
	moecomm_disconnect(rank.context);
	atomic_store(&rank.view->left_ns, ranks_now_ns() - begin);
	free(rank.input);
	free(rank.output);
	return true;
}
