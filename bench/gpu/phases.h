/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank's process does in each phase of a run. Each returns false after bench_abort. */
#ifndef MC_BENCH_GPU_PHASES_H
#define MC_BENCH_GPU_PHASES_H

#include "bench/gpu/measure.h"

/* Empty kernel, one-way latency, push bandwidth. */
bool bench_phase_floors(struct bench_rank *rank);
/* Our ops, through the daemon. */
bool bench_phase_ours(struct bench_rank *rank);
/* NCCL, with plain buffers and with symmetric windows; mixing tells the variant's name only. */
bool bench_phase_nccl(struct bench_rank *rank, bool mixing);

#endif
