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

#include "client/backends/backend.h"
#include "client/inject.h"
#include "client/moecomm.h"

struct mc_backend_rank {
	struct mc_host_rank host;
	size_t arena_bytes; /* as mapped */
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

static void host_unmap(struct mc_backend_rank *rank, uint32_t timeout_ms)
{
	struct mc_host_rank *host = &rank->host;

	/* ops are complete on return: the library has waited for them */
	(void)timeout_ms;
	for (uint32_t i = 0; i < MC_MAX_WORLD_SIZE; i++)
		if (host->arena[i])
			munmap(host->arena[i], rank->arena_bytes);
	if (host->control)
		munmap(host->control, MC_CONTROL_BYTES);
	if (host->board)
		munmap(host->board, MC_BOARD_BYTES);
	memset(host, 0, sizeof(*host));
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
static int map_object(int fd, size_t n_bytes, const struct what *what, void **ret_at,
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
		at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
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
	*ret_at = at;
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
	void *at;
	int r;

	*ret_failed_peer = UINT32_MAX;
	host_unmap(rank, 0);
	host->rank = epoch->rank;
	host->layout = epoch->layout;
	rank->arena_bytes = (size_t)epoch->layout.arena_bytes;
	r = map_object(epoch->board_fd, MC_BOARD_BYTES, &what, &at, ret_error);
	if (r == 0) {
		host->board = at;
		what.kind = "control block";
		r = map_object(epoch->control_fd, MC_CONTROL_BYTES, &what, &at, ret_error);
	}
	if (r == 0) {
		host->control = at;
		r = check_contents(host, epoch, ret_error);
	}
	for (uint32_t i = 0; r == 0 && i < epoch->layout.world_size; i++) {
		what = (struct what){
			.kind = "arena", .mapper = epoch->rank, .rank = i, .of_rank = true};
		r = map_object(epoch->arena_fd[i], rank->arena_bytes, &what, &at, ret_error);
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
	host_unmap(rank, 0);
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
