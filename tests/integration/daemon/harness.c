/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/daemon/harness.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct mc_test_daemon harness_daemon;

/* Clients of other users are among the tests: the socket's mode is not what refuses them. */
static const char *const open_mode = "[daemon]\nsocket_mode = 0666\n";

int harness_set_up(void **state)
{
	const struct mc_test_daemon_options options = {.config = open_mode};

	(void)state;
	mc_test_daemon_start(&harness_daemon, &options);
	return 0;
}

int harness_tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&harness_daemon);
	return 0;
}

void harness_restart_with(const char *config)
{
	const struct mc_test_daemon_options options = {.config = config};

	mc_test_daemon_finish(&harness_daemon);
	mc_test_daemon_start(&harness_daemon, &options);
}

void harness_open(struct mc_wire_client *clients, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		mc_wire_client_open(&clients[i], harness_daemon.socket, "test");
}

void harness_close(struct mc_wire_client *clients, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		mc_wire_client_close(&clients[i]);
}

void harness_drop(struct mc_wire_layout *layouts, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		mc_wire_layout_clear(&layouts[i]);
}

void *harness_map(int fd, size_t n_bytes)
{
	void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_true(at != MAP_FAILED);
	return at;
}

void harness_as(uint32_t uid, uint32_t gid, void (*function)(void))
{
	int status;
	pid_t pid;

	if (geteuid()) {
		print_message("only root can act as another user\n");
		skip();
	}
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		/* a failed assertion in a child ends the child: cmocka's jump would run the
		 * parent's test */
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		if (setgroups(0, NULL) || setgid(gid) || setuid(uid))
			_exit(1);
		function();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
