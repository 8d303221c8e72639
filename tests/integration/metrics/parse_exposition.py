#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A strict parser of the Prometheus text exposition format 0.0.4.

Reads stdin; exit status 1 and a line that says what is wrong when it is not a valid exposition by
the format's rules and Prometheus' naming conventions (what promtool check metrics looks at).
"""
import math
import re
import sys

METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
UNITS = ("_seconds", "_bytes", "_ratio", "_info", "_calls", "_ranks", "_groups", "_clients", "_ready",
         "_stalled", "_total")


class Wrong(Exception):
    pass


class Family:
    def __init__(self, name, kind, help_text):
        self.name, self.kind, self.help = name, kind, help_text
        self.samples = []  # (name, labels as a tuple of pairs, value)


def parse_labels(text, at):
    """Labels from behind '{'; returns them and where the line goes on."""
    labels, names = [], set()
    while True:
        if text[at : at + 1] == "}":
            return tuple(labels), at + 1
        match = LABEL.match(text, at)
        if not match:
            raise Wrong("a label's name is expected at column %d" % at)
        name, at = match.group(), match.end()
        if name in names:
            raise Wrong("label %s comes twice" % name)
        names.add(name)
        if text[at : at + 2] != '="':
            raise Wrong('label %s is not followed by ="' % name)
        at += 2
        value = ""
        while text[at : at + 1] != '"':
            if at >= len(text):
                raise Wrong("the value of label %s does not end" % name)
            if text[at] == "\\":
                escape = text[at + 1 : at + 2]
                if escape not in ("\\", '"', "n"):
                    raise Wrong("unknown escape \\%s" % escape)
                value += {"\\": "\\", '"': '"', "n": "\n"}[escape]
                at += 2
            else:
                value += text[at]
                at += 1
        at += 1
        labels.append((name, value))
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "}":
            raise Wrong("labels are not separated by a comma")


def parse_value(text):
    if text in ("+Inf", "-Inf", "NaN"):
        return float(text.replace("Inf", "inf"))
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text):
        raise Wrong("%r is no value" % text)
    return float(text)


def parse_sample(line):
    match = METRIC.match(line)
    if not match:
        raise Wrong("no metric's name")
    labels, at = (), match.end()
    if line[at : at + 1] == "{":
        labels, at = parse_labels(line, at + 1)
    rest = line[at:]
    if not rest.startswith(" "):
        raise Wrong("no blank before the value")
    fields = rest[1:].split(" ")
    if len(fields) != 1:
        raise Wrong("more than a value: timestamps are not ours to give")
    return match.group(), labels, parse_value(fields[0])


def family_of(name, family):
    if family and family.kind == "histogram":
        for suffix in ("_bucket", "_sum", "_count"):
            if name == family.name + suffix:
                return True
        return False
    return family is not None and name == family.name


def check_histogram(family):
    series = {}
    for name, labels, value in family.samples:
        key = tuple(pair for pair in labels if pair[0] != "le")
        entry = series.setdefault(key, {"buckets": [], "sum": None, "count": None})
        if name.endswith("_bucket"):
            bounds = [v for n, v in labels if n == "le"]
            if len(bounds) != 1:
                raise Wrong("a bucket of %s without le" % family.name)
            entry["buckets"].append((parse_value(bounds[0]), value))
        elif name.endswith("_sum"):
            entry["sum"] = value
        else:
            entry["count"] = value
    for key, entry in series.items():
        bounds = [bound for bound, _ in entry["buckets"]]
        counts = [count for _, count in entry["buckets"]]
        if bounds != sorted(bounds) or len(set(bounds)) != len(bounds):
            raise Wrong("buckets of %s are not in order" % family.name)
        if not bounds or not math.isinf(bounds[-1]):
            raise Wrong("%s has no +Inf bucket" % family.name)
        if counts != sorted(counts):
            raise Wrong("buckets of %s are not cumulative" % family.name)
        if entry["count"] != counts[-1]:
            raise Wrong("count of %s is not its last bucket" % family.name)
        if entry["sum"] is None:
            raise Wrong("%s has no sum" % family.name)


def check_name(family):
    if family.kind == "counter" and not family.name.endswith("_total"):
        raise Wrong("counter %s does not end in _total" % family.name)
    if family.kind != "counter" and family.name.endswith("_total"):
        raise Wrong("%s ends in _total but is no counter" % family.name)
    if family.name != family.name.lower() or not family.name.startswith("moecomm_"):
        raise Wrong("%s is not named like ours" % family.name)
    if not family.name.endswith(UNITS):
        raise Wrong("%s says neither unit nor what it counts" % family.name)
    for _, labels, value in family.samples:
        if family.kind == "counter" and not value >= 0:
            raise Wrong("counter %s is negative" % family.name)
        for name, _ in labels:
            if name.startswith("__") or (name == "le" and family.kind != "histogram"):
                raise Wrong("label %s of %s is reserved" % (name, family.name))


def parse(text):
    """Families by name, in order. Raises Wrong."""
    families, family, help_text, seen = {}, None, None, set()
    if not text.endswith("\n"):
        raise Wrong("the last line does not end")
    for number, line in enumerate(text[:-1].split("\n"), 1):
        try:
            if line.startswith("# HELP "):
                name, _, words = line[7:].partition(" ")
                if name in families or not METRIC.fullmatch(name) or not words:
                    raise Wrong("HELP of %s comes twice, or says nothing" % name)
                help_text, family = (name, words), None
            elif line.startswith("# TYPE "):
                name, _, kind = line[7:].partition(" ")
                if not help_text or help_text[0] != name:
                    raise Wrong("TYPE of %s does not follow its HELP" % name)
                if kind not in TYPES:
                    raise Wrong("%s is no type" % kind)
                family = families[name] = Family(name, kind, help_text[1])
            elif line.startswith("#") or not line.strip():
                raise Wrong("neither HELP, TYPE nor a sample")
            else:
                name, labels, value = parse_sample(line)
                if not family_of(name, family):
                    raise Wrong("a sample of %s outside of its family" % name)
                if (name, frozenset(labels)) in seen:
                    raise Wrong("the same series twice")
                seen.add((name, frozenset(labels)))
                family.samples.append((name, labels, value))
        except Wrong as wrong:
            raise Wrong("line %d: %s: %s" % (number, wrong, line)) from None
    for family in families.values():
        check_name(family)
        if family.kind == "histogram":
            check_histogram(family)
    return families


def main():
    try:
        families = parse(sys.stdin.read())
    except Wrong as wrong:
        print("parse_exposition: %s" % wrong, file=sys.stderr)
        return 1
    print("%d families, %d samples" % (len(families), sum(len(f.samples) for f in families.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
