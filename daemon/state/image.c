/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "daemon/inject.h"

#define MAGIC "MCSTATE\n"
/* Nobody can change it any more, the writer included: what was stored is what is read. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

struct header {
	char magic[8];
	uint32_t format;
	uint32_t reserved;
	uint64_t n_payload;
	uint64_t checksum; /* of the header with a checksum of 0, then the payload */
};
_Static_assert(sizeof(struct header) == 32, "no padding goes into the file");

const char *mc_image_error_text(int error)
{
	switch (error) {
	case MC_IMAGE_E_FOREIGN:
		return "it is no sealed memfd of moecommd";
	case MC_IMAGE_E_FORMAT:
		return "it is of another release";
	case MC_IMAGE_E_TRUNCATED:
		return "its length is not the one it tells";
	case MC_IMAGE_E_CORRUPT:
		return "its checksum does not fit";
	default:
		return "unknown error";
	}
}

/* FNV-1a: each step is a bijection of the sum, so that no change of one byte can go unnoticed. */
static uint64_t sum(uint64_t h, const void *data, size_t n_bytes)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < n_bytes; i++)
		h = (h ^ at[i]) * UINT64_C(0x100000001b3);
	return h;
}

static uint64_t checksum(const struct header *header, const uint8_t *payload, size_t n_payload)
{
	struct header copy = *header;

	copy.checksum = 0;
	return sum(sum(UINT64_C(0xcbf29ce484222325), &copy, sizeof(copy)), payload, n_payload);
}

static int write_all(int fd, const void *data, size_t n_bytes)
{
	const uint8_t *at = data;

	while (n_bytes) {
		ssize_t n = write(fd, at, n_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		n_bytes -= (size_t)n;
	}
	return 0;
}

static int read_all(int fd, void *data, size_t n_bytes, off_t offset)
{
	uint8_t *at = data;

	while (n_bytes) {
		ssize_t n = pread(fd, at, n_bytes, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return MC_IMAGE_E_TRUNCATED;
		at += n;
		offset += n;
		n_bytes -= (size_t)n;
	}
	return 0;
}

int mc_image_write(const uint8_t *payload, size_t n_payload, int *ret_fd)
{
	struct header header = {.magic = MAGIC, .format = MC_IMAGE_FORMAT, .n_payload = n_payload};
	int fd, r;

	if (n_payload > MC_IMAGE_MAX_BYTES)
		return -EFBIG;
	header.checksum = checksum(&header, payload, n_payload);
	if (mc_inject_hit("memfd_fail"))
		return -EMFILE;
	fd = memfd_create("moecomm-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	r = write_all(fd, &header, sizeof(header));
	if (!r)
		r = write_all(fd, payload, n_payload);
	if (!r && fcntl(fd, F_ADD_SEALS, SEALS))
		r = -errno;
	if (r) {
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int mc_image_read(int fd, uint8_t **ret_payload, size_t *ret_bytes)
{
	struct header header;
	struct stat st;
	uint8_t *payload;
	int r;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || fcntl(fd, F_GET_SEALS) != SEALS)
		return MC_IMAGE_E_FOREIGN;
	if (st.st_size < (off_t)sizeof(header))
		return MC_IMAGE_E_TRUNCATED;
	r = read_all(fd, &header, sizeof(header), 0);
	if (r)
		return r;
	if (memcmp(header.magic, MAGIC, sizeof(header.magic)))
		return MC_IMAGE_E_FOREIGN;
	if (header.format != MC_IMAGE_FORMAT)
		return MC_IMAGE_E_FORMAT;
	if (header.n_payload > MC_IMAGE_MAX_BYTES ||
		header.n_payload != (uint64_t)st.st_size - sizeof(header))
		return MC_IMAGE_E_TRUNCATED;
	payload = malloc(header.n_payload ? header.n_payload : 1);
	if (!payload)
		return -ENOMEM;
	r = read_all(fd, payload, header.n_payload, sizeof(header));
	if (!r && checksum(&header, payload, header.n_payload) != header.checksum)
		r = MC_IMAGE_E_CORRUPT;
	if (r) {
		free(payload);
		return r;
	}
	*ret_payload = payload;
	*ret_bytes = header.n_payload;
	return 0;
}
