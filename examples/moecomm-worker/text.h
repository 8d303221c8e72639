/* SPDX-License-Identifier: Apache-2.0 */
/* The text that the ranks read, and who takes which bytes of it. */
#ifndef WORKER_TEXT_H
#define WORKER_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include "options.h"

struct text {
	uint8_t *bytes;
	size_t n_bytes; /* ≥ 1 */
};

/*
 * Reads a whole file; path NULL: the first licence text that the system has, else a sentence of its
 * own. Returns 0, or -errno after telling what is wrong.
 */
int text_read(const char *path, struct text *ret_text);
void text_free(struct text *text);

/* Rows of each rank in a round, [world_size]: a pure function of its arguments, so that all ranks
 * agree. */
void text_rows(const struct options *options, int64_t round, int64_t *ret_rows);

/* Position in the text of a rank's first token of a round; tokens follow each other, text wraps. */
size_t text_position(
	const struct text *text, const struct options *options, int64_t round, const int64_t *rows);

#endif
