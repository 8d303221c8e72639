/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine, plain and with residual add and RMSNorm: each rank gets the sum of all ranks' parts of
 * its own rows. The order of every operation is docs/numerics.md. Nothing is allocated: plain sums
 * go in blocks; a normed row stays on the stack, or is summed twice when it is longer than that.
 */
#include "kernels/host/fault.h"
#include "kernels/host/number.h"
#include "kernels/host/ring.h"
#include "kernels/host/rmsnorm.h"

/* Elements summed at once: whole vectors in every type; 2 × 8 KiB of stack. */
#define SUM_BLOCK 2048u
/* Longest row that is kept whole: 32 KiB of stack. Whole norm groups. */
#define ROW_BLOCK 8192u

struct combine {
	struct mc_ring ring;
	const struct mc_combine *op;
	uint32_t rows;       /* valid rows of this rank */
	uint64_t n_elements; /* of this rank's result */
	const uint8_t *own;  /* this rank's part of its own rows */
	uint32_t element_bytes;
};

/*
 * acc = the sum of elements [begin, begin + n) of this rank's rows. Rank order from rank 0's value
 * on, own part in its place. keep: see mc_ring_take.
 */
static int sum(struct combine *c, uint64_t begin, uint64_t n, bool keep, float *acc)
{
	uint32_t world_size = c->ring.host->layout.world_size, self = c->ring.host->rank;
	uint64_t size = c->element_bytes, n_bytes = c->n_elements * size;
	_Alignas(16) uint8_t buffer[SUM_BLOCK * sizeof(float)];

	for (uint64_t i = 0, m; i < n; i += m) {
		m = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;
		for (uint32_t p = 0; p < world_size; p++) {
			uint64_t from = (begin + i) * size;
			const void *part = c->own + from;

			if (p != self) {
				int status = mc_ring_take(&c->ring, p, 0, n_bytes, from,
					from + m * size, keep, buffer);
				if (status)
					return status;
				part = buffer;
			}
			if (p == 0)
				mc_number_load(c->op->dtype, part, m, acc + i);
			else
				mc_number_add(c->op->dtype, part, m, acc + i);
		}
	}
	return MC_FAULT_NONE;
}

static int combine_plain(struct combine *c)
{
	uint8_t *output = c->op->output;
	float acc[SUM_BLOCK];

	for (uint64_t i = 0, n; i < c->n_elements; i += n) {
		int status;

		n = c->n_elements - i < SUM_BLOCK ? c->n_elements - i : SUM_BLOCK;
		status = sum(c, i, n, false, acc);
		if (status)
			return status;
		mc_number_store(c->op->dtype, acc, n, output + i * c->element_bytes);
	}
	return MC_FAULT_NONE;
}

/* x = sum + residual for elements [begin, begin + n). */
static int add_residual(struct combine *c, uint64_t begin, uint64_t n, bool keep, float *x)
{
	int status = sum(c, begin, n, keep, x);

	if (!status)
		mc_number_add(c->op->dtype,
			(const uint8_t *)c->op->residual + begin * c->element_bytes, n, x);
	return status;
}

static int combine_rmsnorm(struct combine *c)
{
	const struct mc_combine *op = c->op;
	uint8_t *output = op->output, *residual_output = op->residual_output;
	const uint8_t *gamma = op->gamma;
	uint64_t hidden = op->hidden, size = c->element_bytes;
	bool whole = hidden <= ROW_BLOCK;
	float x[ROW_BLOCK];

	for (uint32_t row = 0; row < c->rows; row++) {
		uint64_t first = row * hidden;
		struct mc_rmsnorm norm = {0};
		float r;
		int status;

		for (uint64_t i = 0, n; i < hidden; i += n) {
			n = hidden - i < ROW_BLOCK ? hidden - i : ROW_BLOCK;
			status = add_residual(c, first + i, n, !whole, x);
			if (status)
				return status;
			mc_rmsnorm_add(&norm, x, n);
		}
		r = mc_rmsnorm_scale(&norm, hidden, op->eps);
		for (uint64_t i = 0, n; i < hidden; i += n) {
			uint64_t at = (first + i) * size;

			n = hidden - i < ROW_BLOCK ? hidden - i : ROW_BLOCK;
			status = whole ? MC_FAULT_NONE : add_residual(c, first + i, n, false, x);
			if (status)
				return status;
			/* after the residual was read for the last time: the two may be one */
			mc_number_store(op->dtype, x, n, residual_output + at);
			mc_number_scale(op->dtype, x, r, gamma + i * size, n, output + at);
		}
	}
	return MC_FAULT_NONE;
}

/* Valid rows of every rank, from the device-side counts if there are any. */
static int read_rows(struct mc_ring *ring, const struct mc_combine *op, uint32_t *rows)
{
	for (uint32_t p = 0; p < ring->host->layout.world_size; p++) {
		int32_t count;

		rows[p] = op->rows[p];
		if (!op->counts)
			continue;
		memcpy(&count, (const uint8_t *)op->counts + p * sizeof(count), sizeof(count));
		if (count < 0 || (uint32_t)count > op->rows[p]) {
			struct mc_fault fault =
				mc_fault_make(ring, MC_FAULT_BAD_COUNT, ring->host->rank);

			return mc_fault_raise(ring, &fault);
		}
		rows[p] = (uint32_t)count;
	}
	return MC_FAULT_NONE;
}

static int exchange(struct combine *c, const uint32_t *rows)
{
	const struct mc_combine *op = c->op;
	uint32_t world_size = c->ring.host->layout.world_size, self = c->ring.host->rank;
	uint64_t row_bytes = op->hidden * c->element_bytes, n_vectors = 0;
	uint64_t at[MC_MAX_WORLD_SIZE], row = 0;
	uint32_t unused;
	int status;

	for (uint32_t p = 0; p < world_size; p++) {
		at[p] = row * row_bytes;
		row += op->rows[p];
		n_vectors += p == self ? 0 : 1u + mc_vectors(rows[p] * row_bytes);
	}
	mc_ring_post(&c->ring, n_vectors);
	for (uint32_t step = 1; step < world_size; step++) {
		uint32_t peer = mc_ring_push_peer(&c->ring, step);

		status = mc_ring_push_header(&c->ring, peer, rows[peer]);
		if (!status)
			status = mc_ring_push(&c->ring, peer, 0,
				(const uint8_t *)op->input + at[peer], rows[peer] * row_bytes);
		if (status)
			return status;
	}
	for (uint32_t step = 1; step < world_size; step++) {
		status = mc_ring_take_header(
			&c->ring, mc_ring_take_peer(&c->ring, step), rows[self], false, &unused);
		if (status)
			return status;
	}
	c->rows = rows[self];
	c->n_elements = rows[self] * op->hidden;
	c->own = (const uint8_t *)op->input + at[self];
	if (c->n_elements == 0)
		return MC_FAULT_NONE;
	return c->ring.op == MC_OP_COMBINE_RMSNORM ? combine_rmsnorm(c) : combine_plain(c);
}

int mc_host_combine(struct mc_host_rank *rank, uint32_t channel, const struct mc_combine *op,
	struct mc_fault *ret_fault)
{
	struct combine c = {.op = op, .element_bytes = mc_dtype_bytes(op->dtype)};
	uint32_t rows[MC_MAX_WORLD_SIZE];
	uint64_t saved;
	int status;

	status = mc_ring_enter(&c.ring, rank, channel, mc_combine_kind(op), op->digest, ret_fault);
	if (!status)
		status = read_rows(&c.ring, op, rows);
	if (status)
		return status;
	saved = mc_number_begin();
	status = exchange(&c, rows);
	mc_number_end(saved);
	return status ? status : mc_ring_leave(&c.ring);
}
