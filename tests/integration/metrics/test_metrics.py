#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the real daemon, over the socket and over HTTP, with ranks at work.

usage: test_metrics.py BIN SOURCE [--no-http]
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import parse_exposition

BIN, SOURCE = sys.argv[1], sys.argv[2]
HAS_HTTP = "--no-http" not in sys.argv
SOON_S = 20


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def values(families, name, suffix="", **labels):
    """The values of the series that have these labels."""
    return [
        value
        for sample, pairs, value in families[name].samples
        if sample == name + suffix and labels.items() <= dict(pairs).items()
    ]


def wake_ups(pid):
    with open("/proc/%d/status" % pid) as status:
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status.read(), re.M).group(1))


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Daemon:
    def __init__(self, config):
        self.directory = tempfile.mkdtemp(prefix="moecomm-test-")
        self.socket = os.path.join(self.directory, "moecommd.sock")
        path = os.path.join(self.directory, "moecommd.conf")
        with open(path, "w") as file:
            file.write(config)
        self.log = open(os.path.join(self.directory, "log"), "w+")
        self.process = subprocess.Popen(
            [BIN + "/moecommd", "--backend", "host", "--config", path, "--socket", self.socket],
            stderr=self.log,
        )
        self.ranks = []

    def wait(self):
        deadline = time.monotonic() + SOON_S
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the daemon does not serve: " + self.said())
            time.sleep(0.01)
        time.sleep(0.05)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def ctl(self, *arguments):
        return subprocess.run(
            [BIN + "/moecommctl", "--socket", self.socket, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=SOON_S,
            text=True,
        )

    def metrics(self):
        answer = self.ctl("metrics")
        assert answer.returncode == 0, answer.stderr
        return parse_exposition.parse(answer.stdout)

    def start_ranks(self, group, n):
        ranks = [
            subprocess.Popen(
                [BIN + "/moecomm-worker", "--socket", self.socket, "--group", group]
                + ["--rank", str(r), "--world-size", str(n), "--rounds", "0", "--pause", "5"]
                + ["--hidden", "32", "--op-timeout", "60000"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for r in range(n)
        ]
        self.ranks += ranks
        deadline = time.monotonic() + SOON_S
        while not values(self.metrics(), "moecomm_group_ready", group=group) == [1]:
            assert time.monotonic() < deadline, "the group does not form: " + self.said()
            time.sleep(0.02)
        time.sleep(0.3)
        return ranks

    def end(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()
        self.process.terminate()
        status = self.process.wait(timeout=SOON_S)
        said = self.said()
        self.log.close()
        shutil.rmtree(self.directory)
        assert status == 0, "the daemon ended with %d: %s" % (status, said)
        assert ": error:" not in said, said


class Metrics(unittest.TestCase):
    def setUp(self):
        self.port = free_port() if HAS_HTTP else 0
        self.daemon = Daemon(
            "[groups]\nstall_ms = 300\n[metrics]\nmetrics_port = %d\n" % self.port
        )
        self.daemon.wait()

    def tearDown(self):
        self.daemon.end()

    def get(self, path="/metrics", method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON_S)
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response, body

    def test_an_idle_daemon(self):
        families = self.daemon.metrics()
        self.assertEqual(values(families, "moecomm_ready"), [1])
        self.assertEqual(values(families, "moecomm_build_info", backend="host"), [1])
        self.assertEqual(values(families, "moecomm_clients"), [1])
        self.assertEqual(values(families, "moecomm_refused_total", reason="QUOTA"), [0])
        self.assertLess(abs(values(families, "moecomm_start_time_seconds")[0] - time.time()), 60)

    def test_ranks_at_work(self):
        ranks = self.daemon.start_ranks("busy", 3)
        families = self.daemon.metrics()
        self.assertEqual(values(families, "moecomm_groups", state="ready"), [1])
        self.assertEqual(values(families, "moecomm_group_ranks", group="busy"), [3])
        self.assertEqual(values(families, "moecomm_epochs_ready_total"), [1])
        calls = values(families, "moecomm_rank_calls_total", group="busy")
        self.assertEqual(len(calls), 3)
        self.assertTrue(all(call > 0 for call in calls))
        self.assertTrue(all(n > 0 for n in values(families, "moecomm_rank_pushed_bytes_total")))
        # every call of every rank is in the histogram once it has ended
        counted = values(families, "moecomm_op_wait_seconds", "_count")
        self.assertLess(abs(sum(counted) - sum(calls)), 200)
        waited = values(families, "moecomm_rank_wait_seconds_total", group="busy")
        summed = values(families, "moecomm_op_wait_seconds", "_sum")
        self.assertLess(abs(sum(waited) - sum(summed)), 0.2 + 0.2 * sum(waited))
        later = self.daemon.metrics()
        for before, after in zip(calls, values(later, "moecomm_rank_calls_total")):
            self.assertGreaterEqual(after, before)

        os.kill(ranks[1].pid, signal.SIGSTOP)
        deadline = time.monotonic() + SOON_S
        while values(self.daemon.metrics(), "moecomm_rank_stalled", rank="1") != [1]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        families = self.daemon.metrics()
        self.assertEqual(values(families, "moecomm_group_stalled_ranks", group="busy"), [1])
        self.assertEqual(values(families, "moecomm_rank_stalled", rank="0"), [0])
        self.assertGreater(
            values(families, "moecomm_rank_progress_age_seconds", rank="1")[0], 0.3
        )
        ranks[1].kill()
        ranks[1].wait()
        deadline = time.monotonic() + SOON_S
        while values(self.daemon.metrics(), "moecomm_group_failures_total", status="PEER_LOST") != [1]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        # what was counted survives the group
        self.assertGreaterEqual(
            sum(values(self.daemon.metrics(), "moecomm_op_wait_seconds", "_count")), sum(counted)
        )

    def test_refusals_are_counted_by_reason(self):
        self.assertEqual(self.daemon.ctl("abort", "nobody").returncode, 1)
        self.assertEqual(
            values(self.daemon.metrics(), "moecomm_refused_total", reason="NOT_FOUND"), [1]
        )

    def test_json(self):
        answer = json.loads(self.daemon.ctl("--json", "metrics").stdout)
        self.assertEqual(answer["schema"], 1)
        parse_exposition.parse(answer["exposition"])

    def test_promtool(self):
        tool = shutil.which("promtool")
        if not tool:
            self.skipTest("promtool is not installed")
        self.daemon.start_ranks("prom", 2)
        text = self.daemon.ctl("metrics").stdout
        check = subprocess.run([tool, "check", "metrics"], input=text, text=True, capture_output=True)
        self.assertEqual((check.returncode, check.stderr), (0, ""))
        rules = os.path.join(SOURCE, "docs/monitoring/alerts.yml")
        check = subprocess.run([tool, "check", "rules", rules], text=True, capture_output=True)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "alerts_test.yml")) as file:
            text = file.read().replace("ALERTS", rules)
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(text)
            file.flush()
            check = subprocess.run(
                [tool, "test", "rules", file.name], text=True, capture_output=True
            )
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    @unittest.skipUnless(HAS_HTTP, "built without libmicrohttpd")
    def test_http(self):
        self.daemon.start_ranks("web", 2)
        response, body = self.get()
        self.assertEqual(response.status, 200)
        self.assertEqual(
            response.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8"
        )
        families = parse_exposition.parse(body)
        self.assertEqual(values(families, "moecomm_group_ready", group="web"), [1])
        self.assertEqual(list(families), list(self.daemon.metrics()))
        response, body = self.get(method="HEAD")
        self.assertEqual((response.status, body), (200, ""))
        self.assertEqual(self.get("/")[0].status, 404)
        self.assertEqual(self.get("/metrics/../etc/passwd")[0].status, 404)
        self.assertEqual(self.get(method="POST")[0].status, 405)

    @unittest.skipUnless(HAS_HTTP, "built without libmicrohttpd")
    def test_http_hostile(self):
        n_fds = len(os.listdir("/proc/%d/fd" % self.daemon.process.pid))
        waiting = []
        for i in range(100):
            waiting.append(socket.create_connection(("127.0.0.1", self.port), timeout=SOON_S))
            if i == 40:  # silent ones, in whose way nobody stands
                self.assertEqual(self.get()[0].status, 200)
        # more than are served at once: they wait, and the daemon does not spin on them
        before = cpu_seconds(self.daemon.process.pid)
        time.sleep(1)
        self.assertLess(cpu_seconds(self.daemon.process.pid) - before, 0.2)
        for connection in waiting:
            connection.close()
        for text in (b"\x00" * 5000, b"GET " + b"a" * 100000, b"GET /metrics HTTP/9.9\r\n\r\n", b"\r\n" * 50):
            with socket.create_connection(("127.0.0.1", self.port), timeout=SOON_S) as connection:
                try:
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except OSError:
                    pass
        for i in range(50):
            self.assertEqual(self.get()[0].status, 200)
        deadline = time.monotonic() + SOON_S
        while len(os.listdir("/proc/%d/fd" % self.daemon.process.pid)) > n_fds:
            self.assertLess(time.monotonic(), deadline, "fds are left")
            time.sleep(0.05)

    @unittest.skipUnless(HAS_HTTP, "built without libmicrohttpd")
    def test_an_idle_daemon_sleeps(self):
        self.assertEqual(self.get()[0].status, 200)
        time.sleep(1)
        before = wake_ups(self.daemon.process.pid)
        time.sleep(2)
        self.assertEqual(wake_ups(self.daemon.process.pid) - before, 0)

    @unittest.skipUnless(HAS_HTTP, "built without libmicrohttpd")
    def test_a_taken_port_is_told(self):
        second = Daemon("[metrics]\nmetrics_port = %d\n" % self.port)
        self.assertEqual(second.process.wait(timeout=SOON_S), 1)
        self.assertIn("cannot serve metrics at 127.0.0.1 port %d" % self.port, second.said())
        shutil.rmtree(second.directory)


class Documents(unittest.TestCase):
    def test_the_list_is_complete(self):
        """docs/metrics.md has one row for each metric: name, type, help word for word."""
        daemon = Daemon("")
        daemon.wait()
        try:
            families = daemon.metrics()
        finally:
            daemon.end()
        with open(os.path.join(SOURCE, "docs/metrics.md")) as file:
            rows = re.findall(r"^\| `(moecomm_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", file.read(), re.M)
        documented = {name: (kind, words) for name, kind, _, words in rows}
        wanted = {name: (family.kind, family.help) for name, family in families.items()}
        self.assertEqual(documented, wanted)

    def test_dashboard_and_alerts_name_what_exists(self):
        daemon = Daemon("")
        daemon.wait()
        try:
            families = daemon.metrics()
        finally:
            daemon.end()
        names = set(families)
        for family in families.values():
            if family.kind == "histogram":
                names |= {family.name + suffix for suffix in ("_bucket", "_sum", "_count")}
        folder = os.path.join(SOURCE, "docs/monitoring")
        with open(os.path.join(folder, "grafana-dashboard.json")) as file:
            dashboard = json.load(file)
        text = json.dumps(dashboard)
        with open(os.path.join(folder, "alerts.yml")) as file:
            text += file.read()
        used = set(re.findall(r"\bmoecomm_\w+", text))
        self.assertTrue(used)
        self.assertEqual(used - names, set())
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
