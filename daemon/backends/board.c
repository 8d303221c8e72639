/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backends/board.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/host/host.h"

int mc_board_create(
	uint32_t world_size, uint64_t epoch, const struct mc_wait_line *wait, int *ret_fd)
{
	int fd = memfd_create("moecomm-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *memory;
	int r;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, MC_BOARD_BYTES))
		goto failed;
	memory = mmap(NULL, MC_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		goto failed;
	mc_host_board_init(memory, world_size, epoch, wait);
	munmap(memory, MC_BOARD_BYTES);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto failed;
	*ret_fd = fd;
	return 0;
failed:
	r = -errno;
	close(fd);
	return r;
}
