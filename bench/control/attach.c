/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attach: ranks stand connected at a barrier, then join at once. The time of one attach runs from
 * the first rank's call to the last rank's return, by one clock.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench/common/stats.h"
#include "bench/control/control.h"

/* performance.md's promise for 8 ranks on 2 cores. */
#define TARGET_RANKS 8
#define TARGET_MS    50.0

/* Shared by all ranks of one run, threads or processes. */
struct attach {
	const struct mc_control *control;
	int world_size;
	pid_t owner; /* makes group names unlike those of another bench at the same daemon */
	const char *kind;
	pthread_barrier_t barrier;
	atomic_int failed;
	char failure[1024]; /* of the rank that failed first */
	int64_t start_ns[MC_CONTROL_MAX_RANKS];
	int64_t end_ns[MC_CONTROL_MAX_RANKS];
	double samples_ms[]; /* [repeats], kept by rank 0 */
};

static void fail(struct attach *attach, const char *what, enum moecomm_status status)
{
	if (atomic_exchange(&attach->failed, 1) == 0)
		snprintf(attach->failure, sizeof(attach->failure), "%s: %s: %s", what,
			moecomm_status_name(status), moecomm_last_error());
}

static void keep_sample(struct attach *attach, int repeat)
{
	int64_t first = attach->start_ns[0], last = attach->end_ns[0];

	for (int rank = 1; rank < attach->world_size; rank++) {
		if (attach->start_ns[rank] < first)
			first = attach->start_ns[rank];
		if (attach->end_ns[rank] > last)
			last = attach->end_ns[rank];
	}
	attach->samples_ms[repeat] = (double)(last - first) / 1e6;
}

/*
 * One rank's part. Every rank reaches every barrier, failed or not, so that none waits for ever;
 * the joins themselves end at their deadline.
 */
static void run_rank(struct attach *attach, int rank)
{
	moecomm_context *context = NULL;
	enum moecomm_status status = mc_control_connect(attach->control, "moecomm-bench", &context);

	if (status)
		fail(attach, "connect", status);
	for (int repeat = -1; repeat < attach->control->repeats; repeat++) { /* -1: a warm-up */
		moecomm_group *group = NULL;
		char name[96];

		snprintf(name, sizeof(name), "bench-%d-%s-%d-%d", (int)attach->owner, attach->kind,
			attach->world_size, repeat + 1);
		pthread_barrier_wait(&attach->barrier);
		if (!atomic_load(&attach->failed)) {
			attach->start_ns[rank] = mc_bench_now_ns();
			status = mc_control_join(
				attach->control, context, name, rank, attach->world_size, &group);
			attach->end_ns[rank] = mc_bench_now_ns();
			if (status)
				fail(attach, "join", status);
		}
		pthread_barrier_wait(&attach->barrier);
		if (rank == 0 && repeat >= 0 && !atomic_load(&attach->failed))
			keep_sample(attach, repeat);
		moecomm_group_leave(group);
		pthread_barrier_wait(&attach->barrier);
	}
	moecomm_disconnect(context);
}

static struct attach *attach_new(struct mc_control *control, int world_size, const char *kind)
{
	size_t n_bytes = sizeof(struct attach) + (size_t)control->repeats * sizeof(double);
	struct attach *attach =
		mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t shared;

	if (attach == MAP_FAILED) {
		perror("moecomm-bench: mmap");
		return NULL;
	}
	attach->control = control;
	attach->world_size = world_size;
	attach->owner = getpid();
	attach->kind = kind;
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&attach->barrier, &shared, (unsigned)world_size);
	pthread_barrierattr_destroy(&shared);
	return attach;
}

/* Reports and frees. */
static int finish(struct mc_control *control, struct attach *attach, const char *what)
{
	int failed = atomic_load(&attach->failed);

	if (failed)
		fprintf(stderr, "moecomm-bench: attach of %d ranks: %s\n", attach->world_size,
			attach->failure);
	else
		mc_control_row(control, what, attach->world_size, "ms", attach->samples_ms,
			(size_t)control->repeats,
			attach->world_size == TARGET_RANKS ? TARGET_MS : (double)NAN);
	munmap(attach, sizeof(*attach) + (size_t)control->repeats * sizeof(double));
	return failed ? -1 : 0;
}

int mc_control_attach_processes(struct mc_control *control, int world_size)
{
	struct attach *attach = attach_new(control, world_size, "p");
	pid_t pids[MC_CONTROL_MAX_RANKS] = {0};
	int n = 0, left;

	if (!attach)
		return -1;
	fflush(NULL);
	for (; n < world_size; n++) {
		pids[n] = fork();
		if (pids[n] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_rank(attach, n);
			_exit(0);
		}
		if (pids[n] < 0)
			break;
	}
	left = n;
	if (n < world_size) {
		perror("moecomm-bench: fork");
		atomic_store(&attach->failed, 1);
	}
	/* a rank that dies never reaches the barrier: then the others are ended, not waited for */
	while (left > 0) {
		int status, ended = 0;
		pid_t pid = atomic_load(&attach->failed) && n < world_size ? 0 : wait(&status);

		for (int i = 0; i < n; i++)
			ended |= pid > 0 && pids[i] == pid;
		if (pid > 0 && !ended)
			continue; /* somebody else's child */
		if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
			left--;
			continue;
		}
		if (atomic_exchange(&attach->failed, 1) == 0)
			snprintf(attach->failure, sizeof(attach->failure), "a rank's process died");
		for (int i = 0; i < n; i++)
			if (pids[i] != pid) {
				kill(pids[i], SIGKILL);
				waitpid(pids[i], NULL, 0);
			}
		break;
	}
	return finish(control, attach, "attach, a process a rank");
}

struct rank_thread {
	struct attach *attach;
	int rank;
};

static void *thread_main(void *argument)
{
	struct rank_thread *thread = argument;

	run_rank(thread->attach, thread->rank);
	return NULL;
}

int mc_control_attach_threads(struct mc_control *control, int world_size)
{
	struct attach *attach = attach_new(control, world_size, "t");
	struct rank_thread arguments[MC_CONTROL_MAX_RANKS];
	pthread_t threads[MC_CONTROL_MAX_RANKS];

	if (!attach)
		return -1;
	for (int rank = 0; rank < world_size; rank++) {
		arguments[rank] = (struct rank_thread){attach, rank};
		if (pthread_create(&threads[rank], NULL, thread_main, &arguments[rank]) != 0) {
			/* those that run wait at a barrier that can't be reached any more */
			fprintf(stderr, "moecomm-bench: cannot make a thread\n");
			exit(1);
		}
	}
	for (int rank = 0; rank < world_size; rank++)
		pthread_join(threads[rank], NULL);
	return finish(control, attach, "attach, a thread a rank");
}
