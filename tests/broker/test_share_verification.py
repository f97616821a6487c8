"""Share partitions that are doubted are asked about some at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from minikafka.broker.share.leader import VERIFIED_AT_ONCE, ShareLeader
from minikafka.wire.errors import ErrorCode


class Key(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int


async def test_very_many_partitions_are_verified_in_several_requests() -> None:
    asked: list[int] = []
    woken: list[int] = []

    async def ask_all(kind: Any, group_id: str, topics: dict[bytes, list[Any]]) -> dict[Any, Any]:
        asked.append(sum(map(len, topics.values())))
        state = SimpleNamespace(error_code=ErrorCode.NONE, state_epoch=3)
        return {(topic_id, data.partition): state for topic_id, rows in topics.items() for data in rows}

    host: Any = object.__new__(ShareLeader)
    host._persister = SimpleNamespace(ask_all=ask_all)
    host._wake = lambda held: woken.append(held.key.partition)
    count = 2 * VERIFIED_AT_ONCE + 1
    doubted: list[Any] = [
        SimpleNamespace(key=Key("g", bytes(16), number), leader_epoch=0, core=SimpleNamespace(state_epoch=3)) for number in range(count)
    ]
    session: Any = SimpleNamespace(group_id="g", unverified={held.key[1:]: held for held in doubted})
    await host._verify(session, doubted)
    assert asked == [VERIFIED_AT_ONCE, VERIFIED_AT_ONCE, 1] and woken == list(range(count)) and not session.unverified
