/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of ours run as a user would, with their output kept. */
#ifndef MC_TEST_PROGRAM_H
#define MC_TEST_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct program {
	pid_t pid;          /* 0 once it has ended */
	int out_fd, err_fd; /* memfds: a program never waits for us to read */
	int status;         /* exit status, or 128 + signal; -1 while it runs */
};

/*
 * Starts $MOECOMM_TEST_BIN/NAME with the arguments after it (argv[0] is NAME; ends with NULL).
 * Fails the test when it can't. The program dies with the test.
 */
void program_start(struct program *ret_program, const char *const argv[]);
/* Waits for its end and returns the status; fails the test, after killing it, at the deadline. */
int program_wait(struct program *program, int timeout_ms);
void program_signal(struct program *program, int signal_number);
/* What it has written so far, as a string; free() it. */
char *program_out(const struct program *program);
char *program_err(const struct program *program);
/* Waits until stdout contains the text; fails the test at the deadline or when the program ends
 * without it. */
void program_expect_out(struct program *program, const char *text, int timeout_ms);
/* Kills what still runs and closes. All-zero programs are allowed. */
void program_clear(struct program *program);

/* $MOECOMM_TEST_BIN/NAME; free() it. */
char *program_path(const char *name);
/* A directory of this test's own below /tmp, removed by program_remove_directory. free() it. */
char *program_make_directory(void);
void program_remove_directory(char *directory);

#endif
