/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a manual page in scdoc's language out of a template: a line that starts with '%' stands for
 * what the program itself knows, so that no page can tell otherwise.
 */
#ifndef MC_MAN_GENERATE_H
#define MC_MAN_GENERATE_H

#include <stdio.h>

/*
 * Each writes its part to out. 0, or -1 after a line on stderr that names what is missing: a page
 * that asks for what is gone must not be built.
 */

/* %settings: the sections and settings of moecommd.conf. */
int mc_man_settings(FILE *out);
/* %statuses: number, name and sentence of each outcome. */
int mc_man_statuses(FILE *out);
/* %command NAME: a command of moecommctl as a heading with its arguments, and its help below. */
int mc_man_command(const char *name, FILE *out);
/* %options FILE: the options in a program's --help, kept in that file. */
int mc_man_options(const char *file, FILE *out);
/* %commands FILE: the commands that a program's --help lists. */
int mc_man_commands(const char *file, FILE *out);
/* %functions FILE: a public header's sections and functions, with the comments before them. */
int mc_man_functions(const char *file, FILE *out);
/* %rules FILE LINE: the list in a comment of the header that follows a line with that text. */
int mc_man_rules(const char *file, const char *line, FILE *out);
/* %listing FILE: a source file, less its first comments. */
int mc_man_listing(const char *file, FILE *out);

/* Text so that scdoc takes none of it for its own marks. */
void mc_man_escape(const char *text, FILE *out);
void mc_man_escape_n(const char *text, size_t n, FILE *out);
/* The file as a string, to be freed; NULL after a line on stderr. */
char *mc_man_read(const char *file);

#endif
