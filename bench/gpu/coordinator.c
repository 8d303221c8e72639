/* SPDX-License-Identifier: Apache-2.0 */
/* Forks a process a rank for each phase, watches over them, and tells the results. */
#include "bench/gpu/gpu.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/common/daemon.h"
#include "bench/gpu/phases.h"
#include "bench/gpu/report.h"

/* After one rank has failed, the others notice within their own deadlines (10 s an op). */
#define GRACE_S 15

enum phase {
	PHASE_FLOORS,
	PHASE_OURS,
	PHASE_NCCL,
	PHASE_NCCL_NOMIX,
};

static bool run_rank(const struct bench_options *options, struct bench_shared *shared,
	enum phase phase, int rank)
{
	struct bench_rank r = {.options = options, .shared = shared, .rank = rank};

	/* NVLink multicast can take a host's GPUs out of service; nobody's figure here may use it
	 */
	setenv("NCCL_NVLS_ENABLE", "0", 1);
	if (phase == PHASE_NCCL_NOMIX)
		setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
	switch (phase) {
	case PHASE_FLOORS:
		return bench_phase_floors(&r);
	case PHASE_OURS:
		return bench_phase_ours(&r);
	default:
		return bench_phase_nccl(&r, phase == PHASE_NCCL);
	}
}

static void take_exit(struct bench_shared *shared, int rank, int status)
{
	if (WIFSIGNALED(status))
		bench_abort(shared, "rank %d was ended by signal %d (%s)", rank, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		bench_abort(shared, "rank %d ended with status %d", rank, WEXITSTATUS(status));
}

static void wait_for_ranks(const struct bench_options *options, struct bench_shared *shared,
	pid_t pid[BENCH_MAX_RANKS])
{
	time_t deadline = time(NULL) + options->timeout_s;
	int left = options->world_size;
	bool killing = false;

	while (left > 0) {
		for (int rank = 0; rank < options->world_size; rank++) {
			int status;

			if (pid[rank] > 0 && waitpid(pid[rank], &status, WNOHANG) == pid[rank]) {
				pid[rank] = 0;
				left--;
				if (!killing)
					take_exit(shared, rank, status);
			}
		}
		if (atomic_load(&shared->aborted) && deadline > time(NULL) + GRACE_S)
			deadline = time(NULL) + GRACE_S;
		if (time(NULL) > deadline && !killing) {
			killing = true;
			bench_abort(shared, "ranks did not end within %d s and were killed",
				options->timeout_s);
			for (int rank = 0; rank < options->world_size; rank++) {
				if (pid[rank] > 0)
					kill(pid[rank], SIGKILL);
			}
		}
		nanosleep(&(struct timespec){0, 5000000}, NULL);
	}
}

/* Returns whether the phase went through; else shared->error says why. */
static bool run_phase(
	const struct bench_options *options, struct bench_shared *shared, enum phase phase)
{
	pid_t pid[BENCH_MAX_RANKS] = {0}, parent = getpid();

	atomic_store(&shared->aborted, 0);
	atomic_store(&shared->arrived, 0);
	atomic_store(&shared->error_taken, 0);
	shared->error[0] = 0;
	fflush(NULL);
	for (int rank = 0; rank < options->world_size; rank++) {
		/* this process never makes a CUDA call, so its children may */
		pid[rank] = fork();
		if (pid[rank] == 0) {
			bool ok;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			ok = run_rank(options, shared, phase, rank);
			fflush(NULL);
			/* exit handlers of a driver in trouble can hang */
			_exit(ok ? 0 : 1);
		}
		if (pid[rank] < 0)
			bench_abort(shared, "fork: %s", strerror(errno));
	}
	for (int rank = 0; rank < options->world_size; rank++) {
		if (pid[rank] < 0)
			pid[rank] = 0;
	}
	wait_for_ranks(options, shared, pid);
	return !atomic_load(&shared->aborted);
}

static void run_nccl(const struct bench_options *options, struct bench_shared *shared)
{
	if (!options->nccl)
		snprintf(shared->nccl_note, sizeof(shared->nccl_note), "not asked for");
	else if (options->world_size < 2)
		snprintf(shared->nccl_note, sizeof(shared->nccl_note),
			"one rank has nobody to talk to");
	else if (shared->machine.gpus_shared)
		snprintf(shared->nccl_note, sizeof(shared->nccl_note),
			"takes no two ranks on one GPU");
	else if (!run_phase(options, shared, PHASE_NCCL))
		snprintf(shared->nccl_note, sizeof(shared->nccl_note), "%.500s", shared->error);
	else if (!run_phase(options, shared, PHASE_NCCL_NOMIX))
		snprintf(shared->nccl_note, sizeof(shared->nccl_note),
			"without graph mixing: %.480s", shared->error);
}

static unsigned long long count_wrong(
	const struct bench_options *options, const struct bench_shared *shared)
{
	unsigned long long wrong = 0;

	for (int size = 0; size < options->n_sizes; size++) {
		for (int series = BENCH_OURS; series <= BENCH_SEPARATE; series++) {
			for (int form = 0; form < BENCH_N_FORMS; form++)
				wrong += bench_figure_of(options, shared, size,
					(enum bench_series)series, (enum bench_form)form)
						 .wrong;
		}
	}
	return wrong;
}

static int run(const struct bench_options *options, struct bench_shared *shared)
{
	unsigned long long wrong;
	bool ours;

	if (!run_phase(options, shared, PHASE_FLOORS) && !shared->floors.why[0])
		snprintf(shared->floors.why, sizeof(shared->floors.why), "floors: %.240s",
			shared->error);
	ours = run_phase(options, shared, PHASE_OURS);
	if (!ours) {
		fprintf(stderr, "moecomm-bench: %s\n", shared->error);
		/* without a GPU, NCCL has nothing to say either */
		if (!shared->machine.n_devices)
			return MC_BENCH_FAILED;
	}
	/* what is known already outlives whoever stops a run that takes too long */
	if (options->json_path && bench_json_write(options, shared))
		return MC_BENCH_FAILED;
	run_nccl(options, shared);
	bench_table_print(options, shared);
	if (options->json_path && bench_json_write(options, shared))
		return MC_BENCH_FAILED;
	if (options->plot_path)
		bench_plot(options->json_path, options->plot_path);
	wrong = count_wrong(options, shared);
	if (wrong)
		fprintf(stderr, "moecomm-bench: %llu wrong\n", wrong);
	return ours && !wrong ? MC_BENCH_OK : MC_BENCH_FAILED;
}

int mc_bench_gpu(int argc, char **argv)
{
	struct bench_options options;
	struct bench_shared *shared;
	struct mc_bench_daemon daemon = {0};
	int r = bench_options_parse(argc, argv, &options);

	if (r)
		return r == 1 ? MC_BENCH_OK : MC_BENCH_USAGE;
	shared = bench_shared_new();
	if (!shared) {
		fprintf(stderr, "moecomm-bench: out of memory\n");
		return MC_BENCH_FAILED;
	}
	/* a daemon that is named is used; else one of our own, for this run */
	if (!options.socket_path && !getenv("MOECOMM_SOCKET")) {
		if (mc_bench_daemon_start("cuda", &daemon))
			return MC_BENCH_UNREACHABLE;
		options.socket_path = daemon.socket;
	}
	r = run(&options, shared);
	mc_bench_daemon_stop(&daemon);
	return r;
}
