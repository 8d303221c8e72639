/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/rmsnorm.h"

#include <math.h>
#include <string.h>

/*
 * The butterfly v[l] = v[l] + v[l ^ m], m = 1, 2, 4, 8, 16, as lane 0 sees it. Every lane ends with
 * the same bits, because addition commutes.
 */
static float butterfly(const float *lane)
{
	float v[MC_RMSNORM_LANES];

	memcpy(v, lane, sizeof(v));
	for (uint32_t m = 1; m < MC_RMSNORM_LANES; m *= 2)
		for (uint32_t l = 0; l < MC_RMSNORM_LANES; l += 2 * m)
			v[l] = v[l] + v[l + m];
	return v[0];
}

static float group_sum(const float *x)
{
	float v[MC_RMSNORM_LANES] = {0.0f};

	/* lanes inside, so that they can run side by side; each still adds its run in order */
	for (uint32_t j = 0; j < MC_RMSNORM_RUN; j++)
		for (uint32_t l = 0; l < MC_RMSNORM_LANES; l++) {
			float value = x[l * MC_RMSNORM_RUN + j];

			v[l] = v[l] + value * value;
		}
	return butterfly(v);
}

void mc_rmsnorm_add(struct mc_rmsnorm *norm, const float *x, uint64_t n)
{
	float rest[MC_RMSNORM_GROUP] = {0.0f};

	for (uint64_t i = 0; i < n; i += MC_RMSNORM_GROUP) {
		const float *group = x + i;
		uint32_t l = (uint32_t)(norm->n_groups++ % MC_RMSNORM_LANES);

		if (n - i < MC_RMSNORM_GROUP) {
			memcpy(rest, group, (n - i) * sizeof(*x));
			group = rest; /* a sum of squares is never -0: adding 0 changes nothing */
		}
		norm->lane[l] = norm->lane[l] + group_sum(group);
	}
}

float mc_rmsnorm_scale(const struct mc_rmsnorm *norm, uint64_t hidden, float eps)
{
	float mean = butterfly(norm->lane) / (float)hidden;
	float root = sqrtf(mean + eps);

	return 1.0f / root;
}
