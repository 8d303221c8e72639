#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_man_pages.py PAGES BIN SOURCE LIBRARY

The built manual pages against what they describe: everything that the programs, the library and the
status table know is named, nothing that is gone is, references lead somewhere, the examples work,
and groff has no complaint. Prints every problem; exit status 1 when there is one, 77 without pages.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PAGES = ["moecommd.8", "moecommd.conf.5", "moecommctl.1", "moecomm-worker.1", "moecomm-bench.1",
         "moecomm.3"]
# A line of these tells of other programs' options.
FOREIGN = re.compile(r"\b(systemctl|usermod|pkg-config)\b")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def run(command, status=0):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)
    if status is not None and done.returncode != status:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout if status is not None else done.stderr


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def plain(roff):
    """A page's text: no fonts, no requests, names as people see them."""
    roff = re.sub(r"^\.(?!S[HS] ).*\n", "", roff, flags=re.M)
    roff = re.sub(r"\\f[BIRP]", "", roff)
    return roff.replace(r"\&", "").replace(r"\-", "-").replace(r"\e", "\\").replace(r"\(aq", "'")


class Pages:
    def __init__(self, folder, binaries, source, library):
        self.folder, self.bin, self.source, self.library = folder, binaries, source, library
        self.problems = []
        self.roff = {page: read(folder, page) for page in PAGES}
        self.text = {page: plain(roff) for page, roff in self.roff.items()}
        self.header = read(source, "client", "moecomm.h")

    def want(self, fine, problem):
        if not fine:
            self.problems.append(problem)

    def same(self, what, told, known):
        for name in sorted(known - told):
            self.problems.append(f"{what}: {name} is not told")
        for name in sorted(told - known):
            self.problems.append(f"{what}: {name} is told, but is gone")

    def program(self, name, *arguments, status=0):
        return run([os.path.join(self.bin, name), *arguments], status)

    def tags(self, page, pattern):
        """Names in bold that begin a line, as those of options and commands do."""
        return {plain(tag) for tag in re.findall(rf"^\\fB({pattern})\\fR", self.roff[page], re.M)}

    def section(self, page, heading):
        match = re.search(rf'^\.SH "?{heading}"?\n(.*?)(?=^\.SH|\Z)', self.roff[page],
                          re.M | re.S)
        self.want(match, f"{page}: no section {heading}")
        return match.group(1) if match else ""

    # ---- form ----

    def check_form(self):
        for page, roff in self.roff.items():
            name, section = page.rsplit(".", 1)
            self.want(re.search(rf'^\.TH "{name}" "{section}" ', roff, re.M),
                      f"{page}: its title is another page's")
            self.want(f"\n{name} - " in self.text[page], f"{page}: NAME does not name it")
        if not shutil.which("groff"):
            print("not checked: groff is missing (apt-get install groff-base)")
            return
        for page in PAGES:
            for width in "80n", "120n":
                done = subprocess.run(
                    ["groff", "-K", "utf8", "-t", "-man", "-Tutf8", "-ww", "-z", f"-rLL={width}",
                     os.path.join(self.folder, page)],
                    stderr=subprocess.PIPE, text=True, timeout=60)
                self.want(done.returncode == 0 and not done.stderr,
                          f"{page}: groff complains: {done.stderr.strip()}")

    def check_references(self):
        told = set()
        for page, text in self.text.items():
            for name, section in re.findall(r"\b(moecomm[a-z.-]*)\((\d)\)", text):
                told.add(f"{name}.{section}")
                self.want(f"{name}.{section}" in PAGES, f"{page}: no page {name}({section})")
            for document in re.findall(r"\b[a-z-]+\.md\b", text):
                self.want(os.path.exists(os.path.join(self.source, "docs", document)),
                          f"{page}: no document {document}")
            self.want("SEE ALSO" in text, f"{page}: no SEE ALSO")
        self.same("references between pages", told & set(PAGES), set(PAGES))
        unit = read(self.source, "systemd", "moecommd.service")
        for name, section in re.findall(r"man:([\w.-]+)\((\d)\)", unit):
            self.want(f"{name}.{section}" in PAGES, f"the unit: no page {name}({section})")

    # ---- programs ----

    def settings(self):
        """{(section, name): what --print-config says in its comment}"""
        settings, section, comment = {}, "", ""
        for line in self.program("moecommd", "--config", "/dev/null", "--print-config").splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif line.startswith("#"):
                comment = line
            elif " =" in line:
                settings[section, line.split(" =")[0]] = comment
        return settings

    def check_settings(self):
        page = "moecommd.conf.5"
        settings, section, told = self.settings(), "", {}
        self.want(len(settings) > 10, "moecommd --print-config prints no settings")
        entries = re.split(r"^(\.SS .*|\\fB\w+\\fR =)$", self.section(page, "SETTINGS"), flags=re.M)
        for entry, body in zip(entries[1::2], entries[2::2]):
            if entry.startswith(".SS"):
                section = plain(entry).split("[")[1].rstrip('"]')
            else:
                told[section, plain(entry).split(" ")[0]] = " ".join(plain(body).split())
        self.same("moecommd.conf(5)", {"[%s] %s" % key for key in told},
                  {"[%s] %s" % key for key in settings})
        for key in set(told) & set(settings):
            takes, _, default = settings[key].partition("; default: ")
            default = default.removesuffix("; reloads on SIGHUP")
            self.want(f"{takes.removeprefix('# ')}; default: {default}. " in told[key],
                      f"{page}: {key[1]}: other values or default than --print-config has")
            self.want(("A reload takes it." in told[key]) == ("SIGHUP" in settings[key]),
                      f"{page}: {key[1]}: whether a reload takes it is told wrongly")
        return {name for _, name in settings}

    def check_options(self):
        """Each program's page has exactly its options; no page names one that nobody has."""
        commands = set(re.findall(r"^  ([a-z]+) ", self.program("moecomm-bench", "--help"), re.M))
        bench = "".join(self.program("moecomm-bench", c, "--help") for c in commands)
        known = {"moecommd.8": set(OPTION.findall(self.program("moecommd", "--help"))),
                 "moecomm-worker.1": set(OPTION.findall(self.program("moecomm-worker", "--help"))),
                 "moecomm-bench.1": set(OPTION.findall(bench))}
        # a build without CUDA does not have these commands; the page is the same
        on_gpus = read(self.source, "bench", "gpu", "options.c")
        known["moecomm-bench.1"] |= {"--" + o for o in re.findall(r'\{"([a-z-]+)", \w+_argument',
                                                                  on_gpus)}
        for page, options in known.items():
            self.want(options, f"{page}: its program tells no option")
            self.same(page, self.tags(page, r"\\-\\-[a-z\\-]+"), options)
        ctl = set(OPTION.findall(self.program("moecommctl", "help")))
        page = "moecommctl.1"
        told = set(OPTION.findall(self.text[page]))
        for option in sorted(ctl - told):
            self.problems.append(f"{page}: {option} is not told")
        for option in re.findall(r"\[(-\w)\b", self.program("moecommctl", "help")):
            self.want(re.search(rf"(?<![\w-]){option}\b", self.text[page]),
                      f"{page}: {option} is not told")
        for option in sorted(told - ctl):
            self.want(self.ctl_takes(option), f"{page}: {option} is told, but is gone")
        all_options = set().union(ctl, told, *known.values())
        for page, text in self.text.items():
            for line in text.splitlines():
                for option in OPTION.findall(line) if not FOREIGN.search(line) else []:
                    self.want(option in all_options, f"{page}: nobody has {option}: {line}")
        self.check_bench_commands(commands)

    def check_bench_commands(self, commands):
        page = "moecomm-bench.1"
        source = set(re.findall(r'^\t\{"([a-z]+)"', read(self.source, "bench", "main.c"), re.M))
        self.want(commands <= source, "bench/main.c is not read rightly by this test")
        told = set(re.findall(r"^\\fB([a-z]+)\\fR$", self.section(page, "COMMANDS"), re.M))
        self.same(page, told, source)

    def ctl_commands(self):
        return set(re.findall(r"^  ([a-z]+) ", self.program("moecommctl", "help"), re.M))

    def ctl_takes(self, option):
        for command in self.ctl_commands():
            answer = self.program("moecommctl", "--socket", "/nonexistent/moecommd.sock", command,
                                  option, "1", status=None)
            refusals = rf"unrecognized option '{option}'|takes no '{option}'|(explain|release) needs one"
            if not re.search(refusals, answer):
                return True
        return False

    def check_commands(self):
        commands = self.ctl_commands()
        self.want(len(commands) > 5, "moecommctl help lists no commands")
        told = set(re.findall(r"^\\fB([a-z]+)\\fR", self.section("moecommctl.1", "COMMANDS"), re.M))
        self.same("moecommctl(1)", told, commands)
        for page, roff in self.roff.items():
            for command in re.findall(r"moecommctl ([a-z]+)", roff):
                self.want(command in commands, f"{page}: moecommctl has no command {command}")

    # ---- library ----

    def check_functions(self):
        page = "moecomm.3"
        if not shutil.which("nm"):
            print("not checked: functions, since nm is missing (apt-get install binutils)")
            return
        lines = run(["nm", "-D", "--defined-only", self.library]).splitlines()
        functions = {line.split()[2].split("@")[0] for line in lines
                     if " T " in line and "moecomm_" in line}
        self.want(len(functions) > 10, f"{self.library} exports too little")
        declared = re.findall(r"\\fB(moecomm_[a-z_]+)\\fR\(.*\);$", self.roff[page], re.M)
        self.same(page, set(declared), functions)
        aliases = {name.removesuffix(".3") for name in os.listdir(self.folder)
                   if name.startswith("moecomm_") and name.endswith(".3")}
        self.same("pages of functions", aliases, functions)
        for alias in aliases:
            self.want(read(self.folder, alias + ".3") == ".so man3/moecomm.3\n",
                      f"{alias}.3 leads elsewhere")

    def check_statuses(self):
        table = read(self.source, "proto", "status.h")
        sentences = dict(re.findall(r'X\(\d+, (\w+), "(.*?)"\)', table))
        text = " ".join(self.text["moecomm.3"].replace("T{", " ").replace("T}", " ").split())
        numbers = re.findall(r"^\tMOECOMM_(\w+) = (\d+), +/\*", self.header, re.M)
        numbers = [n for n in numbers if n[0] in sentences]
        self.want(len(numbers) == len(sentences) > 20, "the statuses are not read rightly")
        for name, number in numbers:
            self.want(f" {number} {name} {sentences[name]} " in text,
                      f"moecomm.3: status {number}, {name}: missing, or other words")

    def check_names(self, settings):
        """Names with underscores, in either case, are all somebody's."""
        identifiers = set(re.findall(r"\w+", self.header))
        getenv = set()
        for room in "client", "daemon", "ctl", "bench":
            for folder, _, files in os.walk(os.path.join(self.source, room)):
                for file in files:
                    if file.endswith(".c"):
                        getenv |= set(re.findall(r'getenv\("(\w+)"\)', read(folder, file)))
        getenv |= {"WATCHDOG_USEC", "LISTEN_FDS"}  # read by libsystemd
        commands_and_ops = {"combine_rmsnorm"}
        for page, text in self.text.items():
            known = settings | getenv | commands_and_ops
            if page == "moecomm.3":
                known |= identifiers | set(re.findall(r"\w+", read(self.source, "man", "example.c")))
                known |= set(re.findall(r"MOECOMM_(\w+)", self.header))
            for word in set(re.findall(r"\b[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+\b", text)):
                self.want(word in known, f"{page}: {word} is nobody's name")
        for page in PAGES:
            # what a page says of the environment is what the sources read
            if page != "moecommd.conf.5":
                for name in re.findall(r"^\\fB([A-Z_]+)\\fR", self.section(page, "ENVIRONMENT"),
                                       re.M):
                    self.want(name in getenv, f"{page}: nobody reads {name}")

    # ---- examples ----

    def check_examples(self):
        with tempfile.TemporaryDirectory(prefix="moecomm-man.") as folder:
            block = plain(self.section("moecommd.conf.5", "EXAMPLE"))
            config = os.path.join(folder, "moecommd.conf")
            with open(config, "w", encoding="utf-8") as file:
                file.write(block.strip("\n") + "\n")
            self.want("log_level = " in block, "moecommd.conf.5: its example is lost")
            self.program("moecommd", "--config", config, "--check-config")

            socket = os.path.join(folder, "run", "s.sock")
            daemon = subprocess.Popen(
                [os.path.join(self.bin, "moecommd"), "--config", config, "--backend", "host",
                 "--socket", socket], stderr=subprocess.DEVNULL)
            try:
                self.check_example_program(socket)
            finally:
                daemon.send_signal(signal.SIGTERM)
                self.want(daemon.wait(timeout=30) == 0, "moecommd did not stop in order")

    def check_example_program(self, socket):
        environment = dict(os.environ, MOECOMM_SOCKET=socket)
        for _ in range(200):
            if os.path.exists(socket):
                break
            time.sleep(0.05)
        ranks = [subprocess.Popen([os.path.join(self.folder, "man-example"), str(rank)],
                                  env=environment, stdout=subprocess.PIPE, text=True)
                 for rank in range(2)]
        for rank, process in enumerate(ranks):
            out, _ = process.communicate(timeout=60)
            self.want(process.returncode == 0 and out == f"rank {rank}: ok\n",
                      f"the example of moecomm(3), rank {rank}: {process.returncode}, {out!r}")


def main():
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    if not os.path.exists(os.path.join(sys.argv[1], "moecommd.8")):
        print("skipped: no manual pages were built: apt-get install scdoc, configure, build the target man")
        return 77
    pages = Pages(*sys.argv[1:])
    pages.check_form()
    pages.check_references()
    settings = pages.check_settings()
    pages.check_options()
    pages.check_commands()
    pages.check_functions()
    pages.check_statuses()
    pages.check_names(settings)
    pages.check_examples()
    for problem in pages.problems:
        print(problem)
    print(f"{len(PAGES)} pages, {len(pages.problems)} problems")
    return 1 if pages.problems else 0


if __name__ == "__main__":
    sys.exit(main())
