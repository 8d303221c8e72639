/* SPDX-License-Identifier: Apache-2.0 */
/* Version and feature negotiation; the same rules on both sides. */
#ifndef MC_PROTO_VERSION_H
#define MC_PROTO_VERSION_H

#include <stdint.h>

/* Features that both sides know. */
uint64_t mc_version_features(uint64_t mine, uint64_t theirs);
/* Returns 0 when the majors agree, else MC_STATUS_VERSION and a sentence that names both in
 * ret_detail. */
int mc_version_check(
	const char *peer, uint32_t major, uint32_t minor, char *ret_detail, unsigned n_detail);
/* Release of this build, e.g. "0.1.0". */
const char *mc_version_string(void);

#endif
