"""Groups with members that change between the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.mixed_groups import REBALANCE_MS, SESSION_MS, MixedWorld, assignment, of_records, partitions_of, subscription

from minikafka.core.group.classic import GroupState
from minikafka.wire.errors import ErrorCode

NONE, REJOIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
LOW, HIGH = {("t", 0), ("t", 1)}, {("t", 2), ("t", 3)}


def classic(world: MixedWorld) -> tuple[str, str, int]:
    """A stable group of two: the ids of its members, its generation."""
    generation = world.classic_group(k1=LOW, k2=HIGH)
    ids = world.shard.groups["g"].static_members
    return ids["k1"], ids["k2"], generation


def rejoin(world: MixedWorld, member: str, name: str, owned: set[tuple[str, int]]) -> tuple[int, set[tuple[str, int]]]:
    """A cooperative member joins again: its generation, and what it may read."""
    joined = world.join("now", member, ["t"], owned, instance=name)
    assert (joined.error_code, joined.protocol_type, joined.protocol_name) == (0, "consumer", "range")
    assert (joined.leader, joined.members) == ("", []), "nobody assigns but the broker"
    synced = world.sync("now", member, joined.generation_id, group_instance_id=name)
    assert synced.error_code == NONE
    return joined.generation_id, partitions_of(synced.assignment)


def test_a_classic_group_takes_a_consumer_in_and_is_classic_again_when_it_leaves() -> None:
    world = MixedWorld()
    one, two, generation = classic(world)
    joined = world.beat("now", "c", 0, ["t"])
    assert (joined.error_code, joined.member_epoch, joined.assignment.topic_partitions) == (NONE, generation + 1, [])
    assert of_records(world.batches[-1])[:9] == [
        "GroupMetadata-", "ConsumerGroupMemberMetadata", "ConsumerGroupMemberMetadata", "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember", "ConsumerGroupTargetAssignmentMember", "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment", "ConsumerGroupCurrentMemberAssignment",
    ]  # fmt: skip
    assert world.kinds() == [("Reconciling", "consumer")]
    assert world.alive(one, generation, "k1") is REJOIN and world.alive(two, generation, "k2") is REJOIN
    assert world.sync("now", two, generation, group_instance_id="k2").error_code == REJOIN, "there is a newer assignment"
    # The second one must revoke partitions: it gets its reduced assignment, revokes, and joins again.
    epoch, others = rejoin(world, two, "k2", HIGH)
    assert epoch == generation and len(others) == 1 and others < HIGH
    assert world.alive(two, epoch, "k2") is REJOIN
    assert rejoin(world, two, "k2", others) == (generation + 1, others)
    assert world.alive(two, generation + 1, "k2") is NONE
    epoch, kept = rejoin(world, one, "k1", LOW)
    assert (epoch, kept) == (generation + 1, LOW)
    taken = world.beat("now", "c", generation + 1)
    owned = {("t", partition) for topic in taken.assignment.topic_partitions for partition in topic.partitions}
    assert owned | kept | others == LOW | HIGH and len(owned) + len(kept) + len(others) == 4
    assert world.kinds() == [("Stable", "consumer")]
    assert world.commit(one, generation + 1, sorted(kept)[0]) is NONE
    assert world.commit(one, generation, sorted(kept)[0]) is NONE
    assert world.commit(one, generation + 9) is ErrorCode.ILLEGAL_GENERATION

    assert world.beat("now", "c", -1).error_code == NONE
    assert of_records(world.batches[-1])[-3:] == ["ConsumerGroupPartitionMetadata-", "ConsumerGroupMetadata-", "GroupMetadata"]
    assert world.kinds() == [("PreparingRebalance", "classic")]
    group = world.shard.groups["g"]
    assert (group.generation_id, group.protocol_name, set(group.members)) == (generation + 1, "range", {one, two})
    assert partitions_of(group.members[one].assignment) == kept and world.alive(one, generation + 1, "k1") is REJOIN
    for member, name in ((one, "k1"), (two, "k2")):
        world.join(name, member, ["t"], instance=name)
    assert {world.take(name).generation_id for name in ("k1", "k2")} == {generation + 2}


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled"])
def test_a_classic_member_joins_a_consumer_group_unless_migration_is_disabled(policy: str) -> None:
    world = MixedWorld(policy)
    world.beat("now", "c", 0, ["t"])
    answer = world.join("now", "k", ["t"])
    assert answer.error_code == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if policy == "disabled" else NONE)


@pytest.mark.parametrize("policy", ["upgrade", "disabled", "downgrade"])
def test_the_policy_decides_which_way_a_group_may_change(policy: str) -> None:
    world = MixedWorld(policy)
    _, _, generation = classic(world)
    answer = world.beat("now", "c", 0, ["t"])
    if policy != "upgrade":
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert answer.error_message == "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
        assert world.kinds() == [("Stable", "classic")]
        return
    assert answer.error_code == NONE
    world.beat("now", "c", -1)
    assert world.kinds()[0][1] == "consumer", "it does not become classic again"
    # Nobody of the consumer protocol is left who would ask for an assignment: classic members get one all the same.
    ids = {name: world.shard.consumers.groups["g"].static_members[name] for name in ("k1", "k2")}
    assert world.alive(ids["k1"], generation, "k1") is REJOIN
    owned = dict(zip(("k1", "k2"), (LOW, HIGH), strict=True))
    for _ in range(3):
        owned = {name: rejoin(world, ids[name], name, owned[name])[1] for name in ids}
    assert owned["k1"] | owned["k2"] == LOW | HIGH and world.kinds() == [("Stable", "consumer")]


def test_the_heartbeats_of_classic_members_alone_begin_an_assignment() -> None:
    """They rejoin only on request, and there is no request before there are new targets."""
    world = MixedWorld("upgrade")
    one, two, _ = classic(world)
    world.beat("now", "c", 0, ["t"])
    ids, owned = {"k1": one, "k2": two}, {"k1": LOW, "k2": HIGH}
    group = world.shard.consumers.groups["g"]
    for _ in range(3):
        owned = {name: rejoin(world, ids[name], name, owned[name])[1] for name in ids}
        world.beat("now", "c", group.members["c"].member_epoch)
    epoch = group.epoch
    assert len(owned["k1"] | owned["k2"]) == 3 and world.kinds() == [("Stable", "consumer")]
    assert [world.alive(ids[name], epoch, name) for name in ids] == [NONE, NONE]
    world.beat("now", "c", -1)
    assert [world.alive(ids[name], epoch, name) for name in ids][-1] is REJOIN
    assert group.assignment_epoch == group.epoch == epoch + 1


def test_groups_that_cannot_be_consumer_groups_stay_classic() -> None:
    world = MixedWorld()
    world.join("a", "", ["t"], version=3, kind="connect")
    answer = world.beat("now", "c", 0, ["t"])
    assert answer.error_message == (
        "Cannot upgrade classic group g to consumer group because the group does not use the consumer embedded protocol."
    )
    world = MixedWorld(size_max=1)
    classic(world)
    answer = world.beat("now", "c", 0, ["t"])
    assert answer.error_message == (
        "Cannot upgrade classic group g to consumer group because the group size exceeds the consumer group maximum size."
    )
    world = MixedWorld()
    world.join("a", "", [], version=3, metadata=b"\xff\xff")
    assert "the embedded consumer protocol is malformed" in world.beat("now", "c", 0, ["t"]).error_message
    world = MixedWorld()
    generation = world.classic_group(k1=LOW)
    member = world.shard.groups["g"].static_members["k1"]
    world.shard.groups["g"].members[member].assignment = assignment(LOW, b"mine")
    assert "an unsupported custom assignor is in use" in world.beat("now", "c", 0, ["t"]).error_message
    assert world.alive(member, generation, "k1") is NONE
    assert world.beat("now", "c", 3).error_message == "Group g is not a consumer group."
    assert world.beat("now", "c", -1).error_message == "Group g is not a consumer group."


def test_a_group_in_a_rebalance_is_migrated_too_and_waiting_members_rejoin() -> None:
    world = MixedWorld()
    one, two, generation = classic(world)
    assert world.join("waits", one, ["t", "u"], instance="k1") is None
    assert world.kinds() == [("PreparingRebalance", "classic")]
    assert world.beat("now", "c", 0, ["t"]).error_code == NONE
    assert world.take("waits").error_code == REJOIN
    assert rejoin(world, one, "k1", LOW)[0] > generation
    assert world.alive(two, generation, "k2") is REJOIN


def test_a_failed_write_leaves_the_group_classic() -> None:
    world = MixedWorld()
    one, two, generation = classic(world)
    world.is_stalled = True
    world.beat("joins", "c", 0, ["t"])
    # Meanwhile the group is neither: members are sent to join again, and wait.
    assert world.alive(one, generation, "k1") is REJOIN
    assert world.sync("now", one, generation, group_instance_id="k1").error_code == REJOIN
    world.join("k1", one, ["t"], LOW, instance="k1")
    world.leave((two, "k2"), reply="left")
    world.advance(SESSION_MS + 1)
    assert world.take("k1") is None and world.take("left") is None and two in world.shard.groups["g"].members
    world.is_stalled = False
    world.refuse()
    assert world.take("joins").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [member.error_code for member in world.take("left").members] == [0]
    answer = world.take("k1")
    assert (answer.error_code, answer.generation_id, answer.leader) == (NONE, generation + 1, one)


def test_who_is_no_member_is_told_so_while_a_classic_group_becomes_a_consumer_group() -> None:
    """Told to join again, it would go on reading what the group has given to others."""
    world = MixedWorld()
    one, two, generation = classic(world)
    world.is_stalled = True
    world.beat("joins", "c", 0, ["t"])
    assert world.alive("stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("now", "stranger", generation).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.alive(one, generation - 1, "k1") is ErrorCode.ILLEGAL_GENERATION
    assert world.alive(two, generation, "k1") is ErrorCode.FENCED_INSTANCE_ID
    empty = MixedWorld()
    one, _, generation = classic(empty)
    empty.advance(SESSION_MS + 1)
    assert empty.kinds() == [("Empty", "classic")]
    empty.is_stalled = True
    empty.beat("joins", "c", 0, ["t"])
    assert empty.alive(one, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert empty.sync("now", one, generation).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_the_upgrade_joins_the_consumer_group() -> None:
    world = MixedWorld()
    one, two, generation = classic(world)
    world.is_stalled = True
    world.beat("joins", "c", 0, ["t"])
    world.join("k1", one, ["t"], LOW, instance="k1")
    world.leave((two, "k2"), ("nobody", None), (two, "k1"), reply="left")
    world.go_on()
    assert world.take("joins").error_code == NONE and world.take("k1").generation_id == generation + 1
    assert [member.error_code for member in world.take("left").members] == [
        0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID,
    ]  # fmt: skip
    assert set(world.shard.consumers.groups["g"].members) == {one, "c"}


def test_classic_members_of_a_consumer_group_keep_their_times() -> None:
    world = MixedWorld()
    world.beat("now", "c", 0, ["t"])
    reported = world.join("now", "", ["t"])
    assert reported.error_code == ErrorCode.MEMBER_ID_REQUIRED and reported.member_id
    joined = world.join("now", reported.member_id, ["t"])
    assert joined.error_code == NONE

    def members() -> set[str]:
        return set(world.shard.consumers.groups["g"].members)

    def consumer_beats(**fields: Any) -> None:
        world.beat("now", "c", world.shard.consumers.groups["g"].members["c"].member_epoch, **fields)

    # It never asks for its assignment.
    for _ in range(4):
        world.advance(REBALANCE_MS // 4 - 1)
        assert reported.member_id in members()
        assert world.alive(reported.member_id, joined.generation_id) is NONE
        consumer_beats()
    world.advance(4)
    assert members() == {"c"}
    # It asks, is sent to join again, and does not.
    joined = world.join("now", reported.member_id, ["t"])
    for owned in (LOW | HIGH, set()):
        consumer_beats(owned=owned)
    world.sync("now", reported.member_id, joined.generation_id)
    assert world.alive(reported.member_id, joined.generation_id) is REJOIN
    for _ in range(6):
        world.advance(4_000)
        world.alive(reported.member_id, joined.generation_id)
        consumer_beats()
    assert members() == {"c"}
    # It falls silent.
    joined = world.join("now", "k", ["t"], version=3)
    world.sync("now", joined.member_id, joined.generation_id)
    world.advance(SESSION_MS - 1)
    assert joined.member_id in members()
    consumer_beats()
    world.advance(1)
    assert members() == {"c"}


def test_requests_that_do_not_fit_the_group_are_refused() -> None:
    world = MixedWorld()
    world.beat("now", "c", 0, ["t"])
    assert world.join("now", "k", ["t"], kind="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    joined = world.join("now", "k", ["t"])
    assert joined.error_code == NONE
    assert world.join("now", "other", ["t"], protocol="mine").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("now", "other", [], metadata=b"?").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("now", "other", ["t"], instance="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("now", "k", joined.generation_id, protocol_name="mine").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("now", "k", joined.generation_id, protocol_type="mine").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("now", "k", joined.generation_id, protocol_type=None).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("now", "k", joined.generation_id + 1).error_code == ErrorCode.ILLEGAL_GENERATION
    assert world.sync("now", "c", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.alive("c", 2) is ErrorCode.UNKNOWN_MEMBER_ID and world.alive("k", 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.leave(("nobody", None), version=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(("k", None), version=2) is NONE and set(world.shard.consumers.groups["g"].members) == {"c"}


def test_a_classic_member_takes_the_place_of_the_last_consumer() -> None:
    world = MixedWorld()
    world.beat("now", "c", 0, ["t"], instance_id="i")
    other = world.join("now", "k", ["t"])
    world.beat("now", "c", 2, owned=LOW, instance_id="i")
    epoch, kept = other.generation_id, {("t", p) for p in world.shard.consumers.groups["g"].members["c"].assigned[b"." * 15 + b"t"]}
    joined = world.join("now", "", ["t"], instance="i")
    assert (joined.error_code, joined.generation_id) == (NONE, epoch)
    assert world.kinds() == [("Stable", "classic")], "everybody has what he had"
    assert partitions_of(world.sync("now", joined.member_id, epoch, group_instance_id="i").assignment) == kept
    assert world.alive("c", epoch, "i") is ErrorCode.FENCED_INSTANCE_ID
    # With a changed subscription the members rebalance.
    world = MixedWorld(t=4, u=1)
    world.beat("now", "c", 0, ["t"], instance_id="i")
    world.join("now", "k", ["t"])
    world.join("now", "", ["t", "u"], instance="i")
    assert world.kinds() == [("PreparingRebalance", "classic")]


def test_several_that_leave_at_once_make_the_group_classic() -> None:
    world = MixedWorld()
    for member in ("k1", "k2"):
        world.beat("now", "c", 0, ["t"]) if member == "k1" else None
        world.join("now", member, ["t"])
    assert world.leave(("c", None), ("k2", None)) == [NONE, NONE], "an administrator may send a consumer away"
    assert world.kinds()[0][1] == "classic" and set(world.shard.groups["g"].members) == {"k1"}


@pytest.mark.parametrize("is_classic_again", [False, True])
def test_another_broker_goes_on(is_classic_again: bool) -> None:
    world = MixedWorld()
    one, two, generation = classic(world)
    world.beat("now", "c", 0, ["t"])
    if is_classic_again:
        world.beat("now", "c", -1)
        before = world.shard.groups["g"].value()
        world.fail_over()
        group = world.shard.groups["g"]
        assert group.state is GroupState.STABLE and group.value().members == before.members
        assert world.alive(one, generation + 1, "k1") is NONE
    else:
        before_members = world.shard.consumers.groups["g"].members
        world.fail_over()
        assert world.shard.consumers.groups["g"].members == before_members and world.shard.groups == {}
        assert world.alive(one, generation, "k1") is REJOIN
        assert rejoin(world, two, "k2", HIGH)[0] == generation


def test_an_eager_member_gives_everything_up_when_it_joins() -> None:
    world = MixedWorld()
    _, two, generation = classic(world)
    world.beat("now", "c", 0, ["t"])
    joined = world.join("now", two, ["t"], metadata=subscription(["t"], version=0), instance="k2")
    assert joined.generation_id == generation + 1
    assert len(partitions_of(world.sync("now", two, generation + 1, group_instance_id="k2").assignment)) == 1
