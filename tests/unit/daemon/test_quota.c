/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "daemon/quota.h"

static struct mc_config config = {
	.max_connections_per_uid = 3,
	.max_groups_per_uid = 2,
	.max_arena_bytes_per_uid = 1000,
	.max_fds_per_uid = 10,
	.max_queued_bytes_per_uid = 100,
	.max_requests_per_second_per_uid = 100,
};

static void charges_are_bounded_per_user(void **state)
{
	struct mc_quota *quota = mc_quota_new(&config);

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_CONNECTIONS, 1), 0);
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_CONNECTIONS, 1), -EDQUOT);
	assert_int_equal(mc_quota_used(quota, 7, MC_QUOTA_CONNECTIONS), 3);
	/* another user, another kind */
	assert_int_equal(mc_quota_charge(quota, 8, MC_QUOTA_CONNECTIONS, 1), 0);
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_ARENA_BYTES, 1000), 0);
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_ARENA_BYTES, 1), -EDQUOT);
	mc_quota_release(quota, 7, MC_QUOTA_CONNECTIONS, 1);
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_CONNECTIONS, 1), 0);
	mc_quota_free(quota);
}

static void huge_charges_do_not_wrap(void **state)
{
	struct mc_quota *quota = mc_quota_new(&config);

	(void)state;
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_ARENA_BYTES, 600), 0);
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_ARENA_BYTES, UINT64_MAX), -EDQUOT);
	assert_int_equal(
		mc_quota_charge(quota, 7, MC_QUOTA_ARENA_BYTES, UINT64_MAX - 599), -EDQUOT);
	assert_int_equal(mc_quota_used(quota, 7, MC_QUOTA_ARENA_BYTES), 600);
	mc_quota_free(quota);
}

static void a_lowered_limit_refuses_and_never_wraps(void **state)
{
	struct mc_config low = config;
	struct mc_quota *quota = mc_quota_new(&low);

	(void)state;
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_FDS, 10), 0);
	low.max_fds_per_uid = 5;
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_FDS, 1), -EDQUOT);
	mc_quota_release(quota, 7, MC_QUOTA_FDS, 6);
	assert_int_equal(mc_quota_charge(quota, 7, MC_QUOTA_FDS, 1), 0);
	mc_quota_free(quota);
}

static void a_user_without_anything_is_forgotten(void **state)
{
	struct mc_quota *quota = mc_quota_new(&config);

	(void)state;
	for (uint32_t uid = 0; uid < 1000; uid++) {
		assert_int_equal(mc_quota_charge(quota, uid, MC_QUOTA_CONNECTIONS, 1), 0);
		assert_int_equal(mc_quota_charge(quota, uid, MC_QUOTA_FDS, 2), 0);
	}
	assert_int_equal(mc_quota_n_users(quota), 1000);
	for (uint32_t uid = 0; uid < 1000; uid++) {
		mc_quota_release(quota, uid, MC_QUOTA_CONNECTIONS, 1);
		mc_quota_release(quota, uid, MC_QUOTA_FDS, 2);
	}
	assert_int_equal(mc_quota_n_users(quota), 0);
	mc_quota_free(quota);
}

static unsigned ask(struct mc_quota *quota, unsigned n, uint64_t now_ms)
{
	unsigned n_allowed = 0;

	for (unsigned i = 0; i < n; i++)
		n_allowed += mc_quota_request(quota, 7, now_ms);
	return n_allowed;
}

static void requests_are_bounded_in_time(void **state)
{
	struct mc_quota *quota = mc_quota_new(&config);

	(void)state;
	assert_int_equal(ask(quota, 500, 1000), 100);
	assert_int_equal(ask(quota, 500, 1000), 0);
	/* 100 a second are 1 in 10 ms */
	assert_int_equal(ask(quota, 500, 1009), 0);
	assert_int_equal(ask(quota, 500, 1010), 1);
	assert_int_equal(ask(quota, 500, 1110), 10);
	/* never more than a second's worth, however long the pause */
	assert_int_equal(ask(quota, 500, 1000000), 100);
	mc_quota_free(quota);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(charges_are_bounded_per_user),
		cmocka_unit_test(huge_charges_do_not_wrap),
		cmocka_unit_test(a_lowered_limit_refuses_and_never_wraps),
		cmocka_unit_test(a_user_without_anything_is_forgotten),
		cmocka_unit_test(requests_are_bounded_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
