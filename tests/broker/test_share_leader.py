"""A write of a share partition whose leadership ends meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.share.leader import BATCHES_AT_ONCE, HeldSharePartition, ShareLeader
from minikafka.core.share.partition import Write
from minikafka.core.share.state import SharePartitionKey, StateBatch
from minikafka.wire.errors import ErrorCode

KEY = SharePartitionKey("g", bytes(16), 0)


class Led:
    """A partition that this broker leads."""

    leader_epoch = 3


class Core:
    """Records what it is told."""

    state_epoch, is_quiet = 1, True

    def __init__(self) -> None:
        self.told: list[Any] = []

    def written(self, ticket: int) -> None:
        self.told.append(ErrorCode.NONE)

    def failed(self, ticket: int, code: ErrorCode, message: str | None, now_ms: int) -> None:
        self.told.append(code)

    def fence(self, code: ErrorCode) -> None:
        self.told.append("fenced")

    def abandon(self, code: ErrorCode) -> None:
        self.told.append("abandoned")


def leader(held: HeldSharePartition, ask: Any) -> Any:
    host: Any = object.__new__(ShareLeader)
    host._held, host._by_partition = {KEY: held}, {held.partition: {KEY: held}}
    host._persister, host._clock = SimpleNamespace(ask=ask), SimpleNamespace(now_ms=lambda: 0)
    host._wake = lambda held: None
    host.sessions = SimpleNamespace(is_used=lambda group_id: False)
    return host


@pytest.mark.parametrize(
    ("batches", "code", "told"),
    [
        (1, ErrorCode.NONE, ErrorCode.NONE),
        (1, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (BATCHES_AT_ONCE + 1, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["stored", "fenced", "between-two-parts"],
)
async def test_its_members_are_told_the_result(batches: int, code: ErrorCode, told: ErrorCode) -> None:
    """An acknowledgement was refused, and yet stored, if the leadership ended between the two."""
    asked, answered = asyncio.Event(), asyncio.Event()

    async def ask(*args: Any, **fields: Any) -> Any:
        asked.set()
        await answered.wait()
        return SimpleNamespace(error_code=code, error_message=None)

    held = HeldSharePartition(KEY, Led())  # type: ignore[arg-type]
    core: Any = Core()
    held.core = core
    host = leader(held, ask)
    writing = asyncio.create_task(host._write(held, core, Write(1, 0, 0, [StateBatch(n, n, 2, 1) for n in range(batches)])))
    await asyncio.wait({writing, asyncio.create_task(asked.wait())}, return_when=asyncio.FIRST_COMPLETED)
    host._lost(held.partition)
    assert core.told == ["fenced"] and not host._held
    answered.set()
    await writing
    assert core.told == ["fenced", told]


def test_a_broker_that_stops_leaves_nobody_waiting() -> None:
    held = HeldSharePartition(KEY, Led())  # type: ignore[arg-type]
    core: Any = Core()
    held.core = core
    leader(held, None).stop()
    assert core.told == ["fenced", "abandoned"]
