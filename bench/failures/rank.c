/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of moecomm-bench failures. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include "bench/common/stats.h"
#include "bench/failures/failures.h"
#include "bench/failures/memory.h"

struct self {
	const struct mc_failures *failures;
	struct mc_failures_rank *shared;
	int rank;
	moecomm_context *context;
	moecomm_group *group;
	uint64_t round;
	size_t n_block; /* bytes that one rank dispatches */
	struct mc_failures_memory memory;
	char detail[256]; /* of the last op that failed */
};

static void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* What has become of the ops so far; with CUDA the calls themselves don't tell. */
static enum moecomm_status outcome(struct self *self)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	enum moecomm_status status = moecomm_group_query(self->group, &info);

	if (!status)
		status = info.status;
	snprintf(self->detail, sizeof(self->detail), "%.255s", info.detail);
	return status;
}

/* From the input to the output, to its end. */
static enum moecomm_status dispatch(struct self *self, int64_t rows, int64_t row_bytes)
{
	struct mc_failures_memory *memory = &self->memory;
	size_t n_bytes = (size_t)rows * (size_t)row_bytes;
	struct moecomm_tensor tensor = {memory->op_input, memory->op_output, row_bytes};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	enum moecomm_status status;

	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = rows;
	if (mc_failures_memory_send(memory, n_bytes) < 0)
		return MOECOMM_DEVICE;
	status = moecomm_dispatch(self->group, &args, memory->stream);
	if (status)
		snprintf(self->detail, sizeof(self->detail), "%.255s", moecomm_last_error());
	if (mc_failures_memory_receive(memory, n_bytes * (size_t)self->failures->n_ranks) < 0)
		return MOECOMM_DEVICE;
	return status || !memory->on_gpu ? status : outcome(self);
}

static void look(struct self *self)
{
	struct moecomm_group_info info = {.size = sizeof(info)};

	if (moecomm_group_query(self->group, &info))
		return;
	atomic_store(&self->shared->epoch, info.epoch);
}

static void note(struct self *self, enum moecomm_status status, int64_t begun, int64_t ended)
{
	struct mc_failures_rank *shared = self->shared;

	snprintf(shared->detail, sizeof(shared->detail), "%s", self->detail);
	atomic_store(&shared->status, (int)status);
	atomic_store(&shared->begun_ns, begun);
	atomic_store(&shared->failed_ns, ended);
	atomic_store(&shared->is_failed, true);
}

static uint8_t byte_of(int rank, uint64_t round)
{
	return (uint8_t)(round * 13u + (unsigned)rank * 101u);
}

static bool is_right(const struct self *self)
{
	for (int r = 0; r < self->failures->n_ranks; r++) {
		const uint8_t *block = self->memory.output + (size_t)r * self->n_block;

		/* all bytes are the first one, and that is the right one */
		if (block[0] != byte_of(r, self->round) ||
			memcmp(block, block + 1, self->n_block - 1) != 0)
			return false;
	}
	return true;
}

/* Returns false when the op failed. */
static bool run_round(struct self *self)
{
	struct mc_failures_rank *shared = self->shared;
	int64_t begun, ended;
	enum moecomm_status status;

	memset(self->memory.input, byte_of(self->rank, self->round), self->n_block);
	begun = mc_bench_now_ns();
	status = dispatch(self, MC_FAILURES_ROWS, self->failures->row_bytes);
	ended = mc_bench_now_ns();
	if (status) {
		note(self, status, begun, ended);
		return false;
	}
	if (!is_right(self))
		atomic_store(&shared->is_wrong, true);
	self->round++;
	if (ended - begun > atomic_load(&shared->slowest_ns))
		atomic_store(&shared->slowest_ns, ended - begun);
	atomic_store(&shared->verified_ns, ended);
	atomic_fetch_add(&shared->n_ops, 1);
	if (self->round % 16 == 0)
		look(self);
	return true;
}

/* All go on with the largest round that any of them has reached. */
static bool agree(struct self *self)
{
	int64_t begun = mc_bench_now_ns();
	enum moecomm_status status;
	uint64_t theirs;

	memcpy(self->memory.input, &self->round, sizeof(self->round));
	status = dispatch(self, 1, sizeof(self->round));
	if (status) {
		note(self, status, begun, mc_bench_now_ns());
		return false;
	}
	for (int r = 0; r < self->failures->n_ranks; r++) {
		memcpy(&theirs, self->memory.output + (size_t)r * sizeof(theirs), sizeof(theirs));
		if (theirs > self->round)
			self->round = theirs;
	}
	return true;
}

static void next_epoch(struct self *self)
{
	while (!atomic_load(&self->shared->may_rejoin)) {
		if (atomic_load(&self->shared->command) == MC_FAILURES_STOP)
			return;
		pause_us(50);
	}
	if (moecomm_group_rejoin(self->group)) {
		snprintf(self->shared->detail, sizeof(self->shared->detail), "%s",
			moecomm_last_error());
		pause_us(1000);
		return;
	}
	atomic_store(&self->shared->may_rejoin, false);
	atomic_store(&self->shared->is_failed, false);
	if (agree(self) && run_round(self))
		look(self);
}

/* Returns false at the end. */
static bool step(struct self *self)
{
	struct mc_failures_rank *shared = self->shared;
	int command = atomic_load(&shared->command);
	enum moecomm_status status;
	int64_t begun;

	if (command == MC_FAILURES_STOP)
		return false;
	if (atomic_load(&shared->is_failed)) {
		next_epoch(self);
		return true;
	}
	if (command == MC_FAILURES_PAUSE) {
		pause_us(100);
		return true;
	}
	if (command == MC_FAILURES_WRONG || command == MC_FAILURES_ABORT) {
		begun = mc_bench_now_ns();
		atomic_store(&shared->acted_ns, begun);
		atomic_store(&shared->command, MC_FAILURES_RUN);
		if (command == MC_FAILURES_ABORT) {
			moecomm_group_abort(self->group, "measured");
			return run_round(self), true;
		}
		status = dispatch(self, 1, sizeof(uint64_t));
		if (status)
			note(self, status, begun, mc_bench_now_ns());
		return true;
	}
	run_round(self);
	return true;
}

static enum moecomm_status attach(struct self *self)
{
	struct moecomm_connect_options connect = MOECOMM_CONNECT_OPTIONS_INIT;
	struct moecomm_group_options options = MOECOMM_GROUP_OPTIONS_INIT;
	enum moecomm_status status;

	connect.socket_path = self->failures->socket;
	connect.label = "moecomm-bench";
	options.name = self->failures->group;
	options.rank = self->rank;
	options.world_size = self->failures->n_ranks;
	options.backend = self->failures->n_gpus ? MOECOMM_BACKEND_CUDA : MOECOMM_BACKEND_HOST;
	options.shared_gpu =
		self->failures->n_gpus && self->failures->n_ranks > self->failures->n_gpus;
	options.max_rows = MC_FAILURES_ROWS;
	options.dispatch_row_bytes = self->failures->row_bytes;
	options.op_timeout_ms = self->failures->deadline_ms;
	/* long, as a replacement needs time, but over after the first ops */
	options.warmup_calls = 4;
	status = moecomm_connect(&connect, &self->context);
	return status ? status : moecomm_group_join(self->context, &options, &self->group);
}

int mc_failures_run_rank(const struct mc_failures *failures, int rank)
{
	struct self self = {.failures = failures, .shared = &failures->rank[rank], .rank = rank};
	enum moecomm_status status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	self.n_block = (size_t)MC_FAILURES_ROWS * (size_t)failures->row_bytes;
	if (mc_failures_memory_open(failures->n_gpus ? rank % failures->n_gpus : -1, self.n_block,
		    (size_t)failures->n_ranks * self.n_block, &self.memory) < 0)
		return 1;
	atomic_store(&self.shared->own_start_ns,
		mc_bench_now_ns() - atomic_load(&self.shared->started_ns));
	status = attach(&self);
	if (status) {
		fprintf(stderr, "moecomm-bench: rank %d: %s: %s\n", rank,
			moecomm_status_name(status), moecomm_last_error());
	} else {
		if (agree(&self) && run_round(&self))
			look(&self);
		while (step(&self))
			;
	}
	moecomm_group_leave(self.group);
	moecomm_disconnect(self.context);
	mc_failures_memory_close(&self.memory);
	return status ? 1 : 0;
}
