/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/failures/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MC_BENCH_HAVE_CUDA
int mc_failures_cuda_open(
	int device, size_t n_input, size_t n_output, struct mc_failures_memory *ret_memory)
{
	(void)device, (void)n_input, (void)n_output, (void)ret_memory;
	fprintf(stderr, "moecomm-bench: this build has no CUDA\n");
	return -1;
}

int mc_failures_cuda_send(struct mc_failures_memory *memory, size_t n_bytes)
{
	(void)memory, (void)n_bytes;
	return -1;
}

int mc_failures_cuda_receive(struct mc_failures_memory *memory, size_t n_bytes)
{
	(void)memory, (void)n_bytes;
	return -1;
}

void mc_failures_cuda_close(struct mc_failures_memory *memory)
{
	(void)memory;
}

int mc_failures_cuda_count(void)
{
	return 0;
}
#endif

int mc_failures_memory_open(
	int device, size_t n_input, size_t n_output, struct mc_failures_memory *ret_memory)
{
	struct mc_failures_memory memory = {0};

	if (device >= 0)
		return mc_failures_cuda_open(device, n_input, n_output, ret_memory);
	memory.op_input = memory.input = malloc(n_input);
	memory.op_output = memory.output = malloc(n_output);
	if (!memory.input || !memory.output) {
		fprintf(stderr, "moecomm-bench: out of memory\n");
		mc_failures_memory_close(&memory);
		return -1;
	}
	*ret_memory = memory;
	return 0;
}

int mc_failures_memory_send(struct mc_failures_memory *memory, size_t n_bytes)
{
	return memory->on_gpu ? mc_failures_cuda_send(memory, n_bytes) : 0;
}

int mc_failures_memory_receive(struct mc_failures_memory *memory, size_t n_bytes)
{
	return memory->on_gpu ? mc_failures_cuda_receive(memory, n_bytes) : 0;
}

void mc_failures_memory_close(struct mc_failures_memory *memory)
{
	if (memory->on_gpu) {
		mc_failures_cuda_close(memory);
	} else {
		free(memory->input);
		free(memory->output);
	}
	*memory = (struct mc_failures_memory){0};
}

int mc_failures_count_gpus(void)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(mc_failures_cuda_count());
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}
