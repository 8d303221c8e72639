/* SPDX-License-Identifier: Apache-2.0 */
#include "support/wire_client.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>
#include "proto/codec.h"
#include "support/fd_count.h"

#define REPLY_TIMEOUT_MS 30000

/* -1 with errno set when there is nobody. */
static int try_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;

	assert_true(fd >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int mc_wire_socket(const char *path)
{
	int fd = try_socket(path);

	if (fd < 0)
		fail_msg("cannot connect to %s: %s", path, strerror(errno));
	return fd;
}

bool mc_wire_can_connect(const char *path)
{
	int fd = try_socket(path);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void mc_wire_client_open(struct mc_wire_client *ret_client, const char *path, const char *label)
{
	Moecomm__Wire__Hello hello = MOECOMM__WIRE__HELLO__INIT;
	struct mc_wire_reply reply;

	memset(ret_client, 0, sizeof(*ret_client));
	ret_client->fd = mc_wire_socket(path);
	ret_client->reader = mc_frame_reader_new(MC_LIMIT_REPLY_BYTES, MC_LIMIT_FRAME_FDS);
	assert_non_null(ret_client->reader);
	hello.major = MC_PROTO_MAJOR;
	hello.minor = MC_PROTO_MINOR;
	hello.label = (char *)label;
	mc_wire_send(ret_client, MC_FRAME_HELLO, &hello.base);
	mc_wire_expect(ret_client, MC_FRAME_WELCOME, REPLY_TIMEOUT_MS, &reply);
	mc_wire_reply_clear(&reply);
}

void mc_wire_client_close(struct mc_wire_client *client)
{
	client->reader = mc_frame_reader_free(client->reader);
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
}

bool mc_wire_send_bytes(int fd, const void *data, size_t n_bytes)
{
	const uint8_t *at = data;
	ssize_t n;

	while (n_bytes) {
		n = send(fd, at, n_bytes, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		at += n;
		n_bytes -= (size_t)n;
	}
	return true;
}

uint32_t mc_wire_send(struct mc_wire_client *client, uint16_t type, const ProtobufCMessage *message)
{
	uint8_t header[MC_FRAME_HEADER_BYTES], *payload, *frame;
	uint32_t serial = ++client->last_serial;
	size_t n_payload;

	assert_int_equal(mc_codec_encode(message, &payload, &n_payload), 0);
	mc_frame_header_write(header, type, serial, (uint32_t)n_payload, 0);
	frame = malloc(sizeof(header) + n_payload);
	assert_non_null(frame);
	memcpy(frame, header, sizeof(header));
	memcpy(frame + sizeof(header), payload, n_payload);
	if (!mc_wire_send_bytes(client->fd, frame, sizeof(header) + n_payload))
		fail_msg("the daemon has closed the connection: %s", strerror(errno));
	free(frame);
	free(payload);
	return serial;
}

static void take_frame(struct mc_frame *frame, struct mc_wire_reply *ret_reply)
{
	const char *field = "";
	int r;

	memset(ret_reply, 0, sizeof(*ret_reply));
	ret_reply->type = frame->type;
	ret_reply->serial = frame->serial;
	r = mc_codec_decode(frame->type, frame->payload, frame->n_payload,
		MC_LIMIT_DECODE_REPLY_BYTES, &ret_reply->message, &field);
	if (r)
		fail_msg("the daemon sent a %s that is no message: %s %s",
			mc_frame_type_name(frame->type), mc_codec_error_text(r), field);
	ret_reply->n_fds = frame->n_fds;
	for (unsigned i = 0; i < frame->n_fds; i++) {
		ret_reply->fds[i] = frame->fds[i];
		frame->fds[i] = -1;
	}
}

bool mc_wire_receive(struct mc_wire_client *client, int timeout_ms, struct mc_wire_reply *ret_reply)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms, now;
	struct pollfd poll_fd = {.fd = client->fd, .events = POLLIN};
	struct mc_frame *frame;
	int r;

	for (;;) {
		r = mc_frame_reader_next(client->reader, client->fd, &frame);
		if (r == 0) {
			take_frame(frame, ret_reply);
			return true;
		}
		if (r == MC_FRAME_E_CLOSED || r == -ECONNRESET) {
			memset(ret_reply, 0, sizeof(*ret_reply));
			return true;
		}
		if (r != MC_FRAME_E_AGAIN && r != -EAGAIN)
			fail_msg("cannot read from the daemon: %s",
				r > 0 ? mc_frame_error_text(r) : strerror(-r));
		now = mc_test_now_ms();
		if (now >= deadline)
			return false;
		poll(&poll_fd, 1, (int)(deadline - now));
	}
}

void mc_wire_reply_clear(struct mc_wire_reply *reply)
{
	reply->message = mc_codec_free(reply->message);
	for (unsigned i = 0; i < reply->n_fds; i++)
		if (reply->fds[i] >= 0)
			close(reply->fds[i]);
	reply->n_fds = 0;
}

void mc_wire_expect(struct mc_wire_client *client, uint16_t type, int timeout_ms,
	struct mc_wire_reply *ret_reply)
{
	if (!mc_wire_receive(client, timeout_ms, ret_reply))
		fail_msg("no %s came within %d ms", mc_frame_type_name(type), timeout_ms);
	if (ret_reply->type == type)
		return;
	if (ret_reply->type == MC_FRAME_DONE) {
		Moecomm__Wire__Done *done = (Moecomm__Wire__Done *)ret_reply->message;

		fail_msg("a Done with %s came (%s) instead of %s", mc_status_name(done->status),
			done->detail ? done->detail : "", mc_frame_type_name(type));
	}
	fail_msg("%s came instead of %s",
		ret_reply->type ? mc_frame_type_name(ret_reply->type) : "the end",
		mc_frame_type_name(type));
}

static void check_text(
	const char *what, uint32_t got, uint32_t wanted, const char *detail, const char *text)
{
	if (got != wanted)
		fail_msg("%s with %s came (%s), not %s", what, mc_status_name(got),
			detail ? detail : "", mc_status_name(wanted));
	if (text && (!detail || !strstr(detail, text)))
		fail_msg("%s's detail is '%s', without '%s'", what, detail ? detail : "", text);
}

void mc_wire_expect_done(
	struct mc_wire_client *client, uint32_t status, const char *text, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms, now;
	struct mc_wire_reply reply;
	Moecomm__Wire__Done *done;

	for (;;) {
		now = mc_test_now_ms();
		if (!mc_wire_receive(client, now < deadline ? (int)(deadline - now) : 0, &reply))
			fail_msg("no Done came within %d ms", timeout_ms);
		if (reply.type != MC_FRAME_NOTICE)
			break;
		mc_wire_reply_clear(&reply);
	}
	if (reply.type != MC_FRAME_DONE)
		fail_msg("%s came instead of a Done",
			reply.type ? mc_frame_type_name(reply.type) : "the end");
	done = (Moecomm__Wire__Done *)reply.message;
	check_text("a Done", done->status, status, done->detail, text);
	mc_wire_reply_clear(&reply);
}

void mc_wire_expect_notice(struct mc_wire_client *client, uint32_t status, const char *text,
	uint32_t *ret_rank, int timeout_ms)
{
	struct mc_wire_reply reply;
	Moecomm__Wire__Notice *notice;

	mc_wire_expect(client, MC_FRAME_NOTICE, timeout_ms, &reply);
	notice = (Moecomm__Wire__Notice *)reply.message;
	check_text("a Notice", notice->status, status, notice->detail, text);
	if (ret_rank)
		*ret_rank = notice->has_rank ? notice->rank : UINT32_MAX;
	mc_wire_reply_clear(&reply);
}

void mc_wire_expect_closed(struct mc_wire_client *client, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms, now;
	struct mc_wire_reply reply;

	for (;;) {
		now = mc_test_now_ms();
		if (!mc_wire_receive(client, now < deadline ? (int)(deadline - now) : 0, &reply))
			fail_msg(
				"the daemon did not close the connection within %d ms", timeout_ms);
		if (!reply.type)
			return;
		mc_wire_reply_clear(&reply);
	}
}

void mc_wire_expect_silence(struct mc_wire_client *client, int timeout_ms)
{
	struct mc_wire_reply reply;

	if (mc_wire_receive(client, timeout_ms, &reply))
		fail_msg("%s came, where nothing was expected",
			reply.type ? mc_frame_type_name(reply.type) : "the end");
}

const char *mc_wire_boot_id(void)
{
	static char id[64];
	FILE *file;

	if (*id)
		return id;
	file = fopen("/proc/sys/kernel/random/boot_id", "re");
	assert_non_null(file);
	assert_non_null(fgets(id, sizeof(id), file));
	fclose(file);
	id[strcspn(id, "\n")] = 0;
	return id;
}

uint32_t mc_wire_join(struct mc_wire_client *client, const struct mc_wire_join *join)
{
	Moecomm__Wire__Join wire = MOECOMM__WIRE__JOIN__INIT;
	Moecomm__Wire__GroupSpec spec = MOECOMM__WIRE__GROUP_SPEC__INIT;

	spec.world_size = join->world_size;
	spec.n_channels = join->n_channels ? join->n_channels : 1;
	spec.max_rows = join->max_rows ? join->max_rows : 8;
	spec.has_dispatch_row_bytes = spec.has_combine_row_bytes = 1;
	spec.dispatch_row_bytes = join->dispatch_row_bytes ? join->dispatch_row_bytes : 64;
	spec.combine_row_bytes = join->combine_row_bytes;
	spec.backend = join->backend;
	spec.has_path = spec.has_shared_gpu = 1;
	spec.path = join->path;
	spec.shared_gpu = join->shared_gpu;
	spec.job = (char *)join->job;
	spec.has_op_timeout_ms = spec.has_warmup_timeout_ms = 1;
	spec.op_timeout_ms = join->op_timeout_ms;
	spec.warmup_timeout_ms = join->warmup_timeout_ms;
	spec.has_join_timeout_ms = spec.has_probe_timeout_ms = 1;
	spec.join_timeout_ms = join->join_timeout_ms;
	spec.probe_timeout_ms = join->probe_timeout_ms;
	wire.group = (char *)join->group;
	wire.rank = join->rank;
	wire.spec = &spec;
	wire.boot_id = (char *)(join->boot_id ? join->boot_id : mc_wire_boot_id());
	wire.device_uuid = (char *)join->device_uuid;
	wire.label = (char *)join->label;
	wire.allow_uid = (uint32_t *)join->allow_uid;
	wire.n_allow_uid = join->n_allow_uid;
	wire.allow_gid = (uint32_t *)join->allow_gid;
	wire.n_allow_gid = join->n_allow_gid;
	return mc_wire_send(client, MC_FRAME_JOIN, &wire.base);
}

void mc_wire_expect_layout(
	struct mc_wire_client *client, int timeout_ms, struct mc_wire_layout *ret_layout)
{
	Moecomm__Wire__Layout *wire;
	struct mc_wire_reply reply;

	mc_wire_expect(client, MC_FRAME_LAYOUT, timeout_ms, &reply);
	wire = (Moecomm__Wire__Layout *)reply.message;
	assert_int_equal(reply.n_fds, 2 + wire->spec->world_size);
	ret_layout->member_id = wire->member_id;
	ret_layout->epoch = wire->epoch;
	ret_layout->arena_bytes = wire->arena_bytes;
	ret_layout->world_size = wire->spec->world_size;
	assert_int_equal(wire->token.len, sizeof(ret_layout->token));
	assert_int_equal(wire->sentinel.len, sizeof(ret_layout->sentinel));
	memcpy(ret_layout->token, wire->token.data, sizeof(ret_layout->token));
	memcpy(ret_layout->sentinel, wire->sentinel.data, sizeof(ret_layout->sentinel));
	ret_layout->board_fd = reply.fds[0];
	ret_layout->control_fd = reply.fds[1];
	for (uint32_t r = 0; r < ret_layout->world_size; r++)
		ret_layout->arena_fd[r] = reply.fds[2 + r];
	reply.n_fds = 0;
	mc_wire_reply_clear(&reply);
}

void mc_wire_layout_clear(struct mc_wire_layout *layout)
{
	close(layout->board_fd);
	close(layout->control_fd);
	for (uint32_t r = 0; r < layout->world_size; r++)
		close(layout->arena_fd[r]);
	layout->world_size = 0;
}

void mc_wire_vote_yes(struct mc_wire_client *client, uint64_t member_id)
{
	Moecomm__Wire__Vote vote = MOECOMM__WIRE__VOTE__INIT;

	vote.member_id = member_id;
	mc_wire_send(client, MC_FRAME_VOTE, &vote.base);
}

void mc_wire_vote_no(
	struct mc_wire_client *client, uint64_t member_id, uint32_t peer, uint32_t result)
{
	Moecomm__Wire__PairFailure failure = MOECOMM__WIRE__PAIR_FAILURE__INIT,
				   *failures = &failure;
	Moecomm__Wire__Vote vote = MOECOMM__WIRE__VOTE__INIT;

	failure.peer = peer;
	failure.result = result;
	vote.member_id = member_id;
	vote.n_failures = 1;
	vote.failures = &failures;
	mc_wire_send(client, MC_FRAME_VOTE, &vote.base);
}

uint64_t mc_wire_expect_ready(struct mc_wire_client *client, int timeout_ms)
{
	struct mc_wire_reply reply;
	uint64_t epoch;

	mc_wire_expect(client, MC_FRAME_READY, timeout_ms, &reply);
	epoch = ((Moecomm__Wire__Ready *)reply.message)->epoch;
	mc_wire_reply_clear(&reply);
	return epoch;
}

uint32_t mc_wire_leave(struct mc_wire_client *client, uint64_t member_id)
{
	Moecomm__Wire__Leave leave = MOECOMM__WIRE__LEAVE__INIT;

	leave.member_id = member_id;
	return mc_wire_send(client, MC_FRAME_LEAVE, &leave.base);
}

void mc_wire_form(struct mc_wire_client *clients, struct mc_wire_layout *ret_layouts,
	const struct mc_wire_join *join)
{
	struct mc_wire_join mine = *join;

	for (uint32_t r = 0; r < join->world_size; r++) {
		mine.rank = r;
		mc_wire_join(&clients[r], &mine);
	}
	for (uint32_t r = 0; r < join->world_size; r++)
		mc_wire_expect_layout(&clients[r], REPLY_TIMEOUT_MS, &ret_layouts[r]);
	for (uint32_t r = 0; r < join->world_size; r++)
		mc_wire_vote_yes(&clients[r], ret_layouts[r].member_id);
	for (uint32_t r = 0; r < join->world_size; r++)
		assert_int_equal(
			mc_wire_expect_ready(&clients[r], REPLY_TIMEOUT_MS), ret_layouts[r].epoch);
}

Moecomm__Wire__Status *mc_wire_status(struct mc_wire_client *client, const char *group, bool ranks,
	bool clients, struct mc_wire_reply *ret_reply)
{
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;

	request.group = (char *)group;
	request.has_ranks = request.has_clients = 1;
	request.ranks = ranks;
	request.clients = clients;
	mc_wire_send(client, MC_FRAME_STATUS_REQUEST, &request.base);
	mc_wire_expect(client, MC_FRAME_STATUS, REPLY_TIMEOUT_MS, ret_reply);
	return (Moecomm__Wire__Status *)ret_reply->message;
}

uint32_t mc_wire_group_state(struct mc_wire_client *client, const char *group)
{
	struct mc_wire_reply reply;
	Moecomm__Wire__Status *status = mc_wire_status(client, NULL, false, false, &reply);
	uint32_t state = 0;

	for (size_t i = 0; i < status->n_groups; i++)
		if (!strcmp(status->groups[i]->name, group))
			state = status->groups[i]->state;
	mc_wire_reply_clear(&reply);
	return state;
}

void mc_wire_wait_state(
	struct mc_wire_client *client, const char *group, uint32_t state, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;
	uint32_t now;

	while ((now = mc_wire_group_state(client, group)) != state) {
		if (mc_test_now_ms() >= deadline)
			fail_msg("group %s is %s, not %s", group,
				now ? mc_group_state_name(now) : "not there",
				state ? mc_group_state_name(state) : "gone");
		mc_test_sleep_ms(5);
	}
}

static uint32_t count_joined(struct mc_wire_client *client, const char *group)
{
	struct mc_wire_reply reply;
	Moecomm__Wire__Status *status = mc_wire_status(client, NULL, false, false, &reply);
	uint32_t n = 0;

	for (size_t i = 0; i < status->n_groups; i++)
		if (!strcmp(status->groups[i]->name, group))
			n = status->groups[i]->n_joined;
	mc_wire_reply_clear(&reply);
	return n;
}

void mc_wire_wait_joined(
	struct mc_wire_client *client, const char *group, uint32_t n_joined, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;
	uint32_t n;

	while ((n = count_joined(client, group)) != n_joined) {
		if (mc_test_now_ms() >= deadline)
			fail_msg("group %s has %u members, not %u", group, n, n_joined);
		mc_test_sleep_ms(5);
	}
}
