/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec.h"

#include <string.h>

/*
 * Bytes of the printable UTF-8 character at the beginning of n bytes; 0 when there is none: a
 * control character (those of two bytes too, which some terminals obey), an overlong form, a
 * surrogate, or no UTF-8 at all.
 */
static size_t character_bytes(const unsigned char *at, size_t n)
{
	unsigned char lowest = 0x80, highest = 0xbf; /* of the second byte */
	size_t n_bytes;

	if (at[0] < 0x80)
		return at[0] >= 0x20 && at[0] != 0x7f;
	if (at[0] < 0xc2 || at[0] > 0xf4)
		return 0;
	n_bytes = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
	if (at[0] == 0xc2 || at[0] == 0xe0)
		lowest = 0xa0;
	else if (at[0] == 0xf0)
		lowest = 0x90;
	else if (at[0] == 0xed)
		highest = 0x9f;
	else if (at[0] == 0xf4)
		highest = 0x8f;
	if (n_bytes > n || at[1] < lowest || at[1] > highest)
		return 0;
	for (size_t i = 2; i < n_bytes; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return n_bytes;
}

char *mc_codec_text_fit(char *text, size_t max_bytes)
{
	size_t n;

	if (!text)
		return NULL;
	n = strnlen(text, max_bytes + 1);
	if (n > max_bytes) {
		n = max_bytes;
		/* not inside a character: bytes 10xxxxxx continue one */
		while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
		text[n] = 0;
	}
	for (size_t i = 0; i < n;) {
		size_t n_bytes = character_bytes((const unsigned char *)text + i, n - i);

		if (!n_bytes) {
			text[i] = text[i] == '\n' || text[i] == '\t' ? ' ' : '?';
			n_bytes = 1;
		}
		i += n_bytes;
	}
	return text;
}
