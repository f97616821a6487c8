"""The history of runs: one line per run in the report directory's `runs.jsonl`, for the page, `audit trend` and a broker's metrics."""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import Any

from minikafka.counted import counted

RUNS = "runs.jsonl"
RUNS_KEPT_MAX = 1000
RUNS_DRAWN_MAX = 90
_COLOURS = {"PASS": "#2e9e6b", "FAIL": "#d8412f", "INCOMPLETE": "#c99a2e"}
_COUNTS = ("partitions", "replicas", "batches_compared", "records_compared", "bytes_compared", "errors", "warnings")


def run_of(report: dict[str, Any]) -> dict[str, Any]:
    """The stored facts of a run: outcome, counts, verdicts and checks that are not 0; times in ISO 8601 and seconds."""
    summary, run = report["summary"], report["run"]
    usual = {*_COUNTS, "bytes_scanned", "skipped_directories", "notes"}
    return {
        "started": run["started"], "seconds": run["seconds"], "outcome": report["outcome"], "exit_code": report["exit_code"],
        "cluster": report["cluster"]["id"], "level": run["level"], **{name: summary[name] for name in _COUNTS},
        "verdicts": {name.upper(): count for name, count in summary.items() if name not in usual and count},
        "checks": {row["check"]: row["count"] for row in report["finding_counts"] if row["level"] != "note"},
    }  # fmt: skip


def append(directory: str, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Add a run, and drop the oldest ones beyond RUNS_KEPT_MAX. Returns all runs, oldest first. Raises OSError."""
    runs = [*_read(Path(directory) / RUNS), run][-RUNS_KEPT_MAX:]
    temporary = os.path.join(directory, RUNS + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in runs)
    os.replace(temporary, os.path.join(directory, RUNS))
    return runs


def read(directory: str) -> list[dict[str, Any]]:
    """The runs whose reports were written to a directory or directly below it (such as one directory a day), oldest first."""
    root = Path(directory)
    found = [run for path in (root / RUNS, *root.glob(f"*/{RUNS}")) for run in _read(path)]
    return sorted(found, key=lambda run: str(run["started"]))


def _read(path: Path) -> list[dict[str, Any]]:
    """The readable lines of a file. A line that a full disk truncated is left out."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            run = json.loads(line)
        except ValueError:
            continue
        if isinstance(run, dict) and {"started", "outcome", *_COUNTS} <= run.keys():
            found.append(run)
    return found


def rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs with `changes`: checks that have new findings (+), or no more findings (-), compared with the previous run."""
    result = []
    before: set[str] = set()
    for run in runs:
        checks = set(run.get("checks", {}))
        said = [*(f"+{check}" for check in sorted(checks - before)), *(f"-{check}" for check in sorted(before - checks))]
        result.append({**run, "changes": " ".join(said)})
        before = checks
    return result


def html(runs: list[dict[str, Any]]) -> str:
    """A bar for each run: the amount compared, in the colour of its outcome. Empty for a first run."""
    if len(runs) < 2:
        return ""
    drawn = runs[-RUNS_DRAWN_MAX:]
    most = max(1, *(run["bytes_compared"] for run in drawn))
    bars = []
    for column, run in enumerate(drawn):
        height = 6 + 54 * run["bytes_compared"] / most
        checks = ", ".join(run.get("checks", {}))
        compared = f"{counted(run['batches_compared'], 'batch', 'batches')}, {counted(run['bytes_compared'], 'byte')} compared"
        tip = f"{run['started']} {run['outcome']}: {compared}"
        tip += f"; {checks}" if checks else ""
        bars.append(f"<rect x='{column * 11}' y='{60 - height:.1f}' width='9' height='{height:.1f}' rx='2' "
                    f"fill='{_COLOURS.get(run['outcome'], '#8a93a1')}'><title>{escape(tip)}</title></rect>")  # fmt: skip
    passed = sum(run["outcome"] == "PASS" for run in runs)
    said = f"{passed:,} of {counted(len(runs), 'run')} passed since {escape(runs[0]['started'][:10])}; each bar shows the amount compared."
    width = 11 * len(drawn)
    return (
        f"<section><h2>Runs</h2><p class='dim'>{said}</p><div class='wide'><svg width='{width}' height='60' viewBox='0 0 {width} 60'>"
        f"{''.join(bars)}</svg></div></section>"
    )
