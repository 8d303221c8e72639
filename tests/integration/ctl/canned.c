/* SPDX-License-Identifier: Apache-2.0 */

#include "integration/ctl/canned.h"

#include <string.h>
#include "proto/status.h"

#define N_RANKS 4

static uint8_t instance[16] = {0xab, 0xcd};
static struct {
	Moecomm__Wire__Status status;
	Moecomm__Wire__GroupStatus group;
	Moecomm__Wire__GroupSpec spec;
	Moecomm__Wire__RankStatus ranks[N_RANKS];
	Moecomm__Wire__Member members[N_RANKS];
	Moecomm__Wire__RankProgress progress[N_RANKS];
	Moecomm__Wire__Holder holder;
	Moecomm__Wire__ClientStatus client;
	Moecomm__Wire__GpuStatus gpu;

	Moecomm__Wire__GroupStatus *group_list[1];
	Moecomm__Wire__RankStatus *rank_list[N_RANKS];
	Moecomm__Wire__RankProgress *progress_list[N_RANKS][1];
	Moecomm__Wire__Holder *holder_list[1];
	Moecomm__Wire__ClientStatus *client_list[1];
	Moecomm__Wire__GpuStatus *gpu_list[1];
	uint32_t gpu_pids[2];
} c;

/* protobuf-c keeps presence of scalars apart from their values */
#define SET(message, field, value) ((message).has_##field = 1, (message).field = (value))

Moecomm__Wire__Status *canned_empty(void)
{
	memset(&c, 0, sizeof(c));
	c.status = (Moecomm__Wire__Status)MOECOMM__WIRE__STATUS__INIT;
	c.status.version = (char *)"9.8.7";
	c.status.backend = (char *)"host";
	c.status.uptime_ms = 192000;
	c.status.instance.data = instance;
	c.status.instance.len = sizeof(instance);
	SET(c.status, pid, 77);
	c.status.socket = (char *)"/run/moecomm/moecommd.sock";
	return &c.status;
}

static void add_group(const char *name, unsigned n_ranks)
{
	c.group = (Moecomm__Wire__GroupStatus)MOECOMM__WIRE__GROUP_STATUS__INIT;
	c.spec = (Moecomm__Wire__GroupSpec)MOECOMM__WIRE__GROUP_SPEC__INIT;
	c.spec.world_size = n_ranks;
	c.spec.n_channels = 1;
	c.spec.max_rows = 256;
	c.spec.backend = 1;
	SET(c.spec, dispatch_row_bytes, 4096);
	SET(c.spec, combine_row_bytes, 14336);
	SET(c.spec, op_timeout_ms, 10000);
	SET(c.spec, warmup_timeout_ms, 120000);
	SET(c.spec, warmup_calls, 16);
	c.group.name = (char *)name;
	c.group.spec = &c.spec;
	c.group.epoch = 7;
	SET(c.group, uid, 1234);
	SET(c.group, arena_bytes, 3u << 20);
	SET(c.group, age_ms, 61000);
	SET(c.group, n_joined, n_ranks);
	for (unsigned i = 0; i < n_ranks; i++) {
		c.members[i] = (Moecomm__Wire__Member)MOECOMM__WIRE__MEMBER__INIT;
		c.members[i].rank = i;
		SET(c.members[i], pid, 1000 + i);
		SET(c.members[i], uid, 1234);
		c.members[i].label = (char *)"engine";
		c.progress[i] = (Moecomm__Wire__RankProgress)MOECOMM__WIRE__RANK_PROGRESS__INIT;
		c.progress_list[i][0] = &c.progress[i];
		c.ranks[i] = (Moecomm__Wire__RankStatus)MOECOMM__WIRE__RANK_STATUS__INIT;
		c.ranks[i].rank = i;
		c.ranks[i].member = &c.members[i];
		c.ranks[i].progress = c.progress_list[i];
		c.ranks[i].n_progress = 1;
		c.rank_list[i] = &c.ranks[i];
	}
	c.group.ranks = c.rank_list;
	c.group.n_ranks = n_ranks;
	c.group_list[0] = &c.group;
	c.status.groups = c.group_list;
	c.status.n_groups = 1;
	SET(c.status, total_groups, 1);
	SET(c.status, arena_bytes, 3u << 20);
}

static void add_client_and_gpu(void)
{
	c.client = (Moecomm__Wire__ClientStatus)MOECOMM__WIRE__CLIENT_STATUS__INIT;
	c.client.id = 5;
	c.client.pid = 1002;
	c.client.uid = 1234;
	c.client.label = (char *)"engine";
	SET(c.client, age_ms, 5500);
	SET(c.client, n_members, 1);
	SET(c.client, n_requests, 12);
	SET(c.client, queued_bytes, 0);
	c.client_list[0] = &c.client;
	c.status.clients = c.client_list;
	c.status.n_clients = 1;
	SET(c.status, total_clients, 1);

	c.gpu = (Moecomm__Wire__GpuStatus)MOECOMM__WIRE__GPU_STATUS__INIT;
	c.gpu.uuid = (char *)"GPU-11111111-2222-3333-4444-555555555555";
	c.gpu.name = (char *)"Some GPU";
	SET(c.gpu, arena_bytes, 5u << 20);
	c.gpu_pids[0] = 1000;
	c.gpu_pids[1] = 1002;
	c.gpu.holder_pid = c.gpu_pids;
	c.gpu.n_holder_pid = 2;
	c.gpu_list[0] = &c.gpu;
	c.status.gpus = c.gpu_list;
	c.status.n_gpus = 1;
}

Moecomm__Wire__Status *canned_demo(bool stalled)
{
	canned_empty();
	add_group("demo", N_RANKS);
	add_client_and_gpu();
	c.group.state = MC_GROUP_READY;
	SET(c.group, path, 1);
	SET(c.group, health, stalled ? MC_HEALTH_STALLED : MC_HEALTH_PROGRESSING);
	for (unsigned i = 0; i < N_RANKS; i++) {
		bool late = i == 2;

		c.progress[i].call = late ? 41 : 42;
		SET(c.progress[i], op, late ? 3 : 1);
		SET(c.progress[i], left, 0);
		SET(c.progress[i], age_ms, late ? 3500 : 3400);
		SET(c.progress[i], n_bytes, late ? 2048 : 65536);
		SET(c.progress[i], wait_ns, 1500000);
		if (stalled)
			SET(c.ranks[i], health, late ? MC_HEALTH_STALLED : MC_HEALTH_WAITING);
		else
			SET(c.ranks[i], health, MC_HEALTH_PROGRESSING);
	}
	return &c.status;
}

Moecomm__Wire__Status *canned_broken(void)
{
	canned_empty();
	add_group("broken", 2);
	c.group.state = MC_GROUP_FAILED;
	c.group.cause = (char *)"rank 1 (pid 1001) ended";
	SET(c.group, health, MC_HEALTH_FAILED);
	SET(c.ranks[0], health, MC_HEALTH_FAILED);
	SET(c.ranks[1], health, MC_HEALTH_FAILED);
	SET(c.ranks[0], fault_status, MC_STATUS_PEER_LOST);
	SET(c.ranks[0], fault_peer, 1);
	SET(c.ranks[0], fault_call, 9);
	c.ranks[0].fault_detail = (char *)"rank 1 ended while rank 0 waited for it";
	c.holder = (Moecomm__Wire__Holder)MOECOMM__WIRE__HOLDER__INIT;
	c.holder.pid = 1000;
	c.holder.rank = 0;
	c.holder.epoch = 6;
	c.holder.age_ms = 2500;
	SET(c.holder, n_bytes, 1u << 20);
	c.holder_list[0] = &c.holder;
	c.group.holders = c.holder_list;
	c.group.n_holders = 1;
	return &c.status;
}
