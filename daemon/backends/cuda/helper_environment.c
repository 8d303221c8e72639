/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backends/cuda/helper_environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backends/cuda/helper.h"

#ifndef MC_LIBEXEC_DIR
#define MC_LIBEXEC_DIR "/usr/libexec/moecomm"
#endif

/* Systemd's messages are for the daemon's pid; the rest would hide GPUs from the helper. */
static const char *const left_out[] = {
	"NOTIFY_SOCKET=",
	"WATCHDOG_USEC=",
	"WATCHDOG_PID=",
	"LISTEN_FDS=",
	"LISTEN_FDNAMES=",
	"LISTEN_PID=",
	"CUDA_VISIBLE_DEVICES=",
};

static bool wanted(const char *entry)
{
	for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++) {
		if (strncmp(entry, left_out[i], strlen(left_out[i])) == 0)
			return false;
	}
	return true;
}

char **mc_helper_environment_new(void)
{
	size_t n = 0, kept = 0;
	char **environment;

	while (environ && environ[n])
		n++;
	environment = calloc(n + 1, sizeof(*environment));
	if (!environment)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		if (wanted(environ[i]))
			environment[kept++] = environ[i];
	}
	return environment;
}

void mc_helper_environment_free(char **environment)
{
	free(environment);
}

static bool usable(const char *path)
{
	return access(path, X_OK) == 0;
}

int mc_helper_find(
	const char *configured, char *ret_path, size_t n_path, char *ret_detail, size_t n_detail)
{
	char self[4096];
	char *slash;
	ssize_t n;

	if (configured && *configured) {
		if (!usable(configured)) {
			snprintf(ret_detail, n_detail,
				"the arming helper %s (setting arm_helper) can't be run: %s",
				configured, strerror(errno));
			return -ENOENT;
		}
		snprintf(ret_path, n_path, "%s", configured);
		return 0;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[n > 0 ? n : 0] = 0;
	slash = strrchr(self, '/');
	if (slash) {
		*slash = 0;
		if (snprintf(ret_path, n_path, "%s/" MC_HELPER_NAME, self) < (int)n_path &&
			usable(ret_path))
			return 0;
		if (snprintf(ret_path, n_path, "%s/../libexec/moecomm/" MC_HELPER_NAME, self) <
				(int)n_path &&
			usable(ret_path))
			return 0;
	}
	if (snprintf(ret_path, n_path, "%s", MC_LIBEXEC_DIR "/" MC_HELPER_NAME) < (int)n_path &&
		usable(ret_path))
		return 0;
	snprintf(ret_detail, n_detail,
		"the arming helper " MC_HELPER_NAME
		" is missing: looked in %.200s, in ../libexec/moecomm from there and "
		"in " MC_LIBEXEC_DIR "; install it or set arm_helper",
		self[0] ? self : "?");
	return -ENOENT;
}
