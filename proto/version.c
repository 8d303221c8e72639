/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/version.h"

#include <stdio.h>

#include "proto/limits.h"
#include "proto/status.h"

uint64_t mc_version_features(uint64_t mine, uint64_t theirs)
{
	return mine & theirs;
}

int mc_version_check(
	const char *peer, uint32_t major, uint32_t minor, char *ret_detail, unsigned n_detail)
{
	if (major == MC_PROTO_MAJOR)
		return 0;
	snprintf(ret_detail, n_detail,
		"the %s speaks protocol %u.%u, this side %u.%u (release %s): "
		"install releases with the same major protocol version on both sides",
		peer, major, minor, MC_PROTO_MAJOR, MC_PROTO_MINOR, MC_VERSION_STRING);
	return MC_STATUS_VERSION;
}

const char *mc_version_string(void)
{
	return MC_VERSION_STRING;
}
