/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictable paths squatted by another user: whoever listens there is sent nothing. Daemons of
 * another user where only he could have put a socket are used as ever.
 */
#include "integration/client/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define SQUATTER 65500
#define VICTIM   65501

static char base[64]; /* root's, 0755, with nothing above it that everybody can write to */

/* A base that is not below /tmp: it must be one that only root could have made. */
static int make_base(void)
{
	static const char *const parents[] = {"/run", "/var/lib", "/opt", "/root"};

	for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
		struct stat st;

		if (stat(parents[i], &st) || st.st_mode & (S_IWGRP | S_IWOTH))
			continue;
		snprintf(base, sizeof(base), "%s/moecomm-squat-XXXXXX", parents[i]);
		if (mkdtemp(base))
			return chmod(base, 0755);
	}
	return -1;
}

/* Makes a directory that belongs to a user. */
static void make(const char *path, uid_t uid, mode_t mode)
{
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, mode), 0);
	assert_int_equal(chown(path, uid, uid), 0);
}

/*
 * Listens as that user, in a child, at a path; whatever arrives makes it end with 1, a connection
 * that closes without a byte with 0.
 */
static pid_t listen_as(uid_t uid, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int ready[2], status = 0;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
		char byte;

		if (setgroups(0, NULL) || setgid(uid) || setuid(uid))
			_exit(9);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || chmod(path, 0666) ||
			listen(fd, 8))
			_exit(8);
		if (write(ready[1], "", 1) != 1)
			_exit(7);
		alarm(60);
		peer = accept(fd, NULL, NULL);
		_exit(read(peer, &byte, 1) == 0 ? 0 : 1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &status, 1), 1);
	close(ready[0]);
	return pid;
}

/* Connects as that user, whose error must have the text (NULL: any); returns the status. */
static int connect_as(uid_t uid, const char *path, const char *text)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
		moecomm_context *context = NULL;
		enum moecomm_status got;

		if (setgroups(0, NULL) || setgid(uid) || setuid(uid))
			_exit(99);
		o.socket_path = path;
		/* no use waiting for a stranger: at once */
		o.wait_ms = text ? 20000 : 0;
		alarm(10);
		got = moecomm_connect(&o, &context);
		if (text && !strstr(moecomm_last_error(), text)) {
			fprintf(stderr, "\"%s\" does not say \"%s\"\n", moecomm_last_error(), text);
			_exit(98);
		}
		_exit((int)got);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The listener's end: 0 when nothing was sent to it. */
static int end_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static void expect_refused(uid_t listener, uid_t client, const char *path, const char *text)
{
	pid_t pid = listen_as(listener, path);

	assert_int_equal(connect_as(client, path, text), MOECOMM_DENIED);
	assert_int_equal(end_of(pid), 0);
	unlink(path);
}

/* That such a listener is greeted, whatever it then does with it. */
static void expect_greeted(uid_t listener, uid_t client, const char *path)
{
	pid_t pid = listen_as(listener, path);

	assert_int_equal(connect_as(client, path, NULL), MOECOMM_UNREACHABLE);
	assert_int_equal(end_of(pid), 1);
	unlink(path);
}

static void test_below_tmp(void **state)
{
	char directory[96], path[128];

	(void)state;
	/* he came first and made the very directory that the victim's daemon would have made */
	snprintf(directory, sizeof(directory), "/tmp/moecomm-squat-%d", (int)getpid());
	snprintf(path, sizeof(path), "%s/moecommd.sock", directory);
	make(directory, SQUATTER, 0755);
	expect_refused(SQUATTER, VICTIM, path, "/tmp has mode 1777");
	/* root is not handed over either */
	expect_refused(SQUATTER, 0, path, "everybody could have put a socket there");
	/* one's own daemon and root's are fine there */
	expect_greeted(SQUATTER, SQUATTER, path);
	expect_greeted(0, VICTIM, path);
	assert_int_equal(rmdir(directory), 0);
}

static void test_own_directory(void **state)
{
	char directory[96], path[128];

	(void)state;
	/* like /run/moecomm of a daemon with a user of its own */
	snprintf(directory, sizeof(directory), "%s/service", base);
	snprintf(path, sizeof(path), "%s/moecommd.sock", directory);
	make(directory, SQUATTER, 0755);
	expect_greeted(SQUATTER, VICTIM, path);
	/* it let everybody in: then anybody may have replaced the socket */
	assert_int_equal(chmod(directory, 01777), 0);
	expect_refused(SQUATTER, VICTIM, path, "has mode 1777");
	/* a third user's directory */
	assert_int_equal(chmod(directory, 0775), 0);
	assert_int_equal(chown(directory, 65502, SQUATTER), 0);
	expect_refused(SQUATTER, VICTIM, path, "belongs to uid 65502");
	assert_int_equal(rmdir(directory), 0);
}

static void test_links(void **state)
{
	char directory[96], path[128], link[96], through[128];

	(void)state;
	/* a squatted link below /tmp that leads to a place that is all right in itself */
	snprintf(directory, sizeof(directory), "%s/his", base);
	snprintf(path, sizeof(path), "%s/moecommd.sock", directory);
	snprintf(link, sizeof(link), "/tmp/moecomm-squat-link-%d", (int)getpid());
	snprintf(through, sizeof(through), "%s/moecommd.sock", link);
	make(directory, SQUATTER, 0755);
	assert_int_equal(symlink(directory, link), 0);
	assert_int_equal(lchown(link, SQUATTER, SQUATTER), 0);
	expect_refused(SQUATTER, VICTIM, through, "/tmp has mode 1777");
	unlink(link);
	assert_int_equal(rmdir(directory), 0);
	/* and an honest link that leads below /tmp */
	snprintf(directory, sizeof(directory), "/tmp/moecomm-squat-%d", (int)getpid());
	snprintf(path, sizeof(path), "%s/moecommd.sock", directory);
	snprintf(link, sizeof(link), "%s/link", base);
	snprintf(through, sizeof(through), "%s/moecommd.sock", link);
	make(directory, SQUATTER, 0755);
	assert_int_equal(symlink(directory, link), 0);
	expect_refused(SQUATTER, VICTIM, through, "/tmp has mode 1777");
	unlink(link);
	assert_int_equal(rmdir(directory), 0);
}

/* A socket whose mode lets only a group in: path component, mode and the group that is needed. */
static void test_closed_socket(void **state)
{
	char path[128];
	pid_t pid;

	(void)state;
	snprintf(path, sizeof(path), "%s/moecommd.sock", base);
	pid = listen_as(0, path);
	assert_int_equal(chmod(path, 0660), 0);
	assert_int_equal(connect_as(VICTIM, path, "moecommd.sock has mode 0660"), MOECOMM_DENIED);
	assert_int_equal(connect_as(VICTIM, path, "group root"), MOECOMM_DENIED);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_below_tmp),
		cmocka_unit_test(test_own_directory),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_closed_socket),
	};
	int r;

	if (geteuid() != 0) {
		print_message("skipped: only root can act as other users\n");
		return 77;
	}
	if (make_base()) {
		print_message("skipped: no directory that only root can write to\n");
		return 77;
	}
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(base);
	return r;
}
