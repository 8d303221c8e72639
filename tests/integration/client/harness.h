/* SPDX-License-Identifier: Apache-2.0 */
/* What the client tests share: a socket of their own, quick options, assertions with the sentence.
 */
#ifndef MC_TESTS_CLIENT_HARNESS_H
#define MC_TESTS_CLIENT_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/moecomm.h"

/* A path for a socket that no other test program uses; made from the pid of whoever asks first. */
const char *test_socket(void);

static inline moecomm_context *test_connect(const char *path)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	moecomm_context *context = NULL;
	enum moecomm_status status;

	o.socket_path = path;
	o.wait_ms = 5000;
	status = moecomm_connect(&o, &context);
	if (status)
		print_error("connect: %s\n", moecomm_last_error());
	assert_int_equal(status, MOECOMM_OK);
	return context;
}

static inline struct moecomm_group_options test_options(const char *name, int rank, int world_size)
{
	struct moecomm_group_options o = MOECOMM_GROUP_OPTIONS_INIT;

	o.name = name;
	o.rank = rank;
	o.world_size = world_size;
	o.backend = MOECOMM_BACKEND_HOST;
	o.max_rows = 16;
	o.dispatch_row_bytes = 256;
	o.combine_row_bytes = 256;
	o.n_channels = 2;
	o.join_timeout_ms = 5000;
	o.probe_timeout_ms = 5000;
	return o;
}

#define assert_status(expression, wanted)                                                          \
	do {                                                                                       \
		enum moecomm_status got_ = (expression);                                           \
		if (got_ != (wanted)) {                                                            \
			print_error("%s: %s (%s), wanted %s\n", #expression,                       \
				moecomm_status_name(got_), moecomm_last_error(),                   \
				moecomm_status_name(wanted));                                      \
			fail();                                                                    \
		}                                                                                  \
	} while (0)

#define assert_error_has(text)                                                                     \
	do {                                                                                       \
		if (!strstr(moecomm_last_error(), (text))) {                                       \
			print_error("\"%s\" does not say \"%s\"\n", moecomm_last_error(), (text)); \
			fail();                                                                    \
		}                                                                                  \
	} while (0)

#endif
