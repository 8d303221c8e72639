/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that speaks the wire protocol and nothing else: it maps nothing, runs no op, and may say
 * what an honest client never would. Every function fails the test when the daemon does not do what
 * was expected in time.
 */
#ifndef MC_TEST_WIRE_CLIENT_H
#define MC_TEST_WIRE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "moecomm.pb-c.h"
#include "proto/frame.h"
#include "proto/status.h"

struct mc_wire_client {
	int fd;
	struct mc_frame_reader *reader;
	uint32_t last_serial;
};

struct mc_wire_reply {
	uint16_t type; /* 0: the daemon closed the connection */
	uint32_t serial;
	ProtobufCMessage *message;
	int fds[MC_LIMIT_FRAME_FDS];
	unsigned n_fds;
};

/* A connected socket without a hello. */
int mc_wire_socket(const char *path);
/* Whether anybody listens there. */
bool mc_wire_can_connect(const char *path);
/* Connects; says hello and takes the welcome. */
void mc_wire_client_open(struct mc_wire_client *ret_client, const char *path, const char *label);
void mc_wire_client_close(struct mc_wire_client *client);

/* Sends a message; returns its serial. */
uint32_t mc_wire_send(
	struct mc_wire_client *client, uint16_t type, const ProtobufCMessage *message);
/* Sends bytes as they are. Returns false when the daemon has closed. */
bool mc_wire_send_bytes(int fd, const void *data, size_t n_bytes);
/* The next message, or false when none comes in time. */
bool mc_wire_receive(
	struct mc_wire_client *client, int timeout_ms, struct mc_wire_reply *ret_reply);
void mc_wire_expect(struct mc_wire_client *client, uint16_t type, int timeout_ms,
	struct mc_wire_reply *ret_reply);
/* Frees the message and closes the fds that were not taken (set to -1). */
void mc_wire_reply_clear(struct mc_wire_reply *reply);
/* Expects Done with the status and a detail that contains the text (NULL: any). Notices are
 * skipped. */
void mc_wire_expect_done(
	struct mc_wire_client *client, uint32_t status, const char *text, int timeout_ms);
/* Expects a Notice. ret_rank may be NULL; UINT32_MAX when the notice names none. */
void mc_wire_expect_notice(struct mc_wire_client *client, uint32_t status, const char *text,
	uint32_t *ret_rank, int timeout_ms);
/* Expects the end of the connection; what comes before it is skipped. */
void mc_wire_expect_closed(struct mc_wire_client *client, int timeout_ms);
/* Fails the test if anything comes within the time. */
void mc_wire_expect_silence(struct mc_wire_client *client, int timeout_ms);

/* ---- groups ---- */

struct mc_wire_join {
	const char *group;
	uint32_t rank, world_size;
	/* 0 or NULL: a default */
	const char *job, *boot_id, *device_uuid, *label;
	uint32_t n_channels, backend, path;
	uint64_t max_rows, dispatch_row_bytes, combine_row_bytes;
	bool shared_gpu;
	uint32_t op_timeout_ms, warmup_timeout_ms, join_timeout_ms, probe_timeout_ms;
	const uint32_t *allow_uid, *allow_gid;
	size_t n_allow_uid, n_allow_gid;
};
uint32_t mc_wire_join(struct mc_wire_client *client, const struct mc_wire_join *join);

/* What a Layout brought. */
struct mc_wire_layout {
	uint64_t member_id, epoch, arena_bytes;
	uint32_t world_size;
	uint8_t token[16], sentinel[16];
	int board_fd, control_fd;
	int arena_fd[MC_LIMIT_WORLD_SIZE];
};
void mc_wire_expect_layout(
	struct mc_wire_client *client, int timeout_ms, struct mc_wire_layout *ret_layout);
void mc_wire_layout_clear(struct mc_wire_layout *layout);
void mc_wire_vote_yes(struct mc_wire_client *client, uint64_t member_id);
/* Votes no because of a peer; result is an enum mc_probe_result. */
void mc_wire_vote_no(
	struct mc_wire_client *client, uint64_t member_id, uint32_t peer, uint32_t result);
/* Expects Ready. Returns the epoch. */
uint64_t mc_wire_expect_ready(struct mc_wire_client *client, int timeout_ms);
uint32_t mc_wire_leave(struct mc_wire_client *client, uint64_t member_id);

/* Forms a group on connected clients, one a rank, from the join (its rank is ignored). */
void mc_wire_form(struct mc_wire_client *clients, struct mc_wire_layout *ret_layouts,
	const struct mc_wire_join *join);
/* Asks for status; clear the reply. */
Moecomm__Wire__Status *mc_wire_status(struct mc_wire_client *client, const char *group, bool ranks,
	bool clients, struct mc_wire_reply *ret_reply);
/* State of a group; 0: there is none. */
uint32_t mc_wire_group_state(struct mc_wire_client *client, const char *group);
void mc_wire_wait_state(
	struct mc_wire_client *client, const char *group, uint32_t state, int timeout_ms);
/* Waits until a forming group has that many members: connections have no order among each other. */
void mc_wire_wait_joined(
	struct mc_wire_client *client, const char *group, uint32_t n_joined, int timeout_ms);

/* Of this boot; static. */
const char *mc_wire_boot_id(void);

#endif
