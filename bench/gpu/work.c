/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/work.h"

#include <string.h>

#include "bench/gpu/kernels.h"

/* Keys of what is random; a rank's own are 64 apart. */
enum { KEY_DISPATCH = 0, KEY_COMBINE = 1, KEY_RESIDUAL = 2, KEY_GAMMA = 3 };

static uint64_t key(const struct bench_work *work, int what, int rank, int part)
{
	uint64_t k = work->seed + (uint64_t)what * 0x100000001b3ull +
		     (uint64_t)rank * 0x9e3779b97f4a7c15ull +
		     (uint64_t)part * 0xc2b2ae3d27d4eb4full;

	k ^= k >> 29;
	return k * 0xbf58476d1ce4e5b9ull;
}

static int64_t largest(const struct bench_options *options)
{
	int64_t max = 0;

	for (int i = 0; i < options->n_sizes; i++)
		max = options->sizes[i] > max ? options->sizes[i] : max;
	return max;
}

int bench_parts(int64_t row_bytes, int64_t ret_part_bytes[BENCH_MAX_PARTS])
{
	/* 4,096 = 3,584 + 448 + 32 + 32 */
	if (row_bytes % 128) {
		ret_part_bytes[0] = row_bytes;
		return 1;
	}
	ret_part_bytes[0] = row_bytes / 8 * 7;
	ret_part_bytes[2] = ret_part_bytes[3] = row_bytes / 128;
	ret_part_bytes[1] = row_bytes - ret_part_bytes[0] - 2 * ret_part_bytes[2];
	return 4;
}

size_t bench_bytes_dispatch_in(const struct bench_options *options)
{
	return (size_t)(largest(options) * options->row_bytes);
}

size_t bench_bytes_combine_out(const struct bench_options *options)
{
	return (size_t)(largest(options) * options->hidden) * bench_dtype_bytes(options->dtype);
}

static int plain_allocate(void **ret_memory, size_t n_bytes)
{
	return (int)cudaMalloc(ret_memory, n_bytes);
}

bool bench_work_open(struct bench_rank *rank, bool dispatch, bool combine, bool fused,
	int (*allocate)(void **ret_memory, size_t n_bytes), struct bench_work *ret_work)
{
	const struct bench_options *o = rank->options;
	size_t w = (size_t)o->world_size, in = bench_bytes_dispatch_in(o),
	       out = bench_bytes_combine_out(o);
	struct bench_work work = {0};
	int r = 0;

	if (!allocate)
		allocate = plain_allocate;
	work.n_parts = bench_parts(o->row_bytes, work.part_bytes);
	if (dispatch)
		r = allocate((void **)&work.dispatch_in, in) ||
		    allocate((void **)&work.dispatch_out, in * w);
	if (!r && combine)
		r = allocate(&work.combine_in, out * w) || allocate(&work.combine_out, out);
	if (r) {
		bench_abort(rank->shared, "rank %d: cannot allocate the tensors (error %d)",
			rank->rank, r);
		return false;
	}
	if (combine)
		BENCH_TRY(rank, cudaMalloc((void **)&work.keys, w * sizeof(uint64_t)));
	if (fused) {
		BENCH_TRY(rank, cudaMalloc(&work.residual, out));
		BENCH_TRY(rank, cudaMalloc(&work.residual_out, out));
		BENCH_TRY(rank, cudaMalloc(&work.normed, out));
		BENCH_TRY(rank,
			cudaMalloc(&work.gamma, (size_t)o->hidden * bench_dtype_bytes(o->dtype)));
	}
	work.check_dispatch = dispatch;
	work.check_combine = combine && !fused;
	work.check_fused = fused;
	work.exact = true;
	*ret_work = work;
	return true;
}

void bench_work_close(struct bench_work *work)
{
	/* exchanged buffers may be NCCL's; all go with the process */
	cudaFree(work->keys);
	cudaFree(work->residual);
	cudaFree(work->residual_out);
	cudaFree(work->normed);
	cudaFree(work->gamma);
}

bool bench_work_fill(struct bench_rank *rank, struct bench_work *work, int size_index)
{
	const struct bench_options *o = rank->options;
	unsigned char *part = work->dispatch_in;
	uint64_t keys[BENCH_MAX_RANKS];

	work->tokens = o->sizes[size_index];
	work->seed = o->seed + (uint64_t)size_index * 7919u;
	for (int i = 0; work->dispatch_in && i < work->n_parts; i++) {
		uint64_t n = (uint64_t)(work->tokens * work->part_bytes[i]);

		BENCH_TRY(rank, bench_fill_bytes(part, n, key(work, KEY_DISPATCH, rank->rank, i),
					rank->stream));
		part += n;
	}
	if (work->combine_in) {
		for (int s = 0; s < o->world_size; s++)
			keys[s] = key(work, KEY_COMBINE, s, 0);
		BENCH_TRY(
			rank, cudaMemcpy(work->keys, keys, sizeof(keys[0]) * (size_t)o->world_size,
				      cudaMemcpyHostToDevice));
		BENCH_TRY(rank, bench_fill_elements(work->combine_in,
					(uint64_t)(o->world_size * work->tokens * o->hidden),
					o->dtype, keys[rank->rank], rank->stream));
	}
	if (work->residual) {
		BENCH_TRY(rank,
			bench_fill_elements(work->residual, (uint64_t)(work->tokens * o->hidden),
				o->dtype, key(work, KEY_RESIDUAL, rank->rank, 0), rank->stream));
		BENCH_TRY(rank, bench_fill_elements(work->gamma, (uint64_t)o->hidden, o->dtype,
					key(work, KEY_GAMMA, 0, 0), rank->stream));
	}
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	return bench_barrier(rank->shared, o->world_size);
}

bool bench_work_poison(struct bench_rank *rank, void *data)
{
	const struct bench_options *o = rank->options;
	struct bench_work *work = data;
	size_t slice = (size_t)(work->tokens * o->hidden) * bench_dtype_bytes(o->dtype);

	/* NaN in every type, and no byte of a pattern that fits by chance at every place */
	if (work->dispatch_out)
		BENCH_TRY(rank, cudaMemsetAsync(work->dispatch_out, 0xff,
					(size_t)(o->world_size * work->tokens * o->row_bytes),
					rank->stream));
	if (work->combine_out)
		BENCH_TRY(rank, cudaMemsetAsync(work->combine_out, 0xff, slice, rank->stream));
	if (work->normed) {
		BENCH_TRY(rank, cudaMemsetAsync(work->normed, 0xff, slice, rank->stream));
		BENCH_TRY(rank, cudaMemsetAsync(work->residual_out, 0xff, slice, rank->stream));
	}
	return true;
}

static bool check_dispatch(struct bench_rank *rank, struct bench_work *work, uint64_t *io_checked)
{
	const struct bench_options *o = rank->options;
	const unsigned char *at = work->dispatch_out;

	/* ours: tensor by tensor, each in rank order; one all-gather: rank by rank */
	for (int a = 0; a < (work->concatenated ? o->world_size : work->n_parts); a++) {
		for (int b = 0; b < (work->concatenated ? work->n_parts : o->world_size); b++) {
			int part = work->concatenated ? b : a, from = work->concatenated ? a : b;
			uint64_t n = (uint64_t)(work->tokens * work->part_bytes[part]);

			BENCH_TRY(
				rank, bench_check_bytes(at, n, key(work, KEY_DISPATCH, from, part),
					      rank->wrong, rank->stream));
			at += n;
			*io_checked += n;
		}
	}
	return true;
}

static bool check_combine(struct bench_rank *rank, struct bench_work *work, uint64_t *io_checked)
{
	const struct bench_options *o = rank->options;
	struct bench_combine_check check = {.dtype = o->dtype,
		.rows = (uint64_t)work->tokens,
		.hidden = (uint64_t)o->hidden,
		.first_row = (uint64_t)(rank->rank * work->tokens),
		.world_size = o->world_size,
		.keys = work->keys,
		.exact = work->exact};

	if (work->check_fused) {
		check.fused = 1;
		check.residual_key = key(work, KEY_RESIDUAL, rank->rank, 0);
		check.gamma_key = key(work, KEY_GAMMA, 0, 0);
		check.eps = BENCH_EPS;
		check.residual_output = work->residual_out;
	}
	BENCH_TRY(rank, bench_check_combine(work->check_fused ? work->normed : work->combine_out,
				&check, rank->wrong, rank->stream));
	*io_checked += check.rows * check.hidden * (work->check_fused ? 2u : 1u);
	return true;
}

unsigned long long bench_work_check(struct bench_rank *rank, void *data)
{
	struct bench_work *work = data;
	uint64_t checked = 0;

	if (work->check_dispatch && !check_dispatch(rank, work, &checked))
		return 0;
	if ((work->check_combine || work->check_fused) && !check_combine(rank, work, &checked))
		return 0;
	return checked;
}

bool bench_work_add_norm(struct bench_rank *rank, struct bench_work *work)
{
	const struct bench_options *o = rank->options;

	BENCH_TRY(rank, bench_add(work->residual_out, work->combine_out, work->residual,
				(uint64_t)(work->tokens * o->hidden), o->dtype, rank->stream));
	BENCH_TRY(rank,
		bench_rmsnorm(work->normed, work->residual_out, work->gamma, (uint64_t)work->tokens,
			(uint64_t)o->hidden, BENCH_EPS, o->dtype, rank->stream));
	return true;
}
