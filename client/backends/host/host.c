/* SPDX-License-Identifier: Apache-2.0 */
/* The host backend: arenas are sealed memfds, ops run on the calling thread. */
#include "kernels/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/backends/backend.h"
#include "client/inject.h"
#include "client/moecomm.h"

struct mc_backend_rank {
	struct mc_host_rank host;
	size_t arena_bytes; /* as mapped */
	/*
	 * Reserved once: board, control block and arenas of every epoch lie at the same addresses,
	 * as on the cuda backend, where captured graphs hold them.
	 */
	uint8_t *reserved;
	size_t n_reserved;
};

static int host_open(
	int device, struct mc_backend_rank **ret_rank, struct mc_backend_error *ret_error)
{
	struct mc_backend_rank *rank = calloc(1, sizeof(*rank));

	(void)device;
	if (!rank) {
		snprintf(ret_error->text, sizeof(ret_error->text), "out of memory");
		return MOECOMM_NO_MEMORY;
	}
	*ret_rank = rank;
	return 0;
}

static const char *host_device_uuid(struct mc_backend_rank *rank)
{
	(void)rank;
	return "";
}

static void release(struct mc_backend_rank *rank)
{
	if (rank->reserved)
		munmap(rank->reserved, rank->n_reserved);
	rank->reserved = NULL;
	rank->n_reserved = 0;
}

static void host_unmap(struct mc_backend_rank *rank, uint32_t timeout_ms)
{
	/* ops are complete on return: the library has waited for them */
	(void)timeout_ms;
	memset(&rank->host, 0, sizeof(rank->host));
	/* the memory goes, the addresses stay ours */
	if (rank->reserved && mmap(rank->reserved, rank->n_reserved, PROT_NONE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
				      0) == MAP_FAILED)
		release(rank);
}

static size_t in_pages(size_t n_bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (n_bytes + page - 1) / page * page;
}

/* The board lies at the beginning, then the control block, then the arenas. */
static uint8_t *arena_at(const struct mc_backend_rank *rank, uint32_t i)
{
	return rank->reserved + in_pages(MC_BOARD_BYTES) + in_pages(MC_CONTROL_BYTES) +
	       i * in_pages(rank->arena_bytes);
}

/* The layout of a membership never changes, so that the first reservation serves for all epochs. */
static int reserve(struct mc_backend_rank *rank, const struct mc_layout *layout,
	struct mc_backend_error *ret_error)
{
	size_t n = in_pages(MC_BOARD_BYTES) + in_pages(MC_CONTROL_BYTES) +
		   layout->world_size * in_pages((size_t)layout->arena_bytes);
	void *at;

	if (rank->n_reserved == n)
		return 0;
	release(rank);
	at = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"cannot reserve %zu bytes of addresses: %s", n, strerror(errno));
		return MOECOMM_NO_MEMORY;
	}
	rank->reserved = at;
	rank->n_reserved = n;
	return 0;
}

/* What an object is, for errors: "the board", "the arena of rank 3". */
struct what {
	const char *kind;
	uint32_t mapper; /* the rank that maps it */
	uint32_t rank;
	bool of_rank;
};

static int fail(const struct what *what, int status, struct mc_backend_error *ret_error,
	const char *problem)
{
	if (what->of_rank)
		snprintf(ret_error->text, sizeof(ret_error->text),
			"cannot map the %s of rank %u: %s", what->kind, what->rank, problem);
	else
		snprintf(ret_error->text, sizeof(ret_error->text), "cannot map the %s: %s",
			what->kind, problem);
	return status;
}

/*
 * Maps an object that is at least n_bytes long and can't be made shorter: an access beyond the end
 * of a file raises SIGBUS, so whoever can truncate it could kill this process.
 */
static int map_object(int fd, size_t n_bytes, const struct what *what, void *place,
	struct mc_backend_error *ret_error)
{
	char problem[160];
	struct stat st;
	int seals;
	void *at;

	if (fstat(fd, &st) != 0) {
		snprintf(problem, sizeof(problem), "fstat: %s", strerror(errno));
		return fail(what, MOECOMM_PROTOCOL, ret_error, problem);
	}
	seals = fcntl(fd, F_GET_SEALS);
	if (!S_ISREG(st.st_mode) || seals < 0)
		return fail(what, MOECOMM_PROTOCOL, ret_error,
			"the daemon handed over something else than a "
			"memfd");
	if (!(seals & F_SEAL_SHRINK))
		return fail(what, MOECOMM_PROTOCOL, ret_error,
			"the daemon handed over a memfd that is not sealed against shrinking");
	if (st.st_size < 0 || (uint64_t)st.st_size < n_bytes) {
		snprintf(problem, sizeof(problem), "the memfd has %lld bytes and must have %zu",
			(long long)st.st_size, n_bytes);
		return fail(what, MOECOMM_PROTOCOL, ret_error, problem);
	}
	if (mc_client_inject_hit("map_fail", what->mapper)) {
		errno = EIO;
		at = MAP_FAILED;
	} else {
		at = mmap(place, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	}
	if (at == MAP_FAILED) {
		int error = errno;

		snprintf(problem, sizeof(problem), "mmap of %zu bytes: %s", n_bytes,
			strerror(error));
		return fail(what, error == ENOMEM ? MOECOMM_NO_MEMORY : MOECOMM_SYSTEM, ret_error,
			problem);
	}
	/* a forked child must not keep the memory of an epoch alive */
	madvise(at, n_bytes, MADV_DONTFORK);
	return 0;
}

/* What the daemon has put there must be this epoch's and this rank's. */
static int check_contents(const struct mc_host_rank *host, const struct mc_backend_epoch *epoch,
	struct mc_backend_error *ret_error)
{
	const struct mc_board *board = host->board;
	const struct mc_control *control = host->control;

	if (board->magic != MC_BOARD_MAGIC || board->world_size != epoch->layout.world_size ||
		board->epoch != epoch->epoch) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"the daemon's status board is not that of epoch %llu with %u ranks",
			(unsigned long long)epoch->epoch, epoch->layout.world_size);
		return MOECOMM_PROTOCOL;
	}
	if (control->canary_head != MC_CANARY_HEAD || control->canary_tail != MC_CANARY_TAIL ||
		control->epoch != epoch->epoch || control->rank != epoch->rank ||
		control->world_size != epoch->layout.world_size ||
		!mc_vector_equal(&control->sentinel, &epoch->sentinel)) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"the daemon's control block is not that of rank %u in epoch %llu",
			epoch->rank, (unsigned long long)epoch->epoch);
		return MOECOMM_PROTOCOL;
	}
	return 0;
}

static int host_map(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	uint32_t *ret_failed_peer, struct mc_backend_error *ret_error)
{
	struct mc_host_rank *host = &rank->host;
	struct what what = {.kind = "status board", .mapper = epoch->rank};
	uint8_t *at;
	int r;

	*ret_failed_peer = UINT32_MAX;
	host_unmap(rank, 0);
	host->rank = epoch->rank;
	host->layout = epoch->layout;
	rank->arena_bytes = (size_t)epoch->layout.arena_bytes;
	r = reserve(rank, &epoch->layout, ret_error);
	if (r)
		return r;
	at = rank->reserved;
	r = map_object(epoch->board_fd, MC_BOARD_BYTES, &what, at, ret_error);
	if (r == 0) {
		host->board = (struct mc_board *)at;
		what.kind = "control block";
		at += in_pages(MC_BOARD_BYTES);
		r = map_object(epoch->control_fd, MC_CONTROL_BYTES, &what, at, ret_error);
	}
	if (r == 0) {
		host->control = (struct mc_control *)at;
		r = check_contents(host, epoch, ret_error);
	}
	for (uint32_t i = 0; r == 0 && i < epoch->layout.world_size; i++) {
		what = (struct what){
			.kind = "arena", .mapper = epoch->rank, .rank = i, .of_rank = true};
		at = arena_at(rank, i);
		r = map_object(epoch->arena_fd[i], rank->arena_bytes, &what, at, ret_error);
		if (r == 0)
			host->arena[i] = at;
		else
			*ret_failed_peer = i;
	}
	if (r)
		host_unmap(rank, 0);
	return r;
}

static const char *probe_text(uint8_t result)
{
	switch (result) {
	case MC_PROBE_TIMEOUT:
		return "what it wrote never arrived";
	case MC_PROBE_CORRUPT:
		return "something else than it wrote arrived";
	default:
		return "its memory could not be mapped";
	}
}

static int host_probe(struct mc_backend_rank *rank, uint32_t timeout_ms,
	uint8_t ret_result[MC_MAX_WORLD_SIZE], struct mc_backend_error *ret_error)
{
	int n_failed = mc_host_probe(&rank->host, timeout_ms, ret_result);

	for (uint32_t peer = 0; n_failed && peer < rank->host.layout.world_size; peer++) {
		if (ret_result[peer] == MC_PROBE_OK)
			continue;
		snprintf(ret_error->text, sizeof(ret_error->text),
			"rank %u can't exchange data with rank %u: %s", rank->host.rank, peer,
			probe_text(ret_result[peer]));
		return MOECOMM_PROBE_FAILED;
	}
	return 0;
}

static int host_dispatch(struct mc_backend_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, void *stream, struct mc_fault *ret_fault,
	struct mc_backend_error *ret_error)
{
	(void)stream;
	(void)ret_error;
	return mc_host_dispatch(&rank->host, channel, op, ret_fault);
}

static int host_combine(struct mc_backend_rank *rank, uint32_t channel, const struct mc_combine *op,
	void *stream, struct mc_fault *ret_fault, struct mc_backend_error *ret_error)
{
	(void)stream;
	(void)ret_error;
	return mc_host_combine(&rank->host, channel, op, ret_fault);
}

static int host_mask_ids(struct mc_backend_rank *rank, const struct mc_mask_ids *op, void *stream,
	struct mc_backend_error *ret_error)
{
	(void)rank;
	(void)stream;
	(void)ret_error;
	return mc_host_mask_ids(op);
}

static void host_poison(struct mc_backend_rank *rank, uint32_t fault_status)
{
	uint32_t none = MC_FAULT_NONE;

	if (rank->host.control)
		__atomic_compare_exchange_n(&rank->host.control->failed, &none, fault_status, false,
			__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static struct mc_board *host_board(struct mc_backend_rank *rank)
{
	return rank->host.board;
}

static void host_close(struct mc_backend_rank *rank)
{
	if (!rank)
		return;
	release(rank);
	free(rank);
}

const struct mc_client_backend mc_client_backend_host = {
	.abi = MC_CLIENT_BACKEND_ABI,
	.name = "host",
	.open = host_open,
	.device_uuid = host_device_uuid,
	.map = host_map,
	.probe = host_probe,
	.dispatch = host_dispatch,
	.combine = host_combine,
	.mask_ids = host_mask_ids,
	.poison = host_poison,
	.board = host_board,
	.unmap = host_unmap,
	.close = host_close,
};
