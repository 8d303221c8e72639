/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions, against a reference that knows the formats by formula. */
#include "reference.h"
#include "world.h"

#include <math.h>
#include <string.h>
#include "kernels/host/number.h"

static void every_16_bit_pattern(void **state)
{
	static uint16_t in[65536], out[65536];
	static float wide[65536];

	(void)state;
	for (uint32_t i = 0; i < 65536; i++)
		in[i] = (uint16_t)i;
	for (int t = 0; t < 2; t++) {
		enum mc_dtype dtype = t ? MC_DTYPE_FP16 : MC_DTYPE_BF16;

		mc_number_load(dtype, in, 65536, wide);
		mc_number_store(dtype, wide, 65536, out);
		for (uint32_t i = 0; i < 65536; i++) {
			double value = ref_value(dtype, i);

			if (isnan(value)) {
				assert_true(isnan(wide[i]));
				assert_int_equal(out[i], 0x7fff);
				continue;
			}
			assert_true(
				(double)wide[i] == value && !signbit(wide[i]) == !signbit(value));
			assert_int_equal(out[i], i);
		}
	}
}

/* All magnitudes, with the low bits where rounding is decided. */
static void rounding(void **state)
{
	static const uint32_t lows[] = {0, 1, 2, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x3000,
		0x7fff, 0x8000, 0x8001, 0xffff};
	uint64_t seed = 3;

	(void)state;
	for (int t = 0; t < 3; t++) {
		enum mc_dtype dtype = t == 0   ? MC_DTYPE_BF16
				      : t == 1 ? MC_DTYPE_FP16
					       : MC_DTYPE_FP32;

		for (uint32_t high = 0; high < 65536; high += 1)
			for (uint32_t j = 0; j < 14; j++) {
				uint32_t bits =
					high << 16 |
					(j < 13 ? lows[j] : (uint32_t)world_random(&seed) & 0xffff);
				uint32_t out = 0;
				float value;

				memcpy(&value, &bits, sizeof(value));
				mc_number_store(dtype, &value, 1, &out);
				if (!ref_is_rounded(dtype, out, value))
					fail_msg("type %d: %08x became %x", dtype, bits, out);
			}
	}
}

static void any_alignment_and_length(void **state)
{
	uint8_t in[2100], out[2100];
	float wide[520];

	(void)state;
	for (int t = 0; t < 3; t++) {
		enum mc_dtype dtype = t == 0   ? MC_DTYPE_BF16
				      : t == 1 ? MC_DTYPE_FP16
					       : MC_DTYPE_FP32;
		uint32_t size = mc_dtype_bytes(dtype);

		for (uint32_t n = 0; n <= 515; n += n < 20 ? 1 : 45)
			for (uint32_t m = 0; m < 5; m++) {
				float ones[515];

				for (uint32_t i = 0; i < n; i++)
					ones[i] = (float)(i % 100);
				memset(out, 0xcd, sizeof(out));
				mc_number_store(dtype, ones, n, out + m);
				memcpy(in, out, sizeof(in));
				mc_number_load(dtype, in + m, n, wide);
				mc_number_add(dtype, in + m, n, wide);
				for (uint32_t i = 0; i < n; i++)
					assert_true(wide[i] == 2.0f * (float)(i % 100));
				for (uint32_t b = 0; b < sizeof(out); b++)
					if (b < m || b >= m + n * size)
						assert_int_equal(out[b], 0xcd);
			}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_16_bit_pattern),
		cmocka_unit_test(rounding),
		cmocka_unit_test(any_alignment_and_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
