"""Acknowledgements of a share partition whose leadership ends."""

from __future__ import annotations

import pytest

from minikafka.core.share.acknowledgements import ACCEPT, Acknowledgement
from minikafka.core.share.partition import BATCH_OPTIMIZED, Fetched, SharePartition, ShareRules
from minikafka.core.share.state import ShareState
from minikafka.wire.errors import ErrorCode

LOST = ErrorCode.NOT_LEADER_OR_FOLLOWER


def acknowledge(partition: SharePartition, first: int, last: int) -> list[ErrorCode]:
    codes: list[ErrorCode] = []
    partition.acknowledge("m", [Acknowledgement(first, last, (ACCEPT,))], lambda code, message: codes.append(code), 0)
    return codes


def acquired() -> SharePartition:
    """A partition of which a member has ten records."""
    partition = SharePartition(ShareState(0, 1, 0, -1, -1), 0, ShareRules)
    partition.acquire("m", BATCH_OPTIMIZED, 500, 500, Fetched(0, [(0, 9)]), 0)
    return partition


@pytest.mark.parametrize("code", [ErrorCode.NONE, LOST])
def test_those_whose_write_is_under_way_get_its_result(code: ErrorCode) -> None:
    """Their members were told that they had failed, and yet they were stored, and nobody got those records again."""
    partition = acquired()
    sent = acknowledge(partition, 0, 4)
    write = partition.take_write()
    later = acknowledge(partition, 5, 9)
    partition.fence(LOST)
    assert write is not None and (sent, later) == ([], [LOST])
    if code is ErrorCode.NONE:
        partition.written(write.ticket)
    else:
        partition.failed(write.ticket, code, None, 0)
    assert sent == [code]
    partition.abandon(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert sent == [code]


def test_nobody_waits_for_a_write_of_which_nobody_will_tell() -> None:
    partition = acquired()
    sent = acknowledge(partition, 0, 4)
    assert partition.take_write() is not None
    partition.fence(LOST)
    partition.abandon(LOST)
    assert sent == [LOST]
