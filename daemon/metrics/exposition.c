/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics/exposition.h"

#include <inttypes.h>

#define NS_PER_S UINT64_C(1000000000)

void mc_exposition_family(struct mc_exposition *exposition, enum mc_metric_id id)
{
	const struct mc_metric *family = &mc_metrics[id];

	exposition->family = family;
	fprintf(exposition->out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help,
		family->name, family->type);
}

static void put_value(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\\' || *text == '"')
			putc('\\', out);
		if (*text == '\n')
			fputs("\\n", out);
		else
			putc(*text, out);
	}
}

static void put_name(struct mc_exposition *exposition, const char *suffix,
	const struct mc_exposition_labels *labels, const char *bound)
{
	FILE *out = exposition->out;
	const char *separator = "{";

	fprintf(out, "%s%s", exposition->family->name, suffix);
	for (unsigned i = 0; labels && labels->pair[i]; i += 2) {
		fprintf(out, "%s%s=\"", separator, labels->pair[i]);
		put_value(out, labels->pair[i + 1]);
		putc('"', out);
		separator = ",";
	}
	if (bound) {
		fprintf(out, "%sle=\"%s\"", separator, bound);
		separator = ",";
	}
	fputs(*separator == ',' ? "} " : " ", out);
}

static const char *seconds(uint64_t ns, char ret_text[48])
{
	int n = snprintf(ret_text, 48, "%" PRIu64 ".%09" PRIu64, ns / NS_PER_S, ns % NS_PER_S);

	while (n > 0 && ret_text[n - 1] == '0')
		ret_text[--n] = 0;
	if (n > 0 && ret_text[n - 1] == '.')
		ret_text[--n] = 0;
	return ret_text;
}

void mc_exposition_number(
	struct mc_exposition *exposition, const struct mc_exposition_labels *labels, uint64_t value)
{
	put_name(exposition, "", labels, NULL);
	fprintf(exposition->out, "%" PRIu64 "\n", value);
}

void mc_exposition_nanoseconds(
	struct mc_exposition *exposition, const struct mc_exposition_labels *labels, uint64_t ns)
{
	char text[48];

	put_name(exposition, "", labels, NULL);
	fprintf(exposition->out, "%s\n", seconds(ns, text));
}

void mc_exposition_histogram(struct mc_exposition *exposition, const char *label,
	const char *label_value, const uint64_t *bucket, const uint64_t *bound_ns, uint32_t n,
	uint64_t sum_ns)
{
	const struct mc_exposition_labels *labels = MC_LABELS(label, label_value);
	uint64_t total = 0;
	char text[48];

	for (uint32_t i = 0; i < n; i++) {
		total += bucket[i];
		put_name(exposition, "_bucket", labels,
			i < n - 1 ? seconds(bound_ns[i], text) : "+Inf");
		fprintf(exposition->out, "%" PRIu64 "\n", total);
	}
	put_name(exposition, "_sum", labels, NULL);
	fprintf(exposition->out, "%s\n", seconds(sum_ns, text));
	put_name(exposition, "_count", labels, NULL);
	fprintf(exposition->out, "%" PRIu64 "\n", total);
}
