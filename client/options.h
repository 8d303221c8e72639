/* SPDX-License-Identifier: Apache-2.0 */
/* Versioned option structures. */
#ifndef MC_CLIENT_OPTIONS_H
#define MC_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether a structure of `size` bytes can be read as one of the `known` bytes of this build. A
 * larger one comes from a newer header: fine as long as it asks for nothing that this build does
 * not know, that is, what lies beyond is 0. A later release that appends a field accepts the
 * shorter size too.
 */
bool mc_options_size_ok(const void *options, size_t size, size_t known);

#endif
