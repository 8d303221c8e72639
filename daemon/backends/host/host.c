/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host backend: arenas and control blocks are sealed memfds. Making and filling them takes long
 * for large groups, so that it runs on libuv's thread pool, in chunks between which it can be
 * given up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "daemon/backends/backend.h"
#include "daemon/backends/board.h"
#include "daemon/log.h"
#include "kernels/host/host.h"
#include "proto/status.h"

/* Between two looks at whether the arming was given up or its time is over. */
#define CHUNK_BYTES (UINT64_C(8) << 20)

/* Linux 6.3 and later; a memfd that can't be executed, without the kernel's warning. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

struct mc_arm {
	uv_work_t work;
	struct mc_arm_request request;
	struct mc_arm_result result;
	mc_arm_cb cb;
	void *data;
	uint64_t deadline_ms;
	atomic_bool is_cancelled;
	int error; /* -errno */
	char what[160];
};

static int fail(struct mc_arm *arm, int error, const char *what)
{
	arm->error = error;
	snprintf(arm->what, sizeof(arm->what), "%s: %s", what, strerror(-error));
	return error;
}

static int may_go_on(struct mc_arm *arm)
{
	if (atomic_load_explicit(&arm->is_cancelled, memory_order_relaxed))
		return fail(arm, -ECANCELED, "given up");
	if (mc_now_ms() >= arm->deadline_ms)
		return fail(arm, -ETIME, "it took longer than arm_timeout_ms");
	return 0;
}

static int create(struct mc_arm *arm, const char *name, uint64_t n_bytes, int *ret_fd)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return fail(arm, -errno, "cannot create a memfd");
	*ret_fd = fd;
	if (ftruncate(fd, (off_t)n_bytes))
		return fail(arm, -errno, "cannot size a memfd");
	return 0;
}

/* A member that shortened it would have everybody else killed by SIGBUS. */
static int seal(struct mc_arm *arm, int fd)
{
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return fail(arm, -errno, "cannot seal a memfd");
	return 0;
}

static bool is_filled(const uint8_t *at, uint64_t n_bytes, const struct mc_vector *sentinel)
{
	/* the first vector is right and each equals the one before it */
	return !memcmp(at, sentinel, sizeof(*sentinel)) &&
	       !memcmp(at, at + sizeof(*sentinel), n_bytes - sizeof(*sentinel));
}

/* One chunk: allocate (an error instead of a later SIGBUS when memory is short), fill, read back.
 */
static int fill_chunk(struct mc_arm *arm, int fd, uint64_t offset, uint64_t n_bytes)
{
	void *at;
	int r = 0;

	while (fallocate(fd, 0, (off_t)offset, (off_t)n_bytes))
		if (errno != EINTR)
			return fail(arm, -errno, "cannot allocate memory for an arena");
	at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (at == MAP_FAILED)
		return fail(arm, -errno, "cannot map an arena");
	mc_host_fill(at, n_bytes, &arm->request.sentinel);
	if (!is_filled(at, n_bytes, &arm->request.sentinel))
		r = fail(arm, -EIO, "an arena does not hold what was written to it");
	munmap(at, n_bytes);
	return r;
}

static int make_arena(struct mc_arm *arm, uint32_t rank)
{
	uint64_t n_bytes = arm->result.arena_bytes, n;
	int r;

	r = create(arm, "moecomm-arena", n_bytes, &arm->result.arena_fd[rank]);
	for (uint64_t offset = 0; !r && offset < n_bytes; offset += n) {
		n = n_bytes - offset < CHUNK_BYTES ? n_bytes - offset : CHUNK_BYTES;
		r = may_go_on(arm);
		if (!r)
			r = fill_chunk(arm, arm->result.arena_fd[rank], offset, n);
	}
	return r ? r : seal(arm, arm->result.arena_fd[rank]);
}

static int make_control(struct mc_arm *arm, uint32_t rank)
{
	const struct mc_arm_request *request = &arm->request;
	void *at;
	int r;

	r = create(arm, "moecomm-control", MC_CONTROL_BYTES, &arm->result.control_fd[rank]);
	if (r)
		return r;
	if (fallocate(arm->result.control_fd[rank], 0, 0, MC_CONTROL_BYTES))
		return fail(arm, -errno, "cannot allocate memory for a control block");
	at = mmap(NULL, MC_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		arm->result.control_fd[rank], 0);
	if (at == MAP_FAILED)
		return fail(arm, -errno, "cannot map a control block");
	mc_host_control_init(at, rank, request->world_size, request->epoch, &request->sentinel);
	munmap(at, MC_CONTROL_BYTES);
	return seal(arm, arm->result.control_fd[rank]);
}

/* On a thread of the pool. */
static void on_work(uv_work_t *work)
{
	struct mc_arm *arm = work->data;
	const struct mc_arm_request *request = &arm->request;
	int r;

	r = mc_board_create(
		request->world_size, request->epoch, &request->wait, &arm->result.board_fd);
	if (r) {
		fail(arm, r, "cannot make the status board");
		return;
	}
	for (uint32_t rank = 0; !r && rank < request->world_size; rank++) {
		r = make_control(arm, rank);
		if (!r)
			r = make_arena(arm, rank);
	}
}

static int status_of(int error)
{
	switch (error) {
	case -ENOMEM:
	case -ENOSPC:
		return MC_STATUS_NO_MEMORY;
	default:
		return MC_STATUS_SYSTEM;
	}
}

/* Of the armings under way: what they will have taken. Touched on the loop's thread only. */
static uint64_t n_promised_bytes;

/* UINT64_MAX when the kernel does not tell. */
static uint64_t available_bytes(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib;
	uint64_t available = UINT64_MAX;
	char line[128];

	if (!file)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			available = (uint64_t)kib << 10;
	fclose(file);
	return available;
}

/*
 * memfds are memory: filling more than there is would call the OOM killer, and it picks whom it
 * likes. An eighth is left for whoever else lives here.
 */
static bool machine_has(uint64_t n_bytes)
{
	uint64_t available = available_bytes();

	available -= available / 8;
	return n_promised_bytes <= available && n_bytes <= available - n_promised_bytes;
}

static uint64_t total_bytes(const struct mc_arm *arm)
{
	return arm->request.world_size * (arm->result.arena_bytes + MC_CONTROL_BYTES) +
	       MC_BOARD_BYTES;
}

static void on_worked(uv_work_t *work, int status)
{
	struct mc_arm *arm = work->data;

	n_promised_bytes -= total_bytes(arm);
	if (status == UV_ECANCELED || atomic_load(&arm->is_cancelled)) {
		mc_arm_result_clear(&arm->result);
	} else if (arm->error) {
		mc_arm_result_clear(&arm->result);
		mc_log(LOG_ERR, "cannot make %u arenas of %llu bytes: %s", arm->request.world_size,
			(unsigned long long)arm->result.arena_bytes, arm->what);
		arm->cb(arm->data, status_of(arm->error), arm->what, NULL);
	} else {
		arm->cb(arm->data, 0, "", &arm->result);
	}
	free(arm);
}

static bool host_ready(const char **ret_reason)
{
	(void)ret_reason;
	return true;
}

static int host_arm(uv_loop_t *loop, const struct mc_arm_request *request, mc_arm_cb cb, void *data,
	struct mc_arm **ret_arm, const char **ret_detail)
{
	struct mc_arm *arm = calloc(1, sizeof(*arm));
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (!arm) {
		*ret_detail = "out of memory";
		return MC_STATUS_NO_MEMORY;
	}
	arm->work.data = arm;
	arm->request = *request;
	arm->cb = cb;
	arm->data = data;
	arm->deadline_ms = mc_now_ms() + request->timeout_ms;
	arm->result.board_fd = -1;
	for (uint32_t r = 0; r < MC_MAX_WORLD_SIZE; r++)
		arm->result.control_fd[r] = arm->result.arena_fd[r] = -1;
	arm->result.arena_bytes = (request->layout.arena_bytes + page - 1) / page * page;
	if (!arm->result.arena_bytes)
		arm->result.arena_bytes = page; /* a group of one has no slots */
	if (!machine_has(total_bytes(arm))) {
		free(arm);
		*ret_detail = "this machine has not enough free memory for the group's arenas: ask "
			      "for fewer rows, shorter rows or fewer channels, or free memory";
		return MC_STATUS_NO_MEMORY;
	}
	n_promised_bytes += total_bytes(arm);
	if (uv_queue_work(loop, &arm->work, on_work, on_worked)) {
		n_promised_bytes -= total_bytes(arm);
		free(arm);
		*ret_detail = "cannot start a thread";
		return MC_STATUS_SYSTEM;
	}
	*ret_arm = arm;
	return 0;
}

static void host_cancel(struct mc_arm *arm)
{
	if (!arm)
		return;
	atomic_store(&arm->is_cancelled, true);
	/* takes effect only if it has not begun; else it ends after its chunk */
	uv_cancel((uv_req_t *)&arm->work);
}

const struct mc_daemon_backend mc_daemon_backend_host = {
	.name = "host",
	.number = 1, /* MOECOMM_BACKEND_HOST */
	.ready = host_ready,
	.arm = host_arm,
	.cancel = host_cancel,
};
