/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A connect storm of a whole host's workers fits; the kernel caps it at net.core.somaxconn. */
#define BACKLOG 1024

#define FAIL(code, ...) (snprintf(ret_error, n_error, __VA_ARGS__), (code))

static int prepare_directory(const char *path, char *ret_error, size_t n_error)
{
	char dir[MC_CONFIG_PATH_BYTES];
	char *slash;
	struct stat st;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return FAIL(-EINVAL, "the socket %s must lie in a directory of its own", path);
	*slash = 0;
	if (mkdir(dir, geteuid() == 0 ? 0755 : 0700) && errno != EEXIST)
		return FAIL(-errno,
			"cannot create the socket's directory %s: %s; create its parent, or choose "
			"another path "
			"with --socket",
			dir, strerror(errno));
	if (stat(dir, &st))
		return FAIL(-errno, "cannot look at the socket's directory %s: %s", dir,
			strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return FAIL(-ENOTDIR, "%s is not a directory", dir);
	/* whoever can write there could replace our socket by his own */
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return FAIL(-EPERM,
			"the socket's directory %s belongs to uid %u, not to us or root", dir,
			st.st_uid);
	if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
		return FAIL(-EPERM,
			"the socket's directory %s can be written by everybody: chmod o-w it, or "
			"choose another "
			"path with --socket",
			dir);
	return 0;
}

static int take_lock(const char *socket_path, char *ret_error, size_t n_error)
{
	char path[MC_CONFIG_PATH_BYTES + 8], holder[32];
	struct stat mine, there;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s.lock", socket_path);
	for (;;) {
		fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			return FAIL(-errno, "cannot open the lock %s: %s", path, strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			n = pread(fd, holder, sizeof(holder) - 1, 0);
			holder[n > 0 ? n : 0] = 0;
			holder[strcspn(holder, "\n")] = 0;
			close(fd);
			return FAIL(-EBUSY,
				"another moecommd (pid %s) serves %s: stop it, or choose another "
				"path with "
				"--socket",
				*holder ? holder : "unknown", socket_path);
		}
		/* somebody may have removed the file between open and flock: then the lock is
		 * nobody's */
		if (!fstat(fd, &mine) && !stat(path, &there) && mine.st_ino == there.st_ino &&
			mine.st_dev == there.st_dev)
			break;
		close(fd);
	}
	n = snprintf(holder, sizeof(holder), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) || pwrite(fd, holder, (size_t)n, 0) != n) {
		n = errno;
		close(fd);
		return FAIL((int)-n, "cannot write the lock %s: %s", path, strerror((int)n));
	}
	return fd;
}

/* We hold the lock, so a socket that is there is a leftover, unless somebody answers on it. */
static int remove_stale(const struct sockaddr_un *address, char *ret_error, size_t n_error)
{
	const char *path = address->sun_path;
	struct stat st;
	int fd, r;

	if (lstat(path, &st))
		return errno == ENOENT
			       ? 0
			       : FAIL(-errno, "cannot look at %s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return FAIL(-EEXIST,
			"%s exists and is not a socket: remove it, or choose another path "
			"with --socket",
			path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return FAIL(-errno, "cannot create a socket: %s", strerror(errno));
	r = connect(fd, (const struct sockaddr *)address, sizeof(*address));
	r = r ? errno : 0;
	close(fd);
	if (r == 0 || r == EAGAIN)
		return FAIL(-EBUSY,
			"another daemon answers at %s: stop it, or choose another path with "
			"--socket",
			path);
	if (unlink(path) && errno != ENOENT)
		return FAIL(-errno, "cannot remove the stale socket %s of uid %u: %s", path,
			st.st_uid, strerror(errno));
	return 0;
}

static int set_group(const char *path, const char *name, char *ret_error, size_t n_error)
{
	struct group entry, *found = NULL;
	char buffer[4096];
	int r;

	if (!*name)
		return 0;
	r = getgrnam_r(name, &entry, buffer, sizeof(buffer), &found);
	if (!found)
		return FAIL(r ? -r : -ENOENT,
			"socket_group = %s: there is no such group; create it (systemd-sysusers "
			"does) or unset "
			"it",
			name);
	if (lchown(path, (uid_t)-1, found->gr_gid)) {
		r = -errno;
		return FAIL(r, "cannot give the socket %s to group %s: %s%s%s", path, name,
			strerror(-r),
			r == -EPERM
				? "; the daemon must be in it: in its unit, SupplementaryGroups="
				: "",
			r == -EPERM ? name : "");
	}
	return 0;
}

int mc_socket_path_bind(const struct mc_config *config, struct mc_socket_path *ret_path,
	char *ret_error, size_t n_error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct mc_socket_path path = {.lock_fd = -1};
	struct stat st;
	mode_t mask;
	int fd = -1, r;

	snprintf(path.path, sizeof(path.path), "%s", config->socket);
	memcpy(address.sun_path, path.path, sizeof(path.path));
	r = prepare_directory(path.path, ret_error, n_error);
	if (r)
		return r;
	path.lock_fd = take_lock(path.path, ret_error, n_error);
	if (path.lock_fd < 0)
		return path.lock_fd;
	r = remove_stale(&address, ret_error, n_error);
	if (r)
		goto fail;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		r = FAIL(-errno, "cannot create a socket: %s", strerror(errno));
		goto fail;
	}
	/* nobody may connect before owner and mode are final: bound shut, and listening comes last
	 */
	mask = umask(0777);
	r = bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	umask(mask);
	if (r) {
		r = FAIL(r, "cannot bind %s: %s", path.path, strerror(-r));
		goto fail;
	}
	if (lstat(path.path, &st)) {
		r = FAIL(-errno, "cannot look at %s: %s", path.path, strerror(errno));
		goto fail;
	}
	path.device = st.st_dev;
	path.inode = st.st_ino;
	r = set_group(path.path, config->socket_group, ret_error, n_error);
	if (r)
		goto fail_bound;
	if (chmod(path.path, config->socket_mode)) {
		r = FAIL(-errno, "cannot set the mode of %s: %s", path.path, strerror(errno));
		goto fail_bound;
	}
	if (listen(fd, BACKLOG)) {
		r = FAIL(-errno, "cannot listen on %s: %s", path.path, strerror(errno));
		goto fail_bound;
	}
	*ret_path = path;
	return fd;

fail_bound:
	unlink(path.path);
fail:
	if (fd >= 0)
		close(fd);
	close(path.lock_fd);
	return r;
}

void mc_socket_path_release(struct mc_socket_path *path)
{
	struct stat st;

	if (!lstat(path->path, &st) && st.st_dev == path->device && st.st_ino == path->inode)
		unlink(path->path);
	/* the lock's file stays: removing it would let two daemons hold locks on two files */
	if (path->lock_fd >= 0)
		close(path->lock_fd);
	path->lock_fd = -1;
}
