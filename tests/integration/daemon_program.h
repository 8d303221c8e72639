/* SPDX-License-Identifier: Apache-2.0 */
/* moecommd as a program, on the host backend, in a directory of its own. */
#ifndef MC_TEST_DAEMON_PROGRAM_H
#define MC_TEST_DAEMON_PROGRAM_H

#include "integration/program.h"

struct daemon_program {
	struct program program;
	char *directory;
	char socket[108];
};

/* Starts it and waits until its socket answers. config: text of a configuration file, or NULL. */
void daemon_program_start(struct daemon_program *ret_daemon, const char *config);
/* SIGTERM; fails the test when it does not end well. Removes the directory. */
void daemon_program_stop(struct daemon_program *daemon);

#endif
