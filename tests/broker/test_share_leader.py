"""A write of a share partition whose leadership ends meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.share.leader import BATCHES_AT_ONCE, HeldSharePartition, ShareLeader
from minikafka.broker.share.persister import Failure, SharePersister
from minikafka.core.share.partition import Write
from minikafka.core.share.state import SharePartitionKey, StateBatch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest

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
        self.told.append(code)


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
        # The first part is stored, so it must not say that the records will be delivered again.
        (BATCHES_AT_ONCE + 1, ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),
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
    assert core.told == ["fenced", ErrorCode.UNKNOWN_SERVER_ERROR], "what was being stored may be stored"


@pytest.mark.parametrize("is_repeated", [False, True])
async def test_a_refusal_of_a_repeated_write_does_not_say_that_nothing_is_stored(is_repeated: bool) -> None:
    """The first request was carried out and its answer lost; the coordinator has met the next leader since."""

    async def ask(*args: Any, **fields: Any) -> Any:
        return Failure(ErrorCode.FENCED_LEADER_EPOCH, may_be_done=is_repeated)

    held = HeldSharePartition(KEY, Led())  # type: ignore[arg-type]
    core: Any = Core()
    held.core = core
    host = leader(held, ask)
    await host._write(held, core, Write(1, 0, 0, [StateBatch(0, 0, 2, 1)]))
    assert core.told == [ErrorCode.UNKNOWN_SERVER_ERROR if is_repeated else ErrorCode.NOT_LEADER_OR_FOLLOWER, "fenced"]
    assert not host._held


@pytest.mark.parametrize(
    ("answers", "is_uncertain"),
    [
        ([ErrorCode.NONE], False),
        ([ErrorCode.FENCED_LEADER_EPOCH], False),
        ([ErrorCode.NETWORK_EXCEPTION, ErrorCode.NONE], False),
        ([ErrorCode.NETWORK_EXCEPTION, ErrorCode.FENCED_LEADER_EPOCH], True),
        ([ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_STATE_EPOCH], True),
    ],
)
async def test_the_failure_of_a_repeated_request_is_uncertain(answers: list[ErrorCode], is_uncertain: bool) -> None:
    persister: Any = object.__new__(SharePersister)

    async def ensure_topic() -> None:
        pass

    left = list(answers)
    persister._environment = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0))
    persister._host = SimpleNamespace(ensure_topic=ensure_topic)

    def send_all(kind: Any, group_id: str, pending: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result({KEY[1:]: SimpleNamespace(error_code=left.pop(0), error_message=None)})
        return [answer]

    persister._send_all = send_all
    result = await persister.ask(WriteShareGroupStateRequest, KEY)
    assert result.error_code == answers[-1] and not left
    assert getattr(result, "may_be_done", False) == is_uncertain
