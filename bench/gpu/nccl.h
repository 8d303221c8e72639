/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, opened at run time; declared here so that no header of it is needed to build. */
#ifndef MC_BENCH_GPU_NCCL_H
#define MC_BENCH_GPU_NCCL_H

#include <stddef.h>
#include <cuda_runtime_api.h>

typedef struct {
	char internal[128];
} bench_nccl_id;

enum {
	BENCH_NCCL_UINT8 = 1,
	BENCH_NCCL_FLOAT16 = 6,
	BENCH_NCCL_FLOAT32 = 7,
	BENCH_NCCL_BFLOAT16 = 9,
	BENCH_NCCL_SUM = 0,
	BENCH_NCCL_WIN_SYMMETRIC = 1,
};

struct bench_nccl {
	void *library;
	int version;
	int (*get_version)(int *ret_version);
	const char *(*error_string)(int result);
	int (*unique_id)(bench_nccl_id *ret_id);
	int (*init_rank)(void **ret_comm, int n_ranks, bench_nccl_id id, int rank);
	int (*all_gather)(const void *send, void *receive, size_t n_send, int type, void *comm,
		cudaStream_t stream);
	int (*reduce_scatter)(const void *send, void *receive, size_t n_receive, int type, int op,
		void *comm, cudaStream_t stream);
	/* NULL before NCCL 2.27 */
	int (*memory_alloc)(void **ret_memory, size_t n_bytes);
	int (*window_register)(
		void *comm, void *memory, size_t n_bytes, void **ret_window, int flags);
};

/* Returns 0, or -1 with a sentence. */
int bench_nccl_open(const char *library, struct bench_nccl *ret_nccl, char *ret_why, size_t n_why);

#endif
