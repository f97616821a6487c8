"""Where a consumer goes on: what was asked for before the application moved it does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.client.assignors import encode_assignment
from minikafka.client.cluster import Cluster
from minikafka.client.consumer import Consumer, TopicPartition
from minikafka.client.errors import BrokerError, ClientError, NoOffsetForPartition
from minikafka.client.group import GroupMember, GroupMetadata, MemberTimes
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Request
from minikafka.wire.messages.heartbeat import HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

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


async def test_group_metadata_is_that_of_the_last_poll() -> None:
    """A rebalance happens beside the application: what it polled before must not be committed in the generation after."""
    consumer = Consumer("localhost:1", group_id="group")
    member: Any = SimpleNamespace(generation=7, member_id="member", group_instance_id=None, failure=None)
    consumer._member, consumer._subscribed = member, True
    await consumer.poll(0)
    member.generation = 8
    assert consumer.group_metadata == GroupMetadata("group", 7, "member")
    await consumer.poll(0)
    assert consumer.group_metadata == GroupMetadata("group", 8, "member")


@pytest.mark.parametrize("protocol", ["assigned", "changed"])
async def test_a_group_without_offsets_says_so_when_there_is_no_reset(protocol: str) -> None:
    class Nothing(Consumer):
        async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
            return dict.fromkeys(partitions)

    consumer = Nothing("localhost:1", group_id="group", auto_offset_reset="none")
    await (consumer._assigned if protocol == "assigned" else consumer._changed)({"topic": [0]})
    with pytest.raises(NoOffsetForPartition, match="no committed offset for topic-0"):
        await consumer.poll(0)
    consumer.seek(PARTITION, 5)
    assert consumer.position(PARTITION) == 5 and await consumer.poll(0) == []


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


class Rejoining(GroupMember):
    """Joins a stable group, which gives a follower the generation that it is in."""

    def __init__(self, instance_id: str | None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.assignments = 0
        super().__init__(
            Cluster("localhost:1"), "group", MemberTimes(6000, 6000, 1), group_instance_id=instance_id, assignors=("range",),
            on_assigned=self._note_assigned, on_lost=self._note_lost,
        )  # fmt: skip

    async def _note_assigned(self, _: Any) -> None:
        self.assignments += 1
        if self.assignments == 2:
            raise ClientError("the end")

    async def _note_lost(self) -> None: ...

    async def ask(self, request: Request, timeout_ms: int | None = None) -> Any:
        if isinstance(request, JoinGroupRequest):
            self.asked.append(("join", request.member_id))
            given = request.member_id or f"member-{len(self.asked)}"
            return JoinGroupResponse(generation_id=7 if given == "member-1" else 8, protocol_name="range", leader="x", member_id=given)
        if isinstance(request, SyncGroupRequest):
            return SyncGroupResponse(assignment=encode_assignment({"topic": [0]}))
        if isinstance(request, LeaveGroupRequest):
            self.asked.append(("leave", request.members[0].member_id))
            return LeaveGroupResponse()
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("instance_id", [None, "static"])
async def test_a_generation_that_was_given_up_is_not_taken_up_again(instance_id: str | None) -> None:
    """What was read in it could still be committed in it (a transaction that is under way), and is read again by who begins at what is
    committed; so it is another member that goes on. Of a static member the group forgets the old id by itself."""
    member = Rejoining(instance_id)
    await member._run()
    left = [("leave", "member-1")] if instance_id is None else []
    assert member.asked == [("join", ""), ("join", "member-1"), *left, ("join", "")]
    assert (member.assignments, str(member.failure)) == (2, "the end"), "an unexpected refusal ends the member aloud"
