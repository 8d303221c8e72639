/* SPDX-License-Identifier: Apache-2.0 */
/* Outgoing frames, bounded, in order. */
#include "proto/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "proto/fd_pass.h"

struct entry {
	struct entry *next;
	size_t n_bytes; /* header and payload */
	size_t n_sent;
	unsigned n_fds; /* 0 once they are gone with the first byte */
	int fds[MC_LIMIT_FRAME_FDS];
	uint8_t bytes[];
};

struct mc_frame_queue {
	size_t max_bytes;
	size_t n_bytes; /* not yet sent */
	unsigned n_fds; /* not yet sent */
	struct entry *first;
	struct entry **end;
};

static struct entry *entry_free(struct entry *entry)
{
	if (entry) {
		mc_fd_pass_close(entry->fds, entry->n_fds);
		free(entry);
	}
	return NULL;
}

struct mc_frame_queue *mc_frame_queue_new(size_t max_bytes)
{
	struct mc_frame_queue *queue = calloc(1, sizeof(*queue));

	if (!queue)
		return NULL;
	queue->max_bytes = max_bytes;
	queue->end = &queue->first;
	return queue;
}

struct mc_frame_queue *mc_frame_queue_free(struct mc_frame_queue *queue)
{
	if (!queue)
		return NULL;
	while (queue->first) {
		struct entry *entry = queue->first;

		queue->first = entry->next;
		entry_free(entry);
	}
	free(queue);
	return NULL;
}

int mc_frame_queue_push(struct mc_frame_queue *queue, uint16_t type, uint32_t serial,
	const uint8_t *payload, size_t n_payload, const int *fds, unsigned n_fds)
{
	struct entry *entry;

	if (n_fds > MC_LIMIT_FRAME_FDS)
		return -EINVAL;
	if (n_payload > UINT32_MAX)
		return -EMSGSIZE;
	/* in this order nothing wraps: n_bytes never passes max_bytes */
	if (queue->max_bytes - queue->n_bytes < MC_FRAME_HEADER_BYTES ||
		queue->max_bytes - queue->n_bytes - MC_FRAME_HEADER_BYTES < n_payload)
		return -ENOBUFS;

	entry = malloc(sizeof(*entry) + MC_FRAME_HEADER_BYTES + n_payload);
	if (!entry)
		return -ENOMEM;
	entry->next = NULL;
	entry->n_bytes = MC_FRAME_HEADER_BYTES + n_payload;
	entry->n_sent = 0;
	entry->n_fds = 0;
	for (unsigned i = 0; i < n_fds; i++) {
		/* above stdio, so that a child's redirections never hit one */
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd < 0) {
			int r = -errno;

			entry_free(entry);
			return r;
		}
		entry->fds[entry->n_fds++] = fd;
	}
	mc_frame_header_write(entry->bytes, type, serial, (uint32_t)n_payload, (uint16_t)n_fds);
	if (n_payload > 0)
		memcpy(entry->bytes + MC_FRAME_HEADER_BYTES, payload, n_payload);

	*queue->end = entry;
	queue->end = &entry->next;
	queue->n_bytes += entry->n_bytes;
	queue->n_fds += entry->n_fds;
	return 0;
}

int mc_frame_queue_flush(struct mc_frame_queue *queue, int socket_fd)
{
	while (queue->first) {
		struct entry *entry = queue->first;
		ssize_t sent;

		sent = mc_fd_pass_send(socket_fd, entry->bytes + entry->n_sent,
			entry->n_bytes - entry->n_sent, entry->fds, entry->n_fds);
		if (sent == -EWOULDBLOCK)
			return -EAGAIN;
		if (sent < 0)
			return (int)sent;
		/* the first byte took them along, however few bytes went */
		mc_fd_pass_close(entry->fds, entry->n_fds);
		queue->n_fds -= entry->n_fds;
		entry->n_fds = 0;
		entry->n_sent += (size_t)sent;
		queue->n_bytes -= (size_t)sent;
		if (entry->n_sent < entry->n_bytes)
			continue;
		queue->first = entry->next;
		if (!queue->first)
			queue->end = &queue->first;
		entry_free(entry);
	}
	return 0;
}

size_t mc_frame_queue_bytes(const struct mc_frame_queue *queue)
{
	return queue->n_bytes;
}

unsigned mc_frame_queue_fds(const struct mc_frame_queue *queue)
{
	return queue->n_fds;
}
