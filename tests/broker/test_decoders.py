"""Decoders of what peers send and files hold, with bytes drawn by chance: they refuse in their own way or give something that holds. Guided
by coverage and for longer: tests/bench/fuzz_decoders.py."""

from __future__ import annotations

import random

import pytest
from helpers import decoders
from helpers.coverage_pause import without_coverage

from minikafka.storage.checkpoint import _DIGITS_MAX, INT32_MAX, INT64_MAX, number_of
from minikafka.storage.errors import CorruptFile

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


def test_numbers_in_files_have_bounds() -> None:
    for text, most in (("0", INT32_MAX), (str(INT32_MAX), INT32_MAX), (str(-INT64_MAX), INT64_MAX), ("0" * _DIGITS_MAX, INT32_MAX)):
        assert number_of(text, most) == int(text)
    for text in (str(INT32_MAX + 1), "", "-", "1_0", " 1", "\u00b2", "0" * (_DIGITS_MAX + 1), "1" * 5_000):
        with pytest.raises(CorruptFile):
            number_of(text, INT32_MAX)


def test_most_targets_get_past_their_first_checks() -> None:
    """At least one seed of each target is read to its end: else only refusals would be tested."""
    assert len(decoders.TARGETS) >= 19
    assert list(decoders.iterate_batches(decoders.SEEDS["batches"][0]))
    assert decoders.producer_snapshot.decode_snapshot(decoders.SEEDS["producer_snapshots"][0])
    assert decoders.parse_subscription(decoders.SEEDS["subscriptions"][0]) == ["t"]
    assert decoders.decode_quorum_state(decoders._QUORUM_STATE).epoch == 1
