/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scale of a norm is computed from an estimate and exact remainders: the same bits as
 * docs/numerics.md asks for, whatever the estimate within its bound, for every mantissa.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/rmsnorm.cuh"

extern "C" {
#include <cmocka.h>
}

static void every_root_is_the_rounded_one(void **)
{
	const struct mc_norm_length one = mc_norm_length_of(1);
	uint32_t n_wrong = 0;

	/* 1 up to 4: both parities of the exponent; nine errors of the estimate for each */
	for (emu_rsqrt_turn = 0; emu_rsqrt_turn < 9u; emu_rsqrt_turn++)
		for (uint32_t i = 0; i < 1u << 24; i++) {
			const float m = __uint_as_float(0x3f800000u + i);

			n_wrong += mc_norm_scale(m, one, 0.0f) != 1.0f / __builtin_sqrtf(m);
		}
	assert_int_equal(n_wrong, 0);
}

/* All exponents, a few mantissas of each, and the three steps together. */
static void every_exponent_is_right(void **)
{
	static const uint64_t hiddens[] = {8, 1024, 5120, 7168, 16384};
	uint32_t n_wrong = 0, mix = 1;

	for (uint32_t exponent = 0; exponent < 255; exponent++)
		for (int i = 0; i < 2000; i++) {
			mix = mix * 1664525u + 1013904223u;
			const float total = __uint_as_float(exponent << 23 | mix >> 9);
			const float eps = i % 3 ? 1e-6f : 0.0f;
			const uint64_t hidden = hiddens[i % 5];
			const float right = 1.0f / __builtin_sqrtf(total / (float)hidden + eps);

			n_wrong += mc_norm_scale(total, mc_norm_length_of(hidden), eps) != right;
		}
	assert_int_equal(n_wrong, 0);
}

static void every_quotient_is_the_rounded_one(void **)
{
	uint32_t n_wrong = 0, mix = 1;

	for (uint64_t hidden = MC_NORM_RUN; hidden <= MC_NORM_MAX_GROUPS * MC_NORM_GROUP;
		hidden += MC_NORM_RUN) {
		const struct mc_norm_length length = mc_norm_length_of(hidden);

		for (int i = 0; i < 8192; i++) {
			mix = mix * 1664525u + 1013904223u;
			const float total = __uint_as_float(mix >> 1);
			const float mean = mc_norm_mean(total, length),
				    right = total / (float)hidden;

			n_wrong += mean != right && right == right;
		}
	}
	assert_int_equal(n_wrong, 0);
}

static void ends_of_the_range_are_right(void **)
{
	static const float totals[] = {1e-6f, 1.0f, 7168.0f, 3.0e7f, nextafterf(0x1p-60f, 1.0f),
		nextafterf(0x1p60f, 0.0f), 0.0f, 1e-45f, 1e-40f, 1.1754944e-38f, 1e-30f, 0x1p-60f,
		0x1p60f, 1e30f, 3.4028235e38f, INFINITY};
	static const float epss[] = {0.0f, 1e-45f, 1e-6f, 1.0f, 3.4028235e38f, INFINITY};

	for (float total : totals)
		for (float eps : epss) {
			const float right = 1.0f / __builtin_sqrtf(total / 7168.0f + eps);

			assert_int_equal(
				__float_as_uint(mc_norm_scale(total, mc_norm_length_of(7168), eps)),
				__float_as_uint(right));
		}
	assert_true(isnan(mc_norm_scale(NAN, mc_norm_length_of(7168), 1e-6f)));
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_root_is_the_rounded_one),
		cmocka_unit_test(every_exponent_is_right),
		cmocka_unit_test(every_quotient_is_the_rounded_one),
		cmocka_unit_test(ends_of_the_range_are_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
