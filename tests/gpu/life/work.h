/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's tensors, its stream, its graph, and what must be in them. */
#ifndef MC_GPU_LIFE_WORK_H
#define MC_GPU_LIFE_WORK_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <moecomm.h>

#define WORK_ROWS      8
#define WORK_ROW_BYTES 1024
#define WORK_HIDDEN    512

struct work {
	int rank, world_size;
	cudaStream_t stream;
	cudaGraphExec_t graph; /* NULL: not captured yet */
	uint64_t round;
	bool is_first; /* of an epoch: the ranks may have come to different rounds */
	/* pinned, and the same on the device */
	uint8_t *rows, *rows_device;         /* [ROWS, ROW_BYTES] */
	uint8_t *gathered, *gathered_device; /* [world_size, ROWS, ROW_BYTES] */
	uint16_t *parts, *parts_device;      /* bf16 [world_size, ROWS, HIDDEN] */
	uint16_t *sums, *sums_device;        /* bf16 [ROWS, HIDDEN] */
	uint32_t *plain, *plain_device;      /* for what has nothing to do with the library */
};

/* Each returns a cudaError_t number. */
int work_open(struct work *work, int rank, int world_size, int device);
int work_capture(struct work *work, moecomm_group *group, enum moecomm_status *ret_status);
/* One round, to its end. ret_status: of the ops' calls; OK for a graph. */
int work_run(
	struct work *work, moecomm_group *group, bool use_graph, enum moecomm_status *ret_status);
int work_replay(struct work *work);
/* A kernel and copies of our own: they must run whatever has failed before. */
int work_plain(struct work *work);
/* One dispatch of another shape, to its end. */
int work_wrong(struct work *work, moecomm_group *group, enum moecomm_status *ret_status);
void work_close(struct work *work);

/* Whether all outputs are right; goes on to the next round. */
bool work_verify(struct work *work);

/* touch.cu */
int work_touch(uint32_t *numbers, int n, cudaStream_t stream);

#endif
