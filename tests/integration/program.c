/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/program.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>
#include "support/fd_count.h"

char *program_path(const char *name)
{
	const char *directory = getenv("MOECOMM_TEST_BIN");
	char *path = NULL;

	if (!directory)
		fail_msg("MOECOMM_TEST_BIN is not set: run the test with ctest");
	assert_true(asprintf(&path, "%s/%s", directory, name) > 0);
	return path;
}

void program_start(struct program *ret_program, const char *const argv[])
{
	struct program program = {.status = -1};
	char *path = program_path(argv[0]);
	pid_t parent = getpid();

	program.out_fd = memfd_create("stdout", MFD_CLOEXEC);
	program.err_fd = memfd_create("stderr", MFD_CLOEXEC);
	assert_true(program.out_fd >= 0 && program.err_fd >= 0);
	fflush(NULL);
	program.pid = fork();
	assert_true(program.pid >= 0);
	if (program.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(127);
		dup2(program.out_fd, STDOUT_FILENO);
		dup2(program.err_fd, STDERR_FILENO);
		execv(path, (char *const *)argv);
		fprintf(stderr, "cannot run %s: %s\n", path, strerror(errno));
		_exit(127);
	}
	free(path);
	*ret_program = program;
}

/* Returns whether it has ended. */
static bool reap(struct program *program)
{
	int status;

	if (program->pid == 0)
		return true;
	if (waitpid(program->pid, &status, WNOHANG) != program->pid)
		return false;
	program->pid = 0;
	program->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return true;
}

int program_wait(struct program *program, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;

	while (!reap(program)) {
		if (mc_test_now_ms() > deadline) {
			char *out = program_out(program), *err = program_err(program);

			print_error("stdout:\n%s\nstderr:\n%s\n", out, err);
			free(out);
			free(err);
			program_clear(program);
			fail_msg("a program did not end within %d ms", timeout_ms);
		}
		mc_test_sleep_ms(2);
	}
	return program->status;
}

void program_signal(struct program *program, int signal_number)
{
	assert_true(program->pid > 0);
	assert_int_equal(kill(program->pid, signal_number), 0);
}

static char *read_all(int fd)
{
	struct stat st;
	char *text;
	ssize_t n;

	assert_int_equal(fstat(fd, &st), 0);
	text = malloc((size_t)st.st_size + 1);
	assert_non_null(text);
	n = pread(fd, text, (size_t)st.st_size, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

char *program_out(const struct program *program)
{
	return read_all(program->out_fd);
}

char *program_err(const struct program *program)
{
	return read_all(program->err_fd);
}

void program_expect_out(struct program *program, const char *text, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;

	for (;;) {
		bool ended = reap(program);
		char *out = program_out(program);
		bool found = strstr(out, text) != NULL;

		free(out);
		if (found)
			return;
		if (ended || mc_test_now_ms() > deadline) {
			char *err = program_err(program);

			print_error("stderr: %s\n", err);
			free(err);
			fail_msg("'%s' did not show within %d ms", text, timeout_ms);
		}
		mc_test_sleep_ms(5);
	}
}

void program_clear(struct program *program)
{
	int status;

	if (program->pid > 0) {
		kill(program->pid, SIGKILL);
		waitpid(program->pid, &status, 0);
	}
	if (program->out_fd > 0)
		close(program->out_fd);
	if (program->err_fd > 0)
		close(program->err_fd);
	*program = (struct program){.status = -1};
}

char *program_make_directory(void)
{
	char *directory = strdup("/tmp/moecomm-test-XXXXXX");

	assert_non_null(directory);
	assert_non_null(mkdtemp(directory));
	return directory;
}

void program_remove_directory(char *directory)
{
	DIR *stream = directory ? opendir(directory) : NULL;
	struct dirent *entry;

	while (stream && (entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(dirfd(stream), entry->d_name, 0);
	if (stream)
		closedir(stream);
	if (directory)
		rmdir(directory);
	free(directory);
}
