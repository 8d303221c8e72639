/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-ops: ops of random shapes, against the host ops. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tests/gpu/ops.h"

/* Space in all ranks' buffers; with `odd` at an odd address, else 16-byte aligned. */
struct space {
	size_t used;
	bool odd;
};

static size_t take(struct space *s, size_t n_bytes, uint32_t unit)
{
	size_t at = (s->used + 15u) / 16u * 16u;

	if (s->odd)
		at += unit * (1u + below(15u / unit));
	s->used = at + n_bytes + 32u; /* a guard behind each */
	if (s->used > BUFFER_BYTES) {
		printf("the test's buffers are too small\n");
		_exit(3);
	}
	return at;
}

void noise(uint8_t *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		at[i] = (uint8_t)(next() >> 24);
}

/* Numbers of ordinary size with some specials: zeros of both signs, subnormals, infinities, NaNs.
 */
static void numbers(enum mc_dtype dtype, uint8_t *at, size_t n, bool specials)
{
	static const uint16_t special16[] = {0, 0x8000, 1, 0x8001, 0x7f80, 0xff80, 0x7fc1, 0x7c00,
		0xfc00, 0x7c01, 0x7bff, 0x7f7f};

	for (size_t i = 0; i < n; i++) {
		bool special = specials && below(64) == 0;
		float f = ldexpf((float)(int32_t)next() * 0x1p-31f, (int)below(12) - 6);
		uint32_t w;

		memcpy(&w, &f, 4);
		if (dtype == MC_DTYPE_FP32) {
			if (special)
				w = (uint32_t)special16[below(12)] << 16 | below(3);
			memcpy(at + 4u * i, &w, 4);
		} else {
			uint16_t h = (uint16_t)(w >> 16);

			if (dtype == MC_DTYPE_FP16) /* about the same number */
				h = (uint16_t)((w >> 16 & 0x8000u) | (10u + below(12)) << 10 |
					       below(1024));
			if (special)
				h = special16[below(12)];
			memcpy(at + 2u * i, &h, 2);
		}
	}
}

static void poison_all(size_t n_bytes)
{
	for (uint32_t r = 0; r < world_size; r++)
		memset(ranks[r].host, POISON, n_bytes);
}

/* Dispatch op with inputs in all ranks' host buffers; returns the bytes in use. */
size_t make_dispatch(uint32_t n_tensors, const uint64_t *row_bytes, uint32_t most_rows,
	enum form form, bool odd, bool want_counts)
{
	struct space s = {0, odd};
	struct mc_dispatch op = {.n_tensors = n_tensors, .ids_tensor = -1};
	size_t in[MC_MAX_TENSORS], out[MC_MAX_TENSORS], count_at, counts_at;
	uint64_t total = 0;

	for (uint32_t p = 0; p < world_size; p++) {
		op.rows[p] = form == UNIFORM ? most_rows : below(most_rows + 1u);
		if (form == RAGGED && below(4) == 0)
			op.rows[p] = 0;
		if (form == COUNTED)
			op.rows[p] = below(2) ? most_rows : 1u + below(most_rows);
		total += op.rows[p];
	}
	for (uint32_t t = 0; t < n_tensors; t++) {
		op.tensor[t].row_bytes = row_bytes[t];
		if (row_bytes[t] % 4 == 0 && below(2))
			op.ids_tensor = (int32_t)t;
		in[t] = take(&s, row_bytes[t] * most_rows, 1);
		out[t] = take(&s, row_bytes[t] * total, 1);
	}
	count_at = take(&s, 4, 1);
	counts_at = take(&s, 4u * world_size, 1);
	poison_all(s.used);
	for (uint32_t r = 0; r < world_size; r++) {
		struct rank *rank = &ranks[r];
		int32_t count = (int32_t)below(op.rows[r] + 1u);

		rank->is_dispatch = true;
		rank->dispatch = op;
		for (uint32_t t = 0; t < n_tensors; t++) {
			noise(rank->host + in[t], row_bytes[t] * op.rows[r]);
			rank->dispatch.tensor[t].input = rank->device + in[t];
			rank->dispatch.tensor[t].output = rank->device + out[t];
		}
		memcpy(rank->host + count_at, &count, 4);
		if (form == COUNTED)
			rank->dispatch.count = (int32_t *)(rank->device + count_at);
		if (want_counts)
			rank->dispatch.ret_counts = (int32_t *)(rank->device + counts_at);
		rank->dispatch.digest = mc_dispatch_digest(&rank->dispatch, world_size);
	}
	return s.used;
}

size_t make_combine(enum mc_dtype dtype, uint64_t hidden, uint32_t most_rows, enum form form,
	bool norm, bool odd, bool specials, bool in_place)
{
	uint32_t size = mc_dtype_bytes(dtype);
	struct space s = {0, odd};
	struct mc_combine op = {.dtype = dtype, .hidden = hidden, .eps = 1e-5f};
	int32_t counts[MC_MAX_WORLD_SIZE];
	uint64_t total = 0;
	size_t input, output, residual, residual_output, gamma, counts_at;

	for (uint32_t p = 0; p < world_size; p++) {
		op.rows[p] = form == UNIFORM ? most_rows : below(most_rows + 1u);
		if (form == RAGGED && below(4) == 0)
			op.rows[p] = 0;
		counts[p] = (int32_t)below(op.rows[p] + 1u);
		total += op.rows[p];
	}
	if (!norm)
		op.eps = 0.0f;
	input = take(&s, total * hidden * size, size);
	output = take(&s, most_rows * hidden * size, size);
	residual = take(&s, most_rows * hidden * size, size);
	residual_output = in_place ? residual : take(&s, most_rows * hidden * size, size);
	gamma = take(&s, hidden * size, size);
	counts_at = take(&s, 4u * world_size, 1);
	poison_all(s.used);
	for (uint32_t r = 0; r < world_size; r++) {
		struct rank *rank = &ranks[r];

		rank->is_dispatch = false;
		rank->combine = op;
		numbers(dtype, rank->host + input, total * hidden, specials);
		numbers(dtype, rank->host + residual, op.rows[r] * hidden, specials);
		numbers(dtype, rank->host + gamma, hidden, false);
		memcpy(rank->host + counts_at, counts, 4u * world_size);
		rank->combine.input = rank->device + input;
		rank->combine.output = rank->device + output;
		if (norm) {
			rank->combine.residual = rank->device + residual;
			rank->combine.residual_output = rank->device + residual_output;
			rank->combine.gamma = rank->device + gamma;
		}
		if (form == COUNTED)
			rank->combine.counts = (int32_t *)(rank->device + counts_at);
		rank->combine.digest = mc_combine_digest(&rank->combine, world_size);
	}
	return s.used;
}

/* One case: upload, run `rounds` calls on the device, compare with the host op. */
static void run_case(size_t n_bytes, const char *what)
{
	uint32_t channel = below(N_CHANNELS);

	for (uint32_t r = 0; r < world_size; r++)
		ranks[r].channel = channel;
	upload(n_bytes);
	for (uint32_t r = 0; r < world_size; r++) {
		CHECK(cudaSetDevice(device_of(r)));
		enqueue(r);
	}
	wait_streams(30000);
	run_twins();
	compare(n_bytes, what);
}

void random_case(uint32_t i)
{
	static const uint64_t sizes[] = {16, 3584, 448, 32, 8, 24, 1, 7, 100, 1024, 33};
	static const uint64_t hiddens[] = {
		7168, 512, 8, 256, 264, 2048, 4096, 8192, 8200, 16384, 1, 7, 100, 1000, 4100};
	enum form form = (enum form)below(3);
	bool odd = below(4) == 0;
	uint32_t rows = below(3) == 0 ? 1u + below(2) : 1u + below(12);
	char what[200];
	size_t n;

	if (below(2)) {
		uint64_t row_bytes[MC_MAX_TENSORS], total = 0;
		uint32_t n_tensors = 1u + below(MC_MAX_TENSORS);
		bool want = below(2);

		if (below(2)) {
			n_tensors = 4;
			memcpy(row_bytes, (uint64_t[]){3584, 448, 32, 32}, 32);
		} else {
			for (uint32_t t = 0; t < n_tensors; t++) {
				row_bytes[t] = sizes[below(11)];
				total += row_bytes[t];
				if (total > 4096)
					row_bytes[t] = 16;
			}
		}
		if (below(16) == 0)
			rows = 100u + below(300);
		snprintf(what, sizeof(what), "case %u: dispatch, form %d, %u tensors, rows to %u%s",
			i, form, n_tensors, rows, odd ? ", odd" : "");
		n = make_dispatch(n_tensors, row_bytes, rows, form, odd, want);
	} else {
		enum mc_dtype dtype = below(2) ? MC_DTYPE_BF16 : (enum mc_dtype)(2u + below(2));
		uint64_t hidden = hiddens[below(15)];
		bool norm = below(2), in_place = below(2);

		if (dtype == MC_DTYPE_FP32 && hidden > 8192)
			hidden = 4096;
		snprintf(what, sizeof(what),
			"case %u: combine%s, form %d, type %d, hidden %llu, rows to %u%s", i,
			norm ? " + norm" : "", form, dtype, (unsigned long long)hidden, rows,
			odd ? ", odd" : "");
		n = make_combine(dtype, hidden, rows, form, norm, odd, below(3) == 0, in_place);
	}
	run_case(n, what);
}

/* Sizes at which the pipelines turn over, and rows that no register file holds. */
void large_cases(void)
{
	static const uint64_t four[] = {3584, 448, 32, 32};
	struct {
		enum mc_dtype dtype;
		uint64_t hidden;
		uint32_t rows;
	} norms[] = {{MC_DTYPE_BF16, 7168, 150}, {MC_DTYPE_BF16, 8192, 20},
		{MC_DTYPE_FP16, 8192, 5}, {MC_DTYPE_FP32, 4096, 9}, {MC_DTYPE_BF16, 4104, 3},
		{MC_DTYPE_BF16, 10240, 20}, {MC_DTYPE_BF16, 16384, 20}, {MC_DTYPE_FP16, 16384, 5}};

	run_case(make_dispatch(4, four, 512, UNIFORM, false, true), "dispatch of 512 rows");
	run_case(make_dispatch(4, four, 512, RAGGED, false, true), "ragged dispatch of 512 rows");
	run_case(make_dispatch(4, four, 512, COUNTED, true, true), "counted dispatch of 512 rows");
	if (world_size <= 8)
		run_case(make_combine(MC_DTYPE_BF16, 7168, 1024u / (world_size * 2u), UNIFORM,
				 false, false, false, false),
			"large combine");
	for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++) {
		uint32_t rows = norms[i].rows * 2u / world_size;

		run_case(make_combine(norms[i].dtype, norms[i].hidden, rows ? rows : 1, UNIFORM,
				 true, false, false, true),
			"large norm");
	}
}

void mask_cases(void)
{
	for (int i = 0; i < 20; i++) {
		uint32_t rows = 1u + below(200), topk = 1u + below(9), odd = below(2);
		int32_t count = (int32_t)below(rows + 1u);
		size_t at = 64u + odd, count_at = 16u + odd;
		struct rank *rank = &ranks[0];
		struct mc_backend_error error = {""};
		struct mc_mask_ids op = {(int32_t *)(rank->device + at), rows, topk,
			(int32_t *)(rank->device + count_at)};
		struct mc_mask_ids twin = {(int32_t *)(rank->host + at), rows, topk,
			(int32_t *)(rank->host + count_at)};

		for (uint32_t r = 0; r < world_size; r++)
			noise(ranks[r].host, 16384);
		memcpy(rank->host + count_at, &count, 4);
		upload(16384);
		CHECK(cudaSetDevice(0));
		expect(BACKEND->mask_ids(rank->backend, &op, rank->stream, &error) == 0,
			error.text);
		wait_streams(5000);
		mc_host_mask_ids(&twin);
		compare(16384, "mask of expert ids");
	}
}
