/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that has nothing to do with the library. */
#include <stdint.h>
#include <cuda_runtime_api.h>

static __global__ void touch(uint32_t *numbers, int n)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

	if (i < n)
		numbers[i] = numbers[i] * 3u + (uint32_t)i;
}

extern "C" int work_touch(uint32_t *numbers, int n, cudaStream_t stream)
{
	touch<<<(n + 127) / 128, 128, 0, stream>>>(numbers, n);
	return (int)cudaGetLastError();
}
