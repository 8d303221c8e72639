/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/client/fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "kernels/host/host.h"
#include "kernels/layout.h"
#include "proto/codec.h"
#include "proto/status.h"

#define MAX_MEMBERS 8u

/* In every build type, unlike assert; the fake runs on a thread of its own, where cmocka can't
 * fail. */
#define must(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "fake daemon: %s:%d: %s: %s\n", __FILE__, __LINE__,        \
				#condition, strerror(errno));                                      \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct member {
	uint32_t join_serial, vote_serial, rank;
	bool joined, voted;
	uint64_t id;
};

struct fake_daemon {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	pthread_t thread;
	int listen_fd, stop_fd;
	pthread_mutex_t lock; /* script, counters, conn_fd */
	struct fake_script script;
	unsigned received[32];
	int conn_fd, n_sent;
	bool broken;
	/* the one group that it serves */
	struct member member[MAX_MEMBERS];
	uint32_t n_joined, n_voted;
	uint64_t epoch, last_id;
	struct mc_layout_spec spec;
	uint32_t backend;
};

static const struct mc_vector sentinel = {{0x9e3779b9u, 0x7f4a7c15u, 0xf39cc060u, 0x5cedc834u}};
static const uint8_t token[16] = "fifteen letters";

/* Sends what the script still allows; the fds go with the first byte. With the lock held. */
static void send_bytes(
	struct fake_daemon *fake, const uint8_t *bytes, size_t n, const int *fds, unsigned n_fds)
{
	union {
		char buffer[CMSG_SPACE(sizeof(int) * 80)];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = n};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	int left = fake->script.cut_after ? fake->script.cut_after - fake->n_sent : (int)n;

	if (fake->broken || fake->conn_fd < 0)
		return;
	if ((int)n > left) {
		iov.iov_len = left > 0 ? (size_t)left : 0;
		fake->broken = true;
	}
	if (n_fds) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		message.msg_control = control.buffer;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	if (iov.iov_len) {
		ssize_t r = sendmsg(fake->conn_fd, &message, MSG_NOSIGNAL);

		if (r > 0)
			fake->n_sent += (int)r;
	}
}

static void send_message(struct fake_daemon *fake, uint16_t type, uint32_t serial,
	const ProtobufCMessage *message, const int *fds, unsigned n_fds)
{
	uint8_t *payload = NULL, *frame;
	size_t n = 0;

	must(mc_codec_encode(message, &payload, &n) == 0);
	frame = malloc(MC_FRAME_HEADER_BYTES + n);
	must(frame);
	mc_frame_header_write(frame, type, serial, (uint32_t)n, (uint16_t)n_fds);
	memcpy(frame + MC_FRAME_HEADER_BYTES, payload, n);
	send_bytes(fake, frame, MC_FRAME_HEADER_BYTES + n, fds, n_fds);
	free(frame);
	free(payload);
}

/* A frame of a type whose payload is no message. */
static void send_bad_payload(struct fake_daemon *fake, uint16_t type, uint32_t serial)
{
	uint8_t frame[MC_FRAME_HEADER_BYTES + 8];

	mc_frame_header_write(frame, type, serial, 8, 0);
	memset(frame + MC_FRAME_HEADER_BYTES, 0xff, 8);
	send_bytes(fake, frame, sizeof(frame), NULL, 0);
}

static void send_done(
	struct fake_daemon *fake, uint32_t serial, uint32_t status, const char *detail)
{
	Moecomm__Wire__Done done = MOECOMM__WIRE__DONE__INIT;

	done.status = status;
	done.detail = (char *)detail;
	send_message(fake, MC_FRAME_DONE, serial, &done.base, NULL, 0);
}

static void send_ready(struct fake_daemon *fake, uint32_t serial, uint64_t epoch, uint32_t path)
{
	Moecomm__Wire__Ready ready = MOECOMM__WIRE__READY__INIT;

	ready.epoch = epoch;
	ready.path = path;
	send_message(fake, MC_FRAME_READY, serial, &ready.base, NULL, 0);
}

static void send_notice(
	struct fake_daemon *fake, uint64_t id, uint32_t status, int rank, const char *detail)
{
	Moecomm__Wire__Notice notice = MOECOMM__WIRE__NOTICE__INIT;

	notice.member_id = id;
	notice.epoch = fake->epoch;
	notice.status = status;
	notice.has_rank = rank >= 0;
	notice.rank = rank >= 0 ? (uint32_t)rank : 0;
	notice.detail = (char *)detail;
	send_message(fake, MC_FRAME_NOTICE, 0, &notice.base, NULL, 0);
}

/* ---- hello ---- */

static void on_hello(struct fake_daemon *fake, uint32_t serial)
{
	Moecomm__Wire__Welcome welcome = MOECOMM__WIRE__WELCOME__INIT;
	uint8_t header[MC_FRAME_HEADER_BYTES];
	uint8_t instance[16] = {1};

	welcome.major =
		fake->script.hello == FAKE_HELLO_OTHER_MAJOR ? MC_PROTO_MAJOR + 1 : MC_PROTO_MAJOR;
	welcome.minor = MC_PROTO_MINOR;
	welcome.instance.data = instance;
	welcome.instance.len = sizeof(instance);
	welcome.backend = (char *)"host";
	switch (fake->script.hello) {
	case FAKE_HELLO_GOOD:
	case FAKE_HELLO_OTHER_MAJOR:
		send_message(fake, MC_FRAME_WELCOME, serial, &welcome.base, NULL, 0);
		break;
	case FAKE_HELLO_REFUSE:
		send_done(fake, serial, MC_STATUS_VERSION, "the daemon speaks 9.3, the client 1.0");
		break;
	case FAKE_HELLO_GARBAGE:
		send_bytes(fake, (const uint8_t *)"HTTP/1.1 400 Bad Request\r\n\r\n", 28, NULL, 0);
		break;
	case FAKE_HELLO_BAD_PAYLOAD:
		send_bad_payload(fake, MC_FRAME_WELCOME, serial);
		break;
	case FAKE_HELLO_WRONG_TYPE:
		send_ready(fake, serial, 1, 1);
		break;
	case FAKE_HELLO_HUGE:
		mc_frame_header_write(header, MC_FRAME_WELCOME, serial, UINT32_MAX, 0);
		send_bytes(fake, header, sizeof(header), NULL, 0);
		break;
	case FAKE_HELLO_SILENT:
		break;
	}
}

/* ---- join ---- */

static int make_memfd(size_t n, void **ret_at)
{
	int fd = memfd_create("fake-moecomm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	must(fd >= 0 && ftruncate(fd, (off_t)n) == 0);
	*ret_at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(*ret_at != MAP_FAILED);
	return fd;
}

static void seal(int fd)
{
	must(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
}

/* The fd that the script puts in place of a right one. */
static int wrong_fd(enum fake_fds kind, size_t n)
{
	int fd = -1, pair[2];
	char path[64];

	switch (kind) {
	case FAKE_FDS_PIPE:
		must(pipe2(pair, O_CLOEXEC) == 0);
		close(pair[1]);
		return pair[0];
	case FAKE_FDS_DIRECTORY:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case FAKE_FDS_DEVNULL:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	default:
		break;
	}
	fd = memfd_create("fake-wrong", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	must(fd >= 0 && ftruncate(fd, (off_t)(kind == FAKE_FDS_SHORT ? n - 1 : n)) == 0);
	if (kind != FAKE_FDS_UNSEALED)
		seal(fd);
	if (kind == FAKE_FDS_READ_ONLY) {
		int read_only;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		read_only = open(path, O_RDONLY | O_CLOEXEC);
		close(fd);
		fd = read_only;
	}
	return fd;
}

/* fds of one member: board, control block, arenas; arenas and board are shared by the members. */
struct memory {
	int board_fd, control_fd[MAX_MEMBERS], arena_fd[MAX_MEMBERS];
	uint32_t world_size;
};

static void arm(
	const struct fake_daemon *fake, const struct mc_layout *layout, struct memory *memory)
{
	struct mc_wait_line wait = {0, 2000, 2000, 16};
	void *at;

	memory->world_size = layout->world_size;
	memory->board_fd = make_memfd(MC_BOARD_BYTES, &at);
	mc_host_board_init(at, layout->world_size, fake->epoch, &wait);
	munmap(at, MC_BOARD_BYTES);
	seal(memory->board_fd);
	for (uint32_t r = 0; r < layout->world_size; r++) {
		memory->control_fd[r] = make_memfd(MC_CONTROL_BYTES, &at);
		mc_host_control_init(at, r, layout->world_size, fake->epoch, &sentinel);
		munmap(at, MC_CONTROL_BYTES);
		seal(memory->control_fd[r]);
		memory->arena_fd[r] = make_memfd(layout->arena_bytes, &at);
		mc_host_fill(at, layout->arena_bytes, &sentinel);
		munmap(at, layout->arena_bytes);
		seal(memory->arena_fd[r]);
	}
}

static void disarm(struct memory *memory)
{
	close(memory->board_fd);
	for (uint32_t r = 0; r < memory->world_size; r++) {
		close(memory->control_fd[r]);
		close(memory->arena_fd[r]);
	}
}

static void send_layout(struct fake_daemon *fake, const struct member *member,
	const struct mc_layout *layout, const struct memory *memory)
{
	Moecomm__Wire__Layout m = MOECOMM__WIRE__LAYOUT__INIT;
	Moecomm__Wire__GroupSpec spec = MOECOMM__WIRE__GROUP_SPEC__INIT;
	enum fake_fds kind = fake->script.fds;
	int fds[MAX_MEMBERS + 3], wrong = -1;
	unsigned n = 0;
	size_t size;

	fds[n++] = memory->board_fd;
	fds[n++] = memory->control_fd[member->rank];
	for (uint32_t r = 0; r < layout->world_size; r++)
		fds[n++] = memory->arena_fd[r];
	if (kind == FAKE_FDS_NONE)
		n = 0;
	else if (kind == FAKE_FDS_FEW)
		n--;
	else if (kind == FAKE_FDS_MANY)
		fds[n++] = memory->board_fd;
	else if (kind != FAKE_FDS_GOOD) {
		size = fake->script.bad_fd == 0   ? MC_BOARD_BYTES
		       : fake->script.bad_fd == 1 ? MC_CONTROL_BYTES
						  : layout->arena_bytes;
		wrong = wrong_fd(kind, size);
		fds[fake->script.bad_fd] = wrong;
	}
	spec.world_size = fake->spec.world_size;
	spec.n_channels = fake->spec.n_channels;
	spec.max_rows = fake->spec.max_rows;
	spec.has_dispatch_row_bytes = spec.has_combine_row_bytes = 1;
	spec.dispatch_row_bytes = fake->spec.dispatch_row_bytes;
	spec.combine_row_bytes = fake->spec.combine_row_bytes;
	spec.backend = 1;
	m.member_id = member->id;
	m.token.data = (uint8_t *)token;
	m.token.len = sizeof(token);
	m.epoch = fake->epoch;
	m.sentinel.data = (uint8_t *)&sentinel;
	m.sentinel.len = sizeof(sentinel);
	m.spec = &spec;
	m.slot_data_bytes = layout->slot_data_bytes;
	m.slot_stride = layout->slot_stride;
	m.segment_stride = layout->segment_stride;
	m.channel_stride = layout->channel_stride;
	m.ring_offset = layout->ring_offset;
	m.arena_bytes = layout->arena_bytes;
	m.capacity_dispatch = mc_layout_capacity(layout, fake->spec.dispatch_row_bytes);
	m.capacity_combine = mc_layout_capacity(layout, fake->spec.combine_row_bytes);
	m.probe_timeout_ms = 2000;
	if (fake->script.edit)
		fake->script.edit(&m);
	send_message(fake, MC_FRAME_LAYOUT, member->join_serial, &m.base, fds, n);
	if (wrong >= 0)
		close(wrong);
	if (fake->script.join == FAKE_JOIN_NOTICE_FIRST)
		send_notice(fake, member->id, MC_STATUS_PEER_LOST, 0, "rank 0 ended while joining");
}

static void on_join(struct fake_daemon *fake, uint32_t serial, const Moecomm__Wire__Join *join)
{
	struct mc_layout layout;
	struct memory memory;
	struct member *member;

	switch (fake->script.join) {
	case FAKE_JOIN_SILENT:
		return;
	case FAKE_JOIN_REFUSE:
		send_done(fake, serial, MC_STATUS_DENIED, "uid 7 is not on the group's list");
		return;
	case FAKE_JOIN_DONE_OK:
		send_done(fake, serial, MC_STATUS_OK, NULL);
		return;
	case FAKE_JOIN_READY:
		send_ready(fake, serial, 1, 1);
		return;
	case FAKE_JOIN_BAD_PAYLOAD:
		send_bad_payload(fake, MC_FRAME_LAYOUT, serial);
		return;
	case FAKE_JOIN_HELLO:
		send_bad_payload(fake, MC_FRAME_HELLO, serial);
		return;
	default:
		break;
	}
	must(join->rank < MAX_MEMBERS && join->spec->world_size <= MAX_MEMBERS);
	if (fake->n_joined == fake->spec.world_size)
		fake->n_joined = 0; /* the next epoch */
	fake->spec = (struct mc_layout_spec){join->spec->world_size, join->spec->n_channels,
		join->spec->max_rows, join->spec->dispatch_row_bytes,
		join->spec->combine_row_bytes};
	member = &fake->member[fake->n_joined++];
	*member = (struct member){
		.join_serial = serial, .rank = join->rank, .joined = true, .id = ++fake->last_id};
	if (fake->n_joined < fake->spec.world_size)
		return;
	must(mc_layout_make(&fake->spec, &layout) == 0);
	fake->epoch++;
	fake->n_voted = 0;
	arm(fake, &layout, &memory);
	for (uint32_t i = 0; i < fake->n_joined; i++)
		send_layout(fake, &fake->member[i], &layout, &memory);
	disarm(&memory);
}

static void on_vote(struct fake_daemon *fake, uint32_t serial, const Moecomm__Wire__Vote *vote)
{
	bool vetoed = vote->n_failures > 0;

	for (uint32_t i = 0; i < fake->n_joined; i++)
		if (fake->member[i].id == vote->member_id)
			fake->member[i].vote_serial = serial;
	if (fake->script.vote == FAKE_VOTE_SILENT)
		return;
	if (++fake->n_voted < fake->spec.world_size)
		return;
	for (uint32_t i = 0; i < fake->n_joined; i++) {
		serial = fake->member[i].vote_serial;
		if (vetoed || fake->script.vote == FAKE_VOTE_REFUSE)
			send_done(
				fake, serial, MC_STATUS_PROBE_FAILED, "rank 0 from rank 0: vetoed");
		else if (fake->script.vote == FAKE_VOTE_DONE_OK)
			send_done(fake, serial, MC_STATUS_OK, NULL);
		else
			send_ready(fake, serial,
				fake->epoch + (fake->script.vote == FAKE_VOTE_WRONG_EPOCH ? 1 : 0),
				fake->script.vote == FAKE_VOTE_OTHER_PATH ? 2 : 1);
	}
}

/* ---- connections ---- */

static void on_frame(struct fake_daemon *fake, const struct mc_frame *frame)
{
	ProtobufCMessage *message = NULL;

	must(mc_codec_decode(frame->type, frame->payload, frame->n_payload, MC_LIMIT_DECODE_BYTES,
		     &message, NULL) == 0);
	fake->received[frame->type & 31]++;
	switch (frame->type) {
	case MC_FRAME_HELLO:
		on_hello(fake, frame->serial);
		break;
	case MC_FRAME_JOIN:
		on_join(fake, frame->serial, (const Moecomm__Wire__Join *)message);
		break;
	case MC_FRAME_VOTE:
		on_vote(fake, frame->serial, (const Moecomm__Wire__Vote *)message);
		break;
	case MC_FRAME_RESUME:
		send_done(fake, frame->serial, (uint32_t)fake->script.resume_status, NULL);
		break;
	default:
		if (!fake->script.deaf)
			send_done(fake, frame->serial, MC_STATUS_OK, NULL);
	}
	mc_codec_free(message);
}

/* Serves one connection to its end; false when the fake is to stop. */
static bool serve(struct fake_daemon *fake)
{
	struct mc_frame_reader *reader = mc_frame_reader_new(MC_LIMIT_REQUEST_BYTES, 0);
	bool alive = true, run = true;

	must(reader);
	while (alive && run) {
		struct pollfd fds[2] = {{.fd = fake->conn_fd, .events = POLLIN},
			{.fd = fake->stop_fd, .events = POLLIN}};
		struct mc_frame *frame;
		int r;

		poll(fds, 2, -1);
		run = !fds[1].revents;
		while (run && alive) {
			r = mc_frame_reader_next(reader, fake->conn_fd, &frame);
			if (r == MC_FRAME_E_AGAIN)
				break;
			pthread_mutex_lock(&fake->lock);
			if (r == 0)
				on_frame(fake, frame);
			alive = r == 0 && !fake->broken;
			pthread_mutex_unlock(&fake->lock);
		}
	}
	mc_frame_reader_free(reader);
	return run;
}

static void *run(void *data)
{
	struct fake_daemon *fake = data;
	bool go = true;

	while (go) {
		struct pollfd fds[2] = {{.fd = fake->listen_fd, .events = POLLIN},
			{.fd = fake->stop_fd, .events = POLLIN}};
		int fd;

		poll(fds, 2, -1);
		if (fds[1].revents)
			break;
		fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		pthread_mutex_lock(&fake->lock);
		fake->conn_fd = fd;
		fake->n_sent = 0;
		fake->broken = false;
		fake->n_joined = fake->n_voted = 0;
		pthread_mutex_unlock(&fake->lock);
		go = serve(fake);
		pthread_mutex_lock(&fake->lock);
		fake->conn_fd = -1;
		pthread_mutex_unlock(&fake->lock);
		close(fd);
	}
	return NULL;
}

struct fake_daemon *fake_start(const char *path, const struct fake_script *script)
{
	struct fake_daemon *fake = calloc(1, sizeof(*fake));
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	must(fake && strlen(path) < sizeof(fake->path));
	strcpy(fake->path, path);
	strcpy(address.sun_path, path);
	fake->script = *script;
	fake->conn_fd = -1;
	pthread_mutex_init(&fake->lock, NULL);
	fake->stop_fd = eventfd(0, EFD_CLOEXEC);
	fake->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(path);
	must(bind(fake->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	must(listen(fake->listen_fd, 64) == 0);
	must(pthread_create(&fake->thread, NULL, run, fake) == 0);
	return fake;
}

struct fake_daemon *fake_stop(struct fake_daemon *fake)
{
	uint64_t one = 1;

	must(write(fake->stop_fd, &one, sizeof(one)) == sizeof(one));
	pthread_join(fake->thread, NULL);
	close(fake->listen_fd);
	close(fake->stop_fd);
	unlink(fake->path);
	pthread_mutex_destroy(&fake->lock);
	free(fake);
	return NULL;
}

void fake_set_script(struct fake_daemon *fake, const struct fake_script *script)
{
	pthread_mutex_lock(&fake->lock);
	fake->script = *script;
	pthread_mutex_unlock(&fake->lock);
}

unsigned fake_received(struct fake_daemon *fake, unsigned type)
{
	unsigned n;

	pthread_mutex_lock(&fake->lock);
	n = fake->received[type & 31];
	pthread_mutex_unlock(&fake->lock);
	return n;
}

int fake_sent(struct fake_daemon *fake)
{
	int n;

	pthread_mutex_lock(&fake->lock);
	n = fake->n_sent;
	pthread_mutex_unlock(&fake->lock);
	return n;
}

void fake_notice(
	struct fake_daemon *fake, uint64_t member_id, uint32_t status, int rank, const char *detail)
{
	pthread_mutex_lock(&fake->lock);
	send_notice(fake, member_id, status, rank, detail);
	pthread_mutex_unlock(&fake->lock);
}
