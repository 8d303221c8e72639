/* SPDX-License-Identifier: Apache-2.0 */
/* Results as a table for people and as JSON for machines, from the same rows. */
#ifndef MC_BENCH_REPORT_H
#define MC_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct mc_report;

struct mc_report_column {
	const char *key;     /* in the JSON; with the unit: "median_us" */
	const char *heading; /* in the table */
	int decimals;        /* of numbers in the table; the JSON has them in full */
	bool text;           /* cells are texts, else numbers */
};

/*
 * columns end with an entry without a key. The JSON is {"schema": 1, "bench": name, "machine": {…},
 * facts…, "results": [{key: cell, …}, …]}. Ends the program when out of memory.
 */
struct mc_report *mc_report_new(const char *bench, const struct mc_report_column *columns);
/* What holds for all rows; printed above the table. */
void mc_report_fact(struct mc_report *report, const char *key, const char *text);
/* Starts a row; its cells follow in the columns' order. NAN and NULL: no value. */
void mc_report_row(struct mc_report *report);
void mc_report_number(struct mc_report *report, double number);
void mc_report_text(struct mc_report *report, const char *text);
/* Prints to stdout and frees. Returns 0, or -EIO when the output can't be written. */
int mc_report_print(struct mc_report *report, bool json);

#endif
