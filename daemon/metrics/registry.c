/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics/registry.h"

const struct mc_metric mc_metrics[MC_METRIC_N] = {
#define MC_METRIC_ROW(id, metric, kind, text) [MC_METRIC_##id] = {metric, kind, text},
	MC_METRICS_TABLE(MC_METRIC_ROW)
#undef MC_METRIC_ROW
};
