"""A bounded slice of the fuzzer over all APIs and versions (tests/bench/fuzz.py): nothing unexpected, nothing lost, nobody stuck."""

from __future__ import annotations

import pytest
from bench.fuzz import run


@pytest.mark.timeout(60)
def test_requests_of_all_kinds_do_no_harm() -> None:
    report = run(80, seed=11, mode="thread")
    assert not report.problems, "\n".join(report.problems)
    assert report.frames == 240 and report.answers > 60 and len(report.by_api) > 40
