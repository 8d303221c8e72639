/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the daemon and its arming helper (moecomm-arm), over a socketpair of type SEQPACKET that
 * is the helper's standard input: one request, one reply, the reply with the fds. Both ends come
 * from one build on one machine, so the structures travel as they are; magic, version and size
 * guard against a helper of another release.
 */
#ifndef MC_CUDA_ARM_PROTOCOL_H
#define MC_CUDA_ARM_PROTOCOL_H

#include <stdint.h>
#include "kernels/lamport.h"

#define MC_ARM_MAGIC   0x6d726163u
#define MC_ARM_VERSION 1u

/* "GPU-" or "MIG-" and 36 characters; as long as in struct mc_arm_request. */
#define MC_ARM_UUID_BYTES   68u
#define MC_ARM_DETAIL_BYTES 512u
/* More than any host has (16 GPUs of 7 MIG slices would be seen one slice at a time). */
#define MC_ARM_MAX_GPUS 32u
/* A control block and an arena a rank; below the kernel's 253 fds of one message. */
#define MC_ARM_MAX_FDS (2u * MC_MAX_WORLD_SIZE)
MC_STATIC_ASSERT(MC_ARM_MAX_FDS <= 253u, "all fds fit one message");

enum mc_arm_kind {
	MC_ARM_KIND_ARM = 1,
	MC_ARM_KIND_PROBE = 2,
};

struct mc_arm_wire_request {
	uint32_t magic;
	uint32_t version;
	uint32_t size; /* of this structure */
	uint32_t kind; /* enum mc_arm_kind; the rest is for MC_ARM_KIND_ARM */
	uint32_t world_size;
	uint32_t reserved;
	uint64_t epoch;
	uint64_t arena_bytes;   /* of one rank, as the layout needs */
	uint64_t control_bytes; /* MC_CONTROL_BYTES */
	struct mc_vector sentinel;
	char uuid[MC_MAX_WORLD_SIZE][MC_ARM_UUID_BYTES]; /* terminated */
};
MC_STATIC_ASSERT(sizeof(struct mc_arm_wire_request) == 64 + 64 * 68, "no hidden padding");

/*
 * Answer to MC_ARM_KIND_ARM. On success 2 × world_size fds come along: control block and arena of
 * rank 0, control block and arena of rank 1, …
 */
struct mc_arm_wire_reply {
	uint32_t magic;
	uint32_t version;
	uint32_t size;
	uint32_t status; /* enum mc_status */
	uint32_t n_fds;
	uint32_t rank;          /* whose memory failed; UINT32_MAX: nobody's in particular */
	uint64_t arena_bytes;   /* as allocated, the same for all ranks */
	uint64_t control_bytes; /* as allocated */
	uint32_t init_ms;       /* driver and contexts */
	uint32_t fill_ms;
	uint32_t verify_ms;
	uint32_t reserved;
	char detail[MC_ARM_DETAIL_BYTES]; /* terminated; the driver's call, error name and text */
};
MC_STATIC_ASSERT(sizeof(struct mc_arm_wire_reply) == 56 + 512, "no hidden padding");

/* What stands between the daemon and a GPU. */
enum mc_gpu_state {
	MC_GPU_STATE_OK = 0,
	MC_GPU_STATE_NO_DRIVER = 1, /* libcuda.so.1 can't be loaded */
	MC_GPU_STATE_NO_NODES = 2,  /* a driver library, but no device nodes */
	MC_GPU_STATE_DENIED = 3,    /* device nodes that may not be opened: a sandbox */
	MC_GPU_STATE_NO_GPU = 4,    /* a working driver without a GPU */
	MC_GPU_STATE_ERROR = 5,     /* the driver reports an error */
	MC_GPU_STATE_NO_HELPER =
		6,                /* the helper itself is missing or broken (daemon's side only) */
	MC_GPU_STATE_UNKNOWN = 7, /* not asked yet (daemon's side only) */
};

struct mc_arm_gpu {
	char uuid[MC_ARM_UUID_BYTES];
	char name[92];
	uint64_t memory_bytes;
	uint32_t compute_major;
	uint32_t compute_minor;
	uint32_t is_mig;
	uint32_t can_arm; /* virtual memory management with POSIX fds is supported */
};
MC_STATIC_ASSERT(sizeof(struct mc_arm_gpu) == 160 + 24, "no hidden padding");

struct mc_arm_wire_probe {
	uint32_t magic;
	uint32_t version;
	uint32_t size;
	uint32_t state;          /* enum mc_gpu_state */
	uint32_t driver_version; /* as cuDriverGetVersion: 1000 × major + 10 × minor */
	uint32_t n_gpus;
	char detail[MC_ARM_DETAIL_BYTES]; /* terminated; why state is not OK */
	struct mc_arm_gpu gpu[MC_ARM_MAX_GPUS];
};
MC_STATIC_ASSERT(sizeof(struct mc_arm_wire_probe) == 24 + 512 + 32 * 184, "no hidden padding");

#endif
