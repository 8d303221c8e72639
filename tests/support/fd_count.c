/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fd_count.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

uint64_t mc_test_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void mc_test_sleep_ms(int ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	nanosleep(&time, NULL);
}

size_t mc_test_count_fds(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid ? (int)pid : (int)getpid());
	dir = opendir(path);
	if (!dir)
		fail_msg("cannot read %s", path);
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	/* our own look at ourselves */
	return pid && pid != getpid() ? n : n - 1;
}

uint64_t mc_test_process_number(pid_t pid, const char *key)
{
	char path[64], line[256];
	size_t n_key = strlen(key);
	uint64_t value = 0;
	FILE *file;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	if (!file)
		fail_msg("cannot read %s", path);
	while (!found && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, n_key) && line[n_key] == ':') {
			value = strtoull(line + n_key + 1, NULL, 10);
			found = 1;
		}
	fclose(file);
	if (!found)
		fail_msg("%s has no %s", path, key);
	return value;
}

void mc_test_wait_fds(pid_t pid, size_t n_at_most, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;
	size_t n;

	while ((n = mc_test_count_fds(pid)) > n_at_most) {
		if (mc_test_now_ms() >= deadline)
			fail_msg("process %d has %zu fds, at most %zu were expected", (int)pid, n,
				n_at_most);
		mc_test_sleep_ms(10);
	}
}
