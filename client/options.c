/* SPDX-License-Identifier: Apache-2.0 */
#include "client/options.h"

/* No structure of ours will grow past this; a larger size is garbage, not a newer header. */
#define SIZE_MAX_SANE 4096u

bool mc_options_size_ok(const void *options, size_t size, size_t known)
{
	const unsigned char *bytes = options;

	if (size < known || size > SIZE_MAX_SANE)
		return false;
	for (size_t i = known; i < size; i++)
		if (bytes[i])
			return false;
	return true;
}
