/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of moecomm-bench failures as their parent sees them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench/common/stats.h"
#include "bench/failures/failures.h"

/* Nothing that is waited for takes as long unless it never comes. */
#define WAIT_NS INT64_C(30000000000)

static void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* Tells who keeps us waiting; -1. */
static int gave_up(const struct mc_failures *failures, const char *what)
{
	fprintf(stderr, "moecomm-bench: waited for ranks to %s in vain\n", what);
	for (int r = 0; r < failures->n_ranks; r++) {
		const struct mc_failures_rank *rank = &failures->rank[r];

		fprintf(stderr, "  rank %d: epoch %llu, %llu ops, %s %s: %s\n", r,
			(unsigned long long)atomic_load(&rank->epoch),
			(unsigned long long)atomic_load(&rank->n_ops),
			atomic_load(&rank->is_failed) ? "failed with" : "was last",
			moecomm_status_name((enum moecomm_status)atomic_load(&rank->status)),
			rank->detail);
	}
	return -1;
}

int mc_failures_start_rank(struct mc_failures *failures, int rank)
{
	struct mc_failures_rank *shared = &failures->rank[rank];
	pid_t pid;

	const bool was_wrong = atomic_load(&shared->is_wrong);

	memset(shared, 0, sizeof(*shared));
	atomic_store(&shared->is_wrong, was_wrong);
	atomic_store(&shared->started_ns, mc_bench_now_ns());
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(mc_failures_run_rank(failures, rank));
	if (pid < 0) {
		perror("moecomm-bench: fork");
		return -1;
	}
	shared->pid = pid;
	return 0;
}

int mc_failures_start_ranks(struct mc_failures *failures)
{
	for (int r = 0; r < failures->n_ranks; r++)
		if (mc_failures_start_rank(failures, r) < 0)
			return -1;
	return mc_failures_wait_ops(failures, 20);
}

int mc_failures_kill_rank(struct mc_failures *failures, int rank)
{
	struct mc_failures_rank *shared = &failures->rank[rank];

	if (kill(shared->pid, SIGKILL) < 0 || waitpid(shared->pid, NULL, 0) < 0) {
		perror("moecomm-bench: kill");
		return -1;
	}
	shared->pid = 0;
	return 0;
}

void mc_failures_stop_ranks(struct mc_failures *failures)
{
	int64_t deadline = mc_bench_now_ns() + WAIT_NS / 3;

	for (int r = 0; r < failures->n_ranks; r++)
		atomic_store(&failures->rank[r].command, MC_FAILURES_STOP);
	for (int r = 0; r < failures->n_ranks; r++) {
		pid_t pid = failures->rank[r].pid;

		while (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0) {
			if (mc_bench_now_ns() > deadline)
				kill(pid, SIGKILL);
			pause_us(1000);
		}
		failures->rank[r].pid = 0;
	}
}

int mc_failures_wait_failed(struct mc_failures *failures, int but, enum moecomm_status status)
{
	int64_t deadline = mc_bench_now_ns() + WAIT_NS;

	for (int r = 0; r < failures->n_ranks; r++) {
		const struct mc_failures_rank *rank = &failures->rank[r];

		while (r != but && !atomic_load(&rank->is_failed)) {
			if (mc_bench_now_ns() > deadline)
				return gave_up(failures, "fail");
			pause_us(200);
		}
		if (r != but && atomic_load(&rank->status) != (int)status) {
			fprintf(stderr, "moecomm-bench: rank %d failed with %s, not %s: %s\n", r,
				moecomm_status_name(
					(enum moecomm_status)atomic_load(&rank->status)),
				moecomm_status_name(status), rank->detail);
			return -1;
		}
	}
	return 0;
}

int mc_failures_rejoin(struct mc_failures *failures, uint64_t old_epoch)
{
	int64_t deadline = mc_bench_now_ns() + WAIT_NS;

	for (int r = 0; r < failures->n_ranks; r++)
		atomic_store(&failures->rank[r].may_rejoin, true);
	for (int r = 0; r < failures->n_ranks; r++)
		while (atomic_load(&failures->rank[r].epoch) <= old_epoch) {
			if (mc_bench_now_ns() > deadline)
				return gave_up(failures, "form the next epoch");
			pause_us(100);
		}
	for (int r = 0; r < failures->n_ranks; r++)
		atomic_store(&failures->rank[r].may_rejoin, false);
	return 0;
}

int mc_failures_wait_ops(struct mc_failures *failures, uint64_t n)
{
	int64_t deadline = mc_bench_now_ns() + WAIT_NS;
	uint64_t was[MC_FAILURES_MAX_RANKS];

	for (int r = 0; r < failures->n_ranks; r++)
		was[r] = atomic_load(&failures->rank[r].n_ops);
	for (int r = 0; r < failures->n_ranks; r++)
		while (atomic_load(&failures->rank[r].n_ops) < was[r] + n) {
			if (mc_bench_now_ns() > deadline)
				return gave_up(failures, "run ops");
			pause_us(100);
		}
	return 0;
}
