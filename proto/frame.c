/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include <endian.h>
#include <string.h>

const char *mc_frame_type_name(unsigned type)
{
	switch ((enum mc_frame_type)type) {
	case MC_FRAME_HELLO:
		return "Hello";
	case MC_FRAME_WELCOME:
		return "Welcome";
	case MC_FRAME_DONE:
		return "Done";
	case MC_FRAME_JOIN:
		return "Join";
	case MC_FRAME_LAYOUT:
		return "Layout";
	case MC_FRAME_VOTE:
		return "Vote";
	case MC_FRAME_READY:
		return "Ready";
	case MC_FRAME_LEAVE:
		return "Leave";
	case MC_FRAME_ABORT:
		return "Abort";
	case MC_FRAME_OP_FAILED:
		return "OpFailed";
	case MC_FRAME_NOTICE:
		return "Notice";
	case MC_FRAME_RESUME:
		return "Resume";
	case MC_FRAME_SET_DEADLINES:
		return "SetDeadlines";
	case MC_FRAME_STATUS_REQUEST:
		return "StatusRequest";
	case MC_FRAME_STATUS:
		return "Status";
	case MC_FRAME_RELEASE:
		return "Release";
	case MC_FRAME_METRICS_REQUEST:
		return "MetricsRequest";
	case MC_FRAME_METRICS:
		return "Metrics";
	case MC_FRAME_HISTORY_REQUEST:
		return "HistoryRequest";
	case MC_FRAME_HISTORY:
		return "History";
	}
	return "unknown";
}

const char *mc_frame_error_text(int error)
{
	switch ((enum mc_frame_error)error) {
	case MC_FRAME_E_CLOSED:
		return "the other side closed the connection";
	case MC_FRAME_E_TRUNCATED:
		return "the connection ended inside a frame";
	case MC_FRAME_E_MAGIC:
		return "the other side does not speak the moecomm protocol";
	case MC_FRAME_E_TOO_LARGE:
		return "a frame is larger than this side allows";
	case MC_FRAME_E_FDS:
		return "a frame came without the fds it names, or with others";
	case MC_FRAME_E_AGAIN:
		return "no whole frame yet";
	}
	return "unknown frame error";
}

void mc_frame_header_write(uint8_t ret_header[MC_FRAME_HEADER_BYTES], uint16_t type,
	uint32_t serial, uint32_t n_payload, uint16_t n_fds)
{
	uint32_t magic = htole32(MC_FRAME_MAGIC);

	n_payload = htole32(n_payload);
	type = htole16(type);
	n_fds = htole16(n_fds);
	serial = htole32(serial);
	memcpy(ret_header, &magic, 4);
	memcpy(ret_header + 4, &n_payload, 4);
	memcpy(ret_header + 8, &type, 2);
	memcpy(ret_header + 10, &n_fds, 2);
	memcpy(ret_header + 12, &serial, 4);
}
