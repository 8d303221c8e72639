/* SPDX-License-Identifier: Apache-2.0 */
#include "support/daemon_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/fd_count.h"

#define START_TIMEOUT_MS 20000
#define STOP_TIMEOUT_MS  5000
#define MAX_ARGS         32

static void open_notify(struct mc_test_daemon *daemon)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(daemon->notify_path, sizeof(daemon->notify_path), "%s/notify", daemon->directory);
	memcpy(address.sun_path, daemon->notify_path, sizeof(daemon->notify_path));
	daemon->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(daemon->notify_fd >= 0);
	assert_int_equal(bind(daemon->notify_fd, (struct sockaddr *)&address, sizeof(address)), 0);
}

static void write_config(struct mc_test_daemon *daemon)
{
	FILE *file;

	/* also without settings: the machine's own file must not decide a test */
	snprintf(daemon->config_path, sizeof(daemon->config_path), "%s/moecommd.conf",
		daemon->directory);
	file = fopen(daemon->config_path, "we");
	assert_non_null(file);
	if (daemon->options.config)
		fputs(daemon->options.config, file);
	assert_int_equal(fclose(file), 0);
}

static void run(const struct mc_test_daemon *daemon, const char *path, pid_t parent)
{
	const char *argv[MAX_ARGS];
	const struct rlimit limit = {daemon->options.max_fds, daemon->options.max_fds};
	size_t n = 0;
	int log_fd, program_fd = -1;

	log_fd = open(daemon->log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (log_fd < 0 || dup2(log_fd, STDERR_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0)
		_exit(126);
	close(log_fd);
	if (daemon->options.max_fds && setrlimit(RLIMIT_NOFILE, &limit))
		_exit(124);
	/* another user may not be able to walk to where the build lies, such as below /root */
	if (daemon->options.uid)
		program_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (daemon->options.uid &&
		(setgroups(0, NULL) || setgid(daemon->options.uid) || setuid(daemon->options.uid)))
		_exit(123);
	/* after setuid, which undoes it */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	argv[n++] = "moecommd";
	argv[n++] = "--config";
	argv[n++] = daemon->config_path;
	argv[n++] = "--socket";
	argv[n++] = daemon->socket;
	argv[n++] = "--backend";
	argv[n++] = daemon->options.backend ? daemon->options.backend : "host";
	for (const char *const *arg = daemon->options.args; arg && *arg && n < MAX_ARGS - 1; arg++)
		argv[n++] = *arg;
	argv[n] = NULL;
	unsetenv("JOURNAL_STREAM");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	setenv("NOTIFY_SOCKET", daemon->notify_path, 1);
	for (const char *const *env = daemon->options.env; env && *env; env++)
		putenv((char *)*env);
	if (daemon->options.in_child)
		daemon->options.in_child(daemon->options.in_child_data);
	if (program_fd >= 0)
		fexecve(program_fd, (char *const *)argv, environ);
	execv(path, (char *const *)argv);
	_exit(127);
}

static void launch(struct mc_test_daemon *daemon)
{
	const char *bin = getenv("MOECOMM_TEST_BIN");
	char path[4096];
	pid_t parent = getpid();

	if (!bin)
		fail_msg("MOECOMM_TEST_BIN is not set: run the test with ctest");
	snprintf(path, sizeof(path), "%s/moecommd", bin);
	fflush(NULL);
	daemon->is_ready = false;
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (!daemon->pid)
		run(daemon, path, parent);
	if (!daemon->options.do_not_wait) {
		mc_test_daemon_wait_notify(daemon, "READY=1", START_TIMEOUT_MS);
		daemon->is_ready = true;
	}
}

void mc_test_daemon_start(
	struct mc_test_daemon *ret_daemon, const struct mc_test_daemon_options *options)
{
	struct mc_test_daemon *daemon = ret_daemon;

	memset(daemon, 0, sizeof(*daemon));
	if (options)
		daemon->options = *options;
	snprintf(daemon->directory, sizeof(daemon->directory), "/tmp/moecomm-test-XXXXXX");
	assert_non_null(mkdtemp(daemon->directory));
	/* clients of other users must get as far as the socket */
	assert_int_equal(chmod(daemon->directory, 0755), 0);
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/run/moecommd.sock", daemon->directory);
	snprintf(daemon->log_path, sizeof(daemon->log_path), "%s/log", daemon->directory);
	if (daemon->options.uid)
		assert_int_equal(
			chown(daemon->directory, daemon->options.uid, daemon->options.uid), 0);
	open_notify(daemon);
	if (daemon->options.uid)
		assert_int_equal(
			chown(daemon->notify_path, daemon->options.uid, daemon->options.uid), 0);
	write_config(daemon);
	launch(daemon);
}

void mc_test_daemon_restart(struct mc_test_daemon *daemon)
{
	char text[512];

	assert_int_equal(daemon->pid, 0);
	/* what the last one said is not the next one's READY */
	while (mc_test_daemon_next_notify(daemon, text, sizeof(text), 0))
		;
	launch(daemon);
}

static int exit_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int mc_test_daemon_wait_exit(struct mc_test_daemon *daemon, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;
	int status;

	assert_true(daemon->pid > 0);
	while (waitpid(daemon->pid, &status, WNOHANG) != daemon->pid) {
		if (mc_test_now_ms() >= deadline) {
			kill(daemon->pid, SIGKILL);
			waitpid(daemon->pid, &status, 0);
			daemon->pid = 0;
			fail_msg("moecommd did not end within %d ms", timeout_ms);
		}
		mc_test_sleep_ms(5);
	}
	daemon->pid = 0;
	return exit_status(status);
}

static void print_log(const struct mc_test_daemon *daemon)
{
	char *log = mc_test_daemon_log(daemon);

	print_message("log of moecommd:\n%s\n", log);
	free(log);
}

void mc_test_daemon_stop(struct mc_test_daemon *daemon)
{
	int status;

	assert_true(daemon->pid > 0);
	assert_int_equal(kill(daemon->pid, SIGTERM), 0);
	status = mc_test_daemon_wait_exit(daemon, STOP_TIMEOUT_MS);
	if (status) {
		print_log(daemon);
		fail_msg("moecommd ended with status %d on SIGTERM", status);
	}
}

void mc_test_daemon_kill(struct mc_test_daemon *daemon)
{
	assert_true(daemon->pid > 0);
	assert_int_equal(kill(daemon->pid, SIGKILL), 0);
	mc_test_daemon_wait_exit(daemon, STOP_TIMEOUT_MS);
}

void mc_test_daemon_expect_error(struct mc_test_daemon *daemon, const char *text)
{
	assert_true(daemon->n_expected_errors < MC_TEST_EXPECTED_ERRORS);
	daemon->expected_error[daemon->n_expected_errors++] = text;
}

char *mc_test_daemon_log(const struct mc_test_daemon *daemon)
{
	FILE *file = fopen(daemon->log_path, "re");
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);
	char buffer[4096];
	size_t n_read;

	assert_non_null(out);
	while (file && (n_read = fread(buffer, 1, sizeof(buffer), file)) > 0)
		fwrite(buffer, 1, n_read, out);
	if (file)
		fclose(file);
	fclose(out);
	return text;
}

bool mc_test_daemon_log_has(const struct mc_test_daemon *daemon, const char *text)
{
	char *log = mc_test_daemon_log(daemon);
	bool has = strstr(log, text);

	free(log);
	return has;
}

void mc_test_daemon_wait_log(const struct mc_test_daemon *daemon, const char *text, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;

	while (!mc_test_daemon_log_has(daemon, text)) {
		if (mc_test_now_ms() >= deadline) {
			print_log(daemon);
			fail_msg("moecommd did not log '%s' within %d ms", text, timeout_ms);
		}
		mc_test_sleep_ms(10);
	}
}

static bool is_bad_line(const struct mc_test_daemon *daemon, const char *line)
{
	if (!strstr(line, "moecommd: error:") && !strstr(line, "ERROR: ") &&
		!strstr(line, "WARNING: ThreadSanitizer") && !strstr(line, "runtime error:"))
		return false;
	for (size_t i = 0; i < daemon->n_expected_errors; i++)
		if (strstr(line, daemon->expected_error[i]))
			return false;
	return true;
}

static void check_log(const struct mc_test_daemon *daemon)
{
	char *log = mc_test_daemon_log(daemon), *rest = log, *line;

	while ((line = strsep(&rest, "\n")))
		if (is_bad_line(daemon, line)) {
			print_log(daemon);
			fail_msg("moecommd logged an unexpected error: %s", line);
		}
	free(log);
}

static void remove_tree(const char *path)
{
	char child[512];
	struct dirent *entry;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		if (entry->d_type == DT_DIR)
			remove_tree(child);
		else
			unlink(child);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

void mc_test_daemon_finish(struct mc_test_daemon *daemon)
{
	if (daemon->pid)
		mc_test_daemon_stop(daemon);
	check_log(daemon);
	close(daemon->notify_fd);
	remove_tree(daemon->directory);
}

bool mc_test_daemon_next_notify(
	struct mc_test_daemon *daemon, char *ret_text, size_t n_text, int timeout_ms)
{
	struct pollfd poll_fd = {.fd = daemon->notify_fd, .events = POLLIN};
	ssize_t n;

	if (poll(&poll_fd, 1, timeout_ms) != 1)
		return false;
	n = recv(daemon->notify_fd, ret_text, n_text - 1, MSG_DONTWAIT);
	if (n < 0)
		return false;
	ret_text[n] = 0;
	return true;
}

void mc_test_daemon_wait_notify(struct mc_test_daemon *daemon, const char *text, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms, now;
	char message[1024];
	int status;

	for (;;) {
		if (mc_test_daemon_next_notify(daemon, message, sizeof(message), 20)) {
			if (strstr(message, text))
				return;
			continue;
		}
		if (daemon->pid && waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
			daemon->pid = 0;
			print_log(daemon);
			fail_msg("moecommd ended with status %d before it said %s",
				exit_status(status), text);
		}
		now = mc_test_now_ms();
		if (now >= deadline) {
			print_log(daemon);
			fail_msg("moecommd did not say %s within %d ms", text, timeout_ms);
		}
	}
}
