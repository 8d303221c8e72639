/* SPDX-License-Identifier: Apache-2.0 */
/* Layout arithmetic: from a group's spec to offsets in an arena. Used by daemon and client alike.
 */
#ifndef MC_KERNELS_LAYOUT_H
#define MC_KERNELS_LAYOUT_H

#include "kernels/lamport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the members of a group agree on that decides the memory. */
struct mc_layout_spec {
	uint32_t world_size;         /* 1 … MC_MAX_WORLD_SIZE */
	uint32_t n_channels;         /* 1 … MC_MAX_CHANNELS */
	uint64_t max_rows;           /* capacity: rows a rank in one call, 1 … MC_MAX_ROWS */
	uint64_t dispatch_row_bytes; /* bytes of one row over all tensors of a dispatch; 0: no
					dispatch */
	uint64_t combine_row_bytes; /* bytes of one combine row (D × element size); 0: no combine */
};

enum mc_layout_error {
	MC_LAYOUT_E_WORLD_SIZE = 1,
	MC_LAYOUT_E_CHANNELS = 2,
	MC_LAYOUT_E_ROWS = 3,
	MC_LAYOUT_E_ROW_BYTES = 4, /* both are 0 */
	MC_LAYOUT_E_TOO_LARGE = 5, /* an arena would pass MC_LAYOUT_MAX_ARENA_BYTES */
};

/* No GPU has more; keeps every later sum of offsets far from 2^64. */
#define MC_LAYOUT_MAX_ARENA_BYTES (UINT64_C(1) << 42)

/*
 * Slot bytes beyond rows × row bytes: the tensors of a dispatch are packed each from a vector
 * boundary, so each can waste up to 15 bytes. Charged in full whatever the number of tensors, so
 * that the capacity depends on the row bytes only.
 */
#define MC_LAYOUT_SLOT_SLACK (MC_MAX_TENSORS * MC_VECTOR_BYTES)

/* Returns 0 and sets *ret_layout, or a positive enum mc_layout_error and leaves it alone. */
int mc_layout_make(const struct mc_layout_spec *spec, struct mc_layout *ret_layout);

/* A sentence for an enum mc_layout_error. */
const char *mc_layout_error_text(int error);

/*
 * Rows a rank that one call can carry, when a row is row_bytes long (of all tensors together, or
 * D × element size). The one number that decides whether an op fits; 0 when nothing fits or
 * row_bytes is 0. Never above MC_MAX_ROWS.
 */
uint64_t mc_layout_capacity(const struct mc_layout *layout, uint64_t row_bytes);

#ifdef __cplusplus
}
#endif
#endif
