/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of squares of a row in the order of docs/numerics.md, fed piece by piece. Every piece but
 * the last must be a multiple of MC_RMSNORM_GROUP elements.
 */
#ifndef MC_KERNELS_HOST_RMSNORM_H
#define MC_KERNELS_HOST_RMSNORM_H

#include <stdint.h>

#define MC_RMSNORM_LANES 32u
#define MC_RMSNORM_RUN   8u /* consecutive elements of a lane */
#define MC_RMSNORM_GROUP (MC_RMSNORM_LANES * MC_RMSNORM_RUN)

struct mc_rmsnorm {
	float lane[MC_RMSNORM_LANES]; /* sums of group sums; all 0 to begin with */
	uint64_t n_groups;
};

void mc_rmsnorm_add(struct mc_rmsnorm *norm, const float *x, uint64_t n);
/* 1 / sqrt(sum of squares / hidden + eps), each step rounded to fp32. */
float mc_rmsnorm_scale(const struct mc_rmsnorm *norm, uint64_t hidden, float eps);

#endif
