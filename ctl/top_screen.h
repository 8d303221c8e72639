/* SPDX-License-Identifier: Apache-2.0 */
/* What top shows. */
#ifndef MC_CTL_TOP_SCREEN_H
#define MC_CTL_TOP_SCREEN_H

#include <stdbool.h>
#include <stdio.h>
#include "ctl/ctl.h"
#include "ctl/top_rates.h"

void mc_top_print(FILE *out, const struct mc_ctl *ctl, const Moecomm__Wire__Status *status,
	const struct mc_top_rows *rows, bool with_ranks);
void mc_top_print_json(
	const Moecomm__Wire__Status *status, const struct mc_top_rows *rows, double seconds);

#endif
