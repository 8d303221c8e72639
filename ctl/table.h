/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for people. */
#ifndef MC_CTL_TABLE_H
#define MC_CTL_TABLE_H

#include "ctl/ctl.h"

struct mc_table;

struct mc_table_column {
	const char *name;
	bool right; /* numbers */
};

/* columns end with an entry without a name. Ends the program when out of memory. */
struct mc_table *mc_table_new(const struct mc_ctl *ctl, const struct mc_table_column *columns);
/* Starts a row. */
void mc_table_row(struct mc_table *table);
/* The row's next cell; text NULL or "": a dash. */
void mc_table_cell(struct mc_table *table, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* A cell that shows how well it is: red when bad, green when good. */
enum mc_table_mood { MC_TABLE_PLAIN, MC_TABLE_GOOD, MC_TABLE_WARN, MC_TABLE_BAD };
void mc_table_mood_cell(struct mc_table *table, enum mc_table_mood mood, const char *text);
/* The mood of an enum mc_health or mc_group_state. */
enum mc_table_mood mc_table_health_mood(unsigned health);
enum mc_table_mood mc_table_state_mood(unsigned state);
/* Prints and frees. */
void mc_table_print(struct mc_table *table);

#endif
