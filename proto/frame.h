/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames on the socket: a 16-byte little-endian header, then one protobuf message.
 *
 *   magic u32 | payload bytes u32 | type u16 | fds u16 | serial u32
 *
 * A reply carries its request's serial; what nobody asked for (Notice) carries 0. The fds of a
 * frame are attached to the sendmsg that carries its header's first byte, so that the reader always
 * knows which frame an fd belongs to.
 */
#ifndef MC_PROTO_FRAME_H
#define MC_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include "proto/limits.h"

#define MC_FRAME_MAGIC        0x31436d6du
#define MC_FRAME_HEADER_BYTES 16u

/* Message types; on the wire, so a number never changes. An unknown one is answered UNSUPPORTED. */
enum mc_frame_type {
	MC_FRAME_HELLO = 1,
	MC_FRAME_WELCOME = 2,
	MC_FRAME_DONE = 3,
	MC_FRAME_JOIN = 4,
	MC_FRAME_LAYOUT = 5,
	MC_FRAME_VOTE = 6,
	MC_FRAME_READY = 7,
	MC_FRAME_LEAVE = 8,
	MC_FRAME_ABORT = 9,
	MC_FRAME_OP_FAILED = 10,
	MC_FRAME_NOTICE = 11,
	MC_FRAME_RESUME = 12,
	MC_FRAME_SET_DEADLINES = 13,
	MC_FRAME_STATUS_REQUEST = 14,
	MC_FRAME_STATUS = 15,
	MC_FRAME_RELEASE = 16,
	MC_FRAME_METRICS_REQUEST = 17,
	MC_FRAME_METRICS = 18,
	MC_FRAME_HISTORY_REQUEST = 19,
	MC_FRAME_HISTORY = 20,
};
/* The highest type that this build knows; they have no gaps. */
#define MC_FRAME_LAST MC_FRAME_HISTORY

/* Never NULL. */
const char *mc_frame_type_name(unsigned type);

/* One whole frame as read. */
struct mc_frame {
	uint16_t type;
	uint32_t serial;
	uint8_t *payload; /* owned by the reader until mc_frame_reader_next or _clear */
	size_t n_payload;
	int fds[MC_LIMIT_FRAME_FDS]; /* owned by the frame; take one by setting it to -1 */
	unsigned n_fds;
};

/* What is wrong with a stream; the connection can only be closed. */
enum mc_frame_error {
	MC_FRAME_E_CLOSED = 1,    /* orderly end of stream between frames */
	MC_FRAME_E_TRUNCATED = 2, /* end of stream inside a frame */
	MC_FRAME_E_MAGIC = 3,     /* not our protocol */
	MC_FRAME_E_TOO_LARGE = 4, /* payload above this side's limit */
	MC_FRAME_E_FDS = 5, /* fds missing, too many, on the wrong frame, or cut off (MSG_CTRUNC) */
	MC_FRAME_E_AGAIN = 6, /* not an error: no whole frame yet */
};
const char *mc_frame_error_text(int error);

/*
 * Incremental reader of one connection. Bounded: never holds more than one frame's payload and its
 * fds; allocates the payload only after the header passed every check, and grows it as bytes
 * arrive, so that a header alone can't make it spend the limit.
 */
struct mc_frame_reader;

/* max_payload and max_fds bound every frame of this connection. Returns NULL when out of memory. */
struct mc_frame_reader *mc_frame_reader_new(size_t max_payload, unsigned max_fds);
/* Frees it and closes fds that nobody took. NULL is allowed. Returns NULL. */
struct mc_frame_reader *mc_frame_reader_free(struct mc_frame_reader *reader);

/*
 * Reads what the socket holds without blocking (MSG_DONTWAIT, MSG_CMSG_CLOEXEC) until one whole
 * frame is there. Returns 0 and sets *ret_frame (valid until the next call; fds not taken are
 * closed then), a positive enum mc_frame_error, or -errno.
 */
int mc_frame_reader_next(
	struct mc_frame_reader *reader, int socket_fd, struct mc_frame **ret_frame);

/* The same from memory; *io_bytes of *io_data are consumed as far as needed. For tests and fuzzing.
 */
int mc_frame_reader_feed(struct mc_frame_reader *reader, const uint8_t **io_data, size_t *io_bytes,
	struct mc_frame **ret_frame);

/* Writes the header of a frame. */
void mc_frame_header_write(uint8_t ret_header[MC_FRAME_HEADER_BYTES], uint16_t type,
	uint32_t serial, uint32_t n_payload, uint16_t n_fds);

/*
 * Outgoing frames of one connection, in order, bounded by max_bytes (payloads and headers). fds are
 * duplicated into the queue and closed when sent or dropped.
 */
struct mc_frame_queue;
struct mc_frame_queue *mc_frame_queue_new(size_t max_bytes);
struct mc_frame_queue *mc_frame_queue_free(struct mc_frame_queue *queue);
/* Returns 0, -ENOBUFS when the bound is reached (the peer does not read), or -errno. */
int mc_frame_queue_push(struct mc_frame_queue *queue, uint16_t type, uint32_t serial,
	const uint8_t *payload, size_t n_payload, const int *fds, unsigned n_fds);
/* Sends without blocking (MSG_NOSIGNAL). Returns 0 when all is sent, -EAGAIN when more is left, or
 * -errno. */
int mc_frame_queue_flush(struct mc_frame_queue *queue, int socket_fd);
/* What waits to be sent: bytes, and fds, which are open as long. */
size_t mc_frame_queue_bytes(const struct mc_frame_queue *queue);
unsigned mc_frame_queue_fds(const struct mc_frame_queue *queue);

#endif
