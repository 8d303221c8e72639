/* SPDX-License-Identifier: Apache-2.0 */
/* man-generate TEMPLATE OUTPUT */
#include "man/generate/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mc_man_escape_n(const char *text, size_t n, FILE *out)
{
	for (size_t i = 0; i < n && text[i]; i++) {
		/* '+' doubled at a line's end breaks it; '#' and the like matter where a line
		 * starts */
		if (strchr("*_\\`#+<>[]|:;.-", text[i]))
			fputc('\\', out);
		fputc(text[i], out);
	}
}

void mc_man_escape(const char *text, FILE *out)
{
	mc_man_escape_n(text, strlen(text), out);
}

char *mc_man_read(const char *file)
{
	FILE *in = fopen(file, "re");
	char *text = NULL;
	size_t n = 0, size = 0;

	while (in && !ferror(in) && !feof(in)) {
		if (n + 1 >= size) {
			char *larger = realloc(text, size ? 2 * size : 1 << 16);

			if (!larger) {
				errno = ENOMEM;
				break;
			}
			text = larger;
			size = size ? 2 * size : 1 << 16;
		}
		n += fread(text + n, 1, size - n - 1, in);
	}
	if (!in || !text || !feof(in)) {
		fprintf(stderr, "man-generate: cannot read %s: %s\n", file, strerror(errno));
		free(text);
		text = NULL;
	} else {
		text[n] = 0;
	}
	if (in)
		fclose(in);
	return text;
}

/* line has no '%' and no newline any more. */
static int replace(char *line, FILE *out)
{
	char *rest = line, *what = strsep(&rest, " "), *file, *text;

	if (!strcmp(what, "settings") && !rest)
		return mc_man_settings(out);
	if (!strcmp(what, "statuses") && !rest)
		return mc_man_statuses(out);
	if (!strcmp(what, "command") && rest)
		return mc_man_command(rest, out);
	if (!strcmp(what, "options") && rest)
		return mc_man_options(rest, out);
	if (!strcmp(what, "commands") && rest)
		return mc_man_commands(rest, out);
	if (!strcmp(what, "functions") && rest)
		return mc_man_functions(rest, out);
	if (!strcmp(what, "listing") && rest)
		return mc_man_listing(rest, out);
	if (!strcmp(what, "rules") && rest) {
		text = rest;
		file = strsep(&text, " ");
		if (text)
			return mc_man_rules(file, text, out);
	}
	fprintf(stderr, "man-generate: %%%s is not known, or lacks its argument\n", what);
	return -1;
}

int main(int argc, char **argv)
{
	char *template, *at, *line;
	FILE *out;
	int r = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: man-generate TEMPLATE OUTPUT\n");
		return 2;
	}
	template = mc_man_read(argv[1]);
	if (!template)
		return 1;
	out = fopen(argv[2], "we");
	if (!out) {
		fprintf(stderr, "man-generate: cannot write %s: %s\n", argv[2], strerror(errno));
		free(template);
		return 1;
	}
	at = template;
	while (!r && (line = strsep(&at, "\n"))) {
		if (*line == '%')
			r = replace(line + 1, out);
		else if (at) /* what follows the last newline is no line */
			fprintf(out, "%s\n", line);
	}
	if ((ferror(out) | fclose(out)) && !r) {
		fprintf(stderr, "man-generate: cannot write %s\n", argv[2]);
		r = -1;
	}
	if (r) {
		fprintf(stderr, "man-generate: in %s\n", argv[1]);
		remove(argv[2]);
	}
	free(template);
	return r ? 1 : 0;
}
