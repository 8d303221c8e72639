/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of tensors. moecomm's ops take pointers where the group's backend can use them: any memory
 * on the host backend, device memory on cuda. This example computes on the CPU in both cases, so a
 * tensor has a side for the CPU and a side for the ops, which are the same memory on the host
 * backend; upload and download copy between them on cuda and do nothing on host.
 */
#ifndef WORKER_TENSOR_H
#define WORKER_TENSOR_H

#include <stddef.h>
#include <moecomm.h>

struct tensor {
	void *host;
	void *device;
	size_t n_bytes;
};

/* Each returns 0, or -1 after telling on stderr what failed. */
struct tensor_space {
	void *stream; /* what ops are enqueued on; a cudaStream_t, NULL on host */
	int (*alloc)(struct tensor_space *space, size_t n_bytes, struct tensor *ret_tensor);
	void (*free)(
		struct tensor_space *space, struct tensor *tensor); /* an all-zero one is allowed */
	int (*upload)(struct tensor_space *space, const struct tensor *tensor, size_t n_bytes);
	int (*download)(struct tensor_space *space, const struct tensor *tensor, size_t n_bytes);
	int (*wait)(struct tensor_space *space); /* until all that is enqueued on stream is done */
	struct tensor_space *(*close)(struct tensor_space *space); /* returns NULL */
};

/* device: CUDA ordinal. Returns NULL after telling on stderr what failed. */
struct tensor_space *tensor_space_open(enum moecomm_backend backend, int device);

/* One a file; tensor_space_open picks. */
struct tensor_space *tensor_host_open(void);
struct tensor_space *tensor_cuda_open(int device);

/* How many CUDA devices this process sees; 0 without a driver. */
int tensor_cuda_devices(void);

#endif
