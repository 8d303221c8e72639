/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include "bench/failures/memory.h"

static int told(cudaError_t error, const char *call)
{
	if (error == cudaSuccess)
		return 0;
	fprintf(stderr, "moecomm-bench: %s: %s\n", call, cudaGetErrorString(error));
	return -1;
}

#define TOLD(call) told(call, #call)

int mc_failures_cuda_open(
	int device, size_t n_input, size_t n_output, struct mc_failures_memory *ret_memory)
{
	struct mc_failures_memory memory = {.on_gpu = true};
	cudaStream_t stream = NULL;

	if (TOLD(cudaSetDevice(device)) ||
		TOLD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) ||
		TOLD(cudaMallocHost((void **)&memory.input, n_input)) ||
		TOLD(cudaMallocHost((void **)&memory.output, n_output)) ||
		TOLD(cudaMalloc(&memory.op_input, n_input)) ||
		TOLD(cudaMalloc(&memory.op_output, n_output))) {
		memory.stream = stream;
		mc_failures_cuda_close(&memory);
		return -1;
	}
	memory.stream = stream;
	*ret_memory = memory;
	return 0;
}

int mc_failures_cuda_send(struct mc_failures_memory *memory, size_t n_bytes)
{
	return TOLD(cudaMemcpyAsync(
		memory->op_input, memory->input, n_bytes, cudaMemcpyHostToDevice, memory->stream));
}

int mc_failures_cuda_receive(struct mc_failures_memory *memory, size_t n_bytes)
{
	if (TOLD(cudaMemcpyAsync(memory->output, memory->op_output, n_bytes, cudaMemcpyDeviceToHost,
		    memory->stream)))
		return -1;
	return TOLD(cudaStreamSynchronize(memory->stream));
}

void mc_failures_cuda_close(struct mc_failures_memory *memory)
{
	cudaFreeHost(memory->input);
	cudaFreeHost(memory->output);
	cudaFree(memory->op_input);
	cudaFree(memory->op_output);
	if (memory->stream)
		cudaStreamDestroy(memory->stream);
}

int mc_failures_cuda_count(void)
{
	int n = 0;

	return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}
