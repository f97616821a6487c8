"""Share sessions: what they remember has an end, of one member and of all."""

from __future__ import annotations

import pytest

from minikafka.core.share.sessions import FINAL_EPOCH, PARTITIONS_MAX, Partition, ShareSession, ShareSessions
from minikafka.wire.errors import ApiError, ErrorCode


def names(first: int, count: int) -> list[Partition]:
    return [(b"t" * 16, index) for index in range(first, first + count)]


def fetch(sessions: ShareSessions, member: str, epoch: int, wanted: list[Partition], forgotten: list[Partition] = []) -> ShareSession:  # noqa: B006
    return sessions.fetch("g", member, epoch, wanted, forgotten, "c", has_acknowledgements=False)


def test_a_session_has_room_for_so_many_partitions_and_no_more() -> None:
    sessions = ShareSessions(2)
    session = fetch(sessions, "a", 0, names(0, PARTITIONS_MAX - 1))
    assert fetch(sessions, "a", 1, names(PARTITIONS_MAX - 2, 2)) is session
    with pytest.raises(ApiError) as raised:
        fetch(sessions, "a", 2, names(PARTITIONS_MAX, 1))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert len(fetch(sessions, "a", 2, names(PARTITIONS_MAX, 1), names(0, 1)).partitions) == PARTITIONS_MAX
    with pytest.raises(ApiError):
        fetch(sessions, "b", 0, names(0, PARTITIONS_MAX + 1))


def test_all_sessions_together_have_room_for_so_many_partitions() -> None:
    sessions = ShareSessions(10, partitions_max=10, partitions_of_all_max=15)
    fetch(sessions, "a", 0, names(0, 10))
    with pytest.raises(ApiError) as raised:
        fetch(sessions, "b", 0, names(0, 6))
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    fetch(sessions, "b", 0, names(0, 5))
    fetch(sessions, "a", 1, [], names(0, 3))
    fetch(sessions, "b", 1, names(5, 3))
    assert sessions.partition_count == 15
    fetch(sessions, "a", FINAL_EPOCH, [])
    sessions.remove(("g", "a"))
    assert sessions.partition_count == 8
    sessions.connection_closed("c")
    assert (sessions.partition_count, len(sessions)) == (0, 0)
