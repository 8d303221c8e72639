/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sentences of outcomes, and the proof that the three lists of numbers are one. */
#include "client/moecomm.h"
#include "kernels/launch.h"
#include "proto/limits.h"
#include "proto/status.h"
#include "proto/version.h"

/* wire and public header: one by one, by name */
#define SAME(number, name, text)                                                                   \
	_Static_assert((int)MOECOMM_##name == (number), "moecomm.h and proto/status.h differ");
MC_STATUS_TABLE(SAME)
#undef SAME
#define COUNT(number, name, text) +1
_Static_assert(0 MC_STATUS_TABLE(COUNT) == MOECOMM_SHUTDOWN + 1, "a status is in one list only");
#undef COUNT

/* the data plane's faults are statuses too */
_Static_assert((int)MC_FAULT_NONE == MOECOMM_OK, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_BAD_COUNT == MOECOMM_INVALID, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_PEER_LOST == MOECOMM_PEER_LOST, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_TIMEOUT == MOECOMM_TIMEOUT, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_MISMATCH == MOECOMM_MISMATCH, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_ABORTED == MOECOMM_ABORTED, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_STALE_EPOCH == MOECOMM_STALE_EPOCH, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_DEVICE == MOECOMM_DEVICE, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_SENTINEL == MOECOMM_SENTINEL, "fault numbers are statuses");
_Static_assert((int)MC_FAULT_CORRUPT == MOECOMM_CORRUPT, "fault numbers are statuses");

_Static_assert((int)MC_DTYPE_BF16 == MOECOMM_BF16, "element types are the data plane's");
_Static_assert((int)MC_DTYPE_FP16 == MOECOMM_FP16, "element types are the data plane's");
_Static_assert((int)MC_DTYPE_FP32 == MOECOMM_FP32, "element types are the data plane's");

_Static_assert(MC_LIMIT_WORLD_SIZE == MC_MAX_WORLD_SIZE, "wire and data plane agree on ranks");
_Static_assert(MC_LIMIT_CHANNELS == MC_MAX_CHANNELS, "wire and data plane agree on channels");
_Static_assert(MC_LIMIT_FRAME_FDS == 2 + MC_MAX_WORLD_SIZE, "a Layout's fds fit a frame");

const char *moecomm_status_name(enum moecomm_status status)
{
	return mc_status_name((unsigned)status);
}

const char *moecomm_status_text(enum moecomm_status status)
{
	return mc_status_text((unsigned)status);
}

const char *moecomm_version(void)
{
	return mc_version_string();
}
