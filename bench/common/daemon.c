/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <moecomm.h>

#define START_TIMEOUT_MS 10000
#define STOP_TIMEOUT_MS  5000

/* The rate limit is for many users' sake; one user's bench wants to know what the daemon can do. */
static const char config[] = "[limits]\nmax_requests_per_second_per_uid = 10000000\n";

static int write_config(const char *directory)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/moecommd.conf", directory);
	file = fopen(path, "we");
	if (!file)
		return -errno;
	fputs(config, file);
	return fclose(file) == EOF ? -errno : 0;
}

/* In the child. */
static void become_daemon(const struct mc_bench_daemon *daemon, const char *backend)
{
	char self[PATH_MAX], config_path[128], log_path[128];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - sizeof("moecommd"));
	char *slash;
	int log;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(config_path, sizeof(config_path), "%s/moecommd.conf", daemon->directory);
	snprintf(log_path, sizeof(log_path), "%s/log", daemon->directory);
	log = open(log_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (log >= 0)
		dup2(log, STDERR_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout is for results */
	unsetenv("NOTIFY_SOCKET");
	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		strcpy(slash ? slash + 1 : self, "moecommd");
		execl(self, "moecommd", "--config", config_path, "--socket", daemon->socket,
			"--backend", backend, (char *)NULL);
	}
	execlp("moecommd", "moecommd", "--config", config_path, "--socket", daemon->socket,
		"--backend", backend, (char *)NULL);
	fprintf(stderr, "cannot run moecommd: %s\n", strerror(errno));
	_exit(127);
}

static void show_log(const struct mc_bench_daemon *daemon)
{
	char path[128], line[1024];
	FILE *file;

	snprintf(path, sizeof(path), "%s/log", daemon->directory);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		fprintf(stderr, "  %s", line);
	if (file)
		fclose(file);
}

/* Starts it and waits until it answers. */
static int launch(struct mc_bench_daemon *daemon)
{
	struct moecomm_connect_options options = MOECOMM_CONNECT_OPTIONS_INIT;
	moecomm_context *context = NULL;

	fflush(NULL);
	daemon->pid = fork();
	if (daemon->pid == 0)
		become_daemon(daemon, daemon->backend);
	if (daemon->pid < 0) {
		int r = -errno;

		fprintf(stderr, "moecomm-bench: cannot start a daemon: %s\n", strerror(-r));
		daemon->pid = 0;
		return r;
	}
	options.socket_path = daemon->socket;
	options.wait_ms = START_TIMEOUT_MS;
	if (moecomm_connect(&options, &context) != MOECOMM_OK) {
		fprintf(stderr, "moecomm-bench: the daemon did not start: %s; its log:\n",
			moecomm_last_error());
		show_log(daemon);
		return -ECONNREFUSED;
	}
	moecomm_disconnect(context);
	return 0;
}

int mc_bench_daemon_start(const char *backend, struct mc_bench_daemon *ret_daemon)
{
	struct mc_bench_daemon daemon = {
		.directory = "/tmp/moecomm-bench-XXXXXX", .backend = backend};
	int r;

	if (!mkdtemp(daemon.directory)) {
		r = -errno;
		fprintf(stderr, "moecomm-bench: cannot make a directory in /tmp: %s\n",
			strerror(-r));
		return r;
	}
	snprintf(daemon.socket, sizeof(daemon.socket), "%s/moecommd.sock", daemon.directory);
	r = write_config(daemon.directory);
	if (r < 0)
		fprintf(stderr, "moecomm-bench: cannot write %s/moecommd.conf: %s\n",
			daemon.directory, strerror(-r));
	else
		r = launch(&daemon);
	if (r < 0) {
		mc_bench_daemon_stop(&daemon);
		return r;
	}
	*ret_daemon = daemon;
	return 0;
}

void mc_bench_daemon_kill(struct mc_bench_daemon *daemon)
{
	if (daemon->pid <= 0)
		return;
	kill(daemon->pid, SIGKILL);
	waitpid(daemon->pid, NULL, 0);
	daemon->pid = 0;
}

int mc_bench_daemon_restart(struct mc_bench_daemon *daemon)
{
	return launch(daemon);
}

void mc_bench_daemon_stop(struct mc_bench_daemon *daemon)
{
	DIR *stream;
	struct dirent *entry;

	if (daemon->pid > 0) {
		int waited = 0;

		kill(daemon->pid, SIGTERM);
		while (waitpid(daemon->pid, NULL, WNOHANG) == 0) {
			if (waited > STOP_TIMEOUT_MS)
				kill(daemon->pid, SIGKILL);
			poll(NULL, 0, 10);
			waited += 10;
		}
	}
	if (!*daemon->directory)
		return;
	stream = opendir(daemon->directory);
	while (stream && (entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(dirfd(stream), entry->d_name, 0);
	if (stream)
		closedir(stream);
	rmdir(daemon->directory);
	*daemon = (struct mc_bench_daemon){0};
}
