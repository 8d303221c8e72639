/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that the driver shows: listing, UUIDs, and why there are none. */
#ifndef MC_CUDA_ARM_GPU_H
#define MC_CUDA_ARM_GPU_H

#include "daemon/backends/cuda/arm/driver.h"
#include "daemon/backends/cuda/arm_protocol.h"

/*
 * Opens and initialises the driver. Returns MC_GPU_STATE_OK, or another enum mc_gpu_state and a
 * sentence that says what to do.
 */
enum mc_gpu_state mc_gpu_open(struct mc_cu *ret_cu, char *detail, size_t n_detail);

/* Fills *ret_probe whatever the state of the machine. */
void mc_gpu_probe(struct mc_arm_wire_probe *ret_probe);

/* "GPU-xxxxxxxx-…" or, for a MIG slice, "MIG-…". */
void mc_gpu_uuid_text(const struct mc_cu_uuid *uuid, int is_mig, char ret_text[MC_ARM_UUID_BYTES]);
/* 0, or -EINVAL when the text is no UUID. The prefix may be "GPU-", "MIG-" or missing. */
int mc_gpu_uuid_parse(const char *text, struct mc_cu_uuid *ret_uuid);

/* Whether a device is a MIG slice; the driver says so in its name only. */
int mc_gpu_is_mig(const struct mc_cu *cu, mc_cu_device device);

#endif
