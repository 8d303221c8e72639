/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "integration/client/leak.h"

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

void leak_take(struct leak *ret_leak)
{
	char line[512];
	FILE *file;

	ret_leak->n_fds = count_entries("/proc/self/fd");
	ret_leak->n_threads = count_entries("/proc/self/task");
	ret_leak->n_maps = 0;
	ret_leak->rss_kib = 0;
	file = fopen("/proc/self/maps", "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		ret_leak->n_maps += strstr(line, "/memfd:") != NULL;
	fclose(file);
	file = fopen("/proc/self/status", "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "VmRSS: %ld", &ret_leak->rss_kib);
	fclose(file);
}

void leak_check(const struct leak *before)
{
	struct leak after;

	/* a joined thread can stay listed for a moment after pthread_join */
	for (int i = 0; i < 200; i++) {
		leak_take(&after);
		if (after.n_threads <= before->n_threads)
			break;
		usleep(5000);
	}
	assert_int_equal(after.n_fds, before->n_fds);
	assert_int_equal(after.n_maps, before->n_maps);
#ifdef __SANITIZE_THREAD__
	/* the sanitizer starts one of its own with the first of ours */
	assert_true(after.n_threads <= before->n_threads + 1);
#else
	assert_int_equal(after.n_threads, before->n_threads);
#endif
}
