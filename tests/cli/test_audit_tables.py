"""The table of `minikafka audit` on terminals of any width."""

from __future__ import annotations

import pytest
from rich.console import Console

from minikafka.cli.audit_reports import show_partitions

ROWS = [("orders", "MATCH", 906), ("a.very.long.name", "DIVERGENT", 12_345_678), ("t", "EMPTY", 0)]
REPORT = {
    "partitions": [
        {"topic": topic, "partition": 0, "verdict": verdict, "brokers": ["1", "2", "3"], "fence_from": 0, "fence_to": records,
         "batches_compared": records // 10, "records_compared": records}
        for topic, verdict, records in ROWS
    ]
}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (100, "brokers fence batches records"),
        (72, "brokers batches records"),
        (45, "brokers"),
        (20, ""),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_but_whole_words(columns: int, shown: str) -> None:
    """At 20 columns each cell was an ellipsis."""
    said, short = printed(REPORT, columns), printed({"partitions": REPORT["partitions"][:1]}, columns)
    assert "…" not in said and "DIVERGENT" in said and all(len(line.rstrip()) <= columns for line in said.splitlines())
    assert "orders-0" in short and "MATCH" in short
    assert all((name in said) == (name in shown) for name in ("brokers", "fence", "batches", "records"))


def printed(report: dict[str, object], columns: int) -> str:
    console = Console(width=columns, color_system=None)
    with console.capture() as captured:
        show_partitions(report, console)
    return captured.get()
