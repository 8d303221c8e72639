/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks as the test sees them. */
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
#include "gpu/life/life.h"

#define WAIT_NS  INT64_C(30000000000)
#define LEAVE_MS 5000
/* A replay after the failure does nothing; this is for the launch, beside others' kernels. */
#define REPLAY_MS 500
#define N_ARGS    9

static void show(const struct life *life)
{
	for (int r = 0; r < life->world_size; r++) {
		const struct life_view *view = &life->view[r];

		print_message(
			"  rank %d (pid %d): epoch %llu, %llu rounds, %llu wrong, %llu failed, "
			"last %s of rank %d, then %s, CUDA error %d, rejoin %s, daemon %d: %s\n",
			r, (int)life->pid[r], (unsigned long long)atomic_load(&view->epoch),
			(unsigned long long)atomic_load(&view->n_ok),
			(unsigned long long)atomic_load(&view->n_wrong),
			(unsigned long long)atomic_load(&view->n_failed),
			moecomm_status_name((enum moecomm_status)atomic_load(&view->status)),
			atomic_load(&view->fault_rank),
			moecomm_status_name((enum moecomm_status)atomic_load(&view->next_status)),
			atomic_load(&view->cuda_error),
			moecomm_status_name((enum moecomm_status)atomic_load(&view->rejoin_status)),
			(int)atomic_load(&view->connected), view->detail);
	}
}

static bool has_ended(struct life *life, int rank)
{
	int status;

	if (life->pid[rank] <= 0 || waitpid(life->pid[rank], &status, WNOHANG) == 0)
		return false;
	life->pid[rank] = 0;
	print_message("rank %d ended with wait status %#x\n", rank, (unsigned)status);
	return true;
}

/* Waits until the condition of rank r holds; `r` and `view` are in scope of it. */
#define WAIT(life, but, what, condition)                                                           \
	do {                                                                                       \
		int64_t deadline_ = life_now_ns() + WAIT_NS;                                       \
		for (int r = 0; r < (life)->world_size; r++) {                                     \
			const struct life_view *view = &(life)->view[r];                           \
			while (r != (but) && (life)->pid[r] && !(condition)) {                     \
				if (life_now_ns() > deadline_ || has_ended(life, r)) {             \
					show(life);                                                \
					fail_msg("rank %d: not %s", r, what);                      \
				}                                                                  \
				life_sleep_us(200);                                                \
			}                                                                          \
		}                                                                                  \
	} while (0)

char *life_ask_self(const char *argument)
{
	char command[4096 + 64], path[4096], *text = calloc(1, 4096);
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	FILE *out;

	assert_true(n > 0);
	path[n] = 0;
	snprintf(command, sizeof(command), "'%s' %s", path, argument);
	out = popen(command, "re");
	assert_non_null(out);
	assert_non_null(text);
	assert_true(fread(text, 1, 4095, out) > 0);
	assert_int_equal(pclose(out), 0);
	return text;
}

void life_start_one(struct life *life, int rank, bool use_graph)
{
	char text[N_ARGS][24], *argv[N_ARGS + 1] = {NULL};
	int fd;

	assert_int_equal(life->pid[rank], 0);
	memset(&life->view[rank], 0, sizeof(life->view[rank]));
	atomic_store(&life->view[rank].use_graph, use_graph);
	life->n_failed[rank] = 0;
	fd = fcntl(life->view_fd, F_DUPFD, 100);
	assert_true(fd >= 0);
	for (int i = 0; i < N_ARGS; i++)
		argv[i] = text[i];
	argv[0] = (char *)"rank";
	argv[1] = (char *)"--rank";
	argv[3] = (char *)life->socket;
	argv[4] = life->group;
	snprintf(text[2], sizeof(text[2]), "%d", fd);
	snprintf(text[5], sizeof(text[5]), "%d", rank);
	snprintf(text[6], sizeof(text[6]), "%d", life->world_size);
	snprintf(text[7], sizeof(text[7]), "%d", life->n_devices);
	snprintf(text[8], sizeof(text[8]), "%lld", (long long)life_now_ns());
	fflush(NULL);
	life->pid[rank] = fork();
	assert_true(life->pid[rank] >= 0);
	if (!life->pid[rank]) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	close(fd);
}

void life_start(struct life *life, bool use_graph)
{
	static int n_groups;

	life->view_fd = memfd_create("life", MFD_CLOEXEC);
	assert_true(life->view_fd >= 0);
	assert_int_equal(
		ftruncate(life->view_fd, (off_t)(LIFE_MAX_RANKS * sizeof(*life->view))), 0);
	life->view = mmap(NULL, LIFE_MAX_RANKS * sizeof(*life->view), PROT_READ | PROT_WRITE,
		MAP_SHARED, life->view_fd, 0);
	assert_ptr_not_equal(life->view, MAP_FAILED);
	snprintf(life->group, sizeof(life->group), "life%d", n_groups++);
	for (int r = 0; r < life->world_size; r++)
		life_start_one(life, r, use_graph);
	life_wait_rounds(life, 20);
}

void life_kill(struct life *life, int rank)
{
	assert_true(life->pid[rank] > 0);
	assert_int_equal(kill(life->pid[rank], SIGKILL), 0);
	assert_int_equal(waitpid(life->pid[rank], NULL, 0), life->pid[rank]);
	life->pid[rank] = 0;
}

void life_command(struct life *life, int rank, enum life_command command)
{
	atomic_store(&life->view[rank].command, (int)command);
}

void life_command_all(struct life *life, enum life_command command)
{
	for (int r = 0; r < life->world_size; r++)
		life_command(life, r, command);
}

static void check_health(const struct life *life)
{
	for (int r = 0; r < life->world_size; r++) {
		if (!atomic_load(&life->view[r].n_wrong) && !atomic_load(&life->view[r].cuda_error))
			continue;
		show(life);
		fail_msg("rank %d got wrong data or a CUDA error", r);
	}
}

void life_wait_rounds(struct life *life, uint64_t n)
{
	uint64_t was[LIFE_MAX_RANKS];

	for (int r = 0; r < life->world_size; r++)
		was[r] = atomic_load(&life->view[r].n_ok);
	WAIT(life, -1, "running", atomic_load(&view->n_ok) >= was[r] + n);
	check_health(life);
}

void life_mark(struct life *life)
{
	for (int r = 0; r < life->world_size; r++)
		life->n_failed[r] = atomic_load(&life->view[r].n_failed);
}

void life_expect_failed(struct life *life, int but, enum moecomm_status status)
{
	WAIT(life, but, "failing", atomic_load(&view->n_failed) > life->n_failed[r]);
	check_health(life);
	for (int r = 0; r < life->world_size; r++) {
		const struct life_view *view = &life->view[r];

		if (r == but || !life->pid[r])
			continue;
		if (atomic_load(&view->status) != (int)status ||
			atomic_load(&view->next_status) != (int)status ||
			atomic_load(&view->replay_ns) > REPLAY_MS * INT64_C(1000000)) {
			show(life);
			fail_msg("rank %d: %s, then %s, a replay took %.1f ms; not %s", r,
				moecomm_status_name(
					(enum moecomm_status)atomic_load(&view->status)),
				moecomm_status_name(
					(enum moecomm_status)atomic_load(&view->next_status)),
				(double)atomic_load(&view->replay_ns) / 1e6,
				moecomm_status_name(status));
		}
	}
}

void life_rejoin(struct life *life, uint64_t old_epoch)
{
	/* a rank that has just carried out a command takes it back */
	WAIT(life, -1, "ready for a command",
		atomic_load(&view->command) == LIFE_RUN ||
			atomic_load(&view->command) == LIFE_PAUSE);
	life_command_all(life, LIFE_REJOIN);
	WAIT(life, -1, "in the next epoch",
		atomic_load(&view->epoch) > old_epoch && atomic_load(&view->first_ok_ns));
	life_wait_rounds(life, 20);
}

void life_wait_connected(struct life *life, bool connected)
{
	WAIT(life, -1, connected ? "connected" : "without a daemon",
		atomic_load(&view->connected) == connected);
}

int64_t life_last_failed(const struct life *life, int but)
{
	int64_t last = 0;

	for (int r = 0; r < life->world_size; r++)
		if (r != but && atomic_load(&life->view[r].failed_ns) > last)
			last = atomic_load(&life->view[r].failed_ns);
	return last;
}

int64_t life_last_first_ok(const struct life *life)
{
	int64_t last = 0;

	for (int r = 0; r < life->world_size; r++)
		if (atomic_load(&life->view[r].first_ok_ns) > last)
			last = atomic_load(&life->view[r].first_ok_ns);
	return last;
}

void life_stop(struct life *life)
{
	int64_t deadline = life_now_ns() + WAIT_NS, longest = 0;
	int status;

	life_command_all(life, LIFE_STOP);
	for (int r = 0; r < life->world_size; r++) {
		if (!life->pid[r])
			continue;
		while (waitpid(life->pid[r], &status, WNOHANG) == 0) {
			if (life_now_ns() > deadline) {
				show(life);
				fail_msg("rank %d does not end", r);
			}
			life_sleep_us(1000);
		}
		life->pid[r] = 0;
		if (status) {
			show(life);
			fail_msg("rank %d ended with wait status %#x", r, (unsigned)status);
		}
		if (atomic_load(&life->view[r].left_ns) > longest)
			longest = atomic_load(&life->view[r].left_ns);
	}
	check_health(life);
	print_message("  leave and disconnect: at most %.1f ms\n", (double)longest / 1e6);
	assert_true(longest < LEAVE_MS * INT64_C(1000000));
	life_clear(life);
}

void life_clear(struct life *life)
{
	if (!life->view)
		return;
	for (int r = 0; r < life->world_size; r++)
		if (life->pid[r] > 0)
			life_kill(life, r);
	munmap(life->view, LIFE_MAX_RANKS * sizeof(*life->view));
	close(life->view_fd);
	life->view = NULL;
}
