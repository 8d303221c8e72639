/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process has mapped of a group, found as any program could find it: in its own
 * /proc/self/maps. For tests that look at, or damage, memory behind the library's back.
 */
#ifndef MC_TESTS_CLIENT_MAPPED_H
#define MC_TESTS_CLIENT_MAPPED_H

#include <stddef.h>
#include <stdint.h>

struct mapped {
	uint8_t *at;
	size_t n_bytes;
};

/* The mappings of memfds of that name ("moecomm-arena", …), in order of address. */
size_t mapped_find(const char *name, struct mapped *ret_mapped, size_t n_at_most);

#endif
