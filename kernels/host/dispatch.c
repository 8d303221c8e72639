/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch: every rank's rows arrive on every rank, bit for bit. A sender's tensors lie one after
 * the other in its slot, each as rows × row_bytes contiguous bytes from a vector boundary.
 */
#include "kernels/host/fault.h"
#include "kernels/host/ring.h"

/* Counts may have any alignment. */
static int32_t count_at(const int32_t *counts, uint32_t i)
{
	int32_t count;

	memcpy(&count, (const uint8_t *)counts + i * sizeof(count), sizeof(count));
	return count;
}

static void place_count(int32_t *counts, uint32_t i, uint32_t rows)
{
	int32_t count = (int32_t)rows;

	memcpy((uint8_t *)counts + i * sizeof(count), &count, sizeof(count));
}

static uint64_t packed_vectors(const struct mc_dispatch *op, uint32_t rows)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < op->n_tensors; i++)
		n += mc_vectors(rows * op->tensor[i].row_bytes);
	return n;
}

static int push_all(struct mc_ring *ring, const struct mc_dispatch *op, uint32_t rows)
{
	uint32_t world_size = ring->host->layout.world_size;

	for (uint32_t step = 1; step < world_size; step++) {
		uint32_t peer = mc_ring_push_peer(ring, step);
		uint64_t vector = 0;
		int status = mc_ring_push_header(ring, peer, rows);

		for (uint32_t i = 0; !status && i < op->n_tensors; i++) {
			uint64_t n_bytes = rows * op->tensor[i].row_bytes;

			status = mc_ring_push(ring, peer, vector, op->tensor[i].input, n_bytes);
			vector += mc_vectors(n_bytes);
		}
		if (status)
			return status;
	}
	return MC_FAULT_NONE;
}

/* Where rank r's block starts in the output of tensor i. */
static uint8_t *block(const struct mc_dispatch *op, uint32_t i, uint32_t r)
{
	uint64_t row = 0;

	for (uint32_t p = 0; p < r; p++)
		row += op->rows[p];
	return (uint8_t *)op->tensor[i].output + row * op->tensor[i].row_bytes;
}

/* What a block of `rows` valid rows leaves to be done. */
static void finish_block(const struct mc_dispatch *op, uint32_t r, uint32_t rows)
{
	if (op->count && op->ids_tensor >= 0 && rows < op->rows[r]) {
		uint32_t i = (uint32_t)op->ids_tensor;
		uint64_t row_bytes = op->tensor[i].row_bytes;

		/* all bits set is -1 in every int32 */
		memset(block(op, i, r) + rows * row_bytes, 0xff, (op->rows[r] - rows) * row_bytes);
	}
	if (op->ret_counts)
		place_count(op->ret_counts, r, rows);
}

static int take_block(struct mc_ring *ring, const struct mc_dispatch *op, uint32_t peer)
{
	uint64_t vector = 0;
	uint32_t rows;
	int status = mc_ring_take_header(ring, peer, op->rows[peer], op->count != NULL, &rows);

	for (uint32_t i = 0; !status && i < op->n_tensors; i++) {
		uint64_t n_bytes = rows * op->tensor[i].row_bytes;

		status = mc_ring_take(
			ring, peer, vector, n_bytes, 0, n_bytes, false, block(op, i, peer));
		vector += mc_vectors(n_bytes);
	}
	if (!status)
		finish_block(op, peer, rows);
	return status;
}

int mc_host_dispatch(struct mc_host_rank *rank, uint32_t channel, const struct mc_dispatch *op,
	struct mc_fault *ret_fault)
{
	uint32_t self = rank->rank, world_size = rank->layout.world_size;
	uint32_t rows = op->rows[self];
	struct mc_ring ring;
	struct mc_fault fault;
	int status;

	status = mc_ring_enter(&ring, rank, channel, MC_OP_DISPATCH, op->digest, ret_fault);
	if (status)
		return status;
	if (op->count) {
		int32_t count = count_at(op->count, 0);

		if (count < 0 || (uint32_t)count > rows) {
			fault = mc_fault_make(&ring, MC_FAULT_BAD_COUNT, self);
			return mc_fault_raise(&ring, &fault);
		}
		rows = (uint32_t)count;
	}
	mc_ring_post(&ring, (world_size - 1u) * (1u + packed_vectors(op, rows)));

	status = push_all(&ring, op, rows);
	if (status)
		return status;
	/* between push and take, while the peers' data travels */
	for (uint32_t i = 0; i < op->n_tensors; i++) {
		uint8_t *to = block(op, i, self);

		if (rows > 0 && to != op->tensor[i].input)
			memmove(to, op->tensor[i].input, rows * op->tensor[i].row_bytes);
	}
	finish_block(op, self, rows);
	for (uint32_t step = 1; step < world_size; step++) {
		status = take_block(&ring, op, mc_ring_take_peer(&ring, step));
		if (status)
			return status;
	}
	return mc_ring_leave(&ring);
}
