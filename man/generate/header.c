/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a public header says of itself. It knows the header's own form only: a comment stands right
 * before its function, a function's declaration starts in the first column and ends with a
 * semicolon, and a line "---- NAME ----" opens a section.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "man/generate/generate.h"

/* A line of a comment without its marks; the blanks before a list's lines stay. */
static char *comment_text(char *line)
{
	char *end;

	line += strspn(line, " \t");
	if (!strncmp(line, "/*", 2))
		line += 2;
	else if (*line == '*' && line[1] != '/')
		line += 1;
	end = strstr(line, "*/");
	if (end)
		*end = 0;
	if (*line == ' ')
		line++;
	for (end = line + strlen(line); end > line && end[-1] == ' ';)
		*--end = 0;
	return line;
}

/* Appends a line to a growing text; false without memory. */
static bool append(char **text, const char *line, const char *end)
{
	size_t n = *text ? strlen(*text) : 0;
	char *larger = realloc(*text, n + strlen(line) + strlen(end) + 1);

	if (!larger)
		return false;
	*text = larger;
	strcpy(larger + n, line);
	strcat(larger, end);
	return true;
}

/* "enum moecomm_status moecomm_abort(…);" with the name in bold. */
static int function(const char *declaration, const char *comment, FILE *out)
{
	const char *bracket = strchr(declaration, '('), *name = bracket, *line = comment;

	while (name > declaration && (name[-1] == '_' || (name[-1] >= 'a' && name[-1] <= 'z')))
		name--;
	if (!comment) {
		fprintf(stderr, "man-generate: no comment before %.*s\n", (int)(bracket - name),
			name);
		return -1;
	}
	mc_man_escape_n(declaration, (size_t)(name - declaration), out);
	fputc('*', out);
	mc_man_escape_n(name, (size_t)(bracket - name), out);
	fputc('*', out);
	mc_man_escape(bracket, out);
	fputc('\n', out);
	while (*line) {
		size_t n = strcspn(line, "\n");

		if (n) {
			fputc('\t', out);
			mc_man_escape_n(line, n, out);
		}
		fputc('\n', out);
		line += n + 1;
	}
	fputc('\n', out);
	return 0;
}

static void section(const char *text, FILE *out)
{
	size_t n = strcspn(text + 5, "-");

	while (n && text[5 + n - 1] == ' ')
		n--;
	fprintf(out, "## %.*s\n\n", (int)n, text + 5);
}

/* One reading of a header. */
struct reading {
	char *comment;     /* the last one */
	char *declaration; /* of a function that goes on in the next line */
	bool in_comment;
	int n_functions;
};

static int read_line(struct reading *r, char *line, FILE *out)
{
	if (r->in_comment || !strncmp(line, "/*", 2)) {
		bool ends = strstr(line, "*/");
		char *text;

		if (!r->in_comment) {
			free(r->comment);
			r->comment = NULL;
		}
		r->in_comment = !ends;
		text = comment_text(line);
		if (!strncmp(text, "---- ", 5))
			section(text, out);
		/* the first line of a long comment is empty */
		return (*text || r->comment) && !append(&r->comment, text, "\n") ? -1 : 0;
	}
	if (!r->declaration && (*line == '#' || *line == '\t' || !strchr(line, '(') ||
				       strncmp(line, "typedef", 7) == 0)) {
		if (*line) {
			free(r->comment);
			r->comment = NULL;
		}
		return 0;
	}
	if (!append(&r->declaration, line + strspn(line, "\t"), strchr(line, ';') ? "" : " "))
		return -1;
	if (strchr(line, ';')) {
		/* a bracket right at a line's end takes no blank behind it */
		char *gap = strstr(r->declaration, "( ");
		int result;

		if (gap)
			memmove(gap + 1, gap + 2, strlen(gap + 2) + 1);
		result = function(r->declaration, r->comment, out);
		free(r->declaration);
		free(r->comment);
		r->declaration = r->comment = NULL;
		r->n_functions++;
		return result;
	}
	return 0;
}

int mc_man_functions(const char *file, FILE *out)
{
	char *text = mc_man_read(file), *at = text, *line;
	struct reading reading = {0};
	int r = text ? 0 : -1;

	while (!r && (line = strsep(&at, "\n")))
		r = read_line(&reading, line, out);
	if (!r && !reading.n_functions) {
		fprintf(stderr, "man-generate: no function in %s\n", file);
		r = -1;
	}
	free(reading.comment);
	free(reading.declaration);
	free(text);
	return r;
}

int mc_man_rules(const char *file, const char *rule, FILE *out)
{
	char *text = mc_man_read(file), *at = text, *line;
	bool found = false;
	int n = 0;

	while (text && (line = strsep(&at, "\n"))) {
		bool ends = strstr(line, "*/");

		if (!found) {
			found = strstr(line, rule);
			continue;
		}
		line = comment_text(line);
		if (!strncmp(line, " - ", 3)) {
			fputs("- ", out);
			mc_man_escape(line + 3, out);
			fputc('\n', out);
			n++;
		} else if (!strncmp(line, "   ", 3) && n) {
			fputs("  ", out);
			mc_man_escape(line + 3, out);
			fputc('\n', out);
		} else {
			break;
		}
		if (ends)
			break;
	}
	if (text && !n)
		fprintf(stderr, "man-generate: %s has no list after \"%s\"\n", file, rule);
	fputc('\n', out);
	free(text);
	return n ? 0 : -1;
}

int mc_man_listing(const char *file, FILE *out)
{
	char *text = mc_man_read(file), *at = text;

	if (!text)
		return -1;
	while (!strncmp(at, "/*", 2) && strstr(at, "*/\n"))
		at = strstr(at, "*/\n") + 3;
	fputs("```\n", out);
	for (; *at; at++) {
		if (strchr("\\`", *at))
			fputc('\\', out);
		if (*at == '\t') /* the page is narrow */
			fputs("    ", out);
		else
			fputc(*at, out);
	}
	fputs("```\n", out);
	free(text);
	return 0;
}
