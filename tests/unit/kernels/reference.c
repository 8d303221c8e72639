/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <math.h>
#include <string.h>

struct format {
	int n_mantissa, n_exponent, bias;
};

static struct format format_of(enum mc_dtype dtype)
{
	switch (dtype) {
	case MC_DTYPE_BF16:
		return (struct format){7, 8, 127};
	case MC_DTYPE_FP16:
		return (struct format){10, 5, 15};
	default:
		return (struct format){23, 8, 127};
	}
}

uint32_t ref_bits(enum mc_dtype dtype, const void *array, uint64_t i)
{
	uint32_t size = dtype == MC_DTYPE_FP32 ? 4 : 2, bits = 0;

	memcpy(&bits, (const uint8_t *)array + i * size, size);
	return bits;
}

double ref_value(enum mc_dtype dtype, uint32_t bits)
{
	struct format f = format_of(dtype);
	uint32_t mantissa = bits & ((1u << f.n_mantissa) - 1u);
	int exponent = (int)(bits >> f.n_mantissa & ((1u << f.n_exponent) - 1u));
	double v;

	if (exponent == (1 << f.n_exponent) - 1)
		v = mantissa ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		v = ldexp(mantissa, 1 - f.bias - f.n_mantissa);
	else
		v = ldexp(
			mantissa + (double)(1u << f.n_mantissa), exponent - f.bias - f.n_mantissa);
	return bits >> (f.n_mantissa + f.n_exponent) & 1u ? -v : v;
}

double ref_ulp(enum mc_dtype dtype, double v)
{
	struct format f = format_of(dtype);
	int e = v == 0 ? 1 - f.bias : ilogb(v);

	return ldexp(1.0, (e > 1 - f.bias ? e : 1 - f.bias) - f.n_mantissa);
}

double ref_round(enum mc_dtype dtype, double v)
{
	struct format f = format_of(dtype);
	double max = ldexp(2.0 - ldexp(1.0, -f.n_mantissa), f.bias), ulp, q;

	if (!isfinite(v))
		return v;
	ulp = ref_ulp(dtype, v);
	q = rint(v / ulp) * ulp;
	return fabs(q) > max ? copysign((double)INFINITY, v) : q;
}

bool ref_is_rounded(enum mc_dtype dtype, uint32_t bits, float v)
{
	double got = ref_value(dtype, bits), want = ref_round(dtype, v);

	if (isnan(v))
		return bits == (dtype == MC_DTYPE_FP32 ? 0x7fffffffu : 0x7fffu);
	return got == want && !signbit(got) == !signbit(want);
}

static float butterfly(volatile float *v)
{
	for (int m = 1; m <= 16; m *= 2) {
		float before[32];

		for (int l = 0; l < 32; l++)
			before[l] = v[l];
		for (int l = 0; l < 32; l++)
			v[l] = before[l] + before[l ^ m];
	}
	return v[0];
}

float ref_rms(const float *x, uint64_t hidden, float eps)
{
	volatile float outer[32] = {0}, lane[32], square, t;

	/* volatile: every operation rounded by itself */
	for (uint64_t g = 0; g * 256 < hidden; g++) {
		for (uint64_t l = 0; l < 32; l++) {
			lane[l] = 0.0f;
			for (uint64_t j = 0; j < 8; j++) {
				uint64_t i = g * 256 + l * 8 + j;

				if (i >= hidden)
					break;
				square = x[i] * x[i];
				lane[l] = lane[l] + square;
			}
		}
		outer[g % 32] = outer[g % 32] + butterfly(lane);
	}
	t = butterfly(outer) / (float)hidden;
	t = t + eps;
	t = sqrtf(t);
	return 1.0f / t;
}
