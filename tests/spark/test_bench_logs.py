"""The logs that the benchmarks of the audit write are those of brokers that stopped in order: the audit has to accept them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
SEGMENT_BYTES = 1 << 16


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The module as its command line sees it, which finds what lies beside it."""
    monkeypatch.syspath_prepend(str(BENCH))
    return runpy.run_path(str(BENCH / "audit_speed.py"))


def test_ratios_growth_and_estates_are_measured(speed: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    speed["audit_ratios"](2 * SEGMENT_BYTES / (1 << 30), 1, False, SEGMENT_BYTES)
    speed["growth"]([1, 2], 1, SEGMENT_BYTES)
    speed["estate"](3)
    printed = capsys.readouterr().out
    assert "every check, replicas compared" in printed and printed.count("s a GB") == 2 and "3 partitions, 30 segments planned" in printed
