/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-ops: our ops between kernels of others, whose results they need and who need theirs. With
 * early launch an op's CTAs are on the device while the kernel before it still runs; none may look
 * at anything too soon. The producer is slow, and all that is not yet written is NaN.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tests/gpu/ops.h"
#include "tests/gpu/ops_user.h"

#define HIDDEN    1792u
#define ROW_BYTES (2u * HIDDEN)
#define DELAY_US  1000u
#define MIB       ((size_t)1 << 20)

/* Where things lie in every rank's buffer. */
enum {
	SOURCE,
	INPUT,
	GATHERED,
	PARTS,
	SUM,
	RESIDUAL,
	NORMED,
	RESULT,
	GAMMA,
	N_PLACES,
};

static uint8_t *place(uint32_t r, int what)
{
	return ranks[r].device + (size_t)what * MIB;
}

static float number(uint16_t bf16)
{
	uint32_t w = (uint32_t)bf16 << 16;
	float f;

	memcpy(&f, &w, sizeof(f));
	return f;
}

static uint16_t rounded(float f)
{
	uint32_t w;

	memcpy(&w, &f, sizeof(w));
	return (uint16_t)((w + 0x7fffu + (w >> 16 & 1u)) >> 16);
}

/* The chain of one rank: poison, producer, dispatch, user, combine, norm, user, and a spoiler. */
static void enqueue_chain(uint32_t r, uint32_t rows, int dependent)
{
	const size_t mine = (size_t)rows * ROW_BYTES, all = mine * world_size;
	struct rank *rank = &ranks[r];
	cudaStream_t stream = rank->stream;

	CHECK(cudaSetDevice(device_of(r)));
	CHECK(cudaMemsetAsync(place(r, INPUT), 0xff, (size_t)(GAMMA - INPUT) * MIB, stream));
	CHECK(user_copy(place(r, INPUT), place(r, SOURCE), mine, DELAY_US, dependent, stream));
	rank->channel = 0;
	rank->is_dispatch = true;
	rank->dispatch = (struct mc_dispatch){.n_tensors = 1, .ids_tensor = -1};
	rank->dispatch.tensor[0] =
		(struct mc_tensor){place(r, INPUT), place(r, GATHERED), ROW_BYTES};
	rank->combine = (struct mc_combine){.dtype = MC_DTYPE_BF16,
		.hidden = HIDDEN,
		.input = place(r, PARTS),
		.output = place(r, SUM)};
	for (uint32_t p = 0; p < world_size; p++)
		rank->dispatch.rows[p] = rank->combine.rows[p] = rows;
	rank->dispatch.digest = mc_dispatch_digest(&rank->dispatch, world_size);
	enqueue(r);
	/* slow again: the combine behind it must wait, too */
	CHECK(user_copy(
		place(r, PARTS), place(r, GATHERED), all, DELAY_US / 4u, dependent, stream));
	rank->is_dispatch = false;
	rank->combine.digest = mc_combine_digest(&rank->combine, world_size);
	enqueue(r);
	rank->combine.output = place(r, NORMED);
	rank->combine.residual = place(r, SUM);
	rank->combine.residual_output = place(r, RESIDUAL);
	rank->combine.gamma = place(r, GAMMA);
	rank->combine.eps = 1e-6f;
	rank->combine.digest = mc_combine_digest(&rank->combine, world_size);
	enqueue(r);
	CHECK(user_copy(place(r, RESULT), place(r, NORMED), mine, 0, dependent, stream));
	/* what comes behind an op may overwrite its inputs */
	CHECK(user_copy(place(r, PARTS), place(r, NORMED), mine, 0, dependent, stream));
}

static void fill_source(uint32_t r, uint32_t rows)
{
	uint16_t *source = (uint16_t *)ranks[r].host;

	for (uint32_t i = 0; i < rows * HIDDEN; i++)
		source[i] = (uint16_t)(0x3e00u | ((uint32_t)next() & 0x81ffu));
	CHECK(cudaSetDevice(device_of(r)));
	CHECK(cudaMemcpy(place(r, SOURCE), source, rows * ROW_BYTES, cudaMemcpyHostToDevice));
	for (uint32_t i = 0; i < HIDDEN; i++)
		source[rows * HIDDEN + i] = 0x3f80; /* 1 */
	CHECK(cudaMemcpy(
		place(r, GAMMA), source + rows * HIDDEN, ROW_BYTES, cudaMemcpyHostToDevice));
	CHECK(cudaDeviceSynchronize());
}

static void get(uint32_t r, int what, size_t n_bytes)
{
	CHECK(cudaMemcpy(ranks[r].image, place(r, what), n_bytes, cudaMemcpyDeviceToHost));
}

/* Every rank has the same parts, so the sum of a rank's own rows is its source times the ranks. */
static void check_chain(uint32_t r, uint32_t rows, const char *what)
{
	const uint16_t *source = (const uint16_t *)ranks[r].host;
	const uint16_t *got = (const uint16_t *)ranks[r].image;
	const size_t mine = (size_t)rows * ROW_BYTES;
	uint32_t n_sum = 0, n_residual = 0, n_result = 0;
	bool gathered = true;
	char text[200];

	CHECK(cudaSetDevice(device_of(r)));
	get(r, GATHERED, mine * world_size);
	for (uint32_t p = 0; p < world_size; p++)
		gathered &= memcmp(ranks[r].image + p * mine, ranks[p].host, mine) == 0;
	get(r, SUM, mine);
	for (uint32_t i = 0; i < rows * HIDDEN; i++)
		n_sum += got[i] != rounded((float)world_size * number(source[i]));
	get(r, RESIDUAL, mine);
	for (uint32_t i = 0; i < rows * HIDDEN; i++) {
		float sum = (float)world_size * number(source[i]);

		n_residual += got[i] != rounded(sum + number(rounded(sum)));
	}
	get(r, RESULT, mine);
	for (uint32_t row = 0; row < rows; row++) {
		double squares = 0.0, scale;

		for (uint32_t i = 0; i < HIDDEN; i++) {
			double x = 2.0 * world_size * number(source[row * HIDDEN + i]);

			squares += x * x;
		}
		scale = 2.0 * world_size / sqrt(squares / HIDDEN + 1e-6);
		for (uint32_t i = 0; i < HIDDEN; i++) {
			double want = scale * number(source[row * HIDDEN + i]);

			/* not <: a NaN is wrong */
			n_result +=
				!(fabs(number(got[row * HIDDEN + i]) - want) <= 0.02 * fabs(want));
		}
	}
	snprintf(text, sizeof(text),
		"%s, %u rows: rank %u: gathered %s, wrong numbers: %u sums, %u residuals, %u "
		"results",
		what, rows, r, gathered ? "right" : "wrong", n_sum, n_residual, n_result);
	expect(gathered && n_sum + n_residual + n_result == 0, text);
}

static void check_all(uint32_t rows, const char *what)
{
	wait_streams(20000);
	for (uint32_t r = 0; r < world_size; r++)
		check_chain(r, rows, what);
}

static void eager(uint32_t rows, int dependent)
{
	for (uint32_t r = 0; r < world_size; r++)
		fill_source(r, rows);
	for (uint32_t r = 0; r < world_size; r++)
		enqueue_chain(r, rows, dependent);
	check_all(rows, dependent ? "eager, early users" : "eager");
}

static void captured(uint32_t rows, int dependent)
{
	cudaGraphExec_t exec[MAX_RANKS];

	for (uint32_t r = 0; r < world_size; r++) {
		cudaGraph_t graph;

		CHECK(cudaSetDevice(device_of(r)));
		CHECK(cudaStreamBeginCapture(ranks[r].stream, cudaStreamCaptureModeGlobal));
		enqueue_chain(r, rows, dependent);
		CHECK(cudaStreamEndCapture(ranks[r].stream, &graph));
		CHECK(cudaGraphInstantiate(&exec[r], graph, 0));
		CHECK(cudaGraphUpload(exec[r], ranks[r].stream));
		CHECK(cudaGraphDestroy(graph));
	}
	wait_streams(5000);
	for (int i = 0; i < 5; i++) {
		for (uint32_t r = 0; r < world_size; r++)
			fill_source(r, rows);
		for (uint32_t r = 0; r < world_size; r++) {
			CHECK(cudaSetDevice(device_of(r)));
			CHECK(cudaGraphLaunch(exec[r], ranks[r].stream));
		}
		check_all(rows, dependent ? "captured, early users" : "captured");
	}
	for (uint32_t r = 0; r < world_size; r++)
		CHECK(cudaGraphExecDestroy(exec[r]));
}

void early_cases(void)
{
	static const uint32_t rows[] = {1, 4, 16};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int dependent = 0; dependent < 2; dependent++) {
			for (int k = 0; k < 3; k++)
				eager(rows[i], dependent);
			captured(rows[i], dependent);
		}
}
