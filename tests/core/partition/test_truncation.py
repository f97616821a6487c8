"""Where a follower cuts its log (KIP-101, KIP-279): every branch of AbstractFetcherThread.getOffsetTruncationState."""

from __future__ import annotations

import pytest

from minikafka.core.partition.truncation import Truncation, truncation_for

#: The follower's epochs: 1 ends at 10, 3 at 20, 5 at 30, which is its log end.
ENDS = {0: (-1, -1), 1: (1, 10), 2: (1, 10), 3: (3, 20), 4: (3, 20), 5: (5, 30), 6: (5, 30)}


def cut(leader_epoch: int, leader_end_offset: int) -> Truncation:
    return truncation_for(leader_epoch, leader_end_offset, log_end_offset=30, high_watermark=12, end_offset_for=lambda epoch: ENDS[epoch])


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "expected", "why"),
    [
        (5, -1, Truncation(12, True), "the leader does not know: back to what was committed"),
        (-1, 25, Truncation(25, True), "a leader without epochs: its end"),
        (-1, 99, Truncation(30, True), "never beyond the own end"),
        (0, 7, Truncation(7, True), "an epoch before all of ours: the leader's end of it"),
        (5, 25, Truncation(25, True), "the same epoch ended earlier there"),
        (5, 99, Truncation(30, True), "the same epoch goes on there"),
        (3, 15, Truncation(15, True), "our last common epoch is 3, and ended earlier there"),
        (4, 22, Truncation(20, False), "KIP-279: epoch 4 is unknown here; cut to the end of 3 and ask again"),
        (2, 8, Truncation(10, False), "KIP-279: fast leader changes leave several diverging epochs"),
    ],
)
def test_truncation(leader_epoch: int, leader_end: int, expected: Truncation, why: str) -> None:
    assert cut(leader_epoch, leader_end) == expected, why
