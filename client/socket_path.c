/* SPDX-License-Identifier: Apache-2.0 */
#include "client/socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM_SOCKET "/run/moecomm/moecommd.sock"
#define USER_SOCKET   "moecomm/moecommd.sock"

static int set(struct sockaddr_un *address, const char *path)
{
	size_t n = strlen(path);

	if (n >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	memcpy(address->sun_path, path, n + 1);
	return 0;
}

int mc_socket_path_resolve(const char *given, struct sockaddr_un *ret_address)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *environment = getenv("MOECOMM_SOCKET");
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int r;

	if (given && *given)
		r = set(&address, given);
	else if (environment && *environment)
		r = set(&address, environment);
	else {
		char user[sizeof(address.sun_path)];
		int n = -1;

		if (runtime && *runtime == '/')
			n = snprintf(user, sizeof(user), "%s/" USER_SOCKET, runtime);
		/*
		 * F_OK fails with EACCES, not ENOENT, in a directory that is closed to us: such a
		 * system socket does exist, and the caller has to hear that it is denied.
		 */
		if (n > 0 && (size_t)n < sizeof(user) && access(user, F_OK) == 0 &&
			access(SYSTEM_SOCKET, F_OK) != 0 && errno == ENOENT)
			r = set(&address, user);
		else
			r = set(&address, SYSTEM_SOCKET);
	}
	if (r == 0)
		*ret_address = address;
	return r;
}

static const char *group_name(gid_t gid, char *buffer, size_t n_buffer)
{
	struct group entry, *found = NULL;
	char scratch[4096];

	if (getgrgid_r(gid, &entry, scratch, sizeof(scratch), &found) == 0 && found)
		snprintf(buffer, n_buffer, "%s", found->gr_name);
	else
		snprintf(buffer, n_buffer, "%u", (unsigned)gid);
	return buffer;
}

static const char *user_name(uid_t uid, char *buffer, size_t n_buffer)
{
	struct passwd entry, *found = NULL;
	char scratch[4096];

	if (getpwuid_r(uid, &entry, scratch, sizeof(scratch), &found) == 0 && found)
		snprintf(buffer, n_buffer, "%s", found->pw_name);
	else
		snprintf(buffer, n_buffer, "%u", (unsigned)uid);
	return buffer;
}

/* Whether this process is stopped at a component; the text then says how. */
static int explain(const char *path, const char *part, int wanted, char *ret_text, size_t n_text)
{
	mode_t bit = wanted == X_OK ? S_IXGRP : S_IWGRP;
	char owner[64], group[64], me[64];
	struct stat st;

	if (faccessat(AT_FDCWD, part, wanted, AT_EACCESS) == 0 || errno != EACCES)
		return 0;
	if (stat(part, &st) != 0)
		return 0;
	user_name(geteuid(), me, sizeof(me));
	user_name(st.st_uid, owner, sizeof(owner));
	group_name(st.st_gid, group, sizeof(group));
	if (st.st_mode & bit)
		snprintf(ret_text, n_text,
			"cannot reach %s as user %s: %s has mode %04o, owner %s and group %s; add "
			"the "
			"user to group %s (usermod -aG %s %s) and log in again",
			path, me, part, (unsigned)(st.st_mode & 07777), owner, group, group, group,
			me);
	else
		snprintf(ret_text, n_text,
			"cannot reach %s as user %s: %s has mode %04o, owner %s and group %s, and "
			"lets "
			"no group in; its owner can open it to a group (chmod g+%c)",
			path, me, part, (unsigned)(st.st_mode & 07777), owner, group,
			wanted == X_OK ? 'x' : 'w');
	return 1;
}

void mc_socket_path_explain_denied(const char *path, char *ret_text, size_t n_text)
{
	char part[sizeof(((struct sockaddr_un *)0)->sun_path)];
	size_t n = strnlen(path, sizeof(part) - 1);
	char me[64];

	/* every prefix that ends before a slash, the root itself, then the socket */
	for (size_t i = 0; i <= n; i++) {
		if (i < n && path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (explain(path, i ? part : "/", i < n ? X_OK : W_OK, ret_text, n_text))
			return;
	}
	snprintf(ret_text, n_text,
		"cannot reach %s as user %s: permission denied, though every component of the path "
		"lets this user in; look for a security module or a sandbox",
		path, user_name(geteuid(), me, sizeof(me)));
}
