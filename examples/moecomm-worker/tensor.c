/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>

static int host_alloc(struct tensor_space *space, size_t n_bytes, struct tensor *ret_tensor)
{
	/* 16-byte aligned tensors take the ops' fast case; a tensor of nothing is memory all the
	 * same */
	size_t rounded = (n_bytes + 64) / 64 * 64;
	void *memory = aligned_alloc(64, rounded);

	(void)space;
	if (!memory) {
		fprintf(stderr, "moecomm-worker: out of memory for a tensor of %zu bytes\n",
			n_bytes);
		return -1;
	}
	*ret_tensor = (struct tensor){.host = memory, .device = memory, .n_bytes = n_bytes};
	return 0;
}

static void host_free(struct tensor_space *space, struct tensor *tensor)
{
	(void)space;
	free(tensor->host);
	*tensor = (struct tensor){0};
}

static int host_copy(struct tensor_space *space, const struct tensor *tensor, size_t n_bytes)
{
	(void)space;
	(void)tensor;
	(void)n_bytes;
	return 0;
}

static int host_wait(struct tensor_space *space)
{
	(void)space;
	return 0; /* an op on the host backend is complete on return */
}

static struct tensor_space *host_close(struct tensor_space *space)
{
	(void)space;
	return NULL;
}

struct tensor_space *tensor_host_open(void)
{
	static struct tensor_space host = {
		.alloc = host_alloc,
		.free = host_free,
		.upload = host_copy,
		.download = host_copy,
		.wait = host_wait,
		.close = host_close,
	};

	return &host;
}

struct tensor_space *tensor_space_open(enum moecomm_backend backend, int device)
{
	return backend == MOECOMM_BACKEND_CUDA ? tensor_cuda_open(device) : tensor_host_open();
}
