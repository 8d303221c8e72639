/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/daemon_program.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define START_MS 15000
#define STOP_MS  15000

static bool answers(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ret;

	assert_true(fd >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	ret = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return ret;
}

static void write_config(const char *path, const char *config)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(config, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

void daemon_program_start(struct daemon_program *ret_daemon, const char *config)
{
	struct daemon_program daemon = {.directory = program_make_directory()};
	char config_path[108];
	int waited = 0;

	snprintf(daemon.socket, sizeof(daemon.socket), "%s/moecommd.sock", daemon.directory);
	snprintf(config_path, sizeof(config_path), "%s/moecommd.conf", daemon.directory);
	/* always a file of the test's own, so that one of the machine plays no part */
	write_config(config_path, config ? config : "");
	program_start(
		&daemon.program, (const char *const[]){"moecommd", "--config", config_path,
					 "--socket", daemon.socket, "--backend", "host", NULL});
	while (!answers(daemon.socket)) {
		if (waited > START_MS) {
			char *err = program_err(&daemon.program);

			print_error("%s\n", err);
			free(err);
			program_clear(&daemon.program);
			fail_msg("the daemon did not start");
		}
		poll(NULL, 0, 10);
		waited += 10;
	}
	*ret_daemon = daemon;
}

void daemon_program_stop(struct daemon_program *daemon)
{
	program_signal(&daemon->program, SIGTERM);
	assert_int_equal(program_wait(&daemon->program, STOP_MS), 0);
	program_clear(&daemon->program);
	program_remove_directory(daemon->directory);
}
