"""Error codes of the group APIs, as Apache Kafka 4.3 answers them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.coordinator_world import CoordinatorWorld

from minikafka.broker.coordinators.consumer_group_requests import ConsumerGroupHandlers
from minikafka.broker.coordinators.group_requests import GROUP_OPERATIONS, GroupHandlers
from minikafka.core.authorizer.acl import Operation, operation_bits
from minikafka.core.group.classic import ClassicGroup, GroupState
from minikafka.core.group.member import Member
from minikafka.core.group.offsets import CommittedOffset
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest

FETCH = OffsetFetchRequest.OffsetFetchRequestGroup
TOPICS = OffsetFetchRequest.OffsetFetchRequestTopics


class Context:
    """A request and its answers."""

    def __init__(self, version: int) -> None:
        self.header = SimpleNamespace(api_version=version, client_id="c")
        self.connection = SimpleNamespace(peer_host="1.2.3.4")
        self.answers: list[Any] = []

    def respond(self, response: Any) -> None:
        self.answers.append(response)


def handlers(world: CoordinatorWorld) -> Any:
    environment: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0))
    return GroupHandlers(world.groups, world.transactions, SimpleNamespace(image=world.image), environment, world.transactions)  # type: ignore[arg-type]


async def test_offsets_of_a_group_that_does_not_exist_are_none() -> None:
    """Whoever says that he is a member, too."""
    world = CoordinatorWorld()
    world.lead()
    group = FETCH(group_id="g", member_id="m", member_epoch=3, topics=[TOPICS(name="t", partition_indexes=[0])])
    answer = handlers(world).offset_fetch(Context(9), OffsetFetchRequest(groups=[group])).groups[0]
    assert answer.error_code == 0
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (0, -1)
    await world.stop()


async def test_a_coordinator_in_doubt_answers_not_coordinator_and_does_not_name_itself() -> None:
    """This check comes before the member is looked up: otherwise a member of a later generation would be fenced."""
    world = CoordinatorWorld()
    world.lead()
    group = FETCH(group_id="g", topics=[TOPICS(name="t", partition_indexes=[0])])
    for is_in_doubt, code in [(False, ErrorCode.NONE), (True, ErrorCode.NOT_COORDINATOR), (False, ErrorCode.NONE)]:
        world.is_in_doubt = is_in_doubt
        assert world.groups.is_in_doubt("g") is is_in_doubt
        assert handlers(world).offset_fetch(Context(9), OffsetFetchRequest(groups=[group])).groups[0].error_code == code
    world.is_in_doubt = True
    world.lead(leader=False)
    assert not world.groups.is_in_doubt("g"), "he knows that he does not lead"
    await world.stop()


async def test_a_coordinator_whose_partition_is_not_opened_yet_is_loading() -> None:
    """FindCoordinator names it as soon as the metadata do. Members that are told to look elsewhere only come back."""
    world = CoordinatorWorld()
    assert world.refusal() is ErrorCode.NOT_COORDINATOR
    world.is_about_to_lead = True
    assert world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.lead()
    assert world.refusal() is None
    await world.stop()


@pytest.mark.parametrize("version", [7, 8])
async def test_a_stable_offset_waits_for_open_transactions(version: int) -> None:
    """KIP-447. Whoever does not ask for it gets what was committed before."""
    world = CoordinatorWorld()
    world.lead()
    offsets = world.groups.shard("g")[1].offsets
    offsets.put("g", "t", 0, CommittedOffset(10, -1, "", 0, -1))
    offsets.put_open(1000, "g", "t", 0, CommittedOffset(20, -1, "", 0, -1))

    def fetched(*, require_stable: bool) -> tuple[int, int]:
        request = OffsetFetchRequest(require_stable=require_stable)
        if version < 8:
            request.group_id = "g"
            request.topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        else:
            request.groups = [FETCH(group_id="g", topics=[TOPICS(name="t", partition_indexes=[0])])]
        answer = handlers(world).offset_fetch(Context(version), request)
        (partition,) = (answer if version < 8 else answer.groups[0]).topics[0].partitions
        return partition.error_code, partition.committed_offset

    assert fetched(require_stable=False) == (0, 10)
    assert fetched(require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    offsets.end_transaction(1000, True)
    assert fetched(require_stable=True) == (0, 20)
    await world.stop()


async def test_unknown_topics_come_last() -> None:
    world = CoordinatorWorld()
    world.lead()
    existing_id = b"k" * 16
    world.image.topics_by_id = {existing_id: SimpleNamespace(name="t", topic_id=existing_id)}
    topics = [TOPICS(topic_id=topic_id, partition_indexes=[0]) for topic_id in (b"?" * 16, existing_id, b"!" * 16)]
    answer = handlers(world).offset_fetch(Context(10), OffsetFetchRequest(groups=[FETCH(group_id="g", topics=topics)])).groups[0]
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.topics] == [
        (existing_id, 0),
        (b"?" * 16, unknown),
        (b"!" * 16, unknown),
    ]
    await world.stop()


async def test_before_the_topic_exists_there_is_no_coordinator() -> None:
    world = CoordinatorWorld()
    world.image.topics_by_name = {}
    request = OffsetFetchRequest(groups=[FETCH(group_id="g", topics=None)])
    assert handlers(world).offset_fetch(Context(8), request).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    await world.stop()


@pytest.mark.parametrize("group_id", ["g", ""])
@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_a_commit_with_an_epoch_to_a_group_that_does_not_exist(group_id: str, version: int, code: ErrorCode) -> None:
    world = CoordinatorWorld()
    world.lead()
    world.image.topics_by_name["t"] = SimpleNamespace(name="t", topic_id=b"k" * 16, partitions={0: None})
    parts = [OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 9)]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=parts)]
    context = Context(version)
    request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=3, member_id="m", topics=topics)
    handlers(world).offset_commit(context, request)
    found = [part.error_code for part in context.answers[0].topics[0].partitions]
    assert found == [code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "what does not exist has that error, whatever the group says"
    await world.stop()


@pytest.mark.parametrize(("version", "asks", "has_operations"), [(5, True, True), (5, False, False), (6, True, False)])
async def test_without_an_authorizer_everything_may_be_done_to_a_group(version: int, asks: bool, has_operations: bool) -> None:
    """Unless it is not there, which version 6 says."""
    world = CoordinatorWorld()
    world.lead()
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=asks)
    (group,) = handlers(world).describe_groups(Context(version), request).groups
    every = operation_bits([Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS])
    assert group.authorized_operations == (every if has_operations else -(2**31))
    await world.stop()


@pytest.mark.parametrize("state", [GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_a_group_in_a_rebalance_is_described_with_the_assignments_that_hold_until_its_end(state: GroupState) -> None:
    group = ClassicGroup("g", 0)
    member = Member("m", None, "c", "h", 30_000, 30_000, "consumer", [("range", b"topics")])
    member.assignment = b"partitions"
    group.add(member)
    group.state, group.protocol_name = state, "range"
    groups: Any = SimpleNamespace(shard=lambda name: (0, SimpleNamespace(groups={"g": group})))
    nobody, environment = cast(Any, None), cast(Any, SimpleNamespace(clock=None))
    context: Any = Context(5)
    served = GroupHandlers(groups, nobody, nobody, environment, nobody).describe_groups(context, DescribeGroupsRequest(groups=["g"]))
    (described,) = served.groups[0].members
    assert (described.member_metadata, described.member_assignment) == (b"topics" if state is GroupState.STABLE else b"", b"partitions")


async def test_groups_that_do_not_exist_are_not_deleted() -> None:
    world = CoordinatorWorld()
    world.lead()
    context = Context(2)
    handlers(world).delete_groups(context, DeleteGroupsRequest(groups_names=["", "g"]))
    assert [result.error_code for result in context.answers[0].results] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    await world.stop()


@pytest.mark.parametrize("asks", [True, False])
def test_the_operations_on_a_consumer_group_are_listed_on_request(asks: bool) -> None:
    shard = SimpleNamespace(
        is_other=lambda name, kind: False,
        consumers=SimpleNamespace(describe=lambda name: ConsumerGroupDescribeResponse.DescribedGroup(group_id=name)),
    )
    groups: Any = SimpleNamespace(shard=lambda name: (0, shard))
    image: Any = SimpleNamespace(image=SimpleNamespace(features={"group.version": 1}))
    environment: Any = SimpleNamespace(clock=None)
    nobody: Any = None
    config: Any = SimpleNamespace(group_coordinator_rebalance_protocols=["classic", "consumer"], group_consumer_assignors=[])
    request = ConsumerGroupDescribeRequest(group_ids=["g", ""], include_authorized_operations=asks)
    served = ConsumerGroupHandlers(config, groups, nobody, image, environment, nobody).describe(nobody, request).groups
    assert [group.authorized_operations for group in served] == [GROUP_OPERATIONS if asks else -(2**31), -(2**31)]
