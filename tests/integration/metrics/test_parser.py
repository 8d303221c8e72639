#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parser takes what is right and refuses what is wrong: else the other test proves nothing."""
import sys
import unittest

from parse_exposition import Wrong, parse

GOOD = """# HELP moecomm_a_total What a is.
# TYPE moecomm_a_total counter
moecomm_a_total{group="x\\"\\\\\\n",rank="1"} 3
moecomm_a_total{group="y",rank="1"} 0.5
# HELP moecomm_w_seconds Waits.
# TYPE moecomm_w_seconds histogram
moecomm_w_seconds_bucket{op="d",le="0.1"} 1
moecomm_w_seconds_bucket{op="d",le="+Inf"} 4
moecomm_w_seconds_sum{op="d"} 9.25
moecomm_w_seconds_count{op="d"} 4
"""

BAD = [
    (GOOD[:-1], "does not end"),
    (GOOD.replace('rank="1"} 3', 'rank="1} 3'), "does not end"),
    (GOOD.replace("} 3", "}3"), "no blank"),
    (GOOD.replace("} 3", "} x"), "no value"),
    (GOOD.replace("} 3", "} 3 1234"), "timestamps"),
    (GOOD.replace('group="y"', 'group="x\\"\\\\\\n"'), "twice"),
    (GOOD.replace('\\n",', '\\q",'), "escape"),
    (GOOD.replace("counter", "countr"), "no type"),
    (GOOD.replace("# TYPE moecomm_a_total", "# TYPE moecomm_b_total"), "does not follow"),
    (GOOD.replace("moecomm_a_total{group=\"y\"", "moecomm_c_total{group=\"y\""), "outside"),
    (GOOD.replace("_a_total", "_a_calls"), "does not end in _total"),
    (GOOD.replace('le="+Inf"} 4', 'le="+Inf"} 0'), "cumulative"),
    (GOOD.replace("_count{op=\"d\"} 4", "_count{op=\"d\"} 5"), "last bucket"),
    (GOOD.replace("moecomm_w_seconds_sum{op=\"d\"} 9.25\n", ""), "no sum"),
    (GOOD.replace("moecomm_w_seconds_bucket{op=\"d\",le=\"+Inf\"} 4\n", ""), "Inf"),
    (GOOD.replace('rank="1"} 3', 'group="1"} 3'), "twice"),
    (GOOD.replace("} 3", "} -3"), "negative"),
    ("\n" + GOOD, "neither"),
]


class Parser(unittest.TestCase):
    def test_good(self):
        families = parse(GOOD)
        self.assertEqual(list(families), ["moecomm_a_total", "moecomm_w_seconds"])
        self.assertEqual(families["moecomm_a_total"].samples[0][1][0], ("group", 'x"\\\n'))

    def test_bad(self):
        for text, words in BAD:
            with self.assertRaisesRegex(Wrong, words):
                parse(text)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
