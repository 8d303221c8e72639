/* SPDX-License-Identifier: Apache-2.0 */
/* Version negotiation, and the tables of numbers that travel. */
#include "unit/proto/test_support.h"

#include <stdio.h>

#include "kernels/lamport.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/status.h"
#include "proto/version.h"

/* What the data plane can address and what the wire lets through are the same. */
_Static_assert(MC_LIMIT_WORLD_SIZE == MC_MAX_WORLD_SIZE, "limits.h and lamport.h agree");
_Static_assert(MC_LIMIT_CHANNELS == MC_MAX_CHANNELS, "limits.h and lamport.h agree");
_Static_assert(MC_LIMIT_FRAME_FDS >= 2 + MC_MAX_WORLD_SIZE, "a Layout's fds fit one frame");
_Static_assert(MC_LIMIT_FRAME_FDS <= 253, "the kernel passes no more in one message");
/* Outcomes that ops report are outcomes that travel. */
_Static_assert((int)MC_FAULT_BAD_COUNT == (int)MC_STATUS_INVALID, "one set of numbers");
_Static_assert((int)MC_FAULT_PEER_LOST == (int)MC_STATUS_PEER_LOST, "one set of numbers");
_Static_assert((int)MC_FAULT_TIMEOUT == (int)MC_STATUS_TIMEOUT, "one set of numbers");
_Static_assert((int)MC_FAULT_MISMATCH == (int)MC_STATUS_MISMATCH, "one set of numbers");
_Static_assert((int)MC_FAULT_ABORTED == (int)MC_STATUS_ABORTED, "one set of numbers");
_Static_assert((int)MC_FAULT_STALE_EPOCH == (int)MC_STATUS_STALE_EPOCH, "one set of numbers");
_Static_assert((int)MC_FAULT_DEVICE == (int)MC_STATUS_DEVICE, "one set of numbers");
_Static_assert((int)MC_FAULT_SENTINEL == (int)MC_STATUS_SENTINEL, "one set of numbers");
_Static_assert((int)MC_FAULT_CORRUPT == (int)MC_STATUS_CORRUPT, "one set of numbers");
/* Statuses fit the abort word's byte and the codec's bound of enums. */
_Static_assert(MC_STATUS_SHUTDOWN <= 255, "a status fits the abort word");

static void minors_may_differ(void **state)
{
	char detail[256] = "untouched";

	(void)state;
	assert_int_equal(
		mc_version_check("client", MC_PROTO_MAJOR, MC_PROTO_MINOR, detail, 256), 0);
	assert_int_equal(mc_version_check("client", MC_PROTO_MAJOR, 0, detail, 256), 0);
	assert_int_equal(mc_version_check("client", MC_PROTO_MAJOR, UINT32_MAX, detail, 256), 0);
	assert_string_equal(detail, "untouched");
}

static void another_major_is_refused_naming_both(void **state)
{
	static const uint32_t majors[] = {0, MC_PROTO_MAJOR + 1, UINT32_MAX};
	char mine[32];

	(void)state;
	snprintf(mine, sizeof(mine), "%u.%u", MC_PROTO_MAJOR, MC_PROTO_MINOR);
	for (unsigned i = 0; i < 3; i++) {
		char detail[256] = "", theirs[32];

		snprintf(theirs, sizeof(theirs), "%u.7", majors[i]);
		assert_int_equal(mc_version_check("daemon", majors[i], 7, detail, sizeof(detail)),
			MC_STATUS_VERSION);
		assert_non_null(strstr(detail, "daemon"));
		assert_non_null(strstr(detail, theirs));
		assert_non_null(strstr(detail, mine));
		assert_true(strlen(detail) < sizeof(detail) - 1);
	}
}

static void a_short_buffer_is_kept(void **state)
{
	char detail[8] = "xxxxxxx";

	(void)state;
	assert_int_equal(mc_version_check("daemon", 99, 0, detail, 4), MC_STATUS_VERSION);
	assert_string_equal(detail, "the");
	assert_memory_equal(detail + 4, "xxx", 4);
	assert_int_equal(mc_version_check("daemon", 99, 0, NULL, 0), MC_STATUS_VERSION);
}

static void features_are_those_both_know(void **state)
{
	(void)state;
	assert_true(mc_version_features(0, UINT64_MAX) == 0);
	assert_true(
		mc_version_features(0xf000000000000006, 0x8000000000000003) == 0x8000000000000002);
	assert_string_equal(mc_version_string(), EXPECTED_VERSION);
}

static void every_status_has_a_name_and_a_sentence(void **state)
{
	(void)state;
	for (unsigned i = MC_STATUS_OK; i <= MC_STATUS_SHUTDOWN; i++) {
		assert_string_not_equal(mc_status_name(i), "UNKNOWN");
		assert_true(strlen(mc_status_text(i)) > 10);
		for (unsigned j = i + 1; j <= MC_STATUS_SHUTDOWN + 1; j++) {
			assert_string_not_equal(mc_status_name(i), mc_status_name(j));
			assert_string_not_equal(mc_status_text(i), mc_status_text(j));
		}
	}
	assert_string_equal(mc_status_name(MC_STATUS_STALE_EPOCH), "STALE_EPOCH");
	assert_string_equal(mc_status_name(MC_STATUS_SHUTDOWN + 1), "UNKNOWN");
	assert_string_equal(mc_status_name(UINT32_MAX), "UNKNOWN");
}

static void states_and_health_have_names(void **state)
{
	(void)state;
	for (unsigned i = MC_GROUP_FORMING; i <= MC_GROUP_GONE; i++)
		for (unsigned j = i + 1; j <= MC_GROUP_GONE + 1; j++)
			assert_string_not_equal(mc_group_state_name(i), mc_group_state_name(j));
	for (unsigned i = MC_HEALTH_IDLE; i <= MC_HEALTH_WAITING; i++)
		for (unsigned j = i + 1; j <= MC_HEALTH_WAITING + 1; j++)
			assert_string_not_equal(mc_health_name(i), mc_health_name(j));
	assert_string_equal(mc_group_state_name(0), "unknown");
	assert_string_equal(mc_group_state_name(UINT32_MAX), "unknown");
	assert_string_equal(mc_health_name(MC_HEALTH_UNKNOWN), "unknown");
	assert_string_equal(mc_health_name(UINT32_MAX), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(minors_may_differ),
		cmocka_unit_test(another_major_is_refused_naming_both),
		cmocka_unit_test(a_short_buffer_is_kept),
		cmocka_unit_test(features_are_those_both_know),
		cmocka_unit_test(every_status_has_a_name_and_a_sentence),
		cmocka_unit_test(states_and_health_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
