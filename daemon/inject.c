/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/inject.h"

#ifdef MC_FAULT_INJECTION
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"block_ms", "arm_fail", "memfd_fail", "queue_full"};
static atomic_ulong counters[sizeof(names) / sizeof(names[0])];
static unsigned long block_ms;

/* The entry's N; 0 when there is none. */
static unsigned long value_of(const char *name)
{
	const char *at = getenv("MOECOMM_INJECT_DAEMON");
	size_t n_name = strlen(name);

	while (at && *at) {
		if (!strncmp(at, name, n_name) && at[n_name] == ':')
			return strtoul(at + n_name + 1, NULL, 10);
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return 0;
}

bool mc_inject_hit(const char *name)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return value_of(name) &&
			       atomic_fetch_add(&counters[i], 1) + 1 == value_of(name);
	return false;
}

/* In the handler itself: the loop's thread takes the signal, and nothing else of it runs. */
static void on_signal(int number)
{
	struct timespec time = {
		.tv_sec = (time_t)(block_ms / 1000), .tv_nsec = (long)(block_ms % 1000) * 1000000};

	(void)number;
	while (nanosleep(&time, &time))
		;
}

void mc_inject_block_on_signal(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	block_ms = value_of("block_ms");
	if (block_ms)
		sigaction(SIGUSR2, &action, NULL);
}

#else
/* an empty translation unit is not C */
typedef int mc_daemon_inject_unused;
#endif
