/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank's tensors lie: in its own memory, or on a GPU with a copy of them here. */
#ifndef MC_BENCH_FAILURES_MEMORY_H
#define MC_BENCH_FAILURES_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_failures_memory {
	bool on_gpu;
	uint8_t *input, *output;    /* for the CPU */
	void *op_input, *op_output; /* for the ops */
	void *stream;
};

/* device: a GPU's ordinal; -1: no GPU. Each returns 0, or -1 after telling why. */
int mc_failures_memory_open(
	int device, size_t n_input, size_t n_output, struct mc_failures_memory *ret_memory);
/* Enqueues the first bytes of the input to where the ops read them. */
int mc_failures_memory_send(struct mc_failures_memory *memory, size_t n_bytes);
/* Waits for what was enqueued, and has the first bytes of the output here. */
int mc_failures_memory_receive(struct mc_failures_memory *memory, size_t n_bytes);
void mc_failures_memory_close(struct mc_failures_memory *memory);
/* GPUs of this machine, asked for in a process of its own: what forks later may not have CUDA. */
int mc_failures_count_gpus(void);

/* memory_cuda.c, where CUDA is built: the same for GPUs. */
int mc_failures_cuda_open(
	int device, size_t n_input, size_t n_output, struct mc_failures_memory *ret_memory);
int mc_failures_cuda_send(struct mc_failures_memory *memory, size_t n_bytes);
int mc_failures_cuda_receive(struct mc_failures_memory *memory, size_t n_bytes);
void mc_failures_cuda_close(struct mc_failures_memory *memory);
int mc_failures_cuda_count(void);

#endif
