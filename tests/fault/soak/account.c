/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fault/soak/soak.h"

#define MAX_ROWS    128u
#define MAX_SAMPLES 8192u

static struct row {
	const char *event, *outcome; /* static strings */
	uint64_t n;
	int64_t sample[MAX_SAMPLES]; /* of the last ones */
	int64_t max;
} rows[MAX_ROWS];
static uint32_t n_rows;

int64_t soak_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void soak_problem(const char *format, ...)
{
	uint32_t n = atomic_fetch_add(&soak->n_problems, 1);
	va_list args;

	if (n >= SOAK_PROBLEMS)
		return;
	va_start(args, format);
	vsnprintf(soak->problem[n], sizeof(soak->problem[n]), format, args);
	va_end(args);
	/* at once too: what follows may hang */
	fprintf(stderr, "soak: %s\n", soak->problem[n]);
}

static int count_entries(pid_t pid, const char *what)
{
	char path[64];
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid ? (int)pid : (int)getpid(), what);
	dir = opendir(path);
	if (!dir)
		return -1;
	for (struct dirent *entry; (entry = readdir(dir));)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

void soak_holdings_take(pid_t pid, struct soak_holdings *ret_holdings)
{
	char path[64], line[512];
	FILE *file;

	if (!pid)
		pid = getpid();
	ret_holdings->n_fds = count_entries(pid, "fd");
	ret_holdings->n_threads = count_entries(pid, "task");
	ret_holdings->n_maps = 0;
	ret_holdings->rss_kib = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		ret_holdings->n_maps += strstr(line, "/memfd:") != NULL;
	if (file)
		fclose(file);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "VmRSS: %ld", &ret_holdings->rss_kib);
	if (file)
		fclose(file);
}

void soak_account_add(const char *event, const char *outcome, int64_t us)
{
	struct row *row = rows;

	while (row < rows + n_rows && (strcmp(row->event, event) || strcmp(row->outcome, outcome)))
		row++;
	if (row == rows + n_rows) {
		if (n_rows == MAX_ROWS)
			return;
		row->event = event;
		row->outcome = outcome;
		n_rows++;
	}
	row->sample[row->n++ % MAX_SAMPLES] = us;
	row->max = us > row->max ? us : row->max;
}

static int compare_samples(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static int compare_rows(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->event, ((const struct row *)b)->event);
}

static void print_joins(void)
{
	printf("\njoins and rejoins:");
	for (uint32_t status = 0; status < SOAK_STATUSES; status++) {
		uint64_t n = 0;

		for (uint32_t g = 0; g < SOAK_GROUPS; g++)
			for (uint32_t r = 0; r < SOAK_WORLD; r++)
				n += atomic_load(&soak->group[g].slot[r].joins[status]);
		if (n)
			printf(" %" PRIu64 " %s", n,
				moecomm_status_name((enum moecomm_status)status));
	}
	printf("\n");
}

void soak_account_print(int64_t elapsed_us)
{
	uint64_t n_ops = 0, n_failed = 0;

	qsort(rows, n_rows, sizeof(rows[0]), compare_rows);
	printf("\n%-30s %-18s %7s %12s %12s\n", "event", "seen", "n", "median ms", "max ms");
	for (uint32_t i = 0; i < n_rows; i++) {
		uint64_t n = rows[i].n < MAX_SAMPLES ? rows[i].n : MAX_SAMPLES;

		qsort(rows[i].sample, n, sizeof(rows[i].sample[0]), compare_samples);
		printf("%-30s %-18s %7" PRIu64 " %12.1f %12.1f\n", rows[i].event, rows[i].outcome,
			rows[i].n, (double)rows[i].sample[n / 2] / 1e3, (double)rows[i].max / 1e3);
	}
	print_joins();
	for (uint32_t g = 0; g < SOAK_GROUPS; g++)
		for (uint32_t r = 0; r < SOAK_WORLD; r++) {
			n_ops += atomic_load(&soak->group[g].slot[r].n_ops);
			n_failed += atomic_load(&soak->group[g].slot[r].n_failures);
		}
	printf("%" PRIu64 " verified ops, %" PRIu64 " failed ones, in %.1f s\n", n_ops, n_failed,
		(double)elapsed_us / 1e6);
}
