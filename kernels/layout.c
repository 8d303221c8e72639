/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/layout.h"

/* Slots start on a line of their own; arenas are whole pages. */
#define SLOT_ALIGN 128u
#define PAGE_ALIGN 4096u

/* Rounds up to a power of two; returns nonzero when the result would pass 2^64. */
static int round_up(uint64_t value, uint64_t align, uint64_t *ret_value)
{
	if (__builtin_add_overflow(value, align - 1u, &value))
		return 1;
	*ret_value = value & ~(align - 1u);
	return 0;
}

int mc_layout_make(const struct mc_layout_spec *spec, struct mc_layout *ret_layout)
{
	struct mc_layout l = {.world_size = spec->world_size, .n_channels = spec->n_channels};
	uint64_t row_bytes = spec->dispatch_row_bytes > spec->combine_row_bytes
				     ? spec->dispatch_row_bytes
				     : spec->combine_row_bytes;
	uint64_t rings;

	if (spec->world_size < 1 || spec->world_size > MC_MAX_WORLD_SIZE)
		return MC_LAYOUT_E_WORLD_SIZE;
	if (spec->n_channels < 1 || spec->n_channels > MC_MAX_CHANNELS)
		return MC_LAYOUT_E_CHANNELS;
	if (spec->max_rows < 1 || spec->max_rows > MC_MAX_ROWS)
		return MC_LAYOUT_E_ROWS;
	if (row_bytes == 0)
		return MC_LAYOUT_E_ROW_BYTES;

	if (__builtin_mul_overflow(spec->max_rows, row_bytes, &l.slot_data_bytes) ||
		round_up(l.slot_data_bytes, MC_VECTOR_BYTES, &l.slot_data_bytes) ||
		__builtin_add_overflow(
			l.slot_data_bytes, (uint64_t)MC_LAYOUT_SLOT_SLACK, &l.slot_data_bytes) ||
		__builtin_add_overflow(
			l.slot_data_bytes, (uint64_t)MC_SLOT_HEADER_BYTES, &l.slot_stride) ||
		round_up(l.slot_stride, SLOT_ALIGN, &l.slot_stride) ||
		__builtin_mul_overflow(
			l.slot_stride, (uint64_t)(spec->world_size - 1u), &l.segment_stride) ||
		__builtin_mul_overflow(
			l.segment_stride, (uint64_t)MC_SEGMENTS, &l.channel_stride) ||
		__builtin_mul_overflow(l.channel_stride, (uint64_t)spec->n_channels, &rings) ||
		round_up((uint64_t)(spec->world_size - 1u) * MC_PROBE_BYTES, PAGE_ALIGN,
			&l.ring_offset) ||
		__builtin_add_overflow(l.ring_offset, rings, &l.arena_bytes) ||
		round_up(l.arena_bytes, PAGE_ALIGN, &l.arena_bytes))
		return MC_LAYOUT_E_TOO_LARGE;
	/* a group of one exchanges nothing, but its arena is mapped like any other */
	if (l.arena_bytes == 0)
		l.arena_bytes = PAGE_ALIGN;
	/* a lone rank's slots are never allocated, but its capacity must stay sane too */
	if (l.arena_bytes > MC_LAYOUT_MAX_ARENA_BYTES || l.slot_stride > MC_LAYOUT_MAX_ARENA_BYTES)
		return MC_LAYOUT_E_TOO_LARGE;
	*ret_layout = l;
	return 0;
}

const char *mc_layout_error_text(int error)
{
	switch (error) {
	case 0:
		return "the layout is valid";
	case MC_LAYOUT_E_WORLD_SIZE:
		return "the world size must be 1 to 64";
	case MC_LAYOUT_E_CHANNELS:
		return "the number of channels must be 1 to 8";
	case MC_LAYOUT_E_ROWS:
		return "the capacity must be 1 to 2147483647 rows";
	case MC_LAYOUT_E_ROW_BYTES:
		return "dispatch and combine row bytes are both 0: set the one of the ops you use";
	case MC_LAYOUT_E_TOO_LARGE:
		return "an arena would be larger than 4 TiB: lower the capacity, the row bytes or "
		       "the "
		       "number of channels";
	default:
		return "unknown layout error";
	}
}
_Static_assert(MC_MAX_WORLD_SIZE == 64 && MC_MAX_CHANNELS == 8 && MC_MAX_ROWS == 2147483647 &&
		       MC_LAYOUT_MAX_ARENA_BYTES == UINT64_C(4) << 40,
	"the sentences above name the limits");

uint64_t mc_layout_capacity(const struct mc_layout *layout, uint64_t row_bytes)
{
	uint64_t rows;

	if (row_bytes == 0 || layout->slot_data_bytes <= MC_LAYOUT_SLOT_SLACK)
		return 0;
	rows = (layout->slot_data_bytes - MC_LAYOUT_SLOT_SLACK) / row_bytes;
	return rows < MC_MAX_ROWS ? rows : MC_MAX_ROWS;
}
