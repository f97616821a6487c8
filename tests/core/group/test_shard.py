"""Scenarios of one group shard: no clock, no sockets, time is a number."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.coordinator import GroupShard, parse_subscription
from wire.errors import ApiError, ErrorCode
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from wire.messages.leave_group import LeaveGroupRequest
from wire.messages.offset_commit import OffsetCommitRequest
from wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

TOPIC_ID = bytes(range(16))


class World:
    """A shard whose appends commit at once unless `failure` says otherwise; committed records are kept in `log`."""

    def __init__(self, **config: int) -> None:
        self.now_ms = 1_000_000
        self.serial = 0
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **config})
        self.shard = self.new_shard()
        self.answers: dict[str, Any] = {}
        self.log: list[Any] = []
        self.failure = ErrorCode.NONE

    def new_shard(self) -> GroupShard:
        return GroupShard(self.config, self.new_uuid, lambda now_ms: now_ms)

    def new_uuid(self) -> str:
        self.serial += 1
        return f"uuid{self.serial}"

    def settle(self) -> None:
        while effects := self.shard.take_effects():
            for append in effects.appends:
                if self.failure is ErrorCode.NONE:
                    self.log.extend(append.records)
                append.on_done(self.failure, self.now_ms)
            for reply, response in effects.answers:
                assert reply not in self.answers, f"{reply} answered twice"
                self.answers[reply] = response

    def advance(self, ms: int) -> None:
        target = self.now_ms + ms
        while (due := self.shard.next_deadline()) is not None and due <= target:
            self.now_ms = max(due, self.now_ms)
            self.shard.on_deadline(self.now_ms)
            self.settle()
        self.now_ms = target

    def restart(self) -> None:
        """A new leader replays the log."""
        self.shard.shutdown()
        self.settle()
        self.shard = self.new_shard()
        for record in self.log:
            self.shard.replay(record.key, record.value)
        self.shard.loaded(self.now_ms)

    def join(
        self, reply: str, member_id: str = "", *, instance: str | None = None, version: int = 5,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"),), session_ms: int = 10_000, rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
    ) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        self.shard.join(reply, request, Client("client", "/1.2.3.4", version), self.now_ms)
        self.settle()
        return self.answers.get(reply)

    def sync(
        self, reply: str, member_id: str, generation: int, assignments: dict[str, bytes] | None = None
    ) -> SyncGroupResponse | None:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        self.shard.sync(reply, request, Client("client", "/1.2.3.4", 3), self.now_ms)
        self.settle()
        return self.answers.get(reply)

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        response = self.shard.heartbeat(request, self.now_ms)
        self.settle()
        return ErrorCode(response.error_code)

    def leave(self, member_id: str) -> ErrorCode:
        request = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member_id)])
        response = self.shard.leave(request, 3, self.now_ms)
        self.settle()
        return ErrorCode(response.members[0].error_code)

    def commit(self, reply: str, offset: int, member_id: str = "", generation: int = -1, metadata: str = "") -> ErrorCode:
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        self.shard.commit(reply, request, 8, lambda name, topic_id, index: (name, TOPIC_ID), self.now_ms)
        self.settle()
        return ErrorCode(self.answers[reply].topics[0].partitions[0].error_code)

    def member(self, reply: str, **options: Any) -> str:
        """Join by the two steps of KIP-394 and give the member id; the second join may be left parked."""
        first = self.join(f"{reply}?", **options)
        assert first is not None
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.join(reply, first.member_id, **options)
        return first.member_id

    def stable_pair(self) -> tuple[str, str, int]:
        """A stable group of a leader and a follower: their ids and the generation."""
        leader = self.member("a1")
        follower = self.member("b1")
        self.join("a2", leader)
        generation = self.answers["a2"].generation_id
        assert self.answers["b1"].generation_id == generation
        assert self.sync("bs", follower, generation) is None
        self.sync("as", leader, generation, {leader: b"A", follower: b"B"})
        assert (self.answers["as"].assignment, self.answers["bs"].assignment) == (b"A", b"B")
        return leader, follower, generation


def test_one_member_gets_what_its_leader_assigned() -> None:
    world = World()
    member = world.member("join")
    joined = world.answers["join"]
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, member, "range")
    assert [m.member_id for m in joined.members] == [member]
    synced = world.sync("sync", member, 1, {member: b"all"})
    assert synced is not None
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert world.heartbeat(member, 1) is ErrorCode.NONE


def test_second_member_starts_a_rebalance_that_heartbeats_announce() -> None:
    world = World()
    leader, follower, generation = world.stable_pair()
    assert generation == 2
    third = world.member("c1")
    assert world.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    world.join("a3", leader)
    assert "a3" not in world.answers
    world.join("b3", follower)
    assert world.answers["a3"].generation_id == world.answers["c1"].generation_id == 3
    assert {m.member_id for m in world.answers["a3"].members} == {leader, follower, third}
    assert world.answers["b3"].members == []


def test_member_that_does_not_rejoin_in_time_is_dropped() -> None:
    world = World()
    leader, follower, _ = world.stable_pair()
    world.join("a3", leader, session_ms=200_000)
    world.advance(60_000)
    assert [m.member_id for m in world.answers["a3"].members] == [leader]
    assert world.heartbeat(follower, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_session_ends_without_heartbeats_and_the_group_becomes_empty() -> None:
    world = World()
    member = world.member("join")
    world.sync("sync", member, 1, {member: b"x"})
    world.advance(9_999)
    assert world.heartbeat(member, 1) is ErrorCode.NONE
    world.advance(9_999)
    assert world.heartbeat(member, 1) is ErrorCode.NONE
    world.advance(10_001)
    assert world.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.shard.groups["g"].state.value == "Empty"


def test_leaving_leader_hands_over() -> None:
    world = World()
    leader, follower, generation = world.stable_pair()
    assert world.leave(leader) is ErrorCode.NONE
    assert world.heartbeat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = world.join("b3", follower)
    assert joined is not None
    assert joined.leader == follower


def test_initial_delay_gathers_members_into_one_generation() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    world.member("a1")
    world.advance(2000)
    world.member("b1")
    world.advance(1000)
    assert "a1" not in world.answers, "a member that joined during the delay extends it"
    world.advance(3000)
    assert world.answers["a1"].generation_id == world.answers["b1"].generation_id == 1


def test_failed_assignment_append_starts_over() -> None:
    world = World()
    member = world.member("join")
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    synced = world.sync("sync", member, 1, {member: b"x"})
    assert synced is not None
    assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_missing_its_sync_is_removed() -> None:
    world = World()
    leader = world.member("a1")
    follower = world.member("b1")
    world.join("a2", leader)
    generation = world.answers["a2"].generation_id
    world.sync("bs", follower, generation)
    for _ in range(7):
        world.advance(9_000)
        world.heartbeat(leader, generation)
    assert world.answers["bs"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"session_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refused_joins_answer_as_kafka_does(options: dict[str, Any], code: ErrorCode) -> None:
    joined = World().join("join", **options)
    assert joined is not None
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (code, -1, "")


def test_join_with_another_protocol_is_refused_and_changes_nothing() -> None:
    world = World()
    leader, _, generation = world.stable_pair()
    refused = world.join("odd", protocols=(("sticky", b""),))
    assert refused is not None
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.heartbeat(leader, generation) is ErrorCode.NONE


def test_group_size_is_limited() -> None:
    world = World(group_size_max=2)
    world.stable_pair()
    third = world.join("c1")
    assert third is not None
    assert third.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_static_member_comes_back_without_a_rebalance_and_fences_its_old_self() -> None:
    world = World()
    world.join("s1", instance="one")
    old = world.answers["s1"].member_id
    world.sync("ss", old, 1, {old: b"kept"})
    world.join("s2", instance="one")
    new = world.answers["s2"].member_id
    assert new != old
    assert world.answers["s2"].generation_id == 1
    assert world.heartbeat(old, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    synced = world.sync("ss2", new, 1)
    assert synced is not None
    assert synced.assignment == b"kept"


def test_restarted_coordinator_knows_groups_and_offsets() -> None:
    world = World()
    leader, follower, generation = world.stable_pair()
    assert world.commit("c1", 42, leader, generation, "note") is ErrorCode.NONE
    world.restart()
    assert world.heartbeat(follower, generation) is ErrorCode.NONE
    synced = world.sync("again", leader, generation)
    assert synced is not None
    assert synced.assignment == b"A"
    committed = world.shard.offsets.get("g", "t", 0)
    assert committed is not None
    assert (committed.offset, committed.metadata, committed.topic_id) == (42, "note", TOPIC_ID)
    world.advance(10_001)
    assert world.heartbeat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_are_fenced_by_generation_and_phase() -> None:
    world = World()
    assert world.commit("c0", 1, "x", 5) is ErrorCode.ILLEGAL_GENERATION
    leader, _, generation = world.stable_pair()
    assert world.commit("c1", 1, leader, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit("c2", 1, "stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("c3", 1) is ErrorCode.UNKNOWN_MEMBER_ID, "a live group refuses commits without membership"
    assert world.commit("c4", 1, leader, generation, "m" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    world.failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.commit("c5", 1, leader, generation) is ErrorCode.NOT_COORDINATOR
    assert world.shard.offsets.get("g", "t", 0) is None


def test_simple_consumer_commits_without_membership() -> None:
    world = World()
    assert world.commit("c1", 7) is ErrorCode.NONE
    world.restart()
    committed = world.shard.offsets.get("g", "t", 0)
    assert committed is not None
    assert committed.offset == 7


def test_offsets_of_an_abandoned_group_expire_with_it() -> None:
    world = World(offsets_retention_ms=1000)
    world.commit("c1", 7)
    world.shard.expire_offsets(world.now_ms + 999)
    world.settle()
    assert world.shard.offsets.get("g", "t", 0) is not None
    world.shard.expire_offsets(world.now_ms + 1000)
    world.settle()
    assert world.shard.offsets.get("g", "t", 0) is None
    assert "g" not in world.shard.groups
    world.restart()
    assert "g" not in world.shard.groups


def test_only_empty_groups_are_deleted() -> None:
    world = World()
    done: list[ErrorCode] = []
    with pytest.raises(ApiError) as unknown:
        world.shard.delete_group("g", done.append)
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    leader, follower, _ = world.stable_pair()
    with pytest.raises(ApiError) as busy:
        world.shard.delete_group("g", done.append)
    assert busy.value.code is ErrorCode.NON_EMPTY_GROUP
    world.leave(leader)
    world.leave(follower)
    world.shard.delete_group("g", done.append)
    world.settle()
    assert done == [ErrorCode.NONE]
    assert "g" not in world.shard.groups


def test_giving_up_the_shard_answers_everything_parked() -> None:
    world = World()
    leader, _, _ = world.stable_pair()
    world.join("a3", leader)
    world.shard.shutdown()
    world.settle()
    assert world.answers["a3"].error_code == ErrorCode.NOT_COORDINATOR


def test_subscription_parser_refuses_what_is_cut() -> None:
    good = b"\x00\x01" + b"\x00\x00\x00\x02" + b"\x00\x01a" + b"\x00\x02bb" + b"\xff\xff\xff\xff"
    assert parse_subscription(good) == ["a", "bb"]
    assert parse_subscription(good[:9]) is None
    assert parse_subscription(b"\x00\x00\x7f\xff\xff\xff") is None
    assert parse_subscription(b"") is None
