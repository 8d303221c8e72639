/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program's own --help says. An option or command there is a line that starts with two
 * spaces; its text follows after two or more, or after its one argument, and may go on in lines
 * that are indented more.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "man/generate/generate.h"

static void option_head(
	const char *name, size_t n_name, const char *value, size_t n_value, FILE *out)
{
	fputc('*', out);
	mc_man_escape_n(name, n_name, out);
	fputc('*', out);
	if (n_value) {
		fputs(" _", out);
		mc_man_escape_n(value, n_value, out);
		fputc('_', out);
	}
	fputs("\n\t", out);
}

static const char *text_of_bare(const char *name, size_t n_name)
{
	if (n_name == 6 && !memcmp(name, "--help", 6))
		return "tells what it takes, and exits";
	if (n_name == 9 && !memcmp(name, "--version", 9))
		return "tells the version, and exits";
	return NULL;
}

/* Entries whose name starts with a dash, or (commands) with a letter. */
static int entries(const char *file, int (*starts)(int c), FILE *out)
{
	char *help = mc_man_read(file), *at = help, *line;
	bool is_open = false;
	int n = 0, r = help ? 0 : -1;

	while (!r && (line = strsep(&at, "\n"))) {
		size_t indent = strspn(line, " ");

		if (indent == 2 && starts((unsigned char)line[2])) {
			const char *name = line + 2;
			size_t n_name = strcspn(name, " ");
			const char *value = name + n_name + 1, *text;
			size_t n_value = 0;

			if (name[n_name] == ' ' && *value != ' ' && *value)
				n_value = strcspn(value, " ");
			text = name + n_name + (n_value ? 1 + n_value : 0);
			text += strspn(text, " ");
			if (!*text)
				text = text_of_bare(name, n_name);
			if (is_open)
				fputs("\n\n", out);
			if (!text) {
				fprintf(stderr, "man-generate: %s: no text for %s\n", file, name);
				r = -1;
				break;
			}
			option_head(name, n_name, value, n_value, out);
			mc_man_escape(text, out);
			is_open = true;
			n++;
		} else if (is_open && indent > 2 && line[indent]) {
			fputs("\n\t", out);
			mc_man_escape(line + indent, out);
		} else if (is_open) {
			fputs("\n\n", out);
			is_open = false;
		}
	}
	if (!r && !n) {
		fprintf(stderr, "man-generate: %s lists nothing\n", file);
		r = -1;
	}
	free(help);
	return r;
}

static int is_dash(int c)
{
	return c == '-';
}

int mc_man_options(const char *file, FILE *out)
{
	return entries(file, is_dash, out);
}

int mc_man_commands(const char *file, FILE *out)
{
	return entries(file, isalpha, out);
}
