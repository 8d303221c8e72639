/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names as people read them. */
#ifndef MC_CTL_TEXT_H
#define MC_CTL_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Room for any of the texts below. */
#define MC_TEXT_BYTES 32

/* "0 B", "512 B", "1.5 KiB", "3.2 GiB" */
const char *mc_text_size(uint64_t n_bytes, char ret_text[MC_TEXT_BYTES]);
/* "45 ms", "2.1 s", "3 m 12 s", "5 h 10 m", "12 d 3 h" */
const char *mc_text_age(uint64_t age_ms, char ret_text[MC_TEXT_BYTES]);

/* Names of numbers on the wire; "unknown" for those of a later release. Never NULL. */
const char *mc_text_op(unsigned op);           /* enum mc_op_kind of kernels/lamport.h */
const char *mc_text_path(unsigned path);       /* enum moecomm_path */
const char *mc_text_backend(unsigned backend); /* enum moecomm_backend */

#endif
