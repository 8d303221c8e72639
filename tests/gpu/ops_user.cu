/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/ops_user.h"

__global__ void copy(uint4 *to, const uint4 *from, uint64_t n, uint64_t delay_ns, int dependent)
{
	uint64_t begin, now;

#if __CUDA_ARCH__ >= 900
	if (dependent)
		asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < delay_ns);
	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
		i += (uint64_t)gridDim.x * blockDim.x)
		to[i] = from[i];
}

cudaError_t user_copy(void *to, const void *from, uint64_t n_bytes, uint32_t delay_us,
	int dependent, cudaStream_t stream)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute = {};

	config.gridDim = dim3(4);
	config.blockDim = dim3(256);
	config.stream = stream;
	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.attrs = &attribute;
	config.numAttrs = dependent ? 1 : 0;
	return cudaLaunchKernelEx(&config, copy, (uint4 *)to, (const uint4 *)from, n_bytes / 16u,
		delay_us * UINT64_C(1000), dependent);
}
