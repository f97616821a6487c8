"""Writes the generated tables of RESULTS.md: `python -m minikafka.sim.report [totals.json] [--found] [--mutants | --new-mutants]`.

The totals come from `minikafka sim ... --save totals.json`, the findings from `found.json`. `--mutants` hunts all mutants again, which
takes an hour; `--new-mutants` hunts those without a row.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "RESULTS.md"
FOUND = Path(__file__).parent / "found.json"


def replace(text: str, name: str, lines: list[str]) -> str:
    """`text` with its part between `<!-- name -->` and `<!-- end name -->` replaced by `lines`. Raises ValueError if either is missing."""
    first, last = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    start, end = text.index(first) + len(first), text.index(last)
    return text[:start] + "\n".join(lines) + "\n" + text[end:]


def totals_table(totals: dict[str, Any]) -> list[str]:
    """The table of the totals of many seeds."""
    faults, transactions = totals["faults"], totals.get("transactions", {})
    lines = ["| | |", "|---|---|"]
    lines += [
        f"| seeds | {totals['seeds']:,} |",
        f"| simulated hours | {totals['simulated_hours']:,.1f} |",
        f"| speed, simulated seconds in a second of one core | {totals['simulated_hours'] * 3600 / max(totals['real_s'], 0.001):.0f} |",
        f"| events; frames delivered | {totals['events']:,}; {totals['frames']:,} |",
        f"| records acknowledged; read by consumers | {totals['acknowledged_records']:,}; {totals['consumed_records']:,} |",
        f"| transactions, in {transactions.get('seeds', 0):,} of the seeds | "
        + ("; ".join(f"{count:,} {name}" for name, count in transactions.items() if name != "seeds") or "none")
        + " |",
        f"| faults injected | {sum(faults.values()):,} |",
        f"| violations | {len(totals['failed_seeds'])}"
        + (f" (seeds {', '.join(map(str, totals['failed_seeds']))})" if totals["failed_seeds"] else "")
        + " |",
    ]
    return lines


def found_table(entries: list[dict[str, Any]]) -> list[str]:
    """The table of findings: the seeds, and what was wrong."""
    lines = ["| seed | what was wrong |", "|---|---|"]
    return lines + [f"| {', '.join(map(str, entry['seeds'])) or '-'} | {entry['wrong']} |" for entry in entries]


def rows_of(text: str) -> dict[str, str]:
    """The rows of the table of mutants, by the mutant's name."""
    part = text[text.index("<!-- mutants -->") : text.index("<!-- end mutants -->")]
    rows = [line for line in part.splitlines() if line.startswith("| ") and "**" not in line]
    return {line.split(" | ")[0].removeprefix("| "): line for line in rows}


def main(arguments: list[str]) -> None:
    """Replace the tables that the arguments name."""
    text = RESULTS.read_text()
    for name in arguments:
        if name in ("--mutants", "--new-mutants"):
            from minikafka.sim.mutants import table

            rows = rows_of(text) if name == "--new-mutants" else None
            text = replace(text, "mutants", table(Path.cwd(), rows=rows, on_caught=lambda mutant, caught: print(mutant.name, caught)))
        elif name == "--found":
            text = replace(text, "found", found_table(json.loads(FOUND.read_text())))
        else:
            text = replace(text, "totals", totals_table(json.loads(Path(name).read_text())))
    RESULTS.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
