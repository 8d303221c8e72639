/* SPDX-License-Identifier: Apache-2.0 */
/* What libFuzzer, or replay.c in its place, calls. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A target may have one; called once, before any input. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Holds in every build, as assert does not. */
#define FUZZ_CHECK(condition)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
