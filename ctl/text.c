/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/text.h"

#include <inttypes.h>
#include <stdio.h>

const char *mc_text_size(uint64_t n_bytes, char ret_text[MC_TEXT_BYTES])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)n_bytes / 1024;
	size_t unit = 0;

	if (n_bytes < 1024) {
		snprintf(ret_text, MC_TEXT_BYTES, "%" PRIu64 " B", n_bytes);
		return ret_text;
	}
	/* 1023.95 would be shown as 1024.0 */
	while (value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(*units)) {
		value /= 1024;
		unit++;
	}
	snprintf(ret_text, MC_TEXT_BYTES, "%.1f %s", value, units[unit]);
	return ret_text;
}

const char *mc_text_age(uint64_t age_ms, char ret_text[MC_TEXT_BYTES])
{
	uint64_t s = age_ms / 1000;

	if (s == 0)
		snprintf(ret_text, MC_TEXT_BYTES, "%" PRIu64 " ms", age_ms);
	else if (s < 60)
		snprintf(ret_text, MC_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " s", s,
			age_ms % 1000 / 100);
	else if (s < 3600)
		snprintf(ret_text, MC_TEXT_BYTES, "%" PRIu64 " m %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(ret_text, MC_TEXT_BYTES, "%" PRIu64 " h %" PRIu64 " m", s / 3600,
			s % 3600 / 60);
	else
		snprintf(ret_text, MC_TEXT_BYTES, "%" PRIu64 " d %" PRIu64 " h", s / 86400,
			s % 86400 / 3600);
	return ret_text;
}

const char *mc_text_op(unsigned op)
{
	static const char *const names[] = {"none", "dispatch", "combine", "combine_rmsnorm"};

	return op < sizeof(names) / sizeof(*names) ? names[op] : "unknown";
}

const char *mc_text_path(unsigned path)
{
	static const char *const names[] = {"auto", "lamport", "nccl"};

	return path < sizeof(names) / sizeof(*names) ? names[path] : "unknown";
}

const char *mc_text_backend(unsigned backend)
{
	static const char *const names[] = {"auto", "host", "cuda"};

	return backend < sizeof(names) / sizeof(*names) ? names[backend] : "unknown";
}
