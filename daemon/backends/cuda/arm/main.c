/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecomm-arm: makes the memory of one group epoch on the GPUs, for the daemon, and ends. The only
 * program on the daemon's side that makes CUDA calls: a context costs half a GiB of GPU memory and
 * a driver can hang, and neither must happen to the daemon.
 *
 * Started by the daemon with a SEQPACKET socket as standard input. By hand: moecomm-arm --probe.
 */
#include "daemon/backends/cuda/arm/arena.h"
#include "daemon/backends/cuda/arm/gpu.h"
#include "kernels/host/host.h"
#include "proto/status.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_FD 0

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Sends a structure with fds; a daemon that is gone is nobody's error. Returns the exit status. */
static int send_reply(const void *reply, size_t n_bytes, const int *fds, unsigned n_fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * MC_ARM_MAX_FDS)];
	} control;
	struct iovec part = {(void *)reply, n_bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t n;

	if (n_fds) {
		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
	}
	do
		n = sendmsg(SOCKET_FD, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)n_bytes) {
		fprintf(stderr, "moecomm-arm: cannot send the reply to the daemon: %s\n",
			n < 0 ? strerror(errno) : "cut short");
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}

__attribute__((format(printf, 4, 5))) static void fail(
	struct mc_arm_wire_reply *reply, uint32_t status, uint32_t rank, const char *format, ...)
{
	va_list list;

	reply->status = status;
	reply->rank = rank;
	va_start(list, format);
	vsnprintf(reply->detail, sizeof(reply->detail), format, list);
	va_end(list);
}

static void fail_driver(struct mc_arm_wire_reply *reply, const struct mc_cu *cu, uint32_t rank,
	const char *what, const char *uuid, size_t n_bytes, const struct mc_arena_failure *failure)
{
	char says[320];
	size_t n_free = 0, n_total = 0;

	if (!failure->call) {
		fail(reply, MC_STATUS_DEVICE, rank, "cannot arm the %s of rank %u on %s: %s", what,
			rank, uuid, failure->text);
		return;
	}
	mc_driver_describe(cu, failure->call, failure->error, says, sizeof(says));
	if (failure->error == MC_CU_OUT_OF_MEMORY &&
		cu->memory_info(&n_free, &n_total) == MC_CU_SUCCESS)
		fail(reply, MC_STATUS_NO_MEMORY, rank,
			"cannot arm the %s of rank %u on %s (%zu bytes wanted, %zu free): %s; "
			"lower "
			"max_rows or free GPU memory",
			what, rank, uuid, n_bytes, n_free, says);
	else
		fail(reply,
			failure->error == MC_CU_OUT_OF_MEMORY ? MC_STATUS_NO_MEMORY
							      : MC_STATUS_DEVICE,
			rank, "cannot arm the %s of rank %u on %s (%zu bytes): %s", what, rank,
			uuid, n_bytes, says);
}

/* Finds every rank's device. Returns 0, or -1 with the reply filled. */
static int find_devices(const struct mc_cu *cu, const struct mc_arm_wire_request *request,
	mc_cu_device device[MC_MAX_WORLD_SIZE], struct mc_arm_wire_reply *reply)
{
	struct mc_cu_uuid present[MC_ARM_MAX_GPUS];
	mc_cu_device handle[MC_ARM_MAX_GPUS];
	int count = 0, n = 0;

	if (cu->device_count(&count) != MC_CU_SUCCESS)
		count = 0;
	for (int i = 0; i < count && n < (int)MC_ARM_MAX_GPUS; i++) {
		if (cu->device_get(&handle[n], i) == MC_CU_SUCCESS &&
			cu->device_uuid(&present[n], handle[n]) == MC_CU_SUCCESS)
			n++;
	}
	for (uint32_t rank = 0; rank < request->world_size; rank++) {
		struct mc_cu_uuid wanted;
		int i = 0, vmm = 0, posix_fd = 0;

		if (mc_gpu_uuid_parse(request->uuid[rank], &wanted)) {
			fail(reply, MC_STATUS_INVALID, rank, "rank %u gave no GPU UUID but \"%s\"",
				rank, request->uuid[rank]);
			return -1;
		}
		while (i < n && memcmp(&present[i], &wanted, sizeof(wanted)) != 0)
			i++;
		if (i == n) {
			fail(reply, MC_STATUS_TOPOLOGY, rank,
				"%s of rank %u is not among the %d GPUs that the daemon can reach; "
				"let its "
				"service see that GPU",
				request->uuid[rank], rank, n);
			return -1;
		}
		if (cu->device_attribute(&vmm, MC_CU_ATTR_VMM, handle[i]) != MC_CU_SUCCESS ||
			cu->device_attribute(&posix_fd, MC_CU_ATTR_POSIX_FD, handle[i]) !=
				MC_CU_SUCCESS ||
			!vmm || !posix_fd) {
			fail(reply, MC_STATUS_TOPOLOGY, rank,
				"%s of rank %u can't share memory through file descriptors "
				"(virtual memory "
				"management %d, POSIX fds %d)",
				request->uuid[rank], rank, vmm, posix_fd);
			return -1;
		}
		device[rank] = handle[i];
	}
	return 0;
}

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static int use_device(const struct mc_cu *cu, mc_cu_device device, mc_cu_context context[],
	mc_cu_device known[], unsigned *io_known, struct mc_arena_failure *failure)
{
	unsigned i = 0;

	while (i < *io_known && known[i] != device)
		i++;
	if (i == *io_known) {
		/* never released: the context goes with the process */
		failure->call = "cuDevicePrimaryCtxRetain";
		failure->error = cu->context_retain(&context[i], device);
		if (failure->error != MC_CU_SUCCESS)
			return -1;
		known[i] = device;
		(*io_known)++;
	}
	failure->call = "cuCtxSetCurrent";
	failure->error = cu->context_set(context[i]);
	return failure->error == MC_CU_SUCCESS ? 0 : -1;
}

static unsigned arm(const struct mc_arm_wire_request *request, struct mc_arm_wire_reply *reply,
	int fds[MC_ARM_MAX_FDS])
{
	struct mc_cu cu;
	struct mc_arena_work work = {.cu = &cu};
	struct mc_arena_failure failure = {0};
	mc_cu_device device[MC_MAX_WORLD_SIZE], known[MC_MAX_WORLD_SIZE];
	mc_cu_context context[MC_MAX_WORLD_SIZE];
	size_t granularity = 1, n_arena, n_control;
	unsigned n_fds = 0, n_known = 0;
	enum mc_gpu_state state;
	uint64_t t0 = now_ns();
	union {
		struct mc_control control;
		unsigned char bytes[MC_CONTROL_BYTES];
	} block;

	state = mc_gpu_open(&cu, reply->detail, sizeof(reply->detail));
	if (state != MC_GPU_STATE_OK) {
		reply->status = MC_STATUS_DEVICE;
		return 0;
	}
	if (find_devices(&cu, request, device, reply))
		return 0;
	/* one size for all ranks: clients map every arena alike */
	for (uint32_t rank = 0; rank < request->world_size; rank++) {
		size_t g = 0;

		if (mc_arena_granularity(&cu, device[rank], &g, &failure)) {
			fail_driver(reply, &cu, rank, "arena", request->uuid[rank],
				request->arena_bytes, &failure);
			return 0;
		}
		granularity = g > granularity ? g : granularity;
	}
	n_arena = round_up(request->arena_bytes, granularity);
	n_control = round_up(request->control_bytes, granularity);
	work.pattern = malloc(MC_ARENA_CHUNK_BYTES);
	if (!work.pattern) {
		fail(reply, MC_STATUS_NO_MEMORY, UINT32_MAX, "out of host memory");
		return 0;
	}
	mc_host_fill(work.pattern, MC_ARENA_CHUNK_BYTES, &request->sentinel);

	for (uint32_t rank = 0; rank < request->world_size; rank++) {
		const char *what = "control block";
		size_t n_bytes = n_control;

		if (use_device(&cu, device[rank], context, known, &n_known, &failure))
			goto failed;
		if (!work.back) {
			failure.call = "cuMemAllocHost";
			failure.error = cu.host_alloc((void **)&work.back, MC_ARENA_CHUNK_BYTES);
			if (failure.error != MC_CU_SUCCESS)
				goto failed;
			reply->init_ms = (uint32_t)((now_ns() - t0) / 1000000u);
		}
		memset(&block, 0, sizeof(block));
		mc_host_control_init(&block.control, rank, request->world_size, request->epoch,
			&request->sentinel);
		if (mc_arena_make(&work, device[rank], n_control, &block, sizeof(block),
			    &fds[n_fds], &failure))
			goto failed;
		n_fds++;
		what = "arena";
		n_bytes = n_arena;
		if (mc_arena_make(&work, device[rank], n_arena, NULL, 0, &fds[n_fds], &failure))
			goto failed;
		n_fds++;
		continue;
	failed:
		fail_driver(reply, &cu, rank, what, request->uuid[rank], n_bytes, &failure);
		break;
	}
	free(work.pattern);
	if (reply->status != MC_STATUS_OK)
		return 0; /* the fds end with this process */
	reply->arena_bytes = n_arena;
	reply->control_bytes = n_control;
	reply->fill_ms = (uint32_t)(work.fill_ns / 1000000u);
	reply->verify_ms = (uint32_t)(work.verify_ns / 1000000u);
	return n_fds;
}

/* Returns 0, or -1 with a sentence on stderr. */
static int receive_request(struct mc_arm_wire_request *request)
{
	ssize_t n;

	do
		n = recv(SOCKET_FD, request, sizeof(*request), MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		fprintf(stderr,
			"moecomm-arm: standard input is no socket of the daemon (%s); by hand use "
			"moecomm-arm --probe\n",
			strerror(errno));
		return -1;
	}
	if (n != (ssize_t)sizeof(*request) || request->magic != MC_ARM_MAGIC ||
		request->version != MC_ARM_VERSION || request->size != sizeof(*request)) {
		fprintf(stderr,
			"moecomm-arm: the daemon's request is not of this release (%zd bytes, "
			"version "
			"%u); install daemon and helper of one release\n",
			n, n >= 8 ? request->version : 0);
		return -1;
	}
	for (unsigned i = 0; i < MC_MAX_WORLD_SIZE; i++)
		request->uuid[i][MC_ARM_UUID_BYTES - 1] = 0;
	return 0;
}

static int check_request(const struct mc_arm_wire_request *request, struct mc_arm_wire_reply *reply)
{
	if (request->world_size < 1 || request->world_size > MC_MAX_WORLD_SIZE) {
		fail(reply, MC_STATUS_INVALID, UINT32_MAX, "world size %u is not 1 to %u",
			request->world_size, MC_MAX_WORLD_SIZE);
		return -1;
	}
	if (request->arena_bytes < 1 || request->arena_bytes > UINT64_C(1) << 42) {
		fail(reply, MC_STATUS_INVALID, UINT32_MAX, "arena of %llu bytes is not 1 to 2^42",
			(unsigned long long)request->arena_bytes);
		return -1;
	}
	if (request->control_bytes != MC_CONTROL_BYTES) {
		fail(reply, MC_STATUS_INVALID, UINT32_MAX, "control block of %llu bytes is not %u",
			(unsigned long long)request->control_bytes, MC_CONTROL_BYTES);
		return -1;
	}
	return 0;
}

/*
 * A driver shows at most one MIG slice to a process, and only when it is asked for by name. Slices
 * have no peer access, so a group can hold one at most; then show the driver that one.
 */
static int select_mig(const struct mc_arm_wire_request *request, struct mc_arm_wire_reply *reply)
{
	uint32_t n_mig = 0;

	for (uint32_t rank = 0; rank < request->world_size; rank++) {
		n_mig += strncmp(request->uuid[rank], "MIG-", 4) == 0;
		if (strncmp(request->uuid[0], "MIG-", 4) == 0 &&
			strcmp(request->uuid[rank], request->uuid[0]) != 0) {
			fail(reply, MC_STATUS_TOPOLOGY, rank,
				"MIG slices can't reach each other's memory: rank %u is on %s, "
				"rank 0 on %s",
				rank, request->uuid[rank], request->uuid[0]);
			return -1;
		}
	}
	if (n_mig == 0)
		return 0;
	if (n_mig != request->world_size) {
		fail(reply, MC_STATUS_TOPOLOGY, UINT32_MAX,
			"a group can't mix whole GPUs and MIG slices: %u of %u ranks are on a "
			"slice",
			n_mig, request->world_size);
		return -1;
	}
	setenv("CUDA_VISIBLE_DEVICES", request->uuid[0], 1);
	return 0;
}

static const char *state_name(uint32_t state)
{
	static const char *const names[] = {
		"ok", "no driver", "no device nodes", "denied", "no gpu", "error"};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

static int probe_by_hand(void)
{
	struct mc_arm_wire_probe probe;

	mc_gpu_probe(&probe);
	printf("state: %s\n", state_name(probe.state));
	if (probe.detail[0])
		printf("detail: %s\n", probe.detail);
	if (probe.driver_version)
		printf("driver: CUDA %u.%u\n", probe.driver_version / 1000,
			probe.driver_version % 1000 / 10);
	for (uint32_t i = 0; i < probe.n_gpus; i++)
		printf("gpu: %s %s, %llu MiB, compute %u.%u%s%s\n", probe.gpu[i].uuid,
			probe.gpu[i].name, (unsigned long long)(probe.gpu[i].memory_bytes >> 20),
			probe.gpu[i].compute_major, probe.gpu[i].compute_minor,
			probe.gpu[i].is_mig ? ", MIG" : "",
			probe.gpu[i].can_arm ? "" : ", can't share memory by fd");
	return probe.state == MC_GPU_STATE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

/*
 * Ends at once: the driver's exit handlers can hang, and the kernel frees all that we hold anyway.
 */
__attribute__((noreturn)) static void leave(int status)
{
	fflush(NULL);
	_exit(status);
}

int main(int argc, char **argv)
{
	static struct mc_arm_wire_request request;
	static struct mc_arm_wire_probe probe;
	struct mc_arm_wire_reply reply = {.magic = MC_ARM_MAGIC,
		.version = MC_ARM_VERSION,
		.size = sizeof(reply),
		.rank = UINT32_MAX};
	int fds[MC_ARM_MAX_FDS];
	sigset_t none;

	if (argc == 2 && strcmp(argv[1], "--probe") == 0)
		return probe_by_hand();
	if (argc != 1) {
		fprintf(stderr, "usage: moecomm-arm --probe (else the daemon starts it)\n");
		return 2;
	}
	/* nothing of the daemon's comes along: no fd, no blocked signal; nor do we outlive it */
	if (close_range(3, ~0u, 0))
		fprintf(stderr, "moecomm-arm: close_range: %s\n", strerror(errno));
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* a restriction meant for workers must not hide GPUs, nor change their order */
	unsetenv("CUDA_VISIBLE_DEVICES");

	if (receive_request(&request))
		return 2;
	if (request.kind == MC_ARM_KIND_PROBE) {
		mc_gpu_probe(&probe);
		leave(send_reply(&probe, sizeof(probe), NULL, 0));
	}
	if (request.kind != MC_ARM_KIND_ARM)
		fail(&reply, MC_STATUS_UNSUPPORTED, UINT32_MAX, "unknown request kind %u",
			request.kind);
	else if (!check_request(&request, &reply) && !select_mig(&request, &reply))
		reply.n_fds = arm(&request, &reply, fds);
	leave(send_reply(&reply, sizeof(reply), fds, reply.n_fds));
}
