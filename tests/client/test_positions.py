"""Where a consumer goes on: what was asked for before the application moved it does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from minikafka.client.cluster import Cluster
from minikafka.client.consumer import Consumer, TopicPartition
from minikafka.client.errors import BrokerError
from minikafka.client.group import GroupMember, GroupMetadata, MemberTimes
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Request
from minikafka.wire.messages.heartbeat import HeartbeatResponse

PARTITION = ("topic", 0)


class SlowCoordinator(Consumer):
    """Hears of committed offsets when `answered` is set."""

    def __init__(self) -> None:
        super().__init__("localhost:1", group_id="group")
        self.asked = asyncio.Event()
        self.answered = asyncio.Event()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        self.asked.set()
        await self.answered.wait()
        return {PARTITION: 3196}


async def test_a_late_answer_about_committed_offsets_does_not_take_a_seek_back() -> None:
    """A rebalance asks for the committed offset while its coordinator is away; the application goes back to it by itself, reads on,
    and commits. The answer of before then must not make it read everything again."""
    consumer = SlowCoordinator()
    assigning = asyncio.ensure_future(consumer.assign([PARTITION]))
    await consumer.asked.wait()
    consumer.seek(PARTITION, 3330)
    consumer.answered.set()
    await assigning
    assert consumer.position(PARTITION) == 3330


async def test_positions_are_those_of_the_last_assignment() -> None:
    consumer = SlowCoordinator()
    assigning = asyncio.ensure_future(consumer.assign([PARTITION]))
    await consumer.asked.wait()
    await consumer.assign([PARTITION], {PARTITION: 4000})
    consumer.answered.set()
    await assigning
    assert consumer.position(PARTITION) == 4000


async def test_without_a_seek_the_group_goes_on_where_it_has_committed() -> None:
    consumer = SlowCoordinator()
    consumer.answered.set()
    await consumer.assign([PARTITION])
    assert consumer.position(PARTITION) == 3196


class JoiningAgain(SlowCoordinator):
    """Its member is told what it is to read; the group has committed nothing of what the application holds."""

    metadata = GroupMetadata("group", 7, "member")

    def __init__(self) -> None:
        super().__init__()
        self.answered.set()

    @property
    def group_metadata(self) -> GroupMetadata:
        return self.metadata


@pytest.mark.parametrize(("generation", "expected"), [(7, 3200), (8, 3196)])
async def test_what_the_application_holds_is_not_read_again_in_the_same_generation(generation: int, expected: int) -> None:
    """A member that has lost its coordinator joins again, and may be in the same generation then: a transaction that was under way is
    still committed with it. In a later one the group refuses that, and what was not committed is read by whoever has the partition."""
    consumer = JoiningAgain()
    await consumer._assigned({"topic": [0]})
    consumer.seek(PARTITION, 3200)
    await consumer._lost()
    await consumer._lost()
    assert consumer.position(PARTITION) is None
    consumer.metadata = GroupMetadata("group", generation, "member")
    await consumer._assigned({"topic": [0]})
    assert consumer.position(PARTITION) == expected


class ScriptedMember(GroupMember):
    """Has joined; its heartbeats are answered as `script` says, with REBALANCE_IN_PROGRESS at the end of it."""

    def __init__(self, script: list[ErrorCode | BaseException]) -> None:
        self.script = script
        self.joins = self.losses = 0
        super().__init__(
            Cluster("localhost:1"), "group", MemberTimes(6000, 6000, 1), group_instance_id=None, assignors=("range",),
            on_assigned=self._note_assigned, on_lost=self._note_lost,
        )  # fmt: skip

    async def _note_assigned(self, _: Any) -> None:
        self.joins += 1

    async def _note_lost(self) -> None:
        self.losses += 1

    async def _join(self) -> Any:
        if self.joins:
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "the end")
        return {}

    async def ask(self, request: Request, timeout_ms: int | None = None) -> Any:
        assert timeout_ms == 6000  # of the session: a silent coordinator is given up before it gives the member up
        answer = self.script.pop(0) if self.script else ErrorCode.REBALANCE_IN_PROGRESS
        if isinstance(answer, BaseException):
            raise answer
        return HeartbeatResponse(error_code=answer)


async def test_a_member_whose_coordinator_is_away_keeps_its_partitions() -> None:
    away = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    member = ScriptedMember([ConnectionResetError(), TimeoutError(), *away, ErrorCode.NONE])
    await member._run()
    assert (member.script, member.joins, member.losses) == ([], 1, 1)
