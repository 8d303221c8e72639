/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to the daemon: dialled and greeted, not yet anybody's. */
#ifndef MC_CLIENT_LINK_H
#define MC_CLIENT_LINK_H

#include <sys/un.h>
#include "client/error.h"
#include "proto/frame.h"

struct mc_link {
	int fd; /* non-blocking, close-on-exec; -1: none */
	struct mc_frame_reader *reader;
	struct mc_frame_queue *queue;
	enum moecomm_backend backend; /* what the daemon serves */
	char version[64];             /* of the daemon, for people */
};
#define MC_LINK_INIT                                                                               \
	{                                                                                          \
		.fd = -1                                                                           \
	}

/*
 * Dials and greets within timeout_ms; stops early when cancel_fd becomes readable (-1: never).
 * Sets *ret_link on MOECOMM_OK, else a sentence in ret_detail. UNREACHABLE means that it is worth
 * trying again.
 */
enum moecomm_status mc_link_open(const struct sockaddr_un *address, const char *label,
	int timeout_ms, int cancel_fd, struct mc_link *ret_link, char ret_detail[MC_ERROR_BYTES]);
/* Closes and frees what it holds. */
void mc_link_close(struct mc_link *link);

#endif
