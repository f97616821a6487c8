"""Requests in parts: what is decided together stays together, and what is asked twice is answered once."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.front import large_requests, request_parts
from minikafka.broker.front.large_requests import PLAIN_FRAME_BYTES_MAX, LargeRequests
from minikafka.broker.front.named_twice import STEP_ENTRIES
from minikafka.broker.front.request_parts import BATCH, CHANGE, GROUP, HEAVY, PART_ENTRIES, Answers, all_parts, cuts_of, is_much, parts
from minikafka.broker.supervise import Supervisor
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.header import decode_response_header
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.message import FREED_AT_ONCE
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.describe_producers import DescribeProducersRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse


def cut(request: Any) -> list[Any]:
    return [part for part in all_parts(request, cuts_of(request)) if part is not None]


# -- what is decided together -----------------------------------------------------------------------------------------------


def topics(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=name) for name in names])


def test_entries_named_twice_are_in_one_part_and_none_is_lost() -> None:
    many = [f"t{number}" for number in range(2 * PART_ENTRIES)]
    named = ["twice", *many, "thrice", "twice", "thrice", "thrice"]
    found = [[topic.name for topic in part.topics] for part in cut(topics(*named))]
    assert sorted(itertools.chain(*found)) == sorted(named)
    for name in ("twice", "thrice"):
        assert sum(name in part for part in found) == 1
    assert len(found) == 2 * CHANGE + 1 and max(map(len, found)) <= PART_ENTRIES // CHANGE


def test_very_many_names_that_come_twice_are_in_more_than_one_part() -> None:
    names = [f"t{number}" for number in range(PART_ENTRIES)]
    found = [[topic.name for topic in part.topics] for part in cut(topics(*names, *names))]
    assert [len(part) for part in found] == [PART_ENTRIES // CHANGE] * (2 * CHANGE)
    assert all(part.count(name) == 2 for part in found for name in part)


def test_few_groups_are_deleted_in_a_part() -> None:
    """A batch is written for each: 512 in a turn took 30 ms of everybody's time."""
    names = [f"g{number}" for number in range(PART_ENTRIES)]
    request = DeleteGroupsRequest(groups_names=[*names, "g0"])
    assert is_much(request)
    found = [part.groups_names for part in cut(request)]
    assert sorted(name for part in found for name in part) == sorted(names)
    assert max(map(len, found)) <= PART_ENTRIES // GROUP


def test_names_are_compared_in_steps() -> None:
    steps = list(all_parts(topics(*(f"t{number}" for number in range(4 * STEP_ENTRIES))), cuts_of(topics("t"))))
    assert steps.count(None) > 4 and steps[:5] == [None] * 5


def test_holders_of_nothing_are_looked_at_in_steps_too() -> None:
    holders = [DeleteRecordsRequest.DeleteRecordsTopic(name=f"t{number}") for number in range(4 * STEP_ENTRIES)]
    request = DeleteRecordsRequest(topics=holders)
    assert list(itertools.islice(all_parts(request, cuts_of(request)), 4)) == [None] * 4


def test_all_changes_of_a_user_are_in_one_part() -> None:
    kind = AlterUserScramCredentialsRequest
    others = [kind.ScramCredentialDeletion(name=f"u{number}", mechanism=1) for number in range(2 * PART_ENTRIES)]
    request = kind(
        deletions=[kind.ScramCredentialDeletion(name="alice", mechanism=1), *others],
        upsertions=[kind.ScramCredentialUpsertion(name="alice", mechanism=2), kind.ScramCredentialUpsertion(name="bob", mechanism=1)],
    )
    found = cut(request)
    assert [(one.name, one.mechanism) for one in (*found[0].deletions, *found[0].upsertions)] == [("alice", 1), ("alice", 2)]
    assert sum(len(part.deletions) + len(part.upsertions) for part in found) == 2 * PART_ENTRIES + 3


def test_topics_are_named_by_name_or_id() -> None:
    kind = DeleteTopicsRequest.DeleteTopicState
    others = [kind(name=f"t{number}") for number in range(PART_ENTRIES)]
    one = kind(name=None, topic_id=b"1" * 16)
    found = cut(DeleteTopicsRequest(topics=[one, *others, one]))
    assert [topic.topic_id for topic in found[0].topics] == [b"1" * 16] * 2
    found = cut(DeleteTopicsRequest(topic_names=["a", *(f"t{number}" for number in range(PART_ENTRIES)), "a"]))
    assert found[0].topic_names == ["a", "a"]


def test_the_partitions_of_a_transaction_are_not_taken_apart() -> None:
    kind = AddPartitionsToTxnRequest
    topic = kind.AddPartitionsToTxnTopic(name="t", partitions=list(range(3 * PART_ENTRIES)))
    request = kind(v3_and_below_transactional_id="x", v3_and_below_topics=[topic])
    assert cuts_of(request) == [] and not is_much(request)
    several = [kind.AddPartitionsToTxnTransaction(transactional_id=name, topics=[topic]) for name in "ab"]
    assert [[one.transactional_id for one in part.transactions] for part in cut(kind(transactions=several))] == [["a"], ["b"]]


# -- long answers to short requests -----------------------------------------------------------------------------------------


def test_a_repeated_entry_is_answered_once() -> None:
    assert [part.groups for part in cut(DescribeGroupsRequest(groups=["g"] * 4000))] == [["g"]]
    groups = [f"g{number}" for number in range(20)]
    assert [len(part.group_ids) for part in cut(ConsumerGroupDescribeRequest(group_ids=groups * 100))] == [8, 8, 4]
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resources = [kind(resource_type=number % 2 + 2, resource_name="1", configuration_keys=[str(number)]) for number in range(100)]
    assert [len(part.resources) for part in cut(DescribeConfigsRequest(resources=resources))] == [2]
    asked = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[asked(name=name, partition_indexes=[0, 1, 0, 2]) for name in "aabab"])
    found = [(topic.name, index) for part in cut(request) for topic in part.topics for index in topic.partition_indexes]
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]


def test_all_offsets_of_a_group_are_answered_once_in_a_request() -> None:
    kind = OffsetFetchRequest
    every = [kind.OffsetFetchRequestGroup(group_id="g", topics=None, member_epoch=-number) for number in range(500)]
    assert is_much(kind(groups=list(every)))
    assert [len(part.groups) for part in cut(kind(groups=every))] == [1]
    named = kind.OffsetFetchRequestTopics(name="t", partition_indexes=list(range(600)))
    groups = [kind.OffsetFetchRequestGroup(group_id="g", topics=[named]), kind.OffsetFetchRequestGroup(group_id="h", topics=None)]
    asked = [group for part in cut(kind(groups=groups)) for group in part.groups]
    assert asked[-1].topics is None and sum(len(group.topics[0].partition_indexes) for group in asked[:-1]) == 600


def test_how_much_is_much() -> None:
    assert not is_much(DescribeGroupsRequest(groups=["g"] * (PART_ENTRIES // HEAVY)))
    assert is_much(DescribeGroupsRequest(groups=["g"] * (PART_ENTRIES // HEAVY + 1)))
    kind = OffsetCommitRequest

    def commit(count: int) -> OffsetCommitRequest:
        partitions = [kind.OffsetCommitRequestPartition(partition_index=number) for number in range(count)]
        return kind(topics=[kind.OffsetCommitRequestTopic(name="t", partitions=partitions)])

    assert not is_much(commit(PART_ENTRIES)) and is_much(commit(PART_ENTRIES + 1))
    assert not is_much(FetchRequest(topics=[FetchRequest.FetchTopic(topic="t")] * 10_000)), "a fetch is served whole"


# -- Produce ----------------------------------------------------------------------------------------------------------------


def produce(count: int, records: bytes | None = None, acks: int = 1) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(index=number, records=records) for number in range(count)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=data)])


def test_a_produce_of_many_partitions_is_not_decoded_in_one_go() -> None:
    frame = produce(100_000).encode(9)
    assert ProduceRequest.decode_few(9, frame, 0, PART_ENTRIES) is None
    batch = bytes(build_batch([(0, 1, b"k", bytes(1 << 20), ())]))
    one = ProduceRequest.decode_few(9, produce(1, batch).encode(9), 0, PART_ENTRIES)
    assert one is not None and one.topic_data[0].partition_data[0].records == batch
    assert is_much(produce(PART_ENTRIES // BATCH + 1)) and not is_much(produce(PART_ENTRIES // BATCH))


def test_nodes_that_parts_name_are_named_once() -> None:
    answers, kind = Answers(("responses", "partition_responses"), "node_endpoints"), ProduceResponse
    for index, nodes in enumerate(([1, 2], [], [2, 3])):
        partitions = [kind.PartitionProduceResponse(index=index)]
        answers.add(
            kind(
                responses=[kind.TopicProduceResponse(name="t", partition_responses=partitions)],
                node_endpoints=[kind.NodeEndpoint(node_id=node, host="h", port=1) for node in nodes],
            )
        )
    assert [node.node_id for node in answers.merged.node_endpoints] == [1, 2, 3]
    assert [one.index for one in answers.merged.responses[0].partition_responses] == [0, 1, 2]


def test_lists_that_are_made_when_they_are_encoded_are_not_made_to_combine_answers() -> None:
    """The offsets of ten groups of 9,000 partitions were made in one turn."""
    made: list[int] = []
    kind = OffsetFetchResponse

    def partition(index: int) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
        made.append(index)
        return kind.OffsetFetchResponsePartitions(partition_index=index, committed_offset=index)

    every = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in "ab"]
    answers = Answers(cuts_of(OffsetFetchRequest(groups=every))[0].answers)
    for name in ("a", "b", "b"):
        topic = kind.OffsetFetchResponseTopics(name="t", partitions=lazy_list(list(range(1000)), partition))
        answers.add(kind(groups=[kind.OffsetFetchResponseGroup(group_id=name, topics=[topic])]))
        assert not made or name == "b"
    sizes = [len(group.topics[0].partitions) for group in answers.merged.groups]
    assert sizes == [1000, 2000] and len(made) == 2000, "made are only those that came twice"
    assert [part for part, _ in zip(parts(answers.merged, answers._lists, is_answer=True), range(9), strict=False)]


# -- serving ----------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_frame_without_records_has_so_many_bytes() -> None:
    large = LargeRequests(Supervisor(asyncio.get_running_loop()))
    entry = entry_of(DescribeGroupsRequest, None)
    assert large.short(entry, 5, bytes(PLAIN_FRAME_BYTES_MAX), 0) is None, "it is served in steps"
    with pytest.raises(WireError, match="longer than"):
        large.short(entry, 5, bytes(PLAIN_FRAME_BYTES_MAX + 1), 0)
    entry.api_key = ProduceRequest.API_KEY
    assert large.short(entry, 9, bytes(PLAIN_FRAME_BYTES_MAX + 1), 0) is None


class FakeContext:
    """A request's context that notes its answer."""

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.correlation_id = 7
        self.answered: list[Any] = []
        self.is_answered = False
        self.kept = 0
        self.connection = SimpleNamespace(hold=lambda: None, go_on=lambda: None, closed=False)

    def complete(self, response: Any) -> None:
        pass

    def keep(self, size: int) -> None:
        self.kept = max(self.kept, size)

    def respond_encoded(self, response: Any, pieces: list[Any]) -> None:
        self.is_answered = True
        frame = b"".join(pieces)[4:]
        _, position = decode_response_header(frame, response.API_KEY, self.api_version)
        self.answered.append(type(response).decode(self.api_version, frame, position))

    def no_response(self) -> None:
        self.is_answered = True
        self.answered.append(None)

    def close(self, reason: str = "") -> None:
        self.connection.closed = True
        self.answered.append(reason)


def entry_of(kind: Any, handler: Any) -> Any:
    return SimpleNamespace(
        name=kind.__name__, api_key=kind.API_KEY, elements_max=large_requests.elements_max(kind), long_bytes=0, answer_to=handler,
        decode_in_steps=kind.decode_in_steps, count_error=lambda code: None,
    )  # fmt: skip


def deletions(count: int, timeout_ms: int) -> DeleteRecordsRequest:
    kind = DeleteRecordsRequest
    partitions = [kind.DeleteRecordsPartition(partition_index=number, offset=1) for number in range(count)]
    return kind(topics=[kind.DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=timeout_ms)


def no_records(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    kind = DeleteRecordsResponse
    results = [kind.DeleteRecordsPartitionResult(partition_index=p.partition_index, error_code=ErrorCode.REQUEST_TIMED_OUT)
               for p in request.topics[0].partitions]  # fmt: skip
    return kind(topics=[kind.DeleteRecordsTopicResult(name="t", partitions=results)])


@pytest.mark.asyncio
async def test_all_parts_together_take_no_longer_than_the_request_may() -> None:
    large, asked = LargeRequests(Supervisor(asyncio.get_running_loop())), []

    async def times_out(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        asked.append(request.timeout_ms)
        await asyncio.sleep(request.timeout_ms / 1000)
        return no_records(request)

    context = FakeContext(2)
    entry = entry_of(DeleteRecordsRequest, lambda _, request: times_out(request))
    await large.serve(context, entry, deletions(10 * PART_ENTRIES, 200).encode(2), 0)
    assert len(context.answered[0].topics[0].partitions) == 10 * PART_ENTRIES
    assert 1 <= asked[0] <= 200 and all(1 <= timeout_ms <= max(1, 202 - asked[0]) for timeout_ms in asked[1:])


@pytest.mark.asyncio
async def test_a_request_that_waits_for_others_does_not_delay_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "BYTES_AT_ONCE", 100)
    large = LargeRequests(Supervisor(asyncio.get_running_loop()))
    parked: list[Any] = []
    first, second = FakeContext(2), FakeContext(2)
    waiting = entry_of(DeleteRecordsRequest, lambda part, request: parked.append((part, no_records(request))))
    quick = entry_of(DeleteRecordsRequest, lambda _, request: no_records(request))
    held = large.serve(first, waiting, deletions(2 * PART_ENTRIES, 0).encode(2), 0)
    while not parked:
        await asyncio.sleep(0)
    await large.serve(second, quick, deletions(2 * PART_ENTRIES, 0).encode(2), 0)
    assert second.answered and not first.answered
    while not held.done():
        if parked:
            part, answer = parked.pop(0)
            part.respond(answer)
        await asyncio.sleep(0)
    assert len(first.answered[0].topics[0].partitions) == 2 * PART_ENTRIES and large._bytes == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("acks", [1, 0])
async def test_the_parts_of_a_produce_are_begun_at_once_and_in_order(acks: int) -> None:
    large, begun = LargeRequests(Supervisor(asyncio.get_running_loop())), []

    def append(part: Any, request: ProduceRequest) -> None:
        data = request.topic_data[0].partition_data
        data[0].records[:1] = b"!"  # type: ignore[index]
        begun.append((part, [one.index for one in data]))
        if acks == 0:
            part.no_response()

    context = FakeContext(9)
    serving = large.serve(context, entry_of(ProduceRequest, append), memoryview(produce(300, b"records", acks).encode(9)), 0)
    while len(begun) < 3:
        await asyncio.sleep(0)
    assert list(itertools.chain(*(indexes for _, indexes in begun))) == list(range(300))
    kind = ProduceResponse
    for part, indexes in reversed(begun):
        if acks:
            partitions = [kind.PartitionProduceResponse(index=index) for index in indexes]
            part.respond(kind(responses=[kind.TopicProduceResponse(name="t", partition_responses=partitions)]))
    await serving
    if acks:
        assert [one.index for one in context.answered[0].responses[0].partition_responses] == list(range(300))
    else:
        assert context.answered == [None]


@pytest.mark.asyncio
async def test_a_part_that_ends_the_connection_is_the_last() -> None:
    large, begun = LargeRequests(Supervisor(asyncio.get_running_loop())), []

    def refuse(part: Any, request: ProduceRequest) -> None:
        begun.append(request)
        part.close("closed after a failed produce with acks=0")

    context = FakeContext(9)
    await large.serve(context, entry_of(ProduceRequest, refuse), produce(600, b"records", 0).encode(9), 0)
    assert len(begun) == 1 and context.answered[0].startswith("closed after")


@pytest.fixture
def living() -> Iterator[Callable[[type], int]]:
    """Counts objects of a type that were made since the test began."""
    gc.collect()
    gc.freeze()
    yield lambda kind: sum(type(held) is kind for held in gc.get_objects())
    gc.unfreeze()


@pytest.mark.asyncio
@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_long_request_is_freed_in_steps(is_refused: bool, living: Callable[[type], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is answered, or refused half-way through its decoding: freeing 100,000 objects at once takes 20 ms."""
    kind, count, most, seen, before = DeleteRecordsRequest.DeleteRecordsPartition, 10 * PART_ENTRIES, 0, 0, 0
    large = LargeRequests(Supervisor(asyncio.get_running_loop()))
    take = large.turns.next

    async def counted() -> None:
        nonlocal most, seen, before
        now = living(kind)
        most, seen = max(most, before - now), max(seen, now)
        await take()
        before = living(kind)

    async def answered(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return no_records(request)

    monkeypatch.setattr(large.turns, "next", counted)
    entry = entry_of(DeleteRecordsRequest, lambda _, request: answered(request))
    if is_refused:
        entry.elements_max = count - PART_ENTRIES
    context, frame = FakeContext(2), deletions(count, 200).encode(2)
    await large.serve(context, entry, frame, 0)
    most = max(most, before - living(kind))
    assert context.connection.closed == is_refused and len(context.answered) == 1
    assert seen > count - 2 * PART_ENTRIES and most <= PART_ENTRIES + FREED_AT_ONCE and not living(kind)


@pytest.mark.parametrize("names", [1, 50_000])
def test_very_many_entries_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch, names: int) -> None:
    """Found by the fuzzer: 100,000 entries of one name, which are answered once, took one turn of 40 to 100 ms."""
    looks, original = [0], request_parts._is_news

    def counted(name: tuple[Any, ...], seen: set[Any]) -> bool:
        looks[-1] += 1
        return original(name, seen)

    monkeypatch.setattr(request_parts, "_is_news", counted)
    for kind, field, made in (
        (DescribeGroupsRequest, "groups", lambda number: f"g{number}"),
        (OffsetFetchRequest, "groups", lambda number: OffsetFetchRequest.OffsetFetchRequestGroup(group_id=f"g{number}", topics=None)),
    ):
        request: Any = kind(**{field: [made(number % names) for number in range(50_000)]})
        answered = 0
        for part in all_parts(request, cuts_of(request)):
            looks.append(0)
            answered += 0 if part is None else len(getattr(part, field))
        assert answered == names and max(looks) <= STEP_ENTRIES
