/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops on different channels may be on the device at once, in any order: here each rank has one on
 * each channel, large ones, and every other rank starts them the other way round. If they took more
 * room than there is, each rank's first op would wait for one that finds none behind the other.
 */
#include <stdio.h>
#include "tests/gpu/ops.h"

/* The same op on all channels, into the same outputs: their bytes are the same. */
static void run(size_t n_bytes, const char *what)
{
	cudaStream_t streams[MAX_RANKS][N_CHANNELS];
	char text[120];

	upload(n_bytes);
	for (uint32_t r = 0; r < world_size; r++) {
		CHECK(cudaSetDevice(device_of(r)));
		streams[r][0] = ranks[r].stream;
		for (uint32_t c = 1; c < N_CHANNELS; c++)
			CHECK(cudaStreamCreateWithFlags(&streams[r][c], cudaStreamNonBlocking));
	}
	for (int i = 0; i < 20; i++) {
		for (uint32_t n = 0; n < N_CHANNELS; n++)
			for (uint32_t r = 0; r < world_size; r++) {
				CHECK(cudaSetDevice(device_of(r)));
				ranks[r].channel = r % 2 ? N_CHANNELS - 1u - n : n;
				ranks[r].stream = streams[r][ranks[r].channel];
				enqueue(r);
			}
		for (uint32_t c = 0; c < N_CHANNELS; c++) {
			for (uint32_t r = 0; r < world_size; r++)
				ranks[r].stream = streams[r][c];
			wait_streams(20000);
		}
	}
	for (uint32_t r = 0; r < world_size; r++) {
		ranks[r].stream = streams[r][0];
		ranks[r].channel = 0;
		CHECK(cudaSetDevice(device_of(r)));
		for (uint32_t c = 1; c < N_CHANNELS; c++)
			CHECK(cudaStreamDestroy(streams[r][c]));
	}
	run_twins();
	snprintf(text, sizeof(text), "%s on %u channels at once", what, N_CHANNELS);
	compare(n_bytes, text);
}

void channel_cases(void)
{
	static const uint64_t four[] = {3584, 448, 32, 32};
	const uint32_t rows = 256u * 2u / world_size;

	run(make_dispatch(4, four, 256, UNIFORM, false, false), "uniform dispatch");
	run(make_dispatch(4, four, 256, RAGGED, false, false), "ragged dispatch");
	if (world_size > 8)
		return;
	run(make_combine(MC_DTYPE_BF16, 7168, rows, UNIFORM, false, false, false, false),
		"combine");
	run(make_combine(MC_DTYPE_BF16, 7168, rows, UNIFORM, false, true, false, false),
		"misaligned combine");
	run(make_combine(MC_DTYPE_BF16, 7168, rows, UNIFORM, true, false, false, false), "norm");
	run(make_combine(MC_DTYPE_BF16, 7168, 16, UNIFORM, true, false, false, false),
		"norm of few rows");
}
