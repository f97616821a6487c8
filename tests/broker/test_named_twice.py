"""What a request names twice is decided as Apache Kafka 4.3 does it (asked, its answers are noted here), also when served in parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from broker.test_long_requests import with_topic
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer

from minikafka.broker.front.named_twice import STEP_ENTRIES
from minikafka.broker.front.request_parts import BATCH, PART_ENTRIES, all_parts, cuts_of, is_much, weight_of
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.delete_records import DeleteRecordsRequest
from minikafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from minikafka.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.produce import ProduceRequest

RECORDS = bytes(build_batch([(0, 1, b"k", b"v", ())]))
LONG = PART_ENTRIES + 10


def produce(others: int) -> ProduceRequest:
    kind = ProduceRequest

    def topic(*indexes: int) -> ProduceRequest.TopicProduceData:
        return kind.TopicProduceData(name="t", partition_data=[kind.PartitionProduceData(index=n, records=RECORDS) for n in indexes])

    return kind(acks=1, timeout_ms=1000, topic_data=[topic(0, 1, 0), topic(*range(100, 100 + others)), topic(1, 0)])


def list_offsets(others: int) -> ListOffsetsRequest:
    kind = ListOffsetsRequest

    def topic(*indexes: int) -> ListOffsetsRequest.ListOffsetsTopic:
        return kind.ListOffsetsTopic(name="t", partitions=[kind.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in indexes])

    return kind(topics=[topic(0, 1), topic(*range(100, 100 + others)), topic(0, 0)])


def delete_records(others: int) -> DeleteRecordsRequest:
    kind = DeleteRecordsRequest

    def topic(*wanted: tuple[int, int]) -> DeleteRecordsRequest.DeleteRecordsTopic:
        return kind.DeleteRecordsTopic(name="t", partitions=[kind.DeleteRecordsPartition(partition_index=n, offset=o) for n, o in wanted])

    return kind(timeout_ms=1000, topics=[topic((0, 1), (1, 1)), topic(*((n, 0) for n in range(100, 100 + others))), topic((0, 0))])


def log_dirs(others: int) -> DescribeLogDirsRequest:
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(
        topics=[
            kind(topic="t", partitions=[0, *range(100, 100 + others), 0]),
            kind(topic="u", partitions=[0]),
            kind(topic="t", partitions=[0]),
        ]
    )


def names(others: int) -> list[str]:
    return ["a", "b", *(f"n{number}" for number in range(others)), "a", "a"]


def quotas(others: int) -> AlterClientQuotasRequest:
    kind = AlterClientQuotasRequest

    def entry(client_id: str, value: float) -> AlterClientQuotasRequest.EntryData:
        operation = kind.OpData(key="producer_byte_rate", value=value, remove=False)
        return kind.EntryData(entity=[kind.EntityData(entity_type="client-id", entity_name=client_id)], ops=[operation])

    return kind(entries=[entry("a", 1000.0), *(entry(f"n{n}", 5.0) for n in range(others)), entry("a", 2000.0)])


def fields_of(found: Any, name: str, *fields: str) -> list[tuple[Any, ...]]:
    """What is said of the partitions 0 and 1, or of a and b."""
    return sorted(
        tuple(getattr(one, field) for field in (name, *fields)) for one in found if getattr(one, name) in (0, 1, "a", "b")
    )  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.timeout(60)
@pytest.mark.parametrize("others", [0, LONG])
async def test_entries_named_twice_are_treated_as_in_apache_kafka(tmp_path: Path, others: int) -> None:
    properties = {"offsets.topic.num.partitions": "1", "log.retention.ms": "-1"}
    async with live_node(tmp_path, properties) as node, Peer(broker_port(node)) as peer:
        await with_topic(node, 2)
        assert is_much(produce(others // BATCH)) is (others > 0)
        answer = await peer.ask(produce(others // BATCH), 9)
        found = [one for topic in answer.responses for one in topic.partition_responses]
        assert fields_of(found, "index", "error_code", "base_offset") == [(0, 0, 0), (1, 0, 0)]
        await peer.ask(produce(0), 9)
        answer = await peer.ask(list_offsets(others), 7)
        found = [one for topic in answer.topics for one in topic.partitions]
        assert fields_of(found, "partition_index", "error_code", "offset") == [(0, ErrorCode.INVALID_REQUEST, -1), (1, 0, 2)]
        assert [topic.name for topic in answer.topics] == ["t"] or others
        answer = await peer.ask(delete_records(others), 2)
        found = [one for topic in answer.topics for one in topic.partitions]
        assert fields_of(found, "partition_index", "error_code", "low_watermark") == [(0, 0, 0), (1, 0, 1)]
        answer = await peer.ask(log_dirs(others), 4)
        assert fields_of(answer.results[0].topics[0].partitions, "partition_index") == [(0,)]

        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names(others)]
        answer = await peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert fields_of(answer.topics, "name", "error_code") == [("a", 3), ("b", 3)]
        answer = await peer.ask(DeleteGroupsRequest(groups_names=names(others)), 2)
        assert fields_of(answer.results, "group_id") == [("a",), ("b",)]
        users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names(others)]
        answer = await peer.ask(DescribeUserScramCredentialsRequest(users=users), 0)
        duplicate, missing = ErrorCode.DUPLICATE_RESOURCE, ErrorCode.RESOURCE_NOT_FOUND
        assert fields_of(answer.results, "user", "error_code") == [("a", duplicate), ("b", missing)]

        answer = await peer.ask(quotas(others), 1)
        codes = Counter((entry.entity[0].entity_name == "a", entry.error_code) for entry in answer.entries)
        assert codes == Counter({(True, ErrorCode.INVALID_REQUEST): 1, (False, 0): others})
        kind = DescribeClientQuotasRequest
        asked = kind(components=[kind.ComponentData(entity_type="client-id", match_type=0, match="a")], strict=False)
        while not (answer := await peer.ask(asked, 1)).entries:
            pass
        assert answer.entries[0].values[0].value == 1000.0


def test_two_of_each_name_come_together_and_the_others_are_all_there() -> None:
    twice = list_offsets(0).topics[0].partitions
    request = list_offsets(0)
    kind = ListOffsetsRequest
    many = 2 * STEP_ENTRIES
    request.topics = [
        kind.ListOffsetsTopic(name=name, partitions=[kind.ListOffsetsPartition(partition_index=n % (many - 600)) for n in range(many)])
        for name in ("t", "u")
    ]
    found = list(all_parts(request, cuts_of(request)))
    assert found.count(None) >= 2 * many // STEP_ENTRIES, "it is looked at in steps"
    cut = [part for part in found if part is not None]
    assert max(weight_of(part, 10**6) for part in cut) <= 2 * PART_ENTRIES
    named = Counter((topic.name, one.partition_index) for part in cut for topic in part.topics for one in topic.partitions)
    assert named == Counter({(name, n): 2 if n < 600 else 1 for name in "tu" for n in range(many - 600)})
    for part in cut:
        inner = Counter((topic.name, one.partition_index) for topic in part.topics for one in topic.partitions)
        assert all(named[name] == count for name, count in inner.items()), "no name is in two parts"
    assert len(twice) == 2


def test_only_the_last_of_each_name_is_left_where_the_first_stood() -> None:
    request = produce(3 * STEP_ENTRIES)
    found = list(all_parts(request, cuts_of(request)))
    assert found.count(None) >= 2
    left = [one.index for part in found if part is not None for topic in part.topic_data for one in topic.partition_data]
    assert left == [0, 1, *range(100, 100 + 3 * STEP_ENTRIES)]
