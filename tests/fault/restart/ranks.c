/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/restart/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/fd_count.h"

#define START_TIMEOUT_MS 30000
#define STOP_TIMEOUT_MS  15000
#define N_ARGS           14

void ranks_open(struct ranks *ret_ranks, const struct ranks_options *options)
{
	struct ranks *ranks = ret_ranks;

	memset(ranks, 0, sizeof(*ranks));
	ranks->options = *options;
	assert_in_range(options->world_size, 1, RANKS_MAX);
	ranks->view_fd = memfd_create("ranks", MFD_CLOEXEC);
	assert_true(ranks->view_fd >= 0);
	assert_int_equal(ftruncate(ranks->view_fd, (off_t)(RANKS_MAX * sizeof(*ranks->view))), 0);
	ranks->view = mmap(NULL, RANKS_MAX * sizeof(*ranks->view), PROT_READ | PROT_WRITE,
		MAP_SHARED, ranks->view_fd, 0);
	assert_ptr_not_equal(ranks->view, MAP_FAILED);
}

void ranks_start_one(struct ranks *ranks, int rank)
{
	const struct ranks_options *o = &ranks->options;
	const int numbers[] = {rank, o->world_size, o->op_timeout_ms, o->warmup_timeout_ms,
		o->warmup_calls, o->join_timeout_ms, o->rejoin, o->pace_us,
		o->row_bytes ? o->row_bytes : 256};
	char text[N_ARGS][16], *argv[N_ARGS + 1] = {NULL};
	int fd;

	assert_int_equal(ranks->pid[rank], 0);
	memset(&ranks->view[rank], 0, sizeof(ranks->view[rank]));
	fd = fcntl(ranks->view_fd, F_DUPFD, 100);
	assert_true(fd >= 0);
	snprintf(text[2], sizeof(text[2]), "%d", fd);
	argv[0] = (char *)"rank";
	argv[1] = (char *)"--rank";
	argv[2] = text[2];
	argv[3] = (char *)o->socket;
	argv[4] = (char *)o->group;
	for (int i = 5; i < N_ARGS; i++) {
		snprintf(text[i], sizeof(text[i]), "%d", numbers[i - 5]);
		argv[i] = text[i];
	}
	fflush(NULL);
	ranks->pid[rank] = fork();
	assert_true(ranks->pid[rank] >= 0);
	if (!ranks->pid[rank]) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	close(fd);
}

static bool has_done_one(const struct rank_view *view, const void *data)
{
	(void)data;
	return atomic_load(&view->n_ok) > 0;
}

void ranks_start(struct ranks *ret_ranks, const struct ranks_options *options)
{
	ranks_open(ret_ranks, options);
	for (int r = 0; r < options->world_size; r++)
		ranks_start_one(ret_ranks, r);
	ranks_wait(ret_ranks, has_done_one, NULL, "has done an op", START_TIMEOUT_MS);
}

void ranks_kill(struct ranks *ranks, int rank)
{
	int status;

	assert_true(ranks->pid[rank] > 0);
	assert_int_equal(kill(ranks->pid[rank], SIGKILL), 0);
	assert_int_equal(waitpid(ranks->pid[rank], &status, 0), ranks->pid[rank]);
	ranks->pid[rank] = 0;
}

void ranks_stop(struct ranks *ranks)
{
	uint64_t deadline = mc_test_now_ms() + STOP_TIMEOUT_MS;
	int status;

	for (int r = 0; r < ranks->options.world_size; r++)
		ranks_command(ranks, r, RANK_STOP);
	for (int r = 0; r < ranks->options.world_size; r++) {
		if (!ranks->pid[r])
			continue;
		while (waitpid(ranks->pid[r], &status, WNOHANG) != ranks->pid[r]) {
			if (mc_test_now_ms() > deadline)
				fail_msg("rank %d did not end within %d ms", r, STOP_TIMEOUT_MS);
			mc_test_sleep_ms(2);
		}
		ranks->pid[r] = 0;
		if (status)
			fail_msg("rank %d ended with wait status %#x", r, (unsigned)status);
		if (atomic_load(&ranks->view[r].n_wrong))
			fail_msg("rank %d has got wrong data", r);
	}
}

void ranks_close(struct ranks *ranks)
{
	for (int r = 0; r < RANKS_MAX; r++)
		if (ranks->pid[r] > 0)
			ranks_kill(ranks, r);
	if (ranks->view)
		munmap(ranks->view, RANKS_MAX * sizeof(*ranks->view));
	close(ranks->view_fd);
	ranks->view = NULL;
}

void ranks_wait(struct ranks *ranks, bool (*is)(const struct rank_view *view, const void *data),
	const void *data, const char *what, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;

	for (int r = 0; r < ranks->options.world_size; r++) {
		const struct rank_view *view = &ranks->view[r];

		while (ranks->pid[r] && !is(view, data)) {
			if (mc_test_now_ms() > deadline)
				fail_msg("rank %d: not '%s' within %d ms; joined %d (%d), epoch "
					 "%llu, "
					 "%llu ops, %llu failed, %llu rejoins (%d), last status "
					 "%d: %s",
					r, what, timeout_ms, atomic_load(&view->has_joined),
					atomic_load(&view->join_status),
					(unsigned long long)atomic_load(&view->epoch),
					(unsigned long long)atomic_load(&view->n_ok),
					(unsigned long long)atomic_load(&view->n_failed),
					(unsigned long long)atomic_load(&view->n_rejoins),
					atomic_load(&view->rejoin_status),
					atomic_load(&view->status), view->detail);
			mc_test_sleep_ms(1);
		}
	}
}

void ranks_wait_ops(struct ranks *ranks, uint64_t n, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms, was[RANKS_MAX];

	for (int r = 0; r < ranks->options.world_size; r++)
		was[r] = atomic_load(&ranks->view[r].n_ok);
	for (int r = 0; r < ranks->options.world_size; r++)
		while (ranks->pid[r] && atomic_load(&ranks->view[r].n_ok) < was[r] + n) {
			if (mc_test_now_ms() > deadline)
				fail_msg("rank %d did only %llu of %llu ops within %d ms: %s", r,
					(unsigned long long)(atomic_load(&ranks->view[r].n_ok) -
							     was[r]),
					(unsigned long long)n, timeout_ms, ranks->view[r].detail);
			mc_test_sleep_ms(1);
		}
}

bool rank_is_connected(const struct rank_view *view, const void *data)
{
	(void)data;
	return atomic_load(&view->connected);
}

bool rank_is_disconnected(const struct rank_view *view, const void *data)
{
	(void)data;
	return !atomic_load(&view->connected);
}

bool rank_has_failed(const struct rank_view *view, const void *data)
{
	return atomic_load(&view->n_failed) > *(const uint64_t *)data;
}

bool rank_is_beyond(const struct rank_view *view, const void *data)
{
	return atomic_load(&view->epoch) > *(const uint64_t *)data &&
	       atomic_load(&view->last_ok_ns) > atomic_load(&view->rejoined_ns) &&
	       atomic_load(&view->n_ok) > 0;
}

static char *maps(pid_t pid, bool with_inode)
{
	char path[64], line[512], *text = NULL;
	unsigned long begin, end, inode;
	char name[256];
	size_t n_text = 0;
	FILE *file, *out = open_memstream(&text, &n_text);

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(out);
	while (fgets(line, sizeof(line), file)) {
		if (!strstr(line, "memfd:moecomm") || sscanf(line, "%lx-%lx %*s %*s %*s %lu %255s",
							      &begin, &end, &inode, name) != 4)
			continue;
		fprintf(out, "%lx-%lx %lu %s\n", begin, end, with_inode ? inode : 0, name);
	}
	fclose(file);
	fclose(out);
	return text;
}

char *ranks_maps(pid_t pid)
{
	return maps(pid, true);
}

char *ranks_places(pid_t pid)
{
	return maps(pid, false);
}

void ranks_command(struct ranks *ranks, int rank, enum rank_command command)
{
	atomic_store(&ranks->view[rank].command, (int)command);
}

uint64_t ranks_total_failed(const struct ranks *ranks)
{
	uint64_t n = 0;

	for (int r = 0; r < ranks->options.world_size; r++)
		n += atomic_load(&ranks->view[r].n_failed);
	return n;
}

void ranks_time(struct ranks_times *times, int64_t from_ns, int64_t to_ns)
{
	if (times->n < sizeof(times->ms) / sizeof(times->ms[0]))
		times->ms[times->n++] = (double)(to_ns - from_ns) / 1e6;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double ranks_print_times(struct ranks_times *times, const char *name)
{
	assert_true(times->n > 0);
	qsort(times->ms, times->n, sizeof(times->ms[0]), compare);
	print_message("%s: median %.2f ms, max %.2f ms over %zu\n", name, times->ms[times->n / 2],
		times->ms[times->n - 1], times->n);
	return times->ms[times->n - 1];
}

void ranks_check_times(struct ranks_times *times, const char *name, double median_ms)
{
	assert_true(ranks_print_times(times, name) < 60000);
	assert_true(times->ms[times->n / 2] < median_ms);
}
