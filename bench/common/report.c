/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <json-c/json.h>
#include <libsmartcols/libsmartcols.h>
#include "proto/version.h"

#define SCHEMA 1

struct mc_report {
	const struct mc_report_column *columns;
	size_t cell;
	struct json_object *answer, *machine, *results, *row;
	struct libscols_table *table;
	struct libscols_line *line;
	char *facts; /* lines for people */
};

static void *need(void *pointer)
{
	if (!pointer) {
		fprintf(stderr, "moecomm-bench: out of memory\n");
		exit(1);
	}
	return pointer;
}

static void add(struct json_object *object, const char *key, struct json_object *value)
{
	if (json_object_object_add(object, key, value) < 0)
		need(NULL);
}

static void add_machine(struct mc_report *report)
{
	struct utsname system;
	char date[32];
	time_t now = time(NULL);
	struct tm utc;

	report->machine = need(json_object_new_object());
	add(report->machine, "cpus", need(json_object_new_int64(sysconf(_SC_NPROCESSORS_ONLN))));
	if (uname(&system) == 0) {
		add(report->machine, "kernel", need(json_object_new_string(system.release)));
		add(report->machine, "architecture", need(json_object_new_string(system.machine)));
	}
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	add(report->answer, "date", need(json_object_new_string(date)));
	add(report->answer, "version", need(json_object_new_string(mc_version_string())));
	add(report->answer, "machine", report->machine);
}

struct mc_report *mc_report_new(const char *bench, const struct mc_report_column *columns)
{
	struct mc_report *report = need(calloc(1, sizeof(*report)));

	report->columns = columns;
	report->answer = need(json_object_new_object());
	add(report->answer, "schema", need(json_object_new_int(SCHEMA)));
	add(report->answer, "bench", need(json_object_new_string(bench)));
	add_machine(report);
	report->results = need(json_object_new_array());
	report->table = need(scols_new_table());
	for (const struct mc_report_column *c = columns; c->key; c++)
		need(scols_table_new_column(
			report->table, c->heading, 0, c->text ? 0 : SCOLS_FL_RIGHT));
	report->facts = need(strdup(""));
	return report;
}

void mc_report_fact(struct mc_report *report, const char *key, const char *text)
{
	char *facts = NULL;

	add(report->answer, key, need(json_object_new_string(text)));
	if (asprintf(&facts, "%s%s: %s\n", report->facts, key, text) < 0)
		need(NULL);
	free(report->facts);
	report->facts = facts;
}

void mc_report_row(struct mc_report *report)
{
	report->row = need(json_object_new_object());
	if (json_object_array_add(report->results, report->row) < 0)
		need(NULL);
	report->line = need(scols_table_new_line(report->table, NULL));
	report->cell = 0;
}

static void set(struct mc_report *report, const char *text, struct json_object *value)
{
	add(report->row, report->columns[report->cell].key, value);
	if (scols_line_set_data(report->line, report->cell, text) != 0)
		need(NULL);
	report->cell++;
}

void mc_report_number(struct mc_report *report, double number)
{
	char text[64];

	snprintf(text, sizeof(text), "%.*f", report->columns[report->cell].decimals, number);
	if (isnan(number))
		set(report, "-", NULL);
	else if (number == floor(number) && fabs(number) < 1e15)
		set(report, text, need(json_object_new_int64((int64_t)number)));
	else
		set(report, text, need(json_object_new_double(number)));
}

void mc_report_text(struct mc_report *report, const char *text)
{
	set(report, text ? text : "-", text ? need(json_object_new_string(text)) : NULL);
}

int mc_report_print(struct mc_report *report, bool json)
{
	add(report->answer, "results", report->results);
	if (json) {
		puts(need((void *)(uintptr_t)json_object_to_json_string_ext(
			report->answer, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
						JSON_C_TO_STRING_NOSLASHESCAPE)));
	} else {
		fputs(report->facts, stdout);
		scols_print_table(report->table);
	}
	json_object_put(report->answer);
	scols_unref_table(report->table);
	free(report->facts);
	free(report);
	return fflush(stdout) == EOF ? -EIO : 0;
}
