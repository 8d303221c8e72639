/* SPDX-License-Identifier: Apache-2.0 */
/* Every bound on what the other side of a socket may make us spend, with its reason. */
#ifndef MC_PROTO_LIMITS_H
#define MC_PROTO_LIMITS_H

/* Protocol version. Another major is refused; within a major there are only additions. */
#define MC_PROTO_MAJOR 1u
#define MC_PROTO_MINOR 0u
/* Feature bits of Hello and Welcome that this build knows; none is needed yet. */
#define MC_PROTO_FEATURES 0ull

/* A request is a few hundred bytes; a Join with 64 uids in its ACL still fits ten times over. */
#define MC_LIMIT_REQUEST_BYTES 65536u
/* A status reply may list every group and rank; beyond this it is marked truncated. */
#define MC_LIMIT_REPLY_BYTES (1u << 20)
/*
 * What decoding one frame may allocate: repeated fields of 1-byte entries blow up to 8 bytes each,
 * and empty submessages more; honest requests need less than twice their size.
 */
#define MC_LIMIT_DECODE_BYTES       (256u << 10)
#define MC_LIMIT_DECODE_REPLY_BYTES (16u << 20)
/* Nesting of submessages that the decoder follows; ours go three deep. protobuf-c has no limit. */
#define MC_LIMIT_DECODE_DEPTH 8u
/* fds of one frame: board, control block and an arena a rank. Below the kernel's 253. */
#define MC_LIMIT_FRAME_FDS (2u + 64u)
/* Requests never carry fds: clients have nothing to give. */
#define MC_LIMIT_REQUEST_FDS 0u

/* Lengths of strings, in bytes without the terminator. */
#define MC_LIMIT_NAME_BYTES   128u /* group and job names; fits a table column and a file name */
#define MC_LIMIT_LABEL_BYTES  128u
#define MC_LIMIT_DETAIL_BYTES 1024u
#define MC_LIMIT_UUID_BYTES   64u
#define MC_LIMIT_CONFIG_BYTES 65536u /* all settings with their help take a tenth of it */
#define MC_LIMIT_ACL_ENTRIES  64u

/* Ranks and channels: those of kernels/lamport.h (a test asserts it). */
#define MC_LIMIT_WORLD_SIZE 64u
#define MC_LIMIT_CHANNELS   8u

/* Deadlines a client may ask for, in ms: a day at most, so that nothing waits for ever. */
#define MC_LIMIT_TIMEOUT_MS 86400000u

#endif
