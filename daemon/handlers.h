/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon does with each request; one file a family of messages. */
#ifndef MC_DAEMON_HANDLERS_H
#define MC_DAEMON_HANDLERS_H

#include <stdint.h>
#include "moecomm.pb-c.h"
#include "proto/frame.h"

struct mc_conn;

/* Decodes a frame and hands it to its handler; refuses what is malformed, unknown or too early. */
void mc_handle(struct mc_conn *conn, const struct mc_frame *frame);

/* Each answers the request now or sees to it that it is answered later. */
void mc_handle_hello(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Hello *hello);
void mc_handle_join(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Join *join);
void mc_handle_vote(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Vote *vote);
void mc_handle_leave(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Leave *leave);
void mc_handle_abort(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Abort *abort_);
void mc_handle_op_failed(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__OpFailed *failed);
void mc_handle_resume(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Resume *resume);
void mc_handle_set_deadlines(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__SetDeadlines *deadlines);
void mc_handle_status(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__StatusRequest *request);
void mc_handle_release(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Release *release);
void mc_handle_metrics(struct mc_conn *conn, uint32_t serial);
void mc_handle_history(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__HistoryRequest *request);

#endif
