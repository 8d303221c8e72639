/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/client/harness.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "integration/client/ranks.h"
#include "support/daemon_process.h"

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- daemon ---- */

static struct mc_test_daemon daemon_process;

const char *test_socket(void)
{
	static char path[64];

	if (daemon_process.socket[0])
		return daemon_process.socket;
	if (!path[0])
		snprintf(path, sizeof(path), "/tmp/moecomm-client-%d.sock", (int)getpid());
	return path;
}

int ranks_daemon_start(void **state)
{
	/* thousands of groups come and go here: only what goes wrong is worth a line */
	static const struct mc_test_daemon_options options = {
		.config = "[daemon]\nlog_level = warning\n"};

	(void)state;
	mc_test_daemon_start(&daemon_process, &options);
	return 0;
}

int ranks_daemon_finish(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_process);
	return 0;
}

void ranks_daemon_kill(void)
{
	mc_test_daemon_kill(&daemon_process);
}

void ranks_daemon_restart(void)
{
	mc_test_daemon_restart(&daemon_process);
}

/* ---- ranks ---- */

struct running {
	struct rank rank;
	rank_body body;
	pthread_t thread;
	pid_t pid;
	int failed;
};

static void *run_thread(void *data)
{
	struct running *running = data;

	running->failed = running->body(&running->rank) != 0;
	return NULL;
}

int run_threads(const char *group, int world_size, rank_body body, void *data)
{
	moecomm_context *context = test_connect(test_socket());
	struct running running[64];
	int n_failed = 0;

	for (int r = 0; r < world_size; r++) {
		running[r] = (struct running){
			.rank = {group, r, world_size, data, context}, .body = body};
		assert_int_equal(
			pthread_create(&running[r].thread, NULL, run_thread, &running[r]), 0);
	}
	for (int r = 0; r < world_size; r++) {
		pthread_join(running[r].thread, NULL);
		n_failed += running[r].failed;
	}
	moecomm_disconnect(context);
	return n_failed;
}

static int run_process(struct running *running)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	int failed;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	o.socket_path = test_socket();
	o.wait_ms = 5000;
	if (moecomm_connect(&o, &running->rank.context)) {
		fprintf(stderr, "rank %d: %s\n", running->rank.rank, moecomm_last_error());
		return 1;
	}
	failed = running->body(&running->rank) != 0;
	moecomm_disconnect(running->rank.context);
	return failed;
}

int run_processes(const char *group, int world_size, rank_body body, void *data)
{
	struct running running[64];
	int n_failed = 0, status;

	fflush(NULL);
	test_socket();
	for (int r = 0; r < world_size; r++) {
		running[r] =
			(struct running){.rank = {group, r, world_size, data, NULL}, .body = body};
		running[r].pid = fork();
		if (running[r].pid == 0)
			_exit(run_process(&running[r]));
		assert_true(running[r].pid > 0);
	}
	for (int r = 0; r < world_size; r++) {
		assert_int_equal(waitpid(running[r].pid, &status, 0), running[r].pid);
		n_failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	}
	return n_failed;
}

moecomm_group *rank_join(struct rank *rank)
{
	struct moecomm_group_options o = test_options(rank->group, rank->rank, rank->world_size);
	moecomm_group *group = NULL;

	o.join_timeout_ms = o.probe_timeout_ms = 20000;
	if (moecomm_group_join(rank->context, &o, &group))
		fprintf(stderr, "rank %d of %s: %s\n", rank->rank, rank->group,
			moecomm_last_error());
	return group;
}

pthread_barrier_t *ranks_barrier(unsigned n)
{
	pthread_barrierattr_t attributes;
	pthread_barrier_t *barrier = mmap(
		NULL, sizeof(*barrier), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(barrier != MAP_FAILED);
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(barrier, &attributes, n);
	pthread_barrierattr_destroy(&attributes);
	return barrier;
}
