"""Rounds of the fuzzer (fuzz.py), each with a seed and a cluster of its own, with totals in a file: it can end and go on at any time.

`PYTHONPATH=.:tests python -m bench.fuzz_campaign --totals FILE [--frames N] [--rounds N]`; what has been thrown stands in the file by
commit and seed, and the next round takes the next seed. `--show` prints the sums.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.fuzz import Report, run

HERE = Path(__file__).parent


def commit() -> str:
    """The commit of this checkout, marked when files differ from it."""
    return subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--dirty"], cwd=HERE, capture_output=True, text=True, check=True
    ).stdout.strip()


def read(totals: Path) -> list[dict[str, Any]]:
    """The rounds so far."""
    return json.loads(totals.read_text()) if totals.exists() else []


def add(totals: Path, seed: int, at: str, report: Report) -> None:
    """Append a round."""
    worst = {name: round(value, 4) for name, value in report.longest_turns.items() if "cpu_seconds" in name}
    rounds = [
        *read(totals),
        {
            "commit": at, "seed": seed, "frames": report.frames, "answers": report.answers, "closed": report.closed,
            "cpu_s": round(report.cpu_s, 1), "thrower_cpu_s": round(report.thrower_cpu_s, 1), "load": os.getloadavg()[0],
            "slowest_ms": round(report.slowest_ms), "longest_turns_cpu_s": worst,
            "memory_mib": {node: [round(value) for value in pair] for node, pair in report.memory_mib.items()},
            "findings": report.problems,
        },
    ]  # fmt: skip
    beside = totals.with_suffix(".new")
    beside.write_text(json.dumps(rounds, indent=1))
    beside.replace(totals)


def show(totals: Path) -> str:
    """Frames, rounds and findings by commit."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
    for one in read(totals):
        for at in (one["commit"], "all"):
            for number, value in enumerate((one["frames"], 1, len(one["findings"]), one["cpu_s"])):
                sums[at][number] += value
    return "\n".join(f"{at}: {n:.0f} frames, {r:.0f} rounds, {f:.0f} findings, {s:.0f} CPU s" for at, (n, r, f, s) in sums.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--totals", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=20_000, help="for each listener of three brokers, a round")
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--first-seed", type=int, default=1, help="of a new file, so that a campaign elsewhere does not throw the same")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    for _ in range(0 if options.show else options.rounds):
        next_seed = max((one["seed"] for one in read(options.totals)), default=options.first_seed - 1) + 1
        at_commit = commit()
        add(options.totals, next_seed, at_commit, run(options.frames, next_seed))
    print(show(options.totals))
