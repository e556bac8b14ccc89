#!/usr/bin/env python3
"""What `--live` costs a run: pairs of the same run without and with it, in turn, while one reader asks for the
news as often as a page would. CPU time (user and system, of dibo alone) is the figure to go by where others use
the machine, too.

    scripts/live-cost.py [--dibo DIBO] [--pairs 8] [--iterations 1000000]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request


def read(address, asked):
    """Asks for news until the report is there, and takes that, as a page does."""
    while True:
        try:
            news = json.load(urllib.request.urlopen(address + "data", timeout=10))
            asked.append(len(json.dumps(news)))
            if news["report"]:
                urllib.request.urlopen(address + "report.html", timeout=10).read()
                return
            time.sleep(news["pause"] / 1000)
        except OSError:
            return


FILE = """
title = "A hundred agents"
seeds = 1
[problem]
kind = "policy-evaluation"
agents = 100
states = 20
features = 5
[graph]
kind = "cycle"
nu = 0.3
[run]
iterations = {iterations}
every = {every}
[[algorithm]]
name = "fab"
penalty_form = "normalised"
lambda = 60
eta_x = 0.1
eta_y = 0.1
"""


def run(dibo, iterations, live):
    """CPU seconds, seconds from start to end, and how often news were asked for."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "n100.toml"), "w") as file:
            file.write(FILE.format(iterations=iterations, every=iterations // 1000))
        command = [dibo, "run", "n100.toml", "--threads", "1", "--quiet", "--out", "out"]
        began, asked = time.monotonic(), []
        child = subprocess.Popen(command + ["--live"] * live, cwd=folder, stdout=subprocess.PIPE, text=True)
        for line in child.stdout:
            found = re.search(r"http://127\.0\.0\.1:\S+", line)
            if found:
                threading.Thread(target=read, args=(found[0], asked), daemon=True).start()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, command
        return used.ru_utime + used.ru_stime, time.monotonic() - began, len(asked)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dibo", default="dibo")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=1_000_000)
    options = parser.parse_args()
    options.dibo = os.path.abspath(options.dibo) if os.sep in options.dibo else options.dibo
    rows = []
    for pair in range(options.pairs):
        # Who goes first changes, so that a machine that slows down favours neither.
        order = [False, True] if pair % 2 == 0 else [True, False]
        pair = {live: run(options.dibo, options.iterations, live) for live in order}
        rows.append(pair)
        print(*(f"{'with' if live else 'without'} {pair[live][0]:.2f} s CPU, {pair[live][1]:.2f} s;"
                for live in (False, True)), f"asked {pair[True][2]} times", flush=True)
    for at, name in enumerate(["CPU", "start to end"]):
        without, live = ([row[way][at] for row in rows] for way in (False, True))
        share = [100 * (b / a - 1) for a, b in zip(without, live)]
        print(f"{name}: median {statistics.median(without):.2f} s without, {statistics.median(live):.2f} s with; "
              f"of the pairs {statistics.median(share):+.2f} % ({min(share):+.2f} to {max(share):+.2f})")


if __name__ == "__main__":
    main()
