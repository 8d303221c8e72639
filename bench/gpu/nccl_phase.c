/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/phases.h"

#include <stdio.h>
#include <string.h>

#include "bench/gpu/nccl.h"
#include "bench/gpu/work.h"

struct theirs {
	struct bench_work work; /* first: bench_work_poison and _check take the whole */
	struct bench_nccl nccl;
	void *comm;
};

static bool ok(struct bench_rank *rank, const struct theirs *theirs, const char *what, int result)
{
	if (result == 0)
		return true;
	bench_abort(rank->shared, "rank %d: %s: %s", rank->rank, what,
		theirs->nccl.error_string(result));
	return false;
}

static int nccl_type(int dtype)
{
	return dtype == BENCH_FP32   ? BENCH_NCCL_FLOAT32
	       : dtype == BENCH_FP16 ? BENCH_NCCL_FLOAT16
				     : BENCH_NCCL_BFLOAT16;
}

static bool enqueue(struct bench_rank *rank, void *data, int i)
{
	const struct bench_options *o = rank->options;
	struct theirs *theirs = data;
	struct bench_work *work = &theirs->work;
	bool gather = o->kind == BENCH_DISPATCH || (o->kind == BENCH_CHAIN && i % 2 == 0);

	if (gather)
		return ok(rank, theirs, "ncclAllGather",
			theirs->nccl.all_gather(work->dispatch_in, work->dispatch_out,
				(size_t)(work->tokens * o->row_bytes), BENCH_NCCL_UINT8,
				theirs->comm, rank->stream));
	if (!ok(rank, theirs, "ncclReduceScatter",
		    theirs->nccl.reduce_scatter(work->combine_in, work->combine_out,
			    (size_t)(work->tokens * o->hidden), nccl_type(o->dtype), BENCH_NCCL_SUM,
			    theirs->comm, rank->stream)))
		return false;
	return o->kind != BENCH_FUSED || bench_work_add_norm(rank, work);
}

static bool connect(struct bench_rank *rank, struct theirs *theirs)
{
	const struct bench_options *o = rank->options;
	char why[256];
	bench_nccl_id id;

	if (bench_nccl_open(o->nccl_library, &theirs->nccl, why, sizeof(why))) {
		bench_abort(rank->shared, "%s", why);
		return false;
	}
	if (rank->rank == 0) {
		if (!ok(rank, theirs, "ncclGetUniqueId", theirs->nccl.unique_id(&id)))
			return false;
		memcpy(rank->shared->nccl_id, &id, sizeof(id));
		rank->shared->machine.nccl_version = theirs->nccl.version;
	}
	if (!bench_barrier(rank->shared, o->world_size))
		return false;
	memcpy(&id, rank->shared->nccl_id, sizeof(id));
	return ok(rank, theirs, "ncclCommInitRank",
		theirs->nccl.init_rank(&theirs->comm, o->world_size, id, rank->rank));
}

static bool register_all(struct bench_rank *rank, struct theirs *theirs)
{
	const struct bench_options *o = rank->options;
	size_t w = (size_t)o->world_size;
	size_t gathered = bench_bytes_dispatch_in(o), scattered = bench_bytes_combine_out(o);
	struct {
		void *memory;
		size_t n_bytes;
	} const table[] = {
		{theirs->work.dispatch_in, gathered},
		{theirs->work.dispatch_out, gathered * w},
		{theirs->work.combine_in, scattered * w},
		{theirs->work.combine_out, scattered},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		void *window = NULL;

		if (table[i].memory &&
			!ok(rank, theirs, "ncclCommWindowRegister",
				theirs->nccl.window_register(theirs->comm, table[i].memory,
					table[i].n_bytes, &window, BENCH_NCCL_WIN_SYMMETRIC)))
			return false;
	}
	return true;
}

static bool measure_sizes(struct bench_rank *rank, struct theirs *theirs, enum bench_series series)
{
	const struct bench_options *o = rank->options;
	const struct bench_subject subject = {enqueue, bench_work_poison, bench_work_check, theirs};

	for (int size = 0; size < o->n_sizes; size++) {
		struct bench_cell *cells = rank->shared->cell[size][series];

		if (!bench_work_fill(rank, &theirs->work, size) ||
			!bench_measure(rank, &subject, o->kind == BENCH_CHAIN ? 2 : 1,
				&cells[BENCH_ONE]) ||
			!bench_measure(rank, &subject, BENCH_GRAPH_OPS, &cells[BENCH_LONG]))
			return false;
	}
	return true;
}

bool bench_phase_nccl(struct bench_rank *rank, bool mixing)
{
	const struct bench_options *o = rank->options;
	struct theirs theirs = {0};
	bool with_dispatch = o->kind == BENCH_DISPATCH || o->kind == BENCH_CHAIN;

	if (!bench_rank_open(rank) || !connect(rank, &theirs))
		return false;
	for (int window = 0; window <= 1; window++) {
		enum bench_series series =
			window ? (mixing ? BENCH_NCCL_WINDOW : BENCH_NCCL_WINDOW_NOMIX)
			       : (mixing ? BENCH_NCCL : BENCH_NCCL_NOMIX);

		if (window && (!theirs.nccl.window_register || !theirs.nccl.memory_alloc)) {
			if (rank->rank == 0)
				snprintf(rank->shared->nccl_note, sizeof(rank->shared->nccl_note),
					"this NCCL has no symmetric windows (2.27 brought them)");
			break;
		}
		if (!bench_work_open(rank, with_dispatch, o->kind != BENCH_DISPATCH,
			    o->kind == BENCH_FUSED, window ? theirs.nccl.memory_alloc : NULL,
			    &theirs.work))
			return false;
		theirs.work.concatenated = true;
		theirs.work.exact = false;
		if ((window && !register_all(rank, &theirs)) ||
			!measure_sizes(rank, &theirs, series))
			return false;
		bench_work_close(&theirs.work);
	}
	/* the process ends next: destroying a communicator collectively can only wait for others */
	return bench_barrier(rank->shared, o->world_size);
}
