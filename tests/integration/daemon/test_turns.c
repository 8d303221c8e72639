/* SPDX-License-Identifier: Apache-2.0 */
/* Queries that take the daemon long leave it time for everybody else. */
#include "integration/daemon/harness.h"

#define N_GROUPS   16u
#define WORLD_SIZE 16u
#define N_GREEDY   24u
#define N_QUERIES  36u

/* Many ranks make a status long. All of a group on one connection; nothing is mapped. */
static void form_groups(struct mc_wire_client *client)
{
	for (uint32_t i = 0; i < N_GROUPS; i++) {
		uint64_t members[WORLD_SIZE];
		char name[16];
		struct mc_wire_join join = {.group = name, .world_size = WORLD_SIZE};

		snprintf(name, sizeof(name), "g%u", i);
		for (join.rank = 0; join.rank < WORLD_SIZE; join.rank++)
			mc_wire_join(client, &join);
		for (uint32_t r = 0; r < WORLD_SIZE; r++) {
			struct mc_wire_layout layout;

			mc_wire_expect_layout(client, SOON_MS, &layout);
			members[r] = layout.member_id;
			mc_wire_layout_clear(&layout);
		}
		for (uint32_t r = 0; r < WORLD_SIZE; r++)
			mc_wire_vote_yes(client, members[r]);
		for (uint32_t r = 0; r < WORLD_SIZE; r++)
			mc_wire_expect_ready(client, SOON_MS);
	}
}

static void others_come_in_between_queries(void **state)
{
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	struct mc_wire_client member, greedy[N_GREEDY], other;
	uint64_t started_ms, other_ms, all_ms;

	(void)state;
	request.has_ranks = 1;
	request.ranks = 1;
	harness_open(&member, 1);
	form_groups(&member);
	harness_open(greedy, N_GREEDY);
	for (uint32_t i = 0; i < N_GREEDY; i++)
		for (uint32_t n = 0; n < N_QUERIES; n++)
			mc_wire_send(&greedy[i], MC_FRAME_STATUS_REQUEST, &request.base);
	started_ms = mc_test_now_ms();
	harness_open(&other, 1);
	other_ms = mc_test_now_ms() - started_ms;
	for (uint32_t n = 0; n < N_QUERIES; n++)
		for (uint32_t i = 0; i < N_GREEDY; i++) {
			struct mc_wire_reply reply;

			mc_wire_expect(&greedy[i], MC_FRAME_STATUS, 60000, &reply);
			mc_wire_reply_clear(&reply);
		}
	all_ms = mc_test_now_ms() - started_ms;
	print_message("%u queries took %llu ms; a newcomer waited %llu ms\n", N_GREEDY * N_QUERIES,
		(unsigned long long)all_ms, (unsigned long long)other_ms);
	/* a few turns of the loop: the connection, the hello */
	assert_true(other_ms < all_ms / 4);
	harness_close(greedy, N_GREEDY);
	harness_close(&other, 1);
	harness_close(&member, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(others_come_in_between_queries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
