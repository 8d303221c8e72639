/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line asks for. */
#ifndef WORKER_OPTIONS_H
#define WORKER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <moecomm.h>

struct options {
	const char *group;
	const char *job;
	const char *socket;
	const char *input;
	enum moecomm_backend backend;
	int device;
	bool shared_gpu;
	int rank;
	int world_size;
	int layers;
	int tokens;     /* rows a rank in one round, at most */
	int64_t rounds; /* 0: until something ends it */
	int hidden;
	int experts;
	int topk;
	uint64_t seed;
	int op_timeout_ms;
	int join_timeout_ms;
	int pause_ms;
	int wait_ms;
	bool ragged;
	bool check;
	bool progress;
	bool rejoin;
};

/* Exit statuses. */
enum {
	WORKER_OK = 0,
	WORKER_WRONG = 1, /* --check found a difference */
	WORKER_USAGE = 2,
	WORKER_FAILED = 3, /* a call of the library failed, or the machine did */
};

/*
 * Returns -1 to go on, or the exit status to end with (--help: 0; a mistake, told on stderr:
 * WORKER_USAGE).
 */
int options_parse(int argc, char **argv, struct options *ret_options);

#endif
