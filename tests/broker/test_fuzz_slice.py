"""A bounded slice of the fuzzer over all APIs and versions (tests/bench/fuzz.py): nothing unexpected, nothing lost, nobody stuck."""

from __future__ import annotations

import random

import pytest
from bench.fuzz import corpus, request, run


@pytest.mark.timeout(60)
def test_requests_of_all_kinds_do_no_harm() -> None:
    report = run(40, seed=11, mode="thread")
    assert not report.problems, "\n".join(report.problems)
    assert report.frames == 240 and report.answers > 60 and len(report.by_api) > 40


def test_the_corpus_is_thrown_too() -> None:
    for listener in ("broker", "controller"):
        assert len(corpus(listener)) >= 3
        names = {request(random.Random(seed), ["t"], listener)[0] for seed in range(600)}
        assert {name for name, _ in corpus(listener)} <= names
