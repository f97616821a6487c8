"""Decoders of what peers send and files hold, with bytes drawn by chance: they refuse in their own way or give something that holds. Guided
by coverage and for longer: tests/bench/fuzz_decoders.py."""

from __future__ import annotations

import random

import pytest
from helpers import decoders
from helpers.coverage_pause import without_coverage

INPUTS = 120


@pytest.mark.parametrize("name", decoders.TARGETS)
def test_any_bytes_are_refused_or_hold(name: str) -> None:
    draw = random.Random(name)
    with without_coverage():
        for data in (*decoders.SEEDS[name], *(decoders.drawn(name, draw) for _ in range(INPUTS))):
            try:
                decoders.run(name, data)
            except Exception as error:
                raise AssertionError(f"{name}: {data.hex()}") from error


def test_most_targets_get_past_their_first_checks() -> None:
    """At least one seed of each target is read to its end: else only refusals would be tested."""
    assert len(decoders.TARGETS) >= 19
    assert list(decoders.iterate_batches(decoders.SEEDS["batches"][0]))
    assert decoders.producer_snapshot.decode_snapshot(decoders.SEEDS["producer_snapshots"][0])
    assert decoders.parse_subscription(decoders.SEEDS["subscriptions"][0]) == ["t"]
    assert decoders.decode_quorum_state(decoders._QUORUM_STATE).epoch == 1
