/* SPDX-License-Identifier: Apache-2.0 */
#include "client/inject.h"

#ifdef MC_FAULT_INJECTION

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char seen[256];   /* the variable's value that the counter belongs to */
static unsigned counter; /* occasions so far */

/* Finds "name:N[@RANK]"; *ret_rank is UINT32_MAX when none is given. */
static bool find(const char *name, unsigned long *ret_n, uint32_t *ret_rank)
{
	const char *at = getenv("MOECOMM_INJECT_CLIENT");
	size_t n_name = strlen(name);

	while (at && *at) {
		if (strncmp(at, name, n_name) == 0 && at[n_name] == ':') {
			char *end;

			*ret_n = strtoul(at + n_name + 1, &end, 10);
			*ret_rank = *end == '@' ? (uint32_t)strtoul(end + 1, NULL, 10) : UINT32_MAX;
			return true;
		}
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return false;
}

bool mc_client_inject_hit(const char *name, uint32_t rank)
{
	unsigned long n = 0;
	uint32_t only;
	bool hit = false;

	pthread_mutex_lock(&lock);
	if (find(name, &n, &only) && (only == UINT32_MAX || only == rank)) {
		const char *value = getenv("MOECOMM_INJECT_CLIENT");

		if (strncmp(seen, value, sizeof(seen) - 1) != 0) {
			strncpy(seen, value, sizeof(seen) - 1);
			counter = 0;
		}
		hit = ++counter == n;
	}
	pthread_mutex_unlock(&lock);
	return hit;
}

int mc_client_inject_value(const char *name, int otherwise)
{
	unsigned long n;
	uint32_t only;

	return find(name, &n, &only) ? (int)n : otherwise;
}

void mc_client_inject_delay(const char *name)
{
	int ms = mc_client_inject_value(name, 0);

	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

#else
/* an empty translation unit is not C */
typedef int mc_client_inject_unused;
#endif
