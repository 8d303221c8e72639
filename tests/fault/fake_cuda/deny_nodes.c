/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded: what a sandbox makes of the device nodes. DENY_NODES=EPERM or EACCES answers an open
 * of /dev/nvidia… so; DENY_NODES=OPEN lets it succeed (on a machine without the node).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
	const char *how = getenv("DENY_NODES");
	va_list list;
	int mode;

	va_start(list, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;
	va_end(list);
	if (how && strncmp(path, "/dev/nvidia", 11) == 0) {
		if (strcmp(how, "OPEN") == 0)
			path = "/dev/null";
		else {
			errno = strcmp(how, "EPERM") == 0 ? EPERM : EACCES;
			return -1;
		}
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
