/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/client/harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "integration/client/ranks.h"

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *test_socket(void)
{
	static char path[64];

	if (!path[0])
		snprintf(path, sizeof(path), "/tmp/moecomm-client-%d.sock", (int)getpid());
	return path;
}

/* ---- daemon ---- */

pid_t daemon_start(void)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	const char *bin = getenv("MOECOMM_TEST_BIN");
	moecomm_context *context = NULL;
	char program[512], config[96];
	FILE *file;
	pid_t pid;

	snprintf(program, sizeof(program), "%s/moecommd", bin ? bin : "bin");
	/* before the fork: it is this process's name that all use */
	o.socket_path = test_socket();
	/* thousands of groups come and go here: only what goes wrong is worth a line */
	snprintf(config, sizeof(config), "%s.conf", test_socket());
	file = fopen(config, "we");
	assert_non_null(file);
	fputs("[daemon]\nlog_level = warning\n", file);
	fclose(file);
	pid = fork();
	if (pid == 0) {
		/* whatever becomes of the test, the daemon goes with it */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(program, program, "--config", config, "--socket", test_socket(), "--backend",
			"host", (char *)NULL);
		fprintf(stderr, "%s: %s\n", program, strerror(errno));
		_exit(127);
	}
	assert_true(pid > 0);
	o.wait_ms = 20000;
	assert_status(moecomm_connect(&o, &context), MOECOMM_OK);
	moecomm_disconnect(context);
	unlink(config);
	return pid;
}

static void reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
}

void daemon_stop(pid_t pid)
{
	char lock[96];

	kill(pid, SIGTERM);
	reap(pid);
	/* the daemon leaves it, as it must; nobody else will use this path */
	snprintf(lock, sizeof(lock), "%s.lock", test_socket());
	unlink(lock);
}

void daemon_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	reap(pid);
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
