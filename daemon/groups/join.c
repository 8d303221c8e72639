/* SPDX-License-Identifier: Apache-2.0 */
/* A Join: who may, whether it fits, and what it means for the group as it stands. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/backends/choose.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/log.h"
#include "proto/codec.h"

/* A Join being decided; the first check that refuses answers it. */
struct joining {
	struct mc_groups *groups;
	struct mc_conn *conn;
	uint32_t serial;
	const Moecomm__Wire__Join *wire;
	struct mc_spec spec;
	struct mc_layout layout;
	struct mc_group *group; /* NULL: new */
	bool is_retry;          /* a mere retry of a join that timed out */
};

/*
 * How long a mere retry waits: a hundredth of the deadline, so that fifty of them, with all that
 * they cost besides, end before the verdict does. Not nothing, because ranks that are told to
 * rejoin together do not arrive together.
 */
#define RETRIES_A_DEADLINE 100u
#define MAX_RETRY_WAIT_MS  1000u

static struct mc_log_limit refuse_limit;

#define REFUSE(joining, status, ...)                                                               \
	do {                                                                                       \
		refuse(joining, status, __VA_ARGS__);                                              \
		return false;                                                                      \
	} while (0)

static void refuse(const struct joining *joining, uint32_t status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void refuse(const struct joining *joining, uint32_t status, const char *format, ...)
{
	const struct mc_conn *conn = joining->conn;
	char detail[MC_LIMIT_DETAIL_BYTES + 1];
	va_list args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	mc_codec_text_fit(detail, MC_LIMIT_DETAIL_BYTES);
	mc_log_limited(&refuse_limit, LOG_INFO, NULL,
		"client %s (pid %u, uid %u) may not join as rank %u: %s: %s", conn->label,
		conn->pid, conn->uid, joining->wire->rank, mc_status_name(status), detail);
	mc_conn_done(joining->conn, joining->serial, status, "%s", detail);
}

/* ---- checks that need no group ---- */

static bool well_formed(struct joining *joining)
{
	const Moecomm__Wire__Join *wire = joining->wire;
	struct mc_daemon *daemon = joining->groups->daemon;
	const char *reason = "";
	char detail[512];
	int r;

	if (daemon->stopping)
		REFUSE(joining, MC_STATUS_SHUTDOWN,
			"the daemon is shutting down: join again when it is back");
	if (!mc_spec_name_valid(wire->group))
		REFUSE(joining, MC_STATUS_INVALID,
			"a group's name is 1 to %u bytes of letters, digits and . _ : -",
			MC_LIMIT_NAME_BYTES);
	daemon->counters.fallbacks[MC_FALLBACK_OVERRIDE] += wire->spec->path == MC_WIRE_PATH_NCCL;
	r = mc_spec_from_wire(wire->spec, daemon->backend->number, &joining->spec, &joining->layout,
		detail, sizeof(detail));
	if (r)
		REFUSE(joining, (uint32_t)r, "%s", detail);
	if (wire->rank >= joining->spec.world_size)
		REFUSE(joining, MC_STATUS_INVALID, "rank %u is not below the world size %u",
			wire->rank, joining->spec.world_size);
	if (wire->n_allow_uid > MC_LIMIT_ACL_ENTRIES || wire->n_allow_gid > MC_LIMIT_ACL_ENTRIES)
		REFUSE(joining, MC_STATUS_INVALID,
			"at most %u entries are allowed in allow_uid and allow_gid",
			MC_LIMIT_ACL_ENTRIES);
	if (wire->label && strlen(wire->label) > MC_LIMIT_LABEL_BYTES)
		REFUSE(joining, MC_STATUS_INVALID, "the label is longer than %u bytes",
			MC_LIMIT_LABEL_BYTES);
	if (wire->device_uuid && strlen(wire->device_uuid) > MC_LIMIT_UUID_BYTES)
		REFUSE(joining, MC_STATUS_INVALID, "the device's UUID is longer than %u bytes",
			MC_LIMIT_UUID_BYTES);
	if (strcmp(wire->boot_id, daemon->boot_id))
		REFUSE(joining, MC_STATUS_TOPOLOGY,
			"rank %u runs under boot %.40s, the daemon under boot %s: all ranks of a "
			"group must run "
			"on the daemon's host",
			wire->rank, wire->boot_id, daemon->boot_id);
	if (!mc_backend_find(daemon, joining->spec.backend, &reason))
		REFUSE(joining, MC_STATUS_UNSUPPORTED, "%s", reason);
	return true;
}

static bool device_fits(struct joining *joining)
{
	const char *uuid = joining->wire->device_uuid ? joining->wire->device_uuid : "";

	if (joining->spec.backend == MC_WIRE_BACKEND_CUDA && !*uuid)
		REFUSE(joining, MC_STATUS_INVALID, "the cuda backend needs the device's UUID");
	if (!strncmp(uuid, "MIG-", 4) && !joining->spec.shared_gpu)
		REFUSE(joining, MC_STATUS_TOPOLOGY,
			"%s of rank %u is a MIG device, which can't reach its peers' memory as a "
			"whole GPU "
			"does: use whole GPUs, or declare the group shared_gpu",
			uuid, joining->wire->rank);
	return true;
}

static bool device_is_free(struct joining *joining, const struct mc_epoch *forming)
{
	const char *uuid = joining->wire->device_uuid ? joining->wire->device_uuid : "";
	const struct mc_member *other;

	if (!*uuid || joining->spec.shared_gpu)
		return true;
	for (uint32_t r = 0; r < forming->spec.world_size; r++) {
		other = forming->member[r];
		if (other && !strcmp(other->device_uuid, uuid))
			REFUSE(joining, MC_STATUS_TOPOLOGY,
				"rank %u and rank %u are on the same GPU %s: give each rank its "
				"own, or declare "
				"the group shared_gpu",
				r, joining->wire->rank, uuid);
	}
	return true;
}

/* ---- checks against the group as it stands ---- */

/* Nothing about the group is told before this. */
static bool may_join(struct joining *joining)
{
	const struct mc_group *group = joining->group;

	if (!mc_group_may_join(group, joining->conn))
		REFUSE(joining, MC_STATUS_DENIED,
			"uid %u may not join group %s, which uid %u has made: choose another name, "
			"or have that user name it in allow_uid or one of its groups in allow_gid",
			joining->conn->uid, group->name, group->uid);
	return true;
}

static const struct mc_member *some_member(const struct mc_group *group)
{
	for (const struct mc_epoch *epoch = mc_group_newest(group); epoch; epoch = epoch->prev) {
		for (uint32_t r = 0; r < epoch->spec.world_size; r++)
			if (epoch->member[r])
				return epoch->member[r];
		if (epoch == group->epochs)
			break;
	}
	return NULL;
}

static bool same_job(struct joining *joining)
{
	const struct mc_group *group = joining->group;
	const struct mc_member *holder;
	char text[256] = "nobody any more";

	if (!strcmp(group->job, joining->spec.job))
		return true;
	holder = some_member(group);
	if (holder)
		mc_member_text(holder, text, sizeof(text));
	REFUSE(joining, MC_STATUS_IN_USE,
		"group %s belongs to job '%s' of uid %u, held by %s: choose another name, or wait "
		"until it "
		"has left",
		group->name, group->job, group->uid, text);
}

/* The same process joins again as the same rank: its earlier membership is over. */
static bool is_own(const struct mc_member *member, const struct mc_conn *conn)
{
	if (!member)
		return false;
	/* one that comes back after a restart of the daemon may ask for the next epoch at once */
	if (!member->conn)
		return conn->pid && member->pid == conn->pid && member->uid == conn->uid;
	return member->conn == conn;
}

/* Clears the way in a group that has a live epoch; false when the Join was answered. */
static bool make_way(struct joining *joining)
{
	struct mc_group *group = joining->group;
	struct mc_epoch *live = mc_group_live(group);
	struct mc_member *holder;
	uint32_t rank = joining->wire->rank;
	char text[256];

	if (!live)
		return true;
	holder = rank < live->spec.world_size ? live->member[rank] : NULL;
	if (live->state == MC_GROUP_FORMING) {
		if (!holder)
			return true;
		REFUSE(joining, MC_STATUS_IN_USE, "rank %u of group %s is taken by %s", rank,
			group->name, mc_member_text(holder, text, sizeof(text)));
	}
	if (is_own(holder, joining->conn) && live->state != MC_GROUP_ARMING) {
		/* a current member asks for the next epoch: it leaves this one, which ends for all
		 */
		mc_member_leave(holder);
		return true;
	}
	if (!holder)
		holder = (struct mc_member *)some_member(group);
	REFUSE(joining, MC_STATUS_IN_USE,
		"group %s is %s: %s %s; its members have to leave, or its epoch has to end "
		"(moecommctl abort "
		"%s)",
		group->name, mc_group_state_name(live->state),
		holder && holder->rank == rank ? "the rank is taken by" : "held by",
		holder ? mc_member_text(holder, text, sizeof(text)) : "nobody any more",
		group->name);
}

/* The rank's memberships of ended epochs on this connection are replaced by the new one. */
static void drop_replaced(struct joining *joining)
{
	struct mc_group *group = joining->group;
	struct mc_epoch *epoch, *next;
	struct mc_member *member;
	uint32_t rank = joining->wire->rank;

	for (epoch = group->epochs; epoch; epoch = next) {
		next = epoch->next;
		member = rank < epoch->spec.world_size ? epoch->member[rank] : NULL;
		if (epoch->state > MC_GROUP_READY && is_own(member, joining->conn))
			mc_member_leave(member);
	}
}

static bool same_spec(struct joining *joining, struct mc_epoch *forming)
{
	const struct mc_member *first = NULL;
	const char *field;
	char theirs[160], mine[160], detail[MC_LIMIT_DETAIL_BYTES];

	if (!mc_spec_differs(&forming->spec, &joining->spec, &field, theirs, mine, sizeof(theirs)))
		return true;
	for (uint32_t r = 0; r < forming->spec.world_size && !first; r++)
		first = forming->member[r];
	snprintf(detail, sizeof(detail),
		"group %s: %s is %s on rank %u, but %s on rank %u: all ranks must ask for the same",
		joining->group->name, field, theirs, first ? first->rank : 0, mine,
		joining->wire->rank);
	refuse(joining, MC_STATUS_SPEC_MISMATCH, "%s", detail);
	/* the ranks that wait would only find out at the deadline: their group can't form like this
	 */
	mc_epoch_end(
		forming, MC_STATUS_SPEC_MISMATCH, joining->wire->rank, MC_NO_RANK, "%s", detail);
	return false;
}

/* ---- taking part ---- */

static void on_join_deadline(uv_timer_t *timer)
{
	struct mc_epoch *epoch = timer->data;
	char missing[512];
	size_t n = 0;
	uint32_t n_missing = 0;

	*missing = 0;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		if (epoch->member[r])
			continue;
		if (n < sizeof(missing))
			n += (size_t)snprintf(
				missing + n, sizeof(missing) - n, "%s%u", n ? ", " : "", r);
		n_missing++;
	}
	mc_epoch_end(epoch, MC_STATUS_JOIN_TIMEOUT, MC_NO_RANK, MC_NO_RANK,
		"group %s: rank%s %s of %u did not join within %u ms%s", epoch->group->name,
		n_missing == 1 ? "" : "s", missing, epoch->spec.world_size, epoch->join_wait_ms,
		epoch->is_retry ? " (after an earlier try that timed out, a retry waits no longer "
				  "until another process or a missing rank joins, or that try's "
				  "deadline has passed once more)"
				: "");
}

static uint32_t retry_wait_ms(const struct mc_spec *spec)
{
	uint32_t wait_ms = spec->join_timeout_ms / RETRIES_A_DEADLINE;

	if (wait_ms > MAX_RETRY_WAIT_MS)
		wait_ms = MAX_RETRY_WAIT_MS;
	return wait_ms ? wait_ms : 1;
}

static void wait_for_others(struct mc_epoch *epoch, bool is_retry)
{
	epoch->is_retry = is_retry;
	epoch->join_wait_ms = is_retry ? retry_wait_ms(&epoch->spec) : epoch->spec.join_timeout_ms;
	uv_timer_start(&epoch->timer, on_join_deadline, epoch->join_wait_ms, 0);
}

static struct mc_group *create_group(struct joining *joining)
{
	struct mc_groups *groups = joining->groups;
	struct mc_quota *quota = groups->daemon->quota;
	struct mc_conn *conn = joining->conn;
	struct mc_group *group;
	int r;

	r = mc_quota_charge(quota, conn->uid, MC_QUOTA_GROUPS, 1);
	if (r) {
		refuse(joining, MC_STATUS_QUOTA,
			"uid %u has %" PRIu64 " groups, which is all it may have", conn->uid,
			mc_quota_used(quota, conn->uid, MC_QUOTA_GROUPS));
		return NULL;
	}
	group = mc_group_new(groups, joining->wire->group);
	if (!group) {
		mc_quota_release(quota, conn->uid, MC_QUOTA_GROUPS, 1);
		refuse(joining, MC_STATUS_NO_MEMORY, "the daemon is out of memory");
		return NULL;
	}
	group->uid = conn->uid;
	group->gid = conn->gid;
	memcpy(group->job, joining->spec.job, sizeof(group->job));
	group->n_allow_uid = (uint32_t)joining->wire->n_allow_uid;
	group->n_allow_gid = (uint32_t)joining->wire->n_allow_gid;
	for (uint32_t i = 0; i < group->n_allow_uid; i++)
		group->allow_uid[i] = joining->wire->allow_uid[i];
	for (uint32_t i = 0; i < group->n_allow_gid; i++)
		group->allow_gid[i] = joining->wire->allow_gid[i];
	return group;
}

/* Frees what a failed first Join left behind. */
static void discard(struct mc_epoch *epoch)
{
	epoch->state = MC_GROUP_FAILED;
	mc_epoch_collect(epoch);
}

static void take_part(struct joining *joining)
{
	const Moecomm__Wire__Join *wire = joining->wire;
	struct mc_epoch *epoch = joining->group ? mc_group_live(joining->group) : NULL;
	struct mc_group *group = joining->group;
	struct mc_member *member;
	bool is_first = !epoch;

	if (!group)
		group = create_group(joining);
	if (!group)
		return;
	if (is_first) {
		epoch = mc_epoch_new(group);
		if (!epoch) {
			refuse(joining, MC_STATUS_NO_MEMORY, "the daemon is out of memory");
			if (!group->epochs) {
				HASH_DEL(joining->groups->by_name, group);
				mc_quota_release(joining->groups->daemon->quota, group->uid,
					MC_QUOTA_GROUPS, 1);
				free(group);
			}
			return;
		}
		epoch->spec = joining->spec;
		epoch->layout = joining->layout;
	}
	member = mc_member_new(epoch, wire->rank, joining->conn);
	if (!member) {
		refuse(joining, MC_STATUS_NO_MEMORY, "the daemon is out of memory");
		if (is_first)
			discard(epoch);
		return;
	}
	snprintf(member->label, sizeof(member->label), "%s",
		wire->label && *wire->label ? wire->label : joining->conn->label);
	mc_codec_text_fit(member->label, MC_LIMIT_LABEL_BYTES);
	snprintf(member->device_uuid, sizeof(member->device_uuid), "%s",
		wire->device_uuid ? wire->device_uuid : "");
	mc_codec_text_fit(member->device_uuid, MC_LIMIT_UUID_BYTES);
	member->join_serial = joining->serial;
	member->join_pending = true;
	if (is_first) {
		mc_epoch_set_state(epoch, MC_GROUP_FORMING, LOG_INFO,
			"rank %u of %u (pid %u, uid %u, %s) has joined first", member->rank,
			epoch->spec.world_size, member->pid, member->uid, member->label);
		wait_for_others(epoch, joining->is_retry);
	} else if (epoch->is_retry && !joining->is_retry) {
		/* something has changed: those who retried get the whole time again */
		wait_for_others(epoch, false);
	}
	if (epoch->n_members == epoch->spec.world_size)
		mc_epoch_arm(epoch);
}

void mc_group_join(struct mc_groups *groups, struct mc_conn *conn, uint32_t serial,
	const Moecomm__Wire__Join *wire)
{
	struct joining joining = {.groups = groups, .conn = conn, .serial = serial, .wire = wire};
	const struct mc_verdict *verdict;
	struct mc_epoch *forming;

	if (!well_formed(&joining) || !device_fits(&joining))
		return;
	joining.group = mc_group_find(groups, wire->group);
	if (joining.group) {
		if (!may_join(&joining) || !same_job(&joining) || !make_way(&joining))
			return;
		/* leaving the old epoch may have been the end of the group too */
		joining.group = mc_group_find(groups, wire->group);
	}
	verdict = mc_verdict_retry(
		&groups->verdicts, wire->group, wire->rank, &joining.spec, conn, mc_now_ms());
	joining.is_retry = verdict && verdict->status == MC_STATUS_JOIN_TIMEOUT;
	if (verdict && !joining.is_retry) {
		mc_conn_done(conn, serial, verdict->status,
			"%s (verdict of an earlier try, given again at once until another process "
			"joins, or %" PRIu64 " ms have passed)",
			verdict->detail, verdict->expires_ms - mc_now_ms());
		return;
	}
	forming = joining.group ? mc_group_live(joining.group) : NULL;
	if (forming && (!same_spec(&joining, forming) || !device_is_free(&joining, forming)))
		return;
	take_part(&joining);
	joining.group = mc_group_find(groups, wire->group);
	if (joining.group)
		drop_replaced(&joining);
}
