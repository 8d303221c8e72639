#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the results of one or several moecomm-bench runs: latency over size, all contenders and the
floor in one picture.

    plot.py RESULTS.json PICTURE.svg        (or .png)

Uses gnuplot where it is installed, else matplotlib. Needs nothing else.
"""

import json
import shutil
import subprocess
import sys

NAMES = {
    "moecomm": "moecomm",
    "separate": "moecomm combine + add + norm",
    "nccl": "NCCL",
    "nccl-window": "NCCL, symmetric windows",
    "nccl-nomix": "NCCL, mixing off",
    "nccl-window-nomix": "NCCL, windows, mixing off",
}
FORMS = {"one": "one-kernel graph", "graph100": "graph of 100"}
COLOURS = {
    "moecomm": "#c0392b",
    "separate": "#e59866",
    "nccl": "#1f618d",
    "nccl-window": "#2e86c1",
    "nccl-nomix": "#117a65",
    "nccl-window-nomix": "#45b39d",
}


def floor_us(data, point, form):
    """What no op of that size can beat: the empty kernel, one way, and the wire's time."""
    floors = data.get("floors", {})
    empty = floors.get("empty_one_us" if form == "one" else "empty_graph100_us")
    if empty is None or "one_way_us" not in floors:
        return None
    us = empty + floors["one_way_us"]
    world = data["world_size"]
    if floors.get("push_gbps"):
        us += point["bytes"] * (world - 1) / world / floors["push_gbps"] / 1e3
    return us


def curves(data):
    """[(title, colour, dashed, [(tokens, us, us_min, us_max)])]"""
    found = {}
    for point in data["points"]:
        for figure in point["figures"]:
            key = (figure["series"], figure["form"])
            found.setdefault(key, []).append(
                (point["tokens"], figure["us"], figure["us_min"], figure["us_max"])
            )
    result = []
    for (series, form), rows in found.items():
        title = f"{NAMES.get(series, series)}, {FORMS.get(form, form)}"
        result.append((title, COLOURS.get(series, "#555555"), form != "one", sorted(rows)))
    for form in FORMS:
        rows = [(p["tokens"], floor_us(data, p, form)) for p in data["points"]]
        rows = [(t, us, us, us) for t, us in rows if us is not None]
        if rows:
            result.append((f"floor, {FORMS[form]}", "#000000", form != "one", sorted(rows)))
    return result


def title_of(data):
    machine = data["machine"]
    shared = ", ranks share GPUs" if machine.get("gpus_shared") else ""
    return (
        f"{data['bench']}: {data['world_size']} ranks, {machine['gpu']}{shared}; "
        f"driver {machine.get('driver') or machine['cuda_driver']}, {data['date'][:10]}"
    )


def with_gnuplot(data, picture):
    terminal = "svg size 960,640 dynamic background 'white' font 'sans,12'"
    if picture.endswith(".png"):
        terminal = "pngcairo size 1440,960 font 'sans,12'"
    blocks, plots = [], []
    for i, (title, colour, dashed, rows) in enumerate(curves(data)):
        body = "\n".join(" ".join(str(v) for v in row) for row in rows)
        blocks.append(f"$curve{i} << EOD\n{body}\nEOD")
        dash = 2 if dashed else 1
        plots.append(
            f"$curve{i} using 1:2:3:4 with yerrorbars notitle lc rgb '{colour}' pt 0 lw 1, "
            f"$curve{i} using 1:2 with linespoints title '{title}' lc rgb '{colour}' "
            f"dt {dash} lw 2 pt 7 ps 0.5"
        )
    quoted = picture.replace("'", "''")
    script = "\n".join(
        [
            f"set terminal {terminal}",
            f"set output '{quoted}'",
            *blocks,
            f"set title '{title_of(data)}' noenhanced",
            "set logscale x 2",
            "set logscale y",
            "set xlabel 'tokens a rank'",
            "set ylabel 'time an op, µs'",
            "set grid",
            "set key left top inside noenhanced font ',9'",
            "plot " + ", ".join(plots),
        ]
    )
    subprocess.run(["gnuplot"], input=script.encode(), check=True)


def with_matplotlib(data, picture):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 7))
    for title, colour, dashed, rows in curves(data):
        tokens = [row[0] for row in rows]
        us = [row[1] for row in rows]
        spread = [[row[1] - row[2] for row in rows], [row[3] - row[1] for row in rows]]
        axes.errorbar(
            tokens,
            us,
            yerr=spread,
            label=title,
            color=colour,
            linestyle="--" if dashed else "-",
            marker="o",
            markersize=3,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens a rank")
    axes.set_ylabel("time an op, µs")
    axes.set_title(title_of(data), fontsize=10)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left")
    figure.savefig(picture, bbox_inches="tight")


def main():
    if len(sys.argv) != 3:
        print("usage: plot.py RESULTS.json PICTURE.svg|png", file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    if data.get("schema") != 1:
        print(f"plot.py: {sys.argv[1]} has schema {data.get('schema')}, not 1", file=sys.stderr)
        return 1
    if shutil.which("gnuplot"):
        with_gnuplot(data, sys.argv[2])
        return 0
    try:
        with_matplotlib(data, sys.argv[2])
    except ImportError:
        print("plot.py: neither gnuplot nor matplotlib is installed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
