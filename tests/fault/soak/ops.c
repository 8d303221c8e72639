/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verified ops. Dispatched words spell out epoch, round, rank, tensor and index, so that a wrong
 * one tells where it comes from; combined numbers are drawn from the same, and the result is
 * compared bit for bit with an implementation of docs/numerics.md that shares no code with ours.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fault/soak/plan.h"
#include "fault/soak/soak.h"
#include "kernels/host/number.h"
#include "unit/kernels/reference.h"

#define MAX_ROWS    16u
#define MAX_TENSORS 8u
#define MAX_BYTES   64u /* of a row of one tensor */
#define MAX_HIDDEN  72u
#define UNTOUCHED   0xe7u

/* What all ranks know of a round. */
struct shape {
	uint32_t group, rank, world_size;
	uint64_t epoch, round;
	struct plan draw;
	int channel;
	bool uniform, counted;
	int64_t rows[SOAK_WORLD], first[SOAK_WORLD], total;
	int32_t valid[SOAK_WORLD];
};

/* Ranks of one process are threads: a set of buffers each. */
static _Thread_local struct {
	uint8_t in[MAX_TENSORS][MAX_ROWS * MAX_BYTES];
	uint8_t out[MAX_TENSORS][SOAK_WORLD * MAX_ROWS * MAX_BYTES];
	uint8_t parts[SOAK_WORLD * MAX_ROWS * MAX_HIDDEN * 4];
	uint8_t sums[MAX_ROWS * MAX_HIDDEN * 4], residual[MAX_ROWS * MAX_HIDDEN * 4];
	uint8_t residual_out[MAX_ROWS * MAX_HIDDEN * 4], gamma[MAX_HIDDEN * 4];
} buffer;

static struct shape make_shape(
	uint32_t group, uint32_t rank, uint32_t world_size, uint64_t epoch, uint64_t round)
{
	struct shape shape = {.group = group,
		.rank = rank,
		.world_size = world_size,
		.epoch = epoch,
		.round = round,
		.draw = plan_new(soak->seed ^ epoch << 32 ^ round, 100 + group)};

	shape.channel = (int)plan_draw(&shape.draw, 2);
	shape.uniform = plan_draw(&shape.draw, 2);
	shape.counted = plan_draw(&shape.draw, 3) == 0;
	for (uint32_t r = 0; r < world_size; r++) {
		/* empty ranks are common */
		int64_t rows = plan_draw(&shape.draw, 3) ? plan_draw(&shape.draw, MAX_ROWS + 1) : 0;

		shape.rows[r] = shape.uniform && r ? shape.rows[0] : rows;
		shape.first[r] = shape.total;
		shape.total += shape.rows[r];
		shape.valid[r] = (int32_t)shape.rows[r];
		if (shape.counted)
			shape.valid[r] =
				(int32_t)plan_draw(&shape.draw, (uint32_t)shape.rows[r] + 1);
	}
	return shape;
}

static int wrong(const struct shape *shape, const char *what, int64_t index)
{
	soak_problem("wrong %s on rank %u of %u of group g%u, epoch %llu, round %llu, at %lld",
		what, shape->rank, shape->world_size, shape->group,
		(unsigned long long)shape->epoch, (unsigned long long)shape->round,
		(long long)index);
	return -1;
}

/* ---- dispatch ---- */

static uint64_t word(const struct shape *shape, uint32_t rank, uint32_t tensor, uint32_t i)
{
	return (shape->epoch & 0xffff) << 48 | (shape->round & 0xffffff) << 24 |
	       (uint64_t)(rank & 0xf) << 20 | (uint64_t)(tensor & 0xf) << 16 | (i & 0xffff);
}

/* The bytes that a rank dispatches. */
static void fill(const struct shape *shape, uint32_t rank, uint32_t tensor, size_t n, uint8_t *to)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t w = word(shape, rank, tensor, (uint32_t)(i / 8));

		memcpy(to + i, &w, n - i < 8 ? n - i : 8);
	}
}

static int wrong_bytes(
	const struct shape *shape, uint32_t from, uint32_t tensor, int64_t at, const uint8_t *got)
{
	uint64_t w;

	memcpy(&w, got + at / 8 * 8, sizeof(w));
	soak_problem("wrong bytes on rank %u of %u of group g%u from rank %u: epoch %llu, round "
		     "%llu, tensor %u, word %lld is that of epoch %llu, round %llu, rank %llu, "
		     "tensor %llu, word %llu",
		shape->rank, shape->world_size, shape->group, from,
		(unsigned long long)shape->epoch, (unsigned long long)shape->round, tensor,
		(long long)(at / 8), (unsigned long long)(w >> 48),
		(unsigned long long)(w >> 24 & 0xffffff), (unsigned long long)(w >> 20 & 0xf),
		(unsigned long long)(w >> 16 & 0xf), (unsigned long long)(w & 0xffff));
	return -1;
}

static int check_block(const struct shape *shape, uint32_t from, uint32_t tensor, int64_t row_bytes,
	bool ids, const uint8_t *got)
{
	uint8_t want[MAX_ROWS * MAX_BYTES + 8];
	size_t n = (size_t)(shape->rows[from] * row_bytes);
	size_t n_valid = (size_t)(shape->valid[from] * row_bytes);

	fill(shape, from, tensor, n, want);
	/* padding rows: not transported, except that their ids are masked */
	memset(want + n_valid, ids ? 0xff : UNTOUCHED, n - n_valid);
	for (size_t i = 0; i < n; i++)
		if (want[i] != got[i])
			return wrong_bytes(shape, from, tensor, (int64_t)i, got);
	return 0;
}

static int do_dispatch(moecomm_group *group, struct shape *shape)
{
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	struct moecomm_tensor tensor[MAX_TENSORS];
	int32_t counts[SOAK_WORLD];
	int status;

	args.n_tensors = 1 + (int)plan_draw(&shape->draw, MAX_TENSORS);
	args.ids_tensor = plan_draw(&shape->draw, 2) ? args.n_tensors - 1 : -1;
	for (int t = 0; t < args.n_tensors; t++) {
		int64_t bytes = 1 + plan_draw(&shape->draw, MAX_BYTES);

		if (t == args.ids_tensor)
			bytes = (bytes + 3) / 4 * 4;
		tensor[t] = (struct moecomm_tensor){buffer.in[t], buffer.out[t], bytes};
		fill(shape, shape->rank, (uint32_t)t, (size_t)(shape->rows[shape->rank] * bytes),
			buffer.in[t]);
		memset(buffer.out[t], UNTOUCHED, (size_t)(shape->total * bytes));
	}
	args.channel = shape->channel;
	args.tensors = tensor;
	args.rows = shape->rows[0];
	args.rows_per_rank = shape->uniform ? NULL : shape->rows;
	args.count = shape->counted ? &shape->valid[shape->rank] : NULL;
	args.ret_counts = counts;
	status = moecomm_dispatch(group, &args, NULL);
	for (uint32_t r = 0; !status && r < shape->world_size; r++) {
		if (counts[r] != shape->valid[r])
			return wrong(shape, "dispatch counts", r);
		for (int t = 0; !status && t < args.n_tensors; t++)
			status = check_block(shape, r, (uint32_t)t, tensor[t].row_bytes,
				t == args.ids_tensor && shape->counted,
				buffer.out[t] + shape->first[r] * tensor[t].row_bytes);
	}
	return status;
}

/* ---- combine ---- */

/* A number of either sign and several magnitudes, exact in every type. */
static float number(const struct shape *shape, uint32_t from, uint32_t what, int64_t i)
{
	static const float scale[4] = {0x1p-7f, 0x1p-4f, 0x1p0f, 0x1p3f};
	uint64_t z = shape->epoch << 40 ^ shape->round << 20 ^ (uint64_t)from << 16 ^
		     (uint64_t)what << 60 ^ (uint64_t)i;
	float f;

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	f = (float)(1 + (z >> 40 & 0xff)) * scale[z >> 50 & 3];
	return z >> 63 ? -f : f;
}

static void encode(const struct shape *shape, enum moecomm_dtype dtype, uint32_t what,
	uint32_t from, int64_t first, int64_t n, uint8_t *to)
{
	size_t size = dtype == MOECOMM_FP32 ? 4 : 2;

	for (int64_t i = 0; i < n; i++) {
		float f = number(shape, from, what, first + i);

		mc_number_store((enum mc_dtype)dtype, &f, 1, to + (size_t)i * size);
	}
}

static bool is_value(const struct moecomm_combine_args *args, const void *array, int64_t i, float v)
{
	enum mc_dtype dtype = (enum mc_dtype)args->dtype;

	return ref_is_rounded(dtype, ref_bits(dtype, array, (uint64_t)i), v);
}

static int check_row(
	const struct shape *shape, const struct moecomm_combine_args *args, int64_t row)
{
	int64_t at = (shape->first[shape->rank] + row) * args->hidden, own = row * args->hidden;
	volatile float sum; /* every operation rounded by itself */
	float x[MAX_HIDDEN], r;

	for (int64_t i = 0; i < args->hidden; i++) {
		sum = number(shape, 0, 1, at + i);
		for (uint32_t from = 1; from < shape->world_size; from++)
			sum = sum + number(shape, from, 1, at + i);
		if (!args->gamma) {
			if (!is_value(args, args->output, own + i, sum))
				return wrong(shape, "sum", own + i);
			continue;
		}
		sum = sum + number(shape, shape->rank, 2, own + i);
		x[i] = sum;
		if (!is_value(args, args->residual_output, own + i, sum))
			return wrong(shape, "residual", own + i);
	}
	if (!args->gamma)
		return 0;
	r = ref_rms(x, (uint64_t)args->hidden, args->eps);
	for (int64_t i = 0; i < args->hidden; i++) {
		sum = x[i] * r;
		sum = sum * number(shape, 0, 3, i);
		if (!is_value(args, args->output, own + i, sum))
			return wrong(shape, "norm", own + i);
	}
	return 0;
}

static int do_combine(moecomm_group *group, struct shape *shape)
{
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;
	int64_t rows = shape->rows[shape->rank], row_bytes;
	bool fused = plan_draw(&shape->draw, 2);
	int status;

	args.dtype = (enum moecomm_dtype)(MOECOMM_BF16 + plan_draw(&shape->draw, 3));
	args.hidden = 1 + plan_draw(&shape->draw, MAX_HIDDEN);
	row_bytes = args.hidden * (args.dtype == MOECOMM_FP32 ? 4 : 2);
	encode(shape, args.dtype, 1, shape->rank, 0, shape->total * args.hidden, buffer.parts);
	memset(buffer.sums, UNTOUCHED, (size_t)(rows * row_bytes));
	args.channel = shape->channel;
	args.input = buffer.parts;
	args.output = buffer.sums;
	args.rows = shape->rows[0];
	args.rows_per_rank = shape->uniform ? NULL : shape->rows;
	args.counts = shape->counted ? shape->valid : NULL;
	if (fused) {
		encode(shape, args.dtype, 2, shape->rank, 0, rows * args.hidden, buffer.residual);
		encode(shape, args.dtype, 3, 0, 0, args.hidden, buffer.gamma);
		args.residual = buffer.residual;
		args.residual_output = buffer.residual_out;
		args.gamma = buffer.gamma;
		args.eps = 1e-5f;
		status = moecomm_combine_rmsnorm(group, &args, NULL);
	} else {
		status = moecomm_combine(group, &args, NULL);
	}
	for (int64_t row = 0; !status && row < shape->valid[shape->rank]; row++)
		status = check_row(shape, &args, row);
	for (int64_t i = shape->valid[shape->rank] * row_bytes; !status && i < rows * row_bytes;
		i++)
		if (buffer.sums[i] != UNTOUCHED)
			return wrong(shape, "padding of a sum", i);
	return status;
}

/* ---- votes ---- */

/* Rank 0's word decides, so that all ranks stop after the same round. */
static int vote(moecomm_group *group, struct shape *shape, bool *ret_stop)
{
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	uint64_t all[SOAK_WORLD], mine = shape->epoch << 1;
	struct moecomm_tensor tensor = {&mine, all, sizeof(mine)};
	int status;

	mine |= atomic_load(&soak->group[shape->group].stop) || atomic_load(&soak->quit);
	args.channel = shape->channel;
	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = 1;
	status = moecomm_dispatch(group, &args, NULL);
	if (status)
		return status;
	for (uint32_t r = 0; r < shape->world_size; r++)
		if (all[r] >> 1 != shape->epoch)
			return wrong(shape, "vote", r);
	*ret_stop = all[0] & 1;
	return 0;
}

int soak_round(moecomm_group *group, uint32_t group_number, uint32_t rank, uint32_t world_size,
	uint64_t epoch, uint64_t round, bool *ret_stop)
{
	struct shape shape = make_shape(group_number, rank, world_size, epoch, round);

	*ret_stop = false;
	if (round % SOAK_VOTE_ROUNDS == SOAK_VOTE_ROUNDS - 1)
		return vote(group, &shape, ret_stop);
	return plan_draw(&shape.draw, 2) ? do_dispatch(group, &shape) : do_combine(group, &shape);
}

int soak_odd_op(moecomm_group *group, uint32_t group_number, uint32_t rank, uint32_t world_size,
	uint64_t epoch, uint64_t round)
{
	struct shape shape = make_shape(group_number, rank, world_size, epoch, round);
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;
	static const float in[SOAK_WORLD * (MAX_HIDDEN + 1)];
	float out[MAX_HIDDEN + 1];

	/* wider than any row of an ordinary round */
	args.channel = shape.channel;
	args.dtype = MOECOMM_FP32;
	args.hidden = MAX_HIDDEN + 1;
	args.rows = 1;
	args.input = in;
	args.output = out;
	return moecomm_combine(group, &args, NULL);
}
