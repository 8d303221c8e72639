/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any text that a demonstration reads; keeps a mistaken --input /dev/zero from filling
 * memory. */
#define MAX_TEXT_BYTES (64u << 20)

static const char *const usual_texts[] = {
	"/usr/share/common-licenses/GPL-3",
	"/usr/share/common-licenses/Apache-2.0",
	"/usr/share/licenses/common/GPL-3.0-only/license.txt",
	"/etc/services",
};

static const char last_resort[] =
	"When in the course of inference it becomes necessary for one expert to dissolve the bands "
	"which have connected it with another, a decent respect for latency requires that they "
	"should "
	"declare the bytes which they exchange. ";

static int read_stream(FILE *file, struct text *ret_text)
{
	uint8_t *bytes = NULL, *more;
	size_t n = 0, capacity = 0, got;

	do {
		if (n == capacity) {
			capacity = capacity ? 2 * capacity : 65536;
			more = capacity > MAX_TEXT_BYTES ? NULL : realloc(bytes, capacity);
			if (!more) {
				free(bytes);
				return capacity > MAX_TEXT_BYTES ? -EFBIG : -ENOMEM;
			}
			bytes = more;
		}
		got = fread(bytes + n, 1, capacity - n, file);
		n += got;
	} while (got > 0);
	if (ferror(file) || n == 0) {
		int error = ferror(file) ? (errno ? errno : EIO) : ENODATA;

		free(bytes);
		return -error;
	}
	ret_text->bytes = bytes;
	ret_text->n_bytes = n;
	return 0;
}

static int read_file(const char *path, struct text *ret_text)
{
	FILE *file = fopen(path, "re");
	int r;

	if (!file)
		return -errno;
	errno = 0;
	r = read_stream(file, ret_text);
	fclose(file);
	return r;
}

int text_read(const char *path, struct text *ret_text)
{
	int r;

	if (path) {
		r = read_file(path, ret_text);
		if (r < 0)
			fprintf(stderr, "moecomm-worker: cannot read the text %s: %s\n", path,
				r == -ENODATA ? "it is empty" : strerror(-r));
		return r;
	}
	for (size_t i = 0; i < sizeof(usual_texts) / sizeof(*usual_texts); i++)
		if (read_file(usual_texts[i], ret_text) == 0)
			return 0;
	ret_text->bytes = (uint8_t *)strdup(last_resort);
	ret_text->n_bytes = sizeof(last_resort) - 1;
	return ret_text->bytes ? 0 : -ENOMEM;
}

void text_free(struct text *text)
{
	free(text->bytes);
	text->bytes = NULL;
}

void text_rows(const struct options *options, int64_t round, int64_t *ret_rows)
{
	for (int rank = 0; rank < options->world_size; rank++) {
		uint64_t h = ((uint64_t)round * 64 + (uint64_t)rank + 1) * 0x9e3779b97f4a7c15u;

		h ^= h >> 29;
		h *= 0xbf58476d1ce4e5b9u;
		h ^= h >> 32;
		if (!options->ragged)
			ret_rows[rank] = options->tokens;
		else if (h % 4 == 0)
			ret_rows[rank] = 0;
		else
			ret_rows[rank] = (int64_t)(h / 4 % ((uint64_t)options->tokens + 1));
	}
}

size_t text_position(
	const struct text *text, const struct options *options, int64_t round, const int64_t *rows)
{
	/* a stretch of world_size × tokens bytes belongs to a round; within it, rank follows rank
	 */
	uint64_t stretch =
		(uint64_t)options->world_size * (uint64_t)options->tokens % text->n_bytes;
	uint64_t at = (uint64_t)round % text->n_bytes * stretch % text->n_bytes;

	for (int rank = 0; rank < options->rank; rank++)
		at += (uint64_t)rows[rank];
	return at % text->n_bytes;
}
