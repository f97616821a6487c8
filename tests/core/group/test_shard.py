"""Scenarios of one group shard: no clock, no sockets, time is a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.coordinator import GroupShard
from minikafka.core.group.offsets import CommittedOffset
from minikafka.core.group.removal import BATCH_RECORDS_MAX
from minikafka.core.group.subscriptions import parse_subscription
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.heartbeat import HeartbeatRequest
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

TOPIC_ID = bytes(range(16))


class World:
    """A shard whose appends commit at once unless `failure` says otherwise; committed records are kept in `log`."""

    def __init__(self, **config: int) -> None:
        self.now_ms = 1_000_000
        self.serial = 0
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **config})
        self.shard = self.new_shard()
        self.shard.loaded(self.now_ms)
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
                    for record in append.records:
                        self.shard.replay(record.key, record.value, -1 if append.producer is None else append.producer[0])
                append.on_settled(self.failure is ErrorCode.NONE, self.now_ms)
                append.on_done(self.failure, self.now_ms)
            for reply, response in effects.answers:
                assert reply not in self.answers, f"{reply} answered twice"
                self.answers[reply] = response

    def take_steps(self, work: Iterator[None]) -> int:
        """Long work to its end; the number of steps before the last."""
        self.settle()
        steps = 0
        for _ in work:
            steps += 1
            self.settle()
        self.settle()
        return steps

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
        self.shard.leave("leave", request, 3, self.now_ms)
        self.settle()
        response = self.answers.pop("leave")
        assert isinstance(response, LeaveGroupResponse)
        return ErrorCode(response.members[0].error_code)

    def commit(
        self, reply: str, offset: int, member_id: str = "", generation: int = -1, metadata: str = "", version: int = 8,
        retention_ms: int = -1,
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id="g",
            retention_time_ms=retention_ms,
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
        self.shard.commit(reply, request, version, lambda name, topic_id, index: (name, TOPIC_ID), self.now_ms)
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
    ("options", "code", "left"),
    [
        ({"session_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT, []), ({"session_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT, []),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ["Empty"]), ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID, []),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ["Empty"]),
    ],
)  # fmt: skip
def test_refused_joins_answer_and_leave_what_they_do_in_kafka(options: dict[str, Any], code: ErrorCode, left: list[str]) -> None:
    world = World()
    joined = world.join("join", **options)
    assert joined is not None
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (code, -1, "")
    assert [group.state.value for group in world.shard.groups.values()] == left


def test_member_that_never_syncs_is_removed_from_a_stable_group_too() -> None:
    world = World()
    leader = world.member("a1")
    silent = world.member("b1")
    world.join("a2", leader)
    generation = world.answers["a2"].generation_id
    world.sync("as", leader, generation, {leader: b"A", silent: b"B"})
    assert world.shard.groups["g"].state.value == "Stable"
    for _ in range(7):
        world.advance(9_000)
        world.heartbeat(leader, generation)
        world.heartbeat(silent, generation)
    assert world.heartbeat(silent, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_syncs_late_stays() -> None:
    world = World()
    leader = world.member("a1")
    late = world.member("b1")
    world.join("a2", leader)
    generation = world.answers["a2"].generation_id
    world.sync("as", leader, generation, {leader: b"A", late: b"B"})
    synced = world.sync("bs", late, generation)
    assert synced is not None and synced.assignment == b"B"
    for _ in range(10):
        world.advance(9_000)
        assert world.heartbeat(leader, generation) is world.heartbeat(late, generation) is ErrorCode.NONE


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


def test_absent_static_members_without_rebalance_time_delay_no_rebalance() -> None:
    world = World()
    world.join("s1", instance="one")
    static = world.answers["s1"].member_id
    world.sync("ss1", static, 1, {static: b""})
    world.join("s2", static, instance="one", rebalance_ms=0)
    world.sync("ss2", static, 2, {static: b""})
    world.join("d1", rebalance_ms=0)
    other = world.answers["d1"].member_id
    world.join("d2", other, rebalance_ms=0)
    assert "d2" not in world.answers, "the static member is waited for"
    world.leave(other)
    for _ in range(100):
        world.shard.on_deadline(world.now_ms)
        world.settle()
    due_ms = world.shard.next_deadline()
    assert due_ms is not None and due_ms > world.now_ms, "nobody looks again at once"
    world.advance(20_000)
    assert world.shard.groups["g"].state.value == "Empty", "its session has ended"


def test_members_that_never_come_are_forgotten_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.core.group.classic.PENDING_BYTES_MAX", 2_000)
    world = World()
    for number in range(50):
        world.join(f"p{number}", session_ms=1_800_000)
    first, last = world.answers["p0"].member_id, world.answers["p49"].member_id
    group = world.shard.groups["g"]
    assert 1 < len(group.pending_members) <= 2_000 // 256 and last in group.pending_members
    assert len(world.shard._rebalancer.timers) == len(group.pending_members)
    answer = world.join("again", first)
    assert answer is not None and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.join("joins", last)
    for member_id in list(group.pending_members):
        world.leave(member_id)
    assert world.answers["joins"].error_code == ErrorCode.NONE and group._pending_bytes == 0


def test_static_member_that_cannot_come_back_leaves_its_old_self_in_place() -> None:
    world = World()
    world.join("s1", instance="one")
    old = world.answers["s1"].member_id
    world.sync("ss", old, 1, {old: b"kept"})
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    world.join("s2", instance="one", session_ms=20_000)
    assert world.answers["s2"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.failure = ErrorCode.NONE
    assert world.heartbeat(old, 1, "one") is ErrorCode.NONE
    synced = world.sync("ss2", old, 1)
    assert synced is not None and synced.assignment == b"kept"
    world.advance(10_001)
    assert world.heartbeat(old, 1, "one") is ErrorCode.UNKNOWN_MEMBER_ID, "its session is its own again"


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
    world.take_steps(world.shard.expire_offsets(world.now_ms + 999))
    world.settle()
    assert world.shard.offsets.get("g", "t", 0) is not None
    world.take_steps(world.shard.expire_offsets(world.now_ms + 1000))
    world.settle()
    assert world.shard.offsets.get("g", "t", 0) is None
    assert "g" not in world.shard.groups
    world.restart()
    assert "g" not in world.shard.groups


def subscription(*topics: str) -> bytes:
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def test_offsets_of_topics_that_a_stable_group_does_not_subscribe_to_expire() -> None:
    world = World(offsets_retention_ms=1000)
    world.commit("c1", 7)
    world.shard.offsets.put("g", "other", 0, CommittedOffset(3, -1, "", world.now_ms))
    world.take_steps(iter(()))
    member = world.member("m", protocols=(("range", subscription("t")),))
    world.take_steps(world.shard.expire_offsets(world.now_ms + 10_000))
    assert world.shard.offsets.get("g", "other", 0) is not None, "not while the group looks for its assignment"
    world.sync("s", member, 1, {member: b"x"})
    world.take_steps(world.shard.expire_offsets(world.now_ms + 999))
    assert world.shard.offsets.get("g", "other", 0) is not None
    world.take_steps(world.shard.expire_offsets(world.now_ms + 1000))
    assert list(world.shard.offsets.of_group("g")) == [("t", 0)] and "g" in world.shard.groups


def test_an_empty_group_without_offsets_goes() -> None:
    world = World(offsets_retention_ms=1000)
    member = world.member("m")
    world.sync("s", member, 1, {member: b"x"})
    world.take_steps(world.shard.expire_offsets(world.now_ms))
    assert "g" in world.shard.groups
    world.leave(member)
    world.take_steps(world.shard.expire_offsets(world.now_ms))
    assert not world.shard.groups and world.log[-1].value is None


def many_offsets(world: World, count: int) -> None:
    world.commit("first", 1)
    for number in range(count - 1):
        world.shard.offsets.put("g", "gone" if number % 2 else "t", 1 + number, CommittedOffset(number, -1, "", world.now_ms))


def test_a_group_of_many_offsets_is_deleted_in_steps_without_interleaving() -> None:
    world = World()
    many_offsets(world, 5 * BATCH_RECORDS_MAX)
    done: list[ErrorCode] = []
    work = world.shard.delete_group("g", done.append)
    assert not world.shard.take_effects().appends, "nothing is made before its step: 60 groups of 9,000 offsets took a second"
    next(work)
    world.settle()
    assert len(world.shard.offsets.of_group("g")) == 4 * BATCH_RECORDS_MAX and not done
    assert world.commit("c2", 7) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (refused := world.join("j")) is not None and refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.take_steps(work) >= 4
    assert done == [ErrorCode.NONE] and "g" not in world.shard.groups and not world.shard.offsets.of_group("g")
    assert world.commit("c3", 7) is ErrorCode.NONE


def test_a_deletion_that_fails_says_so_and_ends() -> None:
    world = World()
    many_offsets(world, 3 * BATCH_RECORDS_MAX)
    done: list[ErrorCode] = []
    work = world.shard.delete_group("g", done.append)
    world.settle()
    world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.take_steps(work) < 3
    assert done == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.failure = ErrorCode.NONE
    assert world.commit("c2", 7) is ErrorCode.NONE


def test_a_deletion_is_answered_when_the_shard_is_given_up() -> None:
    world = World()
    many_offsets(world, 3 * BATCH_RECORDS_MAX)
    done: list[ErrorCode] = []
    work = world.shard.delete_group("g", done.append)
    world.shard.shutdown()
    assert done == [ErrorCode.NOT_COORDINATOR]
    world.take_steps(work)
    assert done == [ErrorCode.NOT_COORDINATOR]


def test_offsets_of_a_topic_that_is_gone_are_deleted_in_steps() -> None:
    world = World()
    many_offsets(world, 4 * BATCH_RECORDS_MAX + 1)
    assert world.take_steps(world.shard.partitions_deleted(["gone"])) >= 2
    left = world.shard.offsets.of_group("g")
    assert len(left) == 2 * BATCH_RECORDS_MAX + 1 and {topic for topic, _ in left} == {"t"}


def test_a_group_that_does_not_exist_has_no_epoch() -> None:
    world = World()
    assert world.commit("c0", 1, "x", 5, version=9) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.commit("c1", 1, "x", 5, version=8) is ErrorCode.ILLEGAL_GENERATION
    assert not world.shard.groups


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


def test_there_are_no_more_groups_than_so_many() -> None:
    world = World(groups_max=1)

    def commit(group_id: str) -> int:
        row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])]
        request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=topics)
        reply = f"commit {group_id} {len(world.answers)}"
        world.shard.commit(reply, request, 8, lambda name, topic_id, index: ("t", TOPIC_ID), world.now_ms)
        world.settle()
        return int(world.answers[reply].topics[0].partitions[0].error_code)

    assert commit("other") == ErrorCode.NONE
    joined = world.join("one too many")
    assert joined is not None and joined.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit("another") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit("other") == ErrorCode.NONE
