/* SPDX-License-Identifier: Apache-2.0 */
/* One daemon a test, and clients of it. */
#ifndef MC_TEST_DAEMON_HARNESS_H
#define MC_TEST_DAEMON_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/daemon_process.h"
#include "support/fd_count.h"
#include "support/wire_client.h"

/* Generous: a loaded machine with two cores. */
#define SOON_MS 5000

/* The running test's. */
extern struct mc_test_daemon harness_daemon;

/* For cmocka: with default options. */
int harness_set_up(void **state);
int harness_tear_down(void **state);
/* In place of the above's daemon: one with these settings. */
void harness_restart_with(const char *config);

void harness_open(struct mc_wire_client *clients, uint32_t n);
void harness_close(struct mc_wire_client *clients, uint32_t n);
/* Closes the fds of layouts. */
void harness_drop(struct mc_wire_layout *layouts, uint32_t n);
/* Maps a shared object; unmap it with munmap. */
void *harness_map(int fd, size_t n_bytes);

/*
 * Runs the function in a child with another uid and gid (the test must be root, else it is
 * skipped). Failures in it fail the test.
 */
void harness_as(uint32_t uid, uint32_t gid, void (*function)(void));

#define HARNESS_TEST(function)                                                                     \
	cmocka_unit_test_setup_teardown(function, harness_set_up, harness_tear_down)

#endif
