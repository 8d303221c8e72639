/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole sessions of up to three clients with a daemon in this process: the real connections,
 * handlers and groups, the real host backend. The input is a script:
 *
 *   action byte: client = a % 3, what = a / 3 % 5
 *     0  the next byte n, then n bytes are sent as they are
 *     1  a frame: type byte, length byte pair (little-endian), then as many bytes of payload
 *     2  the daemon runs until it has nothing to do
 *     3  the client goes; it is a new connection when it comes again
 *     4  what the daemon has sent is read
 *
 * When the script has ended and everybody is gone, nothing may be left.
 */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/log.h"
#include "proto/frame.h"

#define N_CLIENTS 3
#define MAX_TURNS 200

struct session {
	uv_loop_t loop;
	struct mc_daemon daemon;
	int client_fd[N_CLIENTS]; /* -1: not connected */
};

/* Small enough that no input costs much. */
static void configure(struct mc_config *ret_config)
{
	struct mc_config_overrides overrides = {
		.file = "/dev/null", .socket = "/tmp/unused.sock", .backend = "host"};
	char error[256];

	FUZZ_CHECK(!mc_config_load(&overrides, ret_config, error, sizeof(error)));
	ret_config->max_arena_bytes_per_uid = 1u << 20;
	ret_config->max_fds_per_uid = 300;
	ret_config->max_groups_per_uid = 8;
	ret_config->max_queue_bytes = 256u << 10;
}

static bool is_arming(const struct session *session)
{
	const struct mc_group *group;

	for (group = session->daemon.groups->by_name; group; group = group->hh.next)
		if (mc_group_newest(group)->state == MC_GROUP_ARMING)
			return true;
	return false;
}

static void run(struct session *session)
{
	for (int i = 0; i < 8; i++)
		uv_run(&session->loop, UV_RUN_NOWAIT);
	/* the thread pool makes memory: the only thing to wait for */
	for (int i = 0; i < MAX_TURNS && is_arming(session); i++)
		uv_run(&session->loop, UV_RUN_ONCE);
}

static int client(struct session *session, int which)
{
	int fds[2];

	if (session->client_fd[which] >= 0)
		return session->client_fd[which];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		return -1;
	/* the first two are one user, the third is another */
	if (mc_conn_new(&session->daemon, fds[1], 100u + (unsigned)which, which < 2 ? 1000 : 1001,
		    1000, NULL)) {
		close(fds[0]);
		return -1;
	}
	session->client_fd[which] = fds[0];
	return fds[0];
}

static void drain(int fd)
{
	char buffer[4096];

	/* without room for control data the kernel closes the fds that come along */
	while (fd >= 0 && recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0)
		;
}

static void put(struct session *session, int which, const uint8_t *data, size_t n)
{
	int fd = client(session, which);

	while (fd >= 0 && n) {
		ssize_t sent = send(fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0)
			return;
		data += sent;
		n -= (size_t)sent;
	}
}

static void put_frame(
	struct session *session, int which, uint8_t type, const uint8_t *payload, size_t n)
{
	uint8_t header[MC_FRAME_HEADER_BYTES];

	mc_frame_header_write(header, type, 1, (uint32_t)n, 0);
	put(session, which, header, sizeof(header));
	put(session, which, payload, n);
}

static void hang_up(struct session *session, int which)
{
	if (session->client_fd[which] >= 0)
		close(session->client_fd[which]);
	session->client_fd[which] = -1;
}

/* Runs one action; returns how much of the script it took. */
static size_t act(struct session *session, const uint8_t *script, size_t n)
{
	int which = script[0] % N_CLIENTS;
	size_t n_data;

	switch (script[0] / N_CLIENTS % 5) {
	case 0:
		if (n < 2)
			return n;
		n_data = script[1] < n - 2 ? script[1] : n - 2;
		put(session, which, script + 2, n_data);
		return 2 + n_data;
	case 1:
		if (n < 4)
			return n;
		n_data = (size_t)(script[2] | script[3] << 8);
		n_data = n_data < n - 4 ? n_data : n - 4;
		put_frame(session, which, script[1], script + 4, n_data);
		return 4 + n_data;
	case 2:
		run(session);
		return 1;
	case 3:
		hang_up(session, which);
		return 1;
	default:
		drain(session->client_fd[which]);
		return 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct session session;
	struct mc_config_overrides overrides = {.file = "/dev/null"};
	struct mc_config config;
	char error[256];

	configure(&config);
	mc_log_open(LOG_CRIT);
	memset(&session, 0, sizeof(session));
	for (int i = 0; i < N_CLIENTS; i++)
		session.client_fd[i] = -1;
	FUZZ_CHECK(!uv_loop_init(&session.loop));
	FUZZ_CHECK(!mc_daemon_init(
		&session.daemon, &session.loop, &config, &overrides, error, sizeof(error)));
	/* known to the corpus */
	snprintf(session.daemon.boot_id, sizeof(session.daemon.boot_id), "boot");

	while (size) {
		size_t n = act(&session, data, size);

		data += n;
		size -= n;
	}
	run(&session);
	for (int i = 0; i < N_CLIENTS; i++) {
		drain(session.client_fd[i]);
		hang_up(&session, i);
	}
	for (int i = 0; i < MAX_TURNS && session.daemon.n_conns; i++)
		run(&session);
	FUZZ_CHECK(!session.daemon.n_conns);
	FUZZ_CHECK(!session.daemon.groups->by_name);
	FUZZ_CHECK(!session.daemon.groups->by_id);
	FUZZ_CHECK(!session.daemon.groups->arena_bytes);
	FUZZ_CHECK(!mc_quota_n_users(session.daemon.quota));
	mc_daemon_stop(&session.daemon);
	uv_run(&session.loop, UV_RUN_DEFAULT);
	FUZZ_CHECK(!uv_loop_close(&session.loop));
	mc_daemon_clear(&session.daemon);
	return 0;
}
