/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on random shapes with data that only their round has, checked in full. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/client/ranks.h"

#define MAX_ROWS  16
#define MAX_BYTES 256
#define MAX_WORLD 8

struct draw {
	uint64_t state;
};

static uint32_t next(struct draw *draw)
{
	uint64_t z = draw->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(z ^ z >> 31);
}

static struct draw draw_for(unsigned seed, int round, int rank, int what)
{
	struct draw draw = {(uint64_t)seed << 40 ^ (uint64_t)round << 16 ^ (uint64_t)rank << 8 ^
			    (uint64_t)what};

	next(&draw);
	return draw;
}

/* Per-thread, so that ranks of one process do not share buffers. */
static _Thread_local struct {
	uint8_t in[8][MAX_ROWS * MAX_BYTES];
	uint8_t out[8][MAX_WORLD * MAX_ROWS * MAX_BYTES];
	uint8_t want[MAX_WORLD * MAX_ROWS * MAX_BYTES];
	uint8_t part[MAX_WORLD * MAX_ROWS * MAX_BYTES];
} buffer;

struct shape {
	int64_t rows[MAX_WORLD];
	int64_t total;
	int uniform;
};

static struct shape draw_shape(struct draw *draw, int world_size)
{
	struct shape shape = {.uniform = next(draw) % 2 == 0};
	int64_t same = next(draw) % (MAX_ROWS + 1);

	for (int r = 0; r < world_size; r++) {
		/* empty ranks are common, and all of them at once happens too */
		shape.rows[r] = shape.uniform         ? same
				: next(draw) % 3 == 0 ? 0
						      : next(draw) % (MAX_ROWS + 1);
		shape.total += shape.rows[r];
	}
	return shape;
}

static void fill_bytes(uint8_t *to, size_t n, unsigned seed, int round, int rank, int what)
{
	struct draw draw = draw_for(seed, round, rank, what);

	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)next(&draw);
}

static int wrong(const char *op, int rank, int world_size, unsigned seed, int round)
{
	fprintf(stderr, "%s: wrong result on rank %d of %d, seed %u, round %d\n", op, rank,
		world_size, seed, round);
	return -1;
}

static int check_dispatch(moecomm_group *group, int rank, int world_size, unsigned seed, int round,
	int channel, struct draw *draw)
{
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	struct shape shape = draw_shape(draw, world_size);
	int n_tensors = 1 + (int)(next(draw) % 8);
	struct moecomm_tensor tensor[8];
	int32_t counts[MAX_WORLD];
	int with_counts = next(draw) % 2 == 0;
	int status;

	for (int t = 0; t < n_tensors; t++) {
		int64_t bytes = 1 + next(draw) % (MAX_BYTES / 8);

		tensor[t] = (struct moecomm_tensor){buffer.in[t], buffer.out[t], bytes};
		fill_bytes(buffer.in[t], (size_t)(bytes * shape.rows[rank]), seed, round, rank,
			t + 16);
	}
	args.channel = channel;
	args.tensors = tensor;
	args.n_tensors = n_tensors;
	args.rows = shape.rows[0];
	args.rows_per_rank = shape.uniform ? NULL : shape.rows;
	args.ret_counts = with_counts ? counts : NULL;
	status = moecomm_dispatch(group, &args, NULL);
	if (status)
		return status;
	for (int t = 0; t < n_tensors; t++) {
		size_t at = 0;

		for (int r = 0; r < world_size; r++) {
			size_t n = (size_t)(tensor[t].row_bytes * shape.rows[r]);

			fill_bytes(buffer.want, n, seed, round, r, t + 16);
			if (memcmp(buffer.want, buffer.out[t] + at, n))
				return wrong("dispatch", rank, world_size, seed, round);
			at += n;
		}
	}
	for (int r = 0; with_counts && r < world_size; r++)
		if (counts[r] != shape.rows[r])
			return wrong("dispatch counts", rank, world_size, seed, round);
	return 0;
}

static float bf16_to_float(uint16_t h)
{
	uint32_t word = (uint32_t)h << 16;
	float f;

	memcpy(&f, &word, 4);
	return f;
}

static uint16_t float_to_bf16(float f)
{
	uint32_t word;

	memcpy(&word, &f, 4);
	return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/* A number of modest size, exact in bf16. */
static float draw_number(struct draw *draw)
{
	uint32_t n = next(draw);
	float f = ldexpf((float)(n % 256 + 1), (int)(n >> 8 & 7) - 8);

	return n >> 31 ? -f : f;
}

static void fill_numbers(
	uint8_t *to, int64_t n, int bf16, unsigned seed, int round, int rank, int what)
{
	struct draw draw = draw_for(seed, round, rank, what);

	for (int64_t i = 0; i < n; i++) {
		float f = draw_number(&draw);
		uint16_t h = float_to_bf16(f);

		if (bf16)
			memcpy(to + i * 2, &h, 2);
		else
			memcpy(to + i * 4, &f, 4);
	}
}

static float number_at(const uint8_t *from, int64_t i, int bf16)
{
	uint16_t h;
	float f;

	if (bf16) {
		memcpy(&h, from + i * 2, 2);
		return bf16_to_float(h);
	}
	memcpy(&f, from + i * 4, 4);
	return f;
}

/* sums[MAX_ROWS * MAX_BYTES / 2]: what combine adds up for this rank's rows, in fp32 rank order. */
static void reference_sums(float *sums, const struct shape *shape, int64_t hidden, int bf16,
	int rank, int world_size, unsigned seed, int round)
{
	int64_t first = 0, n = shape->rows[rank] * hidden;

	for (int r = 0; r < rank; r++)
		first += shape->rows[r] * hidden;
	for (int r = 0; r < world_size; r++) {
		fill_numbers(buffer.part, shape->total * hidden, bf16, seed, round, r, 7);
		for (int64_t i = 0; i < n; i++) {
			float f = number_at(buffer.part, first + i, bf16);

			sums[i] = r ? sums[i] + f : f;
		}
	}
}

static int check_combine(moecomm_group *group, int rank, int world_size, unsigned seed, int round,
	int channel, struct draw *draw)
{
	static _Thread_local float sums[MAX_ROWS * MAX_BYTES / 2];
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;
	int bf16 = next(draw) % 2 == 0, fused = next(draw) % 2 == 0;
	struct shape shape = draw_shape(draw, world_size);
	int64_t hidden = 1 + next(draw) % (MAX_BYTES / 4);
	int64_t n = shape.rows[rank] * hidden;
	uint8_t *residual = buffer.in[1], *gamma = buffer.in[2], *residual_out = buffer.out[2];
	int status;

	fill_numbers(buffer.out[0], shape.total * hidden, bf16, seed, round, rank, 7);
	fill_numbers(residual, n, bf16, seed, round, rank, 8);
	fill_numbers(gamma, hidden, bf16, seed, round, 0, 9);
	args.channel = channel;
	args.dtype = bf16 ? MOECOMM_BF16 : MOECOMM_FP32;
	args.hidden = hidden;
	args.input = buffer.out[0];
	args.output = buffer.out[1];
	args.rows = shape.rows[0];
	args.rows_per_rank = shape.uniform ? NULL : shape.rows;
	if (fused) {
		args.residual = residual;
		args.residual_output = residual_out;
		args.gamma = gamma;
		args.eps = 1e-5f;
		status = moecomm_combine_rmsnorm(group, &args, NULL);
	} else {
		status = moecomm_combine(group, &args, NULL);
	}
	if (status)
		return status;
	reference_sums(sums, &shape, hidden, bf16, rank, world_size, seed, round);
	for (int64_t i = 0; i < n && !fused; i++) {
		float want = bf16 ? bf16_to_float(float_to_bf16(sums[i])) : sums[i];

		if (number_at(buffer.out[1], i, bf16) != want)
			return wrong("combine", rank, world_size, seed, round);
	}
	for (int64_t row = 0; row < shape.rows[rank] && fused; row++) {
		double square = 0;

		for (int64_t i = row * hidden; i < (row + 1) * hidden; i++) {
			float x = sums[i] + number_at(residual, i, bf16);

			if (number_at(residual_out, i, bf16) !=
				(bf16 ? bf16_to_float(float_to_bf16(x)) : x))
				return wrong(
					"combine_rmsnorm residual", rank, world_size, seed, round);
			sums[i] = x;
			square += (double)x * x;
		}
		for (int64_t i = 0; i < hidden; i++) {
			double want = sums[row * hidden + i] /
				      sqrt(square / (double)hidden + 1e-5) *
				      number_at(gamma, i, bf16);
			double got = number_at(buffer.out[1], row * hidden + i, bf16);

			if (!(fabs(got - want) <= fabs(want) * (bf16 ? 0.005 : 1e-5)))
				return wrong("combine_rmsnorm", rank, world_size, seed, round);
		}
	}
	return 0;
}

int check_round(
	moecomm_group *group, int rank, int world_size, unsigned seed, int round, int channel)
{
	struct draw draw = draw_for(seed, round, 255, 1);
	uint32_t kind = next(&draw);

	if (channel < 0)
		channel = (int)(next(&draw) % 2);
	return kind % 2 ? check_dispatch(group, rank, world_size, seed, round, channel, &draw)
			: check_combine(group, rank, world_size, seed, round, channel, &draw);
}
