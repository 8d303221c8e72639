/* SPDX-License-Identifier: Apache-2.0 */
#include "client/socket_trust.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *user_name(uid_t uid, char *buffer, size_t n_buffer)
{
	struct passwd entry, *found = NULL;
	char scratch[4096];

	if (getpwuid_r(uid, &entry, scratch, sizeof(scratch), &found) == 0 && found)
		snprintf(buffer, n_buffer, "%s (uid %u)", found->pw_name, (unsigned)uid);
	else
		snprintf(buffer, n_buffer, "uid %u", (unsigned)uid);
	return buffer;
}

/* One directory on the way to the daemon of that user; 0 when nobody else could put a socket there.
 */
static int check_directory(
	const char *directory, const char *path, uid_t peer, char *ret_text, size_t n_text)
{
	char daemon[96], owner[96];
	struct stat st;
	int r;

	if (stat(directory, &st)) {
		r = -errno;
		snprintf(ret_text, n_text, "cannot look at %s: %s", directory, strerror(-r));
		return r;
	}
	user_name(peer, daemon, sizeof(daemon));
	if (st.st_mode & S_IWOTH) {
		snprintf(ret_text, n_text,
			"who answers at %s is %s, and everybody could have put a socket there: %s "
			"has mode %04o; nothing was sent; let the daemon use a directory that only "
			"its owner can write to",
			path, daemon, directory, (unsigned)(st.st_mode & 07777));
		return -EPERM;
	}
	if (st.st_uid != 0 && st.st_uid != peer && st.st_uid != geteuid()) {
		snprintf(ret_text, n_text,
			"who answers at %s is %s, but %s belongs to %s; nothing was sent; let the "
			"daemon use a directory of its own user or of root",
			path, daemon, directory, user_name(st.st_uid, owner, sizeof(owner)));
		return -EPERM;
	}
	return 0;
}

/* Every directory above the last component, from the root on; a relative path from the cwd on. */
static int check_way(const char *way, const char *path, uid_t peer, char *ret_text, size_t n_text)
{
	char part[PATH_MAX];
	size_t n = strlen(way);
	int r = 0;

	if (n >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 0; i < n && r == 0; i++) {
		if (way[i] != '/')
			continue;
		memcpy(part, way, i);
		part[i] = '\0';
		r = check_directory(i ? part : "/", path, peer, ret_text, n_text);
	}
	return r;
}

int mc_socket_trust_check(int fd, const char *path, char *ret_text, size_t n_text)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);
	char *real = NULL;
	int r;

	/* of who called listen(), which no other process can borrow */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n)) {
		r = -errno;
		snprintf(ret_text, n_text, "cannot tell who answers at %s: SO_PEERCRED: %s", path,
			strerror(-r));
		return r;
	}
	if (peer.uid == 0 || peer.uid == geteuid())
		return 0;
	/* as it is written, for who could replace a link on the way; and where it leads */
	r = check_way(path, path, peer.uid, ret_text, n_text);
	if (r)
		return r;
	real = realpath(path, NULL);
	if (!real) {
		r = -errno;
		snprintf(ret_text, n_text, "cannot resolve %s: %s", path, strerror(-r));
		return r;
	}
	r = check_way(real, path, peer.uid, ret_text, n_text);
	free(real);
	return r;
}
