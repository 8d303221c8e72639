/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/table.h"

#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "proto/status.h"

struct mc_table {
	struct libscols_table *table;
	struct libscols_line *line;
	size_t cell;
};

static void need(bool ok)
{
	if (ok)
		return;
	fprintf(stderr, "moecommctl: out of memory\n");
	exit(MC_CTL_REFUSED);
}

struct mc_table *mc_table_new(const struct mc_ctl *ctl, const struct mc_table_column *columns)
{
	struct mc_table *table = calloc(1, sizeof(*table));

	need(table);
	table->table = scols_new_table();
	need(table->table);
	scols_table_enable_colors(table->table, ctl->color);
	for (const struct mc_table_column *c = columns; c->name; c++)
		need(scols_table_new_column(
			table->table, c->name, 0, c->right ? SCOLS_FL_RIGHT : 0));
	return table;
}

void mc_table_row(struct mc_table *table)
{
	table->line = scols_table_new_line(table->table, NULL);
	need(table->line);
	table->cell = 0;
}

static void set(struct mc_table *table, const char *text)
{
	need(scols_line_set_data(table->line, table->cell++, text && *text ? text : "-") == 0);
}

void mc_table_cell(struct mc_table *table, const char *format, ...)
{
	va_list arguments;
	char *text = NULL;

	va_start(arguments, format);
	need(vasprintf(&text, format, arguments) >= 0);
	va_end(arguments);
	set(table, text);
	free(text);
}

void mc_table_mood_cell(struct mc_table *table, enum mc_table_mood mood, const char *text)
{
	static const char *const colors[] = {NULL, "green", "brown", "red"};
	struct libscols_cell *cell = scols_line_get_cell(table->line, table->cell);

	if (colors[mood] && cell)
		need(scols_cell_set_color(cell, colors[mood]) == 0);
	set(table, text);
}

enum mc_table_mood mc_table_health_mood(unsigned health)
{
	switch (health) {
	case MC_HEALTH_PROGRESSING:
		return MC_TABLE_GOOD;
	case MC_HEALTH_WAITING:
		return MC_TABLE_WARN;
	case MC_HEALTH_STALLED:
	case MC_HEALTH_FAILED:
		return MC_TABLE_BAD;
	default:
		return MC_TABLE_PLAIN;
	}
}

enum mc_table_mood mc_table_state_mood(unsigned state)
{
	switch (state) {
	case MC_GROUP_READY:
		return MC_TABLE_GOOD;
	case MC_GROUP_FAILED:
		return MC_TABLE_BAD;
	default:
		return MC_TABLE_WARN;
	}
}

void mc_table_print(struct mc_table *table)
{
	scols_print_table(table->table);
	scols_unref_table(table->table);
	free(table);
}
