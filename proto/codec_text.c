/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec.h"

#include <string.h>

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
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = text[i] == '\n' || text[i] == '\t' ? ' ' : '?';
	return text;
}
