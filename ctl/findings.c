/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ctl/ctl.h"

/* Ranks listed by number before "and N more". */
#define RANKS_LISTED 8u

struct mc_finding *mc_findings_add(struct mc_findings *findings, const char *kind, bool is_wrong)
{
	struct mc_finding *finding;
	void *list = realloc(findings->list, (findings->n + 1) * sizeof(*findings->list));

	if (!list) {
		fprintf(stderr, "moecommctl: out of memory\n");
		exit(MC_CTL_REFUSED);
	}
	findings->list = list;
	finding = &findings->list[findings->n++];
	*finding = (struct mc_finding){
		.kind = kind,
		.is_wrong = is_wrong,
		.rank = MC_NO_NUMBER,
		.pid = MC_NO_NUMBER,
		.channel = MC_NO_NUMBER,
		.call = MC_NO_NUMBER,
		.lag_calls = MC_NO_NUMBER,
		.age_ms = MC_NO_NUMBER,
	};
	return finding;
}

static void append(char *text, size_t n_text, const char *format, va_list arguments)
{
	size_t n = strlen(text);

	vsnprintf(text + n, n_text - n, format, arguments);
}

void mc_finding_text(struct mc_finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	append(finding->text, sizeof(finding->text), format, arguments);
	va_end(arguments);
}

void mc_finding_advise(struct mc_finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	append(finding->advice, sizeof(finding->advice), format, arguments);
	va_end(arguments);
}

void mc_findings_clear(struct mc_findings *findings)
{
	free(findings->list);
	*findings = (struct mc_findings){0};
}

const char *mc_explain_rank(
	uint32_t rank, const Moecomm__Wire__Member *member, char *ret_text, size_t n_text)
{
	const char *label = member && member->label ? member->label : "";

	if (member && member->has_pid)
		snprintf(ret_text, n_text, "rank %u (pid %u%s%s)", rank, member->pid,
			*label ? ", " : "", label);
	else
		snprintf(ret_text, n_text, "rank %u", rank);
	return ret_text;
}

const char *mc_explain_ranks(const uint32_t *ranks, size_t n_ranks, char *ret_text, size_t n_text)
{
	size_t n = (size_t)snprintf(ret_text, n_text, "rank%s", n_ranks == 1 ? "" : "s");

	for (size_t i = 0; i < n_ranks && n < n_text; i++) {
		if (i == RANKS_LISTED && n_ranks > RANKS_LISTED + 1) {
			snprintf(ret_text + n, n_text - n, " and %zu more", n_ranks - i);
			break;
		}
		n += (size_t)snprintf(ret_text + n, n_text - n, "%s %u",
			i == 0             ? ""
			: i == n_ranks - 1 ? " and"
					   : ",",
			ranks[i]);
	}
	return ret_text;
}
