/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16: the upper half of a float. */
#ifndef WORKER_BF16_H
#define WORKER_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_to_float(uint16_t value)
{
	uint32_t bits = (uint32_t)value << 16;
	float ret;

	memcpy(&ret, &bits, sizeof(ret));
	return ret;
}

/* Rounds to nearest, ties to even. */
static inline uint16_t bf16_from_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return 0x7fff;
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
