"""What was sent behind a refused batch."""

from __future__ import annotations

from minikafka.core.partition.refusals import REFUSALS_MAX, REMEMBERED_MS, Refusals
from minikafka.wire.errors import ErrorCode

KEY = ("t", 0, 7)
REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS


def noted(sequence: int, epoch: int = 3) -> Refusals:
    refusals = Refusals()
    refusals.note(KEY, epoch, sequence, REFUSED, 1000)
    return refusals


def test_nothing_is_refused_of_which_nothing_is_known() -> None:
    assert not Refusals()
    assert noted(5).code_for(("t", 1, 7), 3, 6, 5, 1000) is None
    assert noted(5).code_for(("t", 0, 8), 3, 6, 5, 1000) is None


def test_later_batches_share_the_refusal_until_the_first_is_repeated() -> None:
    refusals = noted(5)
    assert refusals.code_for(KEY, 3, 6, 5, 1001) is REFUSED
    assert refusals.code_for(KEY, 3, 7, 5, 1001) is REFUSED
    assert refusals.code_for(KEY, 3, 5, 5, 1001) is None and not refusals
    assert refusals.code_for(KEY, 3, 6, 6, 1001) is None


def test_the_earliest_counts() -> None:
    refusals = noted(5)
    refusals.note(KEY, 3, 6, REFUSED, 1000)
    assert refusals.code_for(KEY, 3, 6, 5, 1001) is REFUSED
    refusals.note(KEY, 3, 4, REFUSED, 1001)
    assert refusals.code_for(KEY, 3, 5, 4, 1001) is REFUSED


def test_a_producer_that_the_log_does_not_know_keeps_its_order_too() -> None:
    """Otherwise the second batch would be taken for its first."""
    assert noted(0).code_for(KEY, 3, 1, None, 1001) is REFUSED


def test_a_gap_of_another_cause_is_not_covered_up() -> None:
    assert noted(5).code_for(KEY, 3, 9, 8, 1001) is None, "5 was written since, elsewhere"
    assert noted(5).code_for(KEY, 4, 6, 5, 1001) is None, "another epoch"
    assert noted(5).code_for(KEY, 3, 6, 5, 1000 + REMEMBERED_MS) is None, "too long ago to have been under way together"


def test_a_batch_written_and_then_refused_holds_back_the_later_ones() -> None:
    refusals = Refusals()
    refusals.note(KEY, 3, 5, REFUSED, 1000, is_lost=True)
    refusals.note(KEY, 3, 7, REFUSED, 1000)
    assert [refusals.is_behind_lost(KEY, 3, sequence, 1001) for sequence in (4, 5, 6, 7)] == [False, True, True, True]
    assert not refusals.is_behind_lost(KEY, 4, 6, 1001), "another epoch"
    assert not refusals.is_behind_lost(KEY, 3, 6, 1000 + REMEMBERED_MS)
    assert not refusals.is_behind_lost(("t", 0, 8), 3, 6, 1001)
    assert not noted(5).is_behind_lost(KEY, 3, 6, 1001), "refused before it was written: it may wait for the next leader, in order"


def test_sequences_begin_anew() -> None:
    assert noted(2**31 - 1).code_for(KEY, 3, 0, 2**31 - 1, 1001) is REFUSED
    assert noted(0).code_for(KEY, 3, 2**31 - 1, 0, 1001) is None


def test_memory_is_bounded() -> None:
    refusals = Refusals()
    for number in range(REFUSALS_MAX + 10):
        refusals.note(("t", 0, number), 0, 0, REFUSED, 1000)
    assert len(refusals) == REFUSALS_MAX
    refusals.sweep(1000 + REMEMBERED_MS - 1)
    assert len(refusals) == REFUSALS_MAX
    refusals.sweep(1000 + 2 * REMEMBERED_MS)
    assert not refusals
