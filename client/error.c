/* SPDX-License-Identifier: Apache-2.0 */
#include "client/error.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A fixed buffer: reporting an error must work when memory has run out, and leaves nothing to free.
 */
static _Thread_local char last_error[MC_ERROR_BYTES];
static atomic_bool log_enabled;

enum moecomm_status mc_error(enum moecomm_status status, const char *format, ...)
{
	/* through a second buffer: an argument may be the previous sentence itself */
	char text[MC_ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(last_error, text, sizeof(text));
	return status;
}

const char *moecomm_last_error(void)
{
	return last_error;
}

void mc_log_setup(void)
{
	const char *value = getenv("MOECOMM_LOG");

	atomic_store(&log_enabled, value && strcmp(value, "1") == 0);
}

void mc_log(const char *format, ...)
{
	char line[MC_ERROR_BYTES + 32];
	va_list args;
	int n;

	if (!atomic_load_explicit(&log_enabled, memory_order_relaxed))
		return;
	n = snprintf(line, sizeof(line), "moecomm[%d]: ", (int)getpid());
	va_start(args, format);
	vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	/* one write a line, so that lines of several threads and processes do not mix */
	strcat(line, "\n");
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return;
}

int64_t mc_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct timespec mc_clock_timespec(int64_t deadline_ms)
{
	struct timespec at = {
		.tv_sec = deadline_ms / 1000,
		.tv_nsec = (deadline_ms % 1000) * 1000000,
	};

	return at;
}
