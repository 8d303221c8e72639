/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/prove.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Assigned to the driver in the kernel's list of devices. */
#define NVIDIA_MAJOR         195
#define NVIDIA_CONTROL_MINOR 255

/* Nobody can have shortened it since, so that mapping it is safe. */
static const char *prove_memfd(int fd, uint64_t n_bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return "it is no memfd";
	if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return "it is not sealed against changing its size";
	if ((uint64_t)st.st_size != n_bytes)
		return "its size is wrong";
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return "it can't be written to";
	return NULL;
}

/*
 * All that can be told without the driver, which the daemon never calls: an exported allocation is
 * an open of the driver's control node (/dev/nvidiactl, read-write; as drivers of CUDA 13 have it),
 * and nothing else tells whose memory it is, or how large. A client's import finds that out and
 * says so.
 */
static const char *prove_device(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return "it is no open file";
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(NVIDIA_MAJOR, NVIDIA_CONTROL_MINOR))
		return "it is no memory of a device";
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return "it can't be written to";
	return NULL;
}

static const char *prove_map(int fd, uint64_t n_bytes, int protection, void **ret_at)
{
	const char *wrong = prove_memfd(fd, n_bytes);

	if (wrong)
		return wrong;
	*ret_at = mmap(NULL, n_bytes, protection, MAP_SHARED, fd, 0);
	return *ret_at == MAP_FAILED ? "it can't be mapped" : NULL;
}

const char *mc_prove_board(int fd, const struct mc_proof *proof)
{
	void *at;
	const struct mc_board *board;
	const char *wrong = prove_map(fd, MC_BOARD_BYTES, PROT_READ, &at);

	if (wrong)
		return wrong;
	board = at;
	if (board->magic != MC_BOARD_MAGIC)
		wrong = "it is no status board";
	else if (board->epoch != proof->epoch)
		wrong = "it is of another epoch";
	else if (board->world_size != proof->world_size)
		wrong = "it is of another world size";
	munmap(at, MC_BOARD_BYTES);
	return wrong;
}

const char *mc_prove_control(int fd, const struct mc_proof *proof, uint32_t rank)
{
	const struct mc_control *control;
	const char *wrong;
	void *at;

	if (!proof->on_host)
		return prove_device(fd);
	wrong = prove_map(fd, MC_CONTROL_BYTES, PROT_READ, &at);
	if (wrong)
		return wrong;
	control = at;
	if (control->canary_head != MC_CANARY_HEAD || control->canary_tail != MC_CANARY_TAIL)
		wrong = "its canaries are damaged";
	else if (control->epoch != proof->epoch || control->rank != rank ||
		 control->world_size != proof->world_size)
		wrong = "it is of another rank or epoch";
	else if (!mc_vector_equal(&control->sentinel, &proof->sentinel) ||
		 control->check !=
			 mc_control_check(rank, proof->world_size, proof->epoch, &proof->sentinel))
		wrong = "its sentinel is another one";
	munmap(at, MC_CONTROL_BYTES);
	return wrong;
}

const char *mc_prove_arena(int fd, const struct mc_proof *proof)
{
	return proof->on_host ? prove_memfd(fd, proof->arena_bytes) : prove_device(fd);
}

bool mc_prove_same(int a, int b)
{
	struct stat st_a, st_b;

	if (fstat(a, &st_a) || fstat(b, &st_b) || st_a.st_dev != st_b.st_dev ||
		st_a.st_ino != st_b.st_ino)
		return false;
	/* every allocation of a driver is the same node, opened once more: whether they are one can
	 * only the kernel tell, and where it does not they count as two */
	return S_ISREG(st_a.st_mode) || syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b) == 0;
}

void mc_prove_abort_board(int fd, uint64_t epoch)
{
	uint32_t none = 0;
	struct mc_board *board;
	void *at;

	if (prove_map(fd, MC_BOARD_BYTES, PROT_READ | PROT_WRITE, &at))
		return;
	board = at;
	if (board->magic == MC_BOARD_MAGIC && board->epoch == epoch)
		__atomic_compare_exchange_n(&board->wait.abort_word, &none,
			mc_abort_word(MC_FAULT_STALE_EPOCH, 0), false, __ATOMIC_RELEASE,
			__ATOMIC_RELAXED);
	munmap(at, MC_BOARD_BYTES);
}
