/* SPDX-License-Identifier: Apache-2.0 */
/* What is in tables: settings, outcomes, moecommctl's commands. */
#include <ctype.h>
#include <string.h>
#include "ctl/ctl.h"
#include "daemon/config.h"
#include "man/generate/generate.h"
#include "proto/status.h"

int mc_man_settings(FILE *out)
{
	const char *section = "";
	char allowed[160];

	for (size_t i = 0; i < mc_n_settings; i++) {
		const struct mc_setting *s = &mc_settings[i];

		if (strcmp(section, s->section) != 0)
			fprintf(out, "## [%s]\n\n", s->section);
		section = s->section;
		mc_setting_allowed(s, allowed, sizeof(allowed));
		fprintf(out, "*%s* =\n\t", s->name);
		mc_man_escape(s->help, out);
		fputs("\n\n\tTakes ", out);
		mc_man_escape(allowed, out);
		fputs("; default: ", out);
		mc_man_escape(*s->default_text ? s->default_text : "empty", out);
		fprintf(out, ". %s\n\n",
			s->reloads ? "A reload takes it." : "Takes effect at a restart only.");
	}
	return 0;
}

int mc_man_statuses(FILE *out)
{
#define ROW(number, name, text)                                                                    \
	fprintf(out, "|  %d\n:  ", number);                                                        \
	mc_man_escape(#name, out);                                                                 \
	fputs("\n:  ", out);                                                                       \
	mc_man_escape(text, out);                                                                  \
	fputc('\n', out);

	fputs("|[ *Number*\n:[ *Name*\n:< *Meaning*\n", out);
	MC_STATUS_TABLE(ROW)
	fputc('\n', out);
	return 0;
#undef ROW
}

int mc_man_command(const char *name, FILE *out)
{
	for (const struct mc_ctl_command *c = mc_ctl_commands; c->name; c++) {
		if (strcmp(c->name, name) != 0)
			continue;
		fprintf(out, "*%s* ", c->name);
		mc_man_escape(c->arguments, out);
		fprintf(out, "\n\t%c", toupper((unsigned char)*c->help));
		mc_man_escape(c->help + 1, out);
		fputs(".\n", out);
		return 0;
	}
	fprintf(stderr, "man-generate: moecommctl has no command '%s'\n", name);
	return -1;
}
