"""Stories of consumer groups (KIP-848), answer by answer, as Apache Kafka 4.3 tells them."""

from __future__ import annotations

import pytest
from helpers.consumer_group_world import GroupsWorld, Partitions, assigned, topic_id_of, wire_partitions

from minikafka.core.group.consumer.checks import check_commit, check_fetch
from minikafka.core.group.consumer.group import ASSIGNING, EMPTY, RECONCILING, STABLE
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.records.group_records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
)

A = topic_id_of("a")


def of_a(*partitions: int) -> Partitions:
    return {(A, partition) for partition in partitions}


def kinds(world: GroupsWorld) -> list[str]:
    """What stands in the last batch; a minus for a tombstone."""
    names = [(type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key"), record.value) for record in world.batches[-1]]
    return [name if value is not None else f"-{name}" for name, value in names]


def test_the_first_member_has_everything_with_one_batch() -> None:
    world = GroupsWorld(a=3)
    answer = world.join("m1", "a")
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, "m1", 2, 5_000)
    assert assigned(answer) == of_a(0, 1, 2)
    assert kinds(world) == ["MemberMetadata", "Metadata", "TargetAssignmentMember", "TargetAssignmentMetadata", "CurrentMemberAssignment"]
    assert len(world.batches) == 1
    again = world.beat("m1", 2)
    assert (again.member_epoch, again.assignment, len(world.batches)) == (2, None, 1)
    assert world.group().state == STABLE


def test_a_partition_is_given_up_before_it_is_given_on() -> None:
    world = GroupsWorld(a=2)
    world.join("m1", "a")
    joined = world.join("m2", "a")
    assert (joined.member_epoch, assigned(joined), world.group().state) == (3, set(), RECONCILING)
    reported = world.beat("m1", 2, topic_partitions=wire_partitions(of_a(0, 1)))
    assert (reported.member_epoch, assigned(reported)) == (2, of_a(0))
    assert assigned(world.beat("m2", 3)) is None
    assert world.beat("m1", 2).member_epoch == 2, "it does not say what it owns"
    assert world.beat("m1", 2, topic_partitions=wire_partitions(of_a(0))).member_epoch == 3
    taken = world.beat("m2", 3)
    assert (taken.member_epoch, assigned(taken), world.group().state) == (3, of_a(1), STABLE)


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    world = GroupsWorld(a=2)
    world.join("m1", "a", rebalance_timeout_ms=10_000)
    world.join("m2", "a")
    world.beat("m1", 2, topic_partitions=wire_partitions(of_a(0, 1)))
    world.advance(9_999)
    world.beat("m1", 2, topic_partitions=wire_partitions(of_a(0, 1)))
    assert set(world.group().members) == {"m1", "m2"}
    world.advance(1)
    assert set(world.group().members) == {"m2"}
    assert world.beat("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert assigned(world.beat("m2", 3)) == of_a(0, 1)


def test_a_silent_member_is_fenced_after_its_session() -> None:
    world = GroupsWorld(intervals=GroupIntervals(session_timeout_ms=6_000, assignment_interval_ms=0), a=2)
    world.join("m1", "a")
    world.advance(5_999)
    world.beat("m1", 2)
    world.advance(5_999)
    assert set(world.group().members) == {"m1"}
    world.advance(1)
    assert world.group().members == {}
    tombstones = ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata"]
    assert kinds(world) == [*tombstones, "Metadata", "TargetAssignmentMetadata"]
    assert world.group().state == EMPTY


def test_a_lost_answer_is_forgiven_and_a_wrong_epoch_is_not() -> None:
    world = GroupsWorld(a=2)
    world.join("m1", "a")
    world.join("m2", "a")
    world.beat("m1", 2, topic_partitions=wire_partitions(of_a(0)))
    assert world.group().members["m1"].member_epoch == 3
    assert world.beat("m1", 2, topic_partitions=wire_partitions(of_a(0))).member_epoch == 3
    for epoch, owned in ((2, of_a(0, 1)), (4, of_a(0)), (7, set())):
        assert world.beat("m1", epoch, topic_partitions=wire_partitions(owned)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m1", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_instance_comes_back_to_what_it_had() -> None:
    world = GroupsWorld(a=4)
    world.join("m1", "a", instance_id="i1")
    world.join("m2", "a")
    assert world.join("m3", "a", instance_id="i1").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    world.beat("m1", 2, instance_id="i1", topic_partitions=wire_partitions(of_a(0, 1)))
    epoch = world.group().epoch
    left = world.beat("m1", -2, instance_id="i1")
    assert (left.error_code, left.member_epoch) == (0, -2)
    assert world.beat("m2", 3).assignment is not None
    assert assigned(world.beat("m2", 3)) is None, "it waits for whoever is to come back"
    back = world.join("m3", "a", instance_id="i1")
    assert (back.member_epoch, assigned(back), world.group().epoch) == (epoch, of_a(0, 1), epoch)
    assert world.beat("m1", epoch, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.beat("m1", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_takes_another_instance_id_gives_the_first_one_up() -> None:
    world = GroupsWorld(a=2)
    for number in range(100):
        world.join("m1", "a", instance_id=f"i{number}")
    assert world.group().static_members == {"i99": "m1"}
    assert world.join("m2", "a", instance_id="i0").error_code == ErrorCode.NONE
    before = world.group().static_members
    world.fail_over()
    assert world.group().static_members == before, "what a load makes of the log is what was there"


def test_an_instance_that_does_not_come_back_is_fenced() -> None:
    world = GroupsWorld(a=2)
    world.join("m1", "a", instance_id="i1")
    world.beat("m1", -2, instance_id="i1")
    world.advance(45_000)
    assert world.group().members == {} and world.group().owners == {}


def test_two_members_that_join_at_once_share_the_partitions() -> None:
    world = GroupsWorld(a=4)
    world.is_stalled = True
    for name in ("m1", "m2"):
        world.send(name, member_id=name, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[])
    assert len(world.uncommitted) == 1, "the second decides on what the first has changed"
    world.is_stalled = False
    world.commit()
    first, second = world.answer("m1"), world.answer("m2")
    assert first is not None and second is not None
    assert (first.member_epoch, assigned(first), second.member_epoch, assigned(second)) == (2, of_a(0, 1, 2, 3), 3, set())


def test_requests_behind_a_stalled_change_get_an_error() -> None:
    world = GroupsWorld(a=1)
    world.is_stalled = True
    for name in ("m1", "m2"):
        world.send(name, member_id=name, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[])
    world.uncommitted[0].on_done(ErrorCode.REQUEST_TIMED_OUT, world.now_ms)
    world.run()
    answers = [world.answer("m1"), world.answer("m2")]
    assert [answer and answer.error_code for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    world.is_stalled = False
    world.commit()
    assert set(world.group().members) == {"m1"}
    assert world.join("m2", "a").error_code == 0


def test_a_failed_write_changes_nothing() -> None:
    world = GroupsWorld(a=1)
    world.is_stalled = True
    world.send("m1", member_id="m1", rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[])
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = world.answer("m1")
    assert answer is not None and answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.groups.groups == {}


def test_the_removal_of_a_silent_member_is_tried_again_until_it_is_written() -> None:
    world = GroupsWorld(a=1)
    world.join("m1", "a")
    world.is_stalled = True
    world.advance(world.intervals.session_timeout_ms)
    for _ in range(3):
        assert len(world.uncommitted) == 1
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.advance(499)
        assert not world.uncommitted and "m1" in world.group().members
        world.advance(1)
    world.commit()
    assert not world.group().members


def test_requests_that_wait_at_a_fail_over_get_an_error() -> None:
    world = GroupsWorld(a=1)
    world.is_stalled = True
    for name in ("m1", "m2"):
        world.send(name, member_id=name, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[])
    world.fail_over()
    answers = [world.answer("m1"), world.answer("m2")]
    assert [answer and answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2


def test_a_pattern_is_resolved_beside_and_then_counts() -> None:
    world = GroupsWorld(a=1, b=2, xb=1)
    joined = world.join("m1", subscribed_topic_names=None, subscribed_topic_regex="[ab]")
    assert (joined.member_epoch, assigned(joined), world.resolutions) == (1, set(), [("g", ("[ab]",))])
    assert kinds(world) == ["MemberMetadata", "CurrentMemberAssignment"]
    world.resolve()
    assert kinds(world) == ["RegularExpression", "Metadata"]
    found = world.beat("m1", 0, rebalance_timeout_ms=1_000, subscribed_topic_regex="[ab]", topic_partitions=[])
    assert (found.member_epoch, assigned(found)) == (2, {(A, 0), (topic_id_of("b"), 0), (topic_id_of("b"), 1)})
    world.topic("ab", 1)
    world.advance(10_000)
    world.beat("m1", 2)
    assert world.resolutions == [], "not before the interval is over"
    world.advance(1)
    world.beat("m1", 2)
    assert len(world.resolutions) == 1, "there are new topics"
    world.resolve()
    assert world.group().epoch == 2, "none that the pattern stands for"
    world.beat("m1", 2, subscribed_topic_names=["a"], subscribed_topic_regex="")
    assert ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="[ab]") in [record.key for record in world.batches[-1]]
    assert world.group().regexes == {}


def test_a_topic_that_grows_is_shared_anew() -> None:
    world = GroupsWorld(a=1)
    world.join("m1", "a")
    world.topic("a", 3)
    grown = world.beat("m1", 2)
    assert (grown.member_epoch, assigned(grown)) == (3, of_a(0, 1, 2))
    world.topic("a", 0)
    gone = world.beat("m1", 3, topic_partitions=wire_partitions(of_a(0, 1, 2)))
    assert assigned(gone) == set()
    assert world.beat("m1", 3, topic_partitions=[]).member_epoch == 4
    assert world.group().metadata_hash == 0


def test_targets_are_not_computed_more_often_than_the_interval() -> None:
    world = GroupsWorld(intervals=GroupIntervals(assignment_interval_ms=1_000), a=2)
    world.join("m1", "a")
    assert assigned(world.join("m2", "a")) == set()
    assert (world.group().state, world.group().assignment_epoch) == (ASSIGNING, 2)
    world.advance(999)
    assert world.beat("m1", 2).member_epoch == 2 and world.group().assignment_epoch == 2
    world.advance(1)
    world.beat("m1", 2)
    assert world.group().assignment_epoch == 3


def test_nobody_waits_for_an_assignment_made_before_the_clock_was_set_back() -> None:
    world = GroupsWorld(intervals=GroupIntervals(assignment_interval_ms=1_000), a=2)
    world.wall_offset_ms += 3_600_000
    world.join("m1", "a")
    world.wall_offset_ms -= 3_600_000
    world.join("m2", "a")
    assert world.group().assignment_epoch == world.group().epoch == 3


def test_commits_and_reads_of_offsets_need_the_epoch() -> None:
    world = GroupsWorld(a=2)
    world.join("m1", "a")
    world.join("m2", "a")
    world.beat("m1", 2, topic_partitions=wire_partitions(of_a(0)))
    group = world.group()
    assert check_commit(group, "m1", None, 3, 9)("a", A, 1) is ErrorCode.NONE
    older = check_commit(group, "m1", None, 2, 9)
    assert (older("a", A, 0), older("a", A, 1)) == (ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH)
    for member, epoch, version, error in (
        ("m1", 4, 9, ErrorCode.STALE_MEMBER_EPOCH), ("m9", 3, 9, ErrorCode.UNKNOWN_MEMBER_ID), ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 3, 8, ErrorCode.UNSUPPORTED_VERSION),
    ):  # fmt: skip
        with pytest.raises(ApiError) as caught:
            check_commit(group, member, None, epoch, version)
        assert caught.value.code is error
    assert check_commit(group, "", None, -1, None)("a", A, 0) is ErrorCode.NONE, "a producer that does not tell its consumer"
    check_fetch(group, None, -1)
    check_fetch(group, "m1", 3)
    for wanted, epoch, error in (("m1", 2, ErrorCode.STALE_MEMBER_EPOCH), ("m9", 1, ErrorCode.UNKNOWN_MEMBER_ID)):
        with pytest.raises(ApiError) as caught:
            check_fetch(group, wanted, epoch)
        assert caught.value.code is error


def test_a_full_group_refuses_new_members() -> None:
    world = GroupsWorld(ConsumerGroupConfig(size_max=1), a=2)
    world.join("m1", "a")
    assert world.join("m2", "a").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("m1", "a").error_code == 0
    static = GroupsWorld(ConsumerGroupConfig(size_max=1), a=2)
    static.join("m1", "a", instance_id="i")
    static.beat("m1", -2, instance_id="i")
    assert static.join("m2", "a", instance_id="other").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert static.join("m2", "a", instance_id="i").error_code == 0, "it takes the place of the one before"


def test_who_joins_an_empty_group_need_not_wait_for_the_next_assignment() -> None:
    world = GroupsWorld(intervals=GroupIntervals(assignment_interval_ms=60_000), a=2)
    first = world.join("m1", "a")
    world.beat("m1", -1)
    epoch = first.member_epoch + 1
    assert kinds(world)[-1] == "TargetAssignmentMetadata"
    assert (world.group().epoch, world.group().assignment_epoch, world.group().assignment_wall_ms) == (epoch, epoch, 0)
    joined = world.join("m2", "a")
    assert (joined.member_epoch, assigned(joined)) == (epoch + 1, {(A, 0), (A, 1)})
    # A second member is not the first: it waits.
    assert assigned(world.join("m3", "a")) == set()


def test_another_assignor_is_a_new_epoch_only_if_most_members_want_it() -> None:
    world = GroupsWorld(ConsumerGroupConfig(assignors=("uniform", "range")), a=2)
    epoch = world.join("m1", "a").member_epoch
    assert world.beat("m1", epoch, server_assignor="uniform").member_epoch == epoch, "it was the default before"
    assert world.beat("m1", epoch, server_assignor="range").member_epoch == epoch + 1
    for member in ("m2", "m3"):
        world.join(member, "a", server_assignor="range")
    before = world.group().epoch
    world.beat("m3", world.group().members["m3"].member_epoch, server_assignor="uniform")
    assert world.group().epoch == before, "two of three want range"
    world.beat("m2", world.group().members["m2"].member_epoch, server_assignor="uniform")
    assert world.group().epoch == before + 1


def test_a_record_of_brokers_before_4_1_is_ended() -> None:
    world = GroupsWorld(a=1)
    world.groups.replay(ConsumerGroupPartitionMetadataKey(group_id="g"), ConsumerGroupPartitionMetadataValue(topics=[]))
    world.join("m1", "a")
    assert "-PartitionMetadata" in kinds(world)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"subscribed_topic_names": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
    ],
)
def test_bad_requests_are_refused(fields: dict[str, object], message: str) -> None:
    world = GroupsWorld(a=1)
    answer = world.join("m1", "a", **fields) if "member_id" not in fields else world.join("", "a")
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_an_assignor_that_the_broker_does_not_have_is_refused() -> None:
    world = GroupsWorld(a=1)
    answer = world.join("m1", "a", server_assignor="best")
    message = "ServerAssignor best is not supported. Supported assignors: uniform, range."
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    assert world.join("m1", "a", server_assignor="range").error_code == 0
    assert world.groups.describe("g").assignor_name == "range"


def test_a_member_of_the_first_version_is_given_an_id() -> None:
    world = GroupsWorld(a=1)
    assert world.join("", "a", version=0).member_id == "made-by-the-broker"


def test_a_group_that_was_not_joined_does_not_exist() -> None:
    world = GroupsWorld(a=1)
    for epoch in (1, -1):
        assert world.beat("m1", epoch).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_racks_change_no_assignment_but_the_hash_of_the_topics(assignor: str) -> None:
    """As in Apache Kafka 4.4, beside which `tests/interop/test_racks_of_groups.py` runs."""
    plain, racked = GroupsWorld(a=7, b=3), GroupsWorld(a=7, b=3)
    racked.topics.topics["a"].rack_names, racked.topics.topics["b"].rack_names = ["r1"], ["r2", "r1"]
    for name, rack in (("m1", "r2"), ("m2", "r1"), ("m3", "elsewhere")):
        plain.join(name, "a", "b", server_assignor=assignor)
        racked.join(name, "a", "b", server_assignor=assignor, rack_id=rack)
        assert racked.group().targets == plain.group().targets
    assert racked.group().members["m1"].rack_id == "r2"
    assert racked.group().metadata_hash != plain.group().metadata_hash
    before = racked.group().targets, racked.group().epoch
    racked.beat("m1", racked.group().members["m1"].member_epoch, rack_id="r1")
    assert racked.group().members["m1"].rack_id == "r1"
    assert (racked.group().targets, racked.group().epoch) == before


def test_the_order_of_racks_does_not_change_the_hash_of_a_topic() -> None:
    worlds = [GroupsWorld(a=2) for _ in range(3)]
    for world, racks in zip(worlds, (["r1", "r2"], ["r2", "r1"], ["r2"]), strict=True):
        world.topics.topics["a"].rack_names = racks
        world.join("m1", "a")
    first, second, third = (world.group().metadata_hash for world in worlds)
    assert first == second != third
