/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int mc_bench_number(
	const char *name, const char *text, int64_t min, int64_t max, int64_t *ret_value)
{
	long long value;
	char *end;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max) {
		fprintf(stderr, "moecomm-bench: --%s %s: need a whole number from %lld to %lld\n",
			name, text, (long long)min, (long long)max);
		return -1;
	}
	*ret_value = value;
	return 0;
}
