/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/phases.h"

#include <stdio.h>
#include <unistd.h>

#include "bench/gpu/work.h"
#include "client/moecomm.h"

struct ours {
	struct bench_work work; /* first: bench_work_poison and _check take the whole */
	moecomm_context *context;
	moecomm_group *group;
	bool separate; /* combine, then add and norm as kernels of their own */
};

static bool ok(struct bench_rank *rank, const char *what, enum moecomm_status status)
{
	if (status == MOECOMM_OK)
		return true;
	bench_abort(rank->shared, "rank %d: %s: %s: %s", rank->rank, what,
		moecomm_status_name(status), moecomm_last_error());
	return false;
}

static bool dispatch(struct bench_rank *rank, struct ours *ours)
{
	struct bench_work *work = &ours->work;
	struct moecomm_tensor tensors[BENCH_MAX_PARTS];
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	int64_t offset = 0;

	for (int i = 0; i < work->n_parts; i++) {
		tensors[i].input = work->dispatch_in + offset;
		tensors[i].output = work->dispatch_out + offset * rank->options->world_size;
		tensors[i].row_bytes = work->part_bytes[i];
		offset += work->tokens * work->part_bytes[i];
	}
	args.tensors = tensors;
	args.n_tensors = work->n_parts;
	args.rows = work->tokens;
	return ok(rank, "dispatch", moecomm_dispatch(ours->group, &args, rank->stream));
}

static bool combine(struct bench_rank *rank, struct ours *ours, bool fused)
{
	struct bench_work *work = &ours->work;
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;

	args.dtype = (enum moecomm_dtype)rank->options->dtype;
	args.hidden = rank->options->hidden;
	args.input = work->combine_in;
	args.output = work->combine_out;
	args.rows = work->tokens;
	if (!fused)
		return ok(rank, "combine", moecomm_combine(ours->group, &args, rank->stream));
	args.output = work->normed;
	args.residual = work->residual;
	args.residual_output = work->residual_out;
	args.gamma = work->gamma;
	args.eps = BENCH_EPS;
	return ok(
		rank, "combine_rmsnorm", moecomm_combine_rmsnorm(ours->group, &args, rank->stream));
}

static bool enqueue(struct bench_rank *rank, void *data, int i)
{
	struct ours *ours = data;

	switch (rank->options->kind) {
	case BENCH_DISPATCH:
		return dispatch(rank, ours);
	case BENCH_COMBINE:
		return combine(rank, ours, false);
	case BENCH_FUSED:
		if (ours->separate)
			return combine(rank, ours, false) && bench_work_add_norm(rank, &ours->work);
		return combine(rank, ours, true);
	case BENCH_CHAIN:
		return i % 2 == 0 ? dispatch(rank, ours) : combine(rank, ours, false);
	}
	return false;
}

/* CPU time of one call, enqueued eagerly behind each other. */
static bool measure_enqueue(struct bench_rank *rank, struct ours *ours, int size)
{
	const int n = 64;
	double t0;

	if (!bench_barrier(rank->shared, rank->options->world_size))
		return false;
	t0 = bench_now_us();
	for (int i = 0; i < n; i++) {
		if (!enqueue(rank, ours, i))
			return false;
	}
	if (rank->rank == 0)
		rank->shared->enqueue_us[size] = (bench_now_us() - t0) / n;
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	return true;
}

static bool join(struct bench_rank *rank, struct ours *ours)
{
	const struct bench_options *o = rank->options;
	struct moecomm_connect_options connect = MOECOMM_CONNECT_OPTIONS_INIT;
	struct moecomm_group_options options = MOECOMM_GROUP_OPTIONS_INIT;
	struct moecomm_group_info info = {.size = sizeof(info)};
	char name[64];

	connect.socket_path = o->socket_path;
	connect.label = "moecomm-bench";
	if (!ok(rank, "connect", moecomm_connect(&connect, &ours->context)))
		return false;
	snprintf(name, sizeof(name), "bench-%s-%d", bench_kind_name(o->kind), (int)getppid());
	options.name = name;
	options.rank = rank->rank;
	options.world_size = o->world_size;
	options.backend = MOECOMM_BACKEND_CUDA;
	options.device = rank->device;
	for (int i = 0; i < o->n_sizes; i++)
		options.max_rows = o->sizes[i] > options.max_rows ? o->sizes[i] : options.max_rows;
	if (o->kind == BENCH_DISPATCH || o->kind == BENCH_CHAIN)
		options.dispatch_row_bytes = o->row_bytes;
	if (o->kind != BENCH_DISPATCH)
		options.combine_row_bytes = o->hidden * (int64_t)bench_dtype_bytes(o->dtype);
	options.shared_gpu = o->shared_gpu;
	options.op_timeout_ms = 10000;
	options.warmup_timeout_ms = 20000;
	options.join_timeout_ms = 30000;
	if (!ok(rank, "join", moecomm_group_join(ours->context, &options, &ours->group)))
		return false;
	if (rank->rank == 0 && moecomm_group_query(ours->group, &info) == MOECOMM_OK)
		rank->shared->machine.arena_bytes = info.arena_bytes;
	return true;
}

/* What the group says went wrong explains more than wrong bytes do. */
static bool healthy(struct bench_rank *rank, struct ours *ours)
{
	struct moecomm_group_info info = {.size = sizeof(info)};

	if (!ok(rank, "query", moecomm_group_query(ours->group, &info)))
		return false;
	if (info.state == MOECOMM_GROUP_READY)
		return true;
	bench_abort(rank->shared, "rank %d: the group failed: %s: %.400s", rank->rank,
		moecomm_status_name(info.status), info.detail);
	return false;
}

/* Whether figures depend on what a group has been through; the same sizes on all ranks. */
static bool make_history(struct bench_rank *rank, struct ours *ours)
{
	const struct bench_options *o = rank->options;
	uint64_t dice = o->seed | 1;

	for (int i = 0; i < o->history; i++) {
		dice = dice * 6364136223846793005ull + 1442695040888963407ull;
		/* sizes between those measured as well, with what their ends leave of a vector */
		ours->work.tokens =
			1 + (int64_t)((dice >> 33) %
				      (uint64_t)o->sizes[(dice >> 20) % (uint64_t)o->n_sizes]);
		if (!enqueue(rank, ours, i))
			return false;
		if (i % 512 == 511)
			BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	}
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	return healthy(rank, ours);
}

static bool measure_sizes(struct bench_rank *rank, struct ours *ours)
{
	const struct bench_options *o = rank->options;
	const struct bench_subject subject = {enqueue, bench_work_poison, bench_work_check, ours};

	for (int size = 0; size < o->n_sizes; size++) {
		if (!bench_work_fill(rank, &ours->work, size))
			return false;
		for (int separate = 0; separate <= (o->kind == BENCH_FUSED); separate++) {
			struct bench_cell *cells =
				rank->shared->cell[size][separate ? BENCH_SEPARATE : BENCH_OURS];

			ours->separate = separate;
			ours->work.exact = !separate;
			if (!bench_measure(rank, &subject, o->kind == BENCH_CHAIN ? 2 : 1,
				    &cells[BENCH_ONE]) ||
				!bench_measure(
					rank, &subject, BENCH_GRAPH_OPS, &cells[BENCH_LONG]) ||
				!healthy(rank, ours))
				return false;
		}
		ours->separate = false;
		if (!measure_enqueue(rank, ours, size))
			return false;
	}
	return true;
}

bool bench_phase_ours(struct bench_rank *rank)
{
	const struct bench_options *o = rank->options;
	bool with_dispatch = o->kind == BENCH_DISPATCH || o->kind == BENCH_CHAIN;
	struct ours ours = {0};
	bool r;

	r = bench_rank_open(rank) &&
	    bench_work_open(rank, with_dispatch, o->kind != BENCH_DISPATCH, o->kind == BENCH_FUSED,
		    NULL, &ours.work) &&
	    join(rank, &ours) && make_history(rank, &ours) && measure_sizes(rank, &ours);
	if (r)
		r = bench_barrier(rank->shared, o->world_size);
	moecomm_group_leave(ours.group);
	moecomm_disconnect(ours.context);
	bench_work_close(&ours.work);
	return r;
}
