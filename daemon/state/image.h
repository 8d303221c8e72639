/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state as bytes in a sealed memfd: a header that tells format, length and checksum, then the
 * encoded message. A reader believes nothing that it has not proven.
 */
#ifndef MC_DAEMON_STATE_IMAGE_H
#define MC_DAEMON_STATE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/* Changes whenever an older daemon could misread the message. */
#define MC_IMAGE_FORMAT 1u
/* Far above what max_fds groups need; bounds what a foreign file can make us read. */
#define MC_IMAGE_MAX_BYTES (64u << 20)

enum mc_image_error {
	MC_IMAGE_E_FOREIGN = 1,   /* not a sealed memfd with our header */
	MC_IMAGE_E_FORMAT = 2,    /* of another release */
	MC_IMAGE_E_TRUNCATED = 3, /* its length is not the one it tells */
	MC_IMAGE_E_CORRUPT = 4,   /* its checksum does not fit */
};
const char *mc_image_error_text(int error);

/* Returns 0 and sets *ret_fd, or -errno. */
int mc_image_write(const uint8_t *payload, size_t n_payload, int *ret_fd);
/* Returns 0 and sets *ret_payload (free() it), -errno, or an enum mc_image_error. */
int mc_image_read(int fd, uint8_t **ret_payload, size_t *ret_bytes);

#endif
