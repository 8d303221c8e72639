/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on moecomm-bench's command line. */
#ifndef MC_BENCH_NUMBER_H
#define MC_BENCH_NUMBER_H

#include <stdint.h>

/*
 * Reads a whole decimal number from min to max. name: the option's, without dashes. Returns 0, or
 * -1 after one line on stderr that says what is allowed.
 */
int mc_bench_number(
	const char *name, const char *text, int64_t min, int64_t max, int64_t *ret_value);

#endif
