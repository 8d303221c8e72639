/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kernel_lab/floor.h"
#include "kernels/cuda/vector.cuh"

__global__ void empty_kernel()
{
}

__global__ void push_kernel(uint8_t *to, uint64_t n_vectors)
{
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n_vectors; i += step)
		mc_store(to + i * 16u, make_uint4((uint32_t)i, 1, 2, 3));
}

__global__ void ping_kernel(uint32_t *mine, uint32_t *peer, uint32_t n, int first)
{
	for (uint32_t i = 1; i <= n; i++) {
		if (first)
			mc_store_word(peer, i);
		for (uint32_t spins = 0; mc_load_word(mine) != i; spins++)
			if (spins > 20000000u)
				return;
		if (!first)
			mc_store_word(peer, i);
	}
}

__global__ void tear_write_kernel(uint8_t *to, uint32_t n_vectors, uint32_t n_rounds)
{
	const uint32_t step = gridDim.x * blockDim.x;

	for (uint32_t round = 1; round <= n_rounds; round++)
		for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n_vectors; i += step) {
			uint32_t w = round * 0x9e3779b9u + i;

			mc_store(to + i * 16u, make_uint4(w, w, w, w));
		}
}

__global__ void tear_read_kernel(
	const uint8_t *from, uint32_t n_vectors, uint32_t n_rounds, unsigned long long *counts)
{
	const uint32_t step = gridDim.x * blockDim.x;
	unsigned long long n = 0, torn = 0;

	for (uint32_t round = 1; round <= n_rounds; round++)
		for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n_vectors; i += step) {
			uint4 v = mc_load(from + i * 16u);

			n++;
			torn += v.x != v.y || v.x != v.z || v.x != v.w;
		}
	atomicAdd(&counts[0], n);
	atomicAdd(&counts[1], torn);
}

int mc_floor_empty(uint32_t n_ctas, uint32_t n_threads, void *stream)
{
	empty_kernel<<<n_ctas, n_threads, 0, (cudaStream_t)stream>>>();
	return cudaGetLastError();
}

int mc_floor_push(void *to, uint64_t n_bytes, uint32_t n_ctas, void *stream)
{
	push_kernel<<<n_ctas, 512, 0, (cudaStream_t)stream>>>((uint8_t *)to, n_bytes / 16u);
	return cudaGetLastError();
}

int mc_floor_ping(uint32_t *mine, uint32_t *peer, uint32_t n, int first, void *stream)
{
	ping_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(mine, peer, n, first);
	return cudaGetLastError();
}

int mc_floor_tear_write(void *to, uint32_t n_vectors, uint32_t n_rounds, void *stream)
{
	tear_write_kernel<<<32, 256, 0, (cudaStream_t)stream>>>((uint8_t *)to, n_vectors, n_rounds);
	return cudaGetLastError();
}

int mc_floor_tear_read(const void *from, uint32_t n_vectors, uint32_t n_rounds,
	unsigned long long *ret_counts, void *stream)
{
	tear_read_kernel<<<32, 256, 0, (cudaStream_t)stream>>>(
		(const uint8_t *)from, n_vectors, n_rounds, ret_counts);
	return cudaGetLastError();
}
