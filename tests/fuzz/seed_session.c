/* SPDX-License-Identifier: Apache-2.0 */
/* Writes seeds for fuzz_session into a directory: seed_session DIRECTORY */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/codec.h"
#include "proto/frame.h"
#include "proto/status.h"

enum action {
	ACTION_BYTES = 0,
	ACTION_FRAME = 1,
	ACTION_RUN = 2,
	ACTION_HANG_UP = 3,
	ACTION_READ = 4,
};

static const char *directory;
static FILE *seed;

static void begin(const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/seed-%s", directory, name);
	seed = fopen(path, "wb");
	if (!seed) {
		fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
		exit(1);
	}
}

static void end(void)
{
	if (fclose(seed)) {
		perror("cannot write a seed");
		exit(1);
	}
}

static void act(int client, enum action action)
{
	fputc(client + 3 * (int)action, seed);
}

static void frame(int client, uint16_t type, const ProtobufCMessage *message)
{
	uint8_t *payload;
	size_t n;

	if (mc_codec_encode(message, &payload, &n))
		exit(1);
	act(client, ACTION_FRAME);
	fputc(type, seed);
	fputc((int)(n & 0xff), seed);
	fputc((int)(n >> 8), seed);
	fwrite(payload, 1, n, seed);
	free(payload);
}

static void hello(int client)
{
	Moecomm__Wire__Hello message = MOECOMM__WIRE__HELLO__INIT;

	message.major = MC_PROTO_MAJOR;
	message.label = "fuzz";
	frame(client, MC_FRAME_HELLO, &message.base);
}

static void join(int client, uint32_t rank, uint32_t world_size, uint64_t max_rows)
{
	Moecomm__Wire__Join message = MOECOMM__WIRE__JOIN__INIT;
	Moecomm__Wire__GroupSpec spec = MOECOMM__WIRE__GROUP_SPEC__INIT;
	uint32_t uid = 1001;

	spec.world_size = world_size;
	spec.n_channels = 1;
	spec.max_rows = max_rows;
	spec.has_dispatch_row_bytes = 1;
	spec.dispatch_row_bytes = 16;
	message.group = "g";
	message.rank = rank;
	message.spec = &spec;
	message.boot_id = "boot";
	message.n_allow_uid = 1;
	message.allow_uid = &uid;
	frame(client, MC_FRAME_JOIN, &message.base);
}

static void vote(int client, uint64_t id, int fails)
{
	Moecomm__Wire__Vote message = MOECOMM__WIRE__VOTE__INIT;
	Moecomm__Wire__PairFailure failure = MOECOMM__WIRE__PAIR_FAILURE__INIT, *list = &failure;

	failure.result = 1;
	message.member_id = id;
	message.n_failures = fails != 0;
	message.failures = &list;
	frame(client, MC_FRAME_VOTE, &message.base);
}

static void leave(int client, uint64_t id)
{
	Moecomm__Wire__Leave message = MOECOMM__WIRE__LEAVE__INIT;

	message.member_id = id;
	frame(client, MC_FRAME_LEAVE, &message.base);
}

static void abort_group(int client)
{
	Moecomm__Wire__Abort message = MOECOMM__WIRE__ABORT__INIT;

	message.group = "g";
	message.reason = "why not";
	frame(client, MC_FRAME_ABORT, &message.base);
}

static void op_failed(int client, uint64_t id)
{
	Moecomm__Wire__OpFailed message = MOECOMM__WIRE__OP_FAILED__INIT;

	message.member_id = id;
	message.status = MC_STATUS_TIMEOUT;
	message.has_peer = 1;
	frame(client, MC_FRAME_OP_FAILED, &message.base);
}

static void set_deadlines(int client, uint64_t id)
{
	Moecomm__Wire__SetDeadlines message = MOECOMM__WIRE__SET_DEADLINES__INIT;

	message.has_member_id = 1;
	message.member_id = id;
	message.has_op_timeout_ms = 1;
	message.op_timeout_ms = 5;
	frame(client, MC_FRAME_SET_DEADLINES, &message.base);
}

static void status(int client)
{
	Moecomm__Wire__StatusRequest message = MOECOMM__WIRE__STATUS_REQUEST__INIT;

	message.has_ranks = message.has_clients = 1;
	message.ranks = message.clients = 1;
	frame(client, MC_FRAME_STATUS_REQUEST, &message.base);
}

static void resume(int client, uint64_t id)
{
	Moecomm__Wire__Resume message = MOECOMM__WIRE__RESUME__INIT;
	uint8_t token[16] = {0};

	message.member_id = id;
	message.token.data = token;
	message.token.len = sizeof(token);
	message.group = "g";
	frame(client, MC_FRAME_RESUME, &message.base);
}

/* Clients 0 and 1 (2 with three) in a group that has its layouts; ids are 1, 2, … */
static void form(int n)
{
	for (int i = 0; i < n; i++) {
		hello(i);
		join(i, (uint32_t)i, (uint32_t)n, 4);
		act(i, ACTION_RUN);
	}
	for (int i = 0; i < n; i++)
		act(i, ACTION_READ);
}

static void ready(int n)
{
	form(n);
	for (int i = 0; i < n; i++)
		vote(i, (uint64_t)i + 1, 0);
	act(0, ACTION_RUN);
	status(0);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: seed_session DIRECTORY\n");
		return 2;
	}
	directory = argv[1];

	begin("alone"), ready(1), leave(0, 1), act(0, ACTION_RUN), end();
	begin("pair-leaves"), ready(2), leave(0, 1), leave(1, 2), act(0, ACTION_RUN), end();
	begin("three-users"), ready(3), status(2), leave(2, 3), act(0, ACTION_RUN), end();
	begin("dies"), ready(2), act(1, ACTION_HANG_UP), act(0, ACTION_RUN), status(0), end();
	begin("rejoins"), ready(2), join(0, 0, 2, 4), join(1, 1, 2, 4), act(0, ACTION_RUN),
		vote(0, 3, 0), vote(1, 4, 0), act(0, ACTION_RUN), status(1), end();
	begin("comes-back"), ready(2), act(1, ACTION_HANG_UP), act(0, ACTION_RUN), hello(1),
		join(1, 1, 2, 4), join(0, 0, 2, 4), act(0, ACTION_RUN), end();
	begin("veto"), form(2), vote(0, 1, 1), vote(1, 2, 0), act(0, ACTION_RUN), join(0, 0, 2, 4),
		act(0, ACTION_RUN), end();
	begin("leaves-probing"), form(2), leave(0, 1), act(0, ACTION_RUN), vote(1, 2, 0), end();
	begin("dies-probing"), form(2), vote(1, 2, 0), act(0, ACTION_HANG_UP), act(1, ACTION_RUN),
		end();
	begin("dies-arming"), hello(0), hello(1), join(0, 0, 2, 4), join(1, 1, 2, 4),
		act(0, ACTION_HANG_UP), act(1, ACTION_RUN), end();
	begin("abort"), ready(2), abort_group(1), abort_group(0), act(0, ACTION_RUN), end();
	begin("denied"), ready(2), hello(2), abort_group(2), resume(2, 1), join(2, 0, 2, 4),
		act(0, ACTION_RUN), end();
	begin("op-failed"), ready(2), op_failed(0, 1), act(0, ACTION_RUN), end();
	begin("deadlines"), ready(2), set_deadlines(0, 1), act(0, ACTION_RUN), end();
	begin("mismatch"), hello(0), hello(1), join(0, 0, 2, 4), join(1, 1, 2, 5),
		act(0, ACTION_RUN), end();
	begin("quota"), hello(0), join(0, 0, 1, 1 << 20), act(0, ACTION_RUN), end();
	begin("one-conn"), hello(0), join(0, 0, 2, 4), join(0, 1, 2, 4), act(0, ACTION_RUN),
		vote(0, 1, 0), vote(0, 2, 0), act(0, ACTION_RUN), act(0, ACTION_HANG_UP), end();
	begin("no-hello"), status(0), act(0, ACTION_RUN), end();
	begin("junk"), hello(0), act(0, ACTION_BYTES), fputc(16, seed),
		fputs("0123456789abcdef", seed), act(0, ACTION_RUN), end();
	return 0;
}
