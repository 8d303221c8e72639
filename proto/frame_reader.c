/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Incremental reader. It asks the socket first for the rest of a header and then for the rest of
 * that header's payload, never for more, so that bytes and fds of two frames can't meet in one
 * recvmsg.
 */
#include "proto/frame.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/fd_pass.h"

/* What a header alone can make the reader allocate; most frames fit. */
#define PAYLOAD_START_BYTES 4096u

struct mc_frame_reader {
	size_t max_payload;
	unsigned max_fds;
	int error;       /* a stream that was wrong once stays wrong */
	bool delivered;  /* frame is in the caller's hands until the next call */
	size_t n_header; /* bytes of the header that are there */
	size_t n_filled; /* bytes of the payload that are there */
	size_t n_allocated;
	uint8_t header[MC_FRAME_HEADER_BYTES];
	struct mc_frame frame;
};

struct mc_frame_reader *mc_frame_reader_new(size_t max_payload, unsigned max_fds)
{
	struct mc_frame_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return NULL;
	reader->max_payload = max_payload;
	reader->max_fds = max_fds < MC_LIMIT_FRAME_FDS ? max_fds : MC_LIMIT_FRAME_FDS;
	return reader;
}

/* Ready for the next frame. A small buffer is kept, a big one is not. */
static void reader_reset(struct mc_frame_reader *reader)
{
	uint8_t *payload = reader->frame.payload;

	mc_fd_pass_close(reader->frame.fds, reader->frame.n_fds);
	if (reader->n_allocated > PAYLOAD_START_BYTES) {
		free(payload);
		payload = NULL;
		reader->n_allocated = 0;
	}
	reader->frame = (struct mc_frame){.payload = payload};
	reader->delivered = false;
	reader->n_header = 0;
	reader->n_filled = 0;
}

struct mc_frame_reader *mc_frame_reader_free(struct mc_frame_reader *reader)
{
	if (!reader)
		return NULL;
	reader_reset(reader);
	free(reader->frame.payload);
	free(reader);
	return NULL;
}

static int reader_fail(struct mc_frame_reader *reader, int error)
{
	reader_reset(reader);
	reader->error = error;
	return error;
}

static uint32_t load32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static uint16_t load16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

/* The header is complete: checks it before anything is allocated for it. */
static int reader_take_header(struct mc_frame_reader *reader)
{
	const uint8_t *header = reader->header;
	uint32_t n_payload = load32(header + 4);
	uint16_t n_fds = load16(header + 10);

	if (load32(header) != MC_FRAME_MAGIC)
		return MC_FRAME_E_MAGIC;
	if (n_payload > reader->max_payload)
		return MC_FRAME_E_TOO_LARGE;
	if (n_fds != reader->frame.n_fds)
		return MC_FRAME_E_FDS;
	reader->frame.type = load16(header + 8);
	reader->frame.serial = load32(header + 12);
	reader->frame.n_payload = n_payload;
	return 0;
}

/* Where the next bytes go and how many may come; makes room for them. Returns 0 or -ENOMEM. */
static int reader_want(struct mc_frame_reader *reader, uint8_t **ret_at, size_t *ret_n)
{
	if (reader->n_header < MC_FRAME_HEADER_BYTES) {
		*ret_at = reader->header + reader->n_header;
		*ret_n = MC_FRAME_HEADER_BYTES - reader->n_header;
		return 0;
	}
	if (reader->n_filled == reader->n_allocated) {
		size_t n = reader->n_allocated ? reader->n_allocated * 2 : PAYLOAD_START_BYTES;
		uint8_t *payload;

		if (n > PAYLOAD_START_BYTES && n > reader->frame.n_payload)
			n = reader->frame.n_payload;
		payload = realloc(reader->frame.payload, n);
		if (!payload)
			return -ENOMEM;
		reader->frame.payload = payload;
		reader->n_allocated = n;
	}
	*ret_at = reader->frame.payload + reader->n_filled;
	*ret_n = reader->n_allocated - reader->n_filled;
	if (*ret_n > reader->frame.n_payload - reader->n_filled)
		*ret_n = reader->frame.n_payload - reader->n_filled;
	return 0;
}

/* n bytes have come where reader_want said. Returns 0: a whole frame, MC_FRAME_E_AGAIN, or an
 * error. */
static int reader_took(struct mc_frame_reader *reader, size_t n)
{
	if (reader->n_header < MC_FRAME_HEADER_BYTES) {
		int r;

		reader->n_header += n;
		if (reader->n_header < MC_FRAME_HEADER_BYTES)
			return MC_FRAME_E_AGAIN;
		r = reader_take_header(reader);
		if (r)
			return r;
	} else {
		reader->n_filled += n;
	}
	return reader->n_filled < reader->frame.n_payload ? MC_FRAME_E_AGAIN : 0;
}

static int reader_deliver(struct mc_frame_reader *reader, struct mc_frame **ret_frame)
{
	reader->delivered = true;
	*ret_frame = &reader->frame;
	return 0;
}

int mc_frame_reader_next(struct mc_frame_reader *reader, int socket_fd, struct mc_frame **ret_frame)
{
	if (reader->delivered)
		reader_reset(reader);
	if (reader->error)
		return reader->error;

	for (;;) {
		int fds[MC_FD_PASS_MAX];
		unsigned n_fds = 0;
		bool cut = false;
		uint8_t *at;
		size_t n;
		ssize_t got;
		int r;

		r = reader_want(reader, &at, &n);
		if (r < 0)
			return r;
		got = mc_fd_pass_recv(socket_fd, at, n, fds, &n_fds, &cut);
		if (got == -EAGAIN || got == -EWOULDBLOCK)
			return MC_FRAME_E_AGAIN;
		if (got < 0)
			return (int)got;
		/* fds belong to the header's first byte, and there are never more than the bound */
		if (cut || (n_fds > 0 && (reader->n_header > 0 || n_fds > reader->max_fds))) {
			mc_fd_pass_close(fds, n_fds);
			return reader_fail(reader, MC_FRAME_E_FDS);
		}
		if (n_fds > 0) {
			memcpy(reader->frame.fds, fds, n_fds * sizeof(int));
			reader->frame.n_fds = n_fds;
		}
		if (got == 0)
			return reader_fail(reader,
				reader->n_header ? MC_FRAME_E_TRUNCATED : MC_FRAME_E_CLOSED);

		r = reader_took(reader, (size_t)got);
		if (r == 0)
			return reader_deliver(reader, ret_frame);
		if (r != MC_FRAME_E_AGAIN)
			return reader_fail(reader, r);
	}
}

int mc_frame_reader_feed(struct mc_frame_reader *reader, const uint8_t **io_data, size_t *io_bytes,
	struct mc_frame **ret_frame)
{
	if (reader->delivered)
		reader_reset(reader);
	if (reader->error)
		return reader->error;

	while (*io_bytes > 0) {
		uint8_t *at;
		size_t n;
		int r;

		r = reader_want(reader, &at, &n);
		if (r < 0)
			return r;
		if (n > *io_bytes)
			n = *io_bytes;
		memcpy(at, *io_data, n);
		*io_data += n;
		*io_bytes -= n;

		r = reader_took(reader, n);
		if (r == 0)
			return reader_deliver(reader, ret_frame);
		if (r != MC_FRAME_E_AGAIN)
			return reader_fail(reader, r);
	}
	return MC_FRAME_E_AGAIN;
}
