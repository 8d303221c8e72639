/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-ops: failures, each named on every rank. */
#include <stdio.h>
#include "tests/gpu/ops.h"

static const struct mc_wait_line short_wait = {
	.op_timeout_ms = 200, .warmup_timeout_ms = 200, .warmup_calls = 0};

static const struct mc_fault *fault_of(uint32_t r)
{
	return &fixture->board->rank[r].fault;
}

static void small_dispatch(uint32_t rows)
{
	static const uint64_t four[] = {3584, 448, 32, 32};
	size_t n = make_dispatch(4, four, rows, UNIFORM, false, false);

	for (uint32_t r = 0; r < world_size; r++)
		ranks[r].channel = 0;
	upload(n);
}

static void fails_with(uint32_t r, uint32_t status, uint32_t peer, const char *what)
{
	char text[200];

	snprintf(text, sizeof(text), "%s: rank %u has status %u (want %u), peer %u (want %u)", what,
		r, fault_of(r)->status, status, fault_of(r)->peer, peer);
	expect(fault_of(r)->status == status && fault_of(r)->peer == peer, text);
}

static void enqueue_all_but(uint32_t except)
{
	for (uint32_t r = 0; r < world_size; r++)
		if (r != except) {
			CHECK(cudaSetDevice(device_of(r)));
			enqueue(r);
		}
}

void failure_cases(void)
{
	const uint32_t last = world_size - 1u;
	struct mc_control control;
	double begin;

	/* a rank that does not come is named by all within its deadline */
	begin_epoch(&short_wait);
	small_dispatch(3);
	enqueue_all_but(UINT32_MAX);
	wait_streams(5000);
	begin = now_ms();
	enqueue_all_but(last);
	wait_streams(3000);
	expect(now_ms() - begin < 200 * 1.1 + 100, "a timeout comes in time");
	for (uint32_t r = 0; r < last; r++)
		fails_with(r, MC_FAULT_TIMEOUT, last, "skipped op");
	expect(fault_of(0)->call == 2 && fault_of(0)->theirs[0] == 1,
		"the record tells who is where");
	begin = now_ms();
	enqueue_all_but(last);
	wait_streams(1000);
	expect(now_ms() - begin < 50, "later ops return at once");
	end_epoch();

	/* ranks whose shapes differ */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	for (uint32_t t = 0; t < 4; t++)
		ranks[last].dispatch.tensor[t].row_bytes /= 2;
	ranks[last].dispatch.digest = mc_dispatch_digest(&ranks[last].dispatch, world_size);
	begin = now_ms();
	enqueue_all_but(UINT32_MAX);
	wait_streams(3000);
	expect(now_ms() - begin < 1000, "a mismatch does not wait for the deadline");
	for (uint32_t r = 0; r < world_size; r++)
		expect(fault_of(r)->status == MC_FAULT_MISMATCH,
			"shapes that differ are a mismatch");
	expect(fault_of(last)->mine[1] != fault_of(last)->theirs[1],
		"both sides' digests are told");
	end_epoch();

	/* an abort while they spin */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	enqueue_all_but(last);
	usleep(20000);
	begin = now_ms();
	__atomic_store_n(&fixture->board->wait.abort_word,
		mc_abort_word(MC_FAULT_PEER_LOST, last + 1u), __ATOMIC_RELEASE);
	wait_streams(3000);
	printf("  abort to exit: %.2f ms\n", now_ms() - begin);
	for (uint32_t r = 0; r < last; r++)
		fails_with(r, MC_FAULT_PEER_LOST, last, "abort word");
	end_epoch();

	/* poison while they spin */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	enqueue_all_but(last);
	usleep(20000);
	begin = now_ms();
	for (uint32_t r = 0; r < last; r++)
		BACKEND->poison(ranks[r].backend, MC_FAULT_ABORTED);
	wait_streams(3000);
	printf("  poison to exit: %.2f ms\n", now_ms() - begin);
	end_epoch();

	/* a payload that equals the sentinel */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	CHECK(cudaSetDevice(0));
	CHECK(cudaMemcpy((uint8_t *)(uintptr_t)ranks[0].dispatch.tensor[0].input + 160,
		&fixture->sentinel, 16, cudaMemcpyHostToDevice));
	CHECK(cudaDeviceSynchronize());
	enqueue_all_but(UINT32_MAX);
	wait_streams(3000);
	fails_with(0, MC_FAULT_SENTINEL, 0, "payload is the sentinel");
	end_epoch();

	/* a damaged control block */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	CHECK(cudaSetDevice(fixture->device[0]));
	CHECK(cudaMemcpy(&control, fixture->control[0], sizeof(control), cudaMemcpyDeviceToHost));
	control.canary_tail ^= 1u;
	CHECK(cudaMemcpy(fixture->control[0], &control, sizeof(control), cudaMemcpyHostToDevice));
	CHECK(cudaDeviceSynchronize());
	enqueue_all_but(UINT32_MAX);
	wait_streams(3000);
	expect(fault_of(0)->status == MC_FAULT_CORRUPT, "a damaged canary is reported");
	end_epoch();

	/* counts out of range */
	for (int i = 0; i < 2; i++) {
		int32_t bad = i ? 4 : -1;

		begin_epoch(&relaxed_wait);
		small_dispatch(3);
		for (uint32_t r = 0; r < world_size; r++) {
			int32_t *count = (int32_t *)(ranks[r].device + BUFFER_BYTES - 64u);
			int32_t value = r == 0 ? bad : 2;

			CHECK(cudaSetDevice(fixture->device[r]));
			CHECK(cudaMemcpy(count, &value, 4, cudaMemcpyHostToDevice));
			CHECK(cudaDeviceSynchronize());
			ranks[r].dispatch.count = count;
			ranks[r].dispatch.digest =
				mc_dispatch_digest(&ranks[r].dispatch, world_size);
		}
		enqueue_all_but(UINT32_MAX);
		wait_streams(3000);
		fails_with(0, MC_FAULT_BAD_COUNT, 0, "count out of range");
		end_epoch();
	}
}
