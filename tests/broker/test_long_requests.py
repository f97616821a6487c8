"""Requests with very much in them: no turn of the event loop is long because of one of them, and they are answered as short ones are."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, controller_port, live_node
from helpers.long_frames import lists_of, long_frame
from helpers.peer import Peer
from helpers.turn_lengths import too_long

from minikafka.broker.admin.metadata import UNKNOWN_TOPICS_PER_RESPONSE_MAX
from minikafka.broker.front import large_requests
from minikafka.broker.front.forwarding import address_bytes, principal_bytes
from minikafka.broker.front.large_requests import ELEMENTS_MAX, FETCH_ENTRIES_MAX, LONG_BYTES, TOO_MANY_PARTITIONS
from minikafka.broker.front.request_parts import (
    CUTS,
    PART_ENTRIES,
    USER_OPERATION_ENTRIES_MAX,
    WHOLE_ENTRIES_MAX,
    Answers,
    parts,
    weight_of,
)
from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.frame import encode_request
from minikafka.wire.message import Request
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.registry import api, apis

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
FRAME_BYTES = 48_000
#: Long-polling and waiting for others is no work.
PATIENCE_S = 0.5


async def served(port: int, frame: bytes) -> None:
    """Send a frame and wait for what comes of it: an answer, the end of the connection, or nothing for a while."""
    async with Peer(port) as peer:
        peer.send_bytes(frame)
        try:
            await asyncio.wait_for(peer.frame(), PATIENCE_S)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            return


@pytest.mark.asyncio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("listener", ["broker", "controller"])
async def test_no_list_of_any_api_makes_a_turn_long(tmp_path: Path, listener: str) -> None:
    long = []
    settings = {**AUTHORIZER, "auto.create.topics.enable": "false"}
    with without_coverage():
        async with live_node(tmp_path, settings) as node:
            port = broker_port(node) if listener == "broker" else controller_port(node)
            for entry in apis():
                if listener not in entry.listeners:
                    continue
                for number, path in enumerate(lists_of(entry.request, entry.max_version)):
                    frame = long_frame(entry.request, entry.max_version, path, FRAME_BYTES)[0]
                    if number == 0:  # what each API compiles and imports at first is not what is measured
                        await served(port, frame)
                    found = await too_long(functools.partial(served, port, frame))
                    long += [f"{entry.name} v{entry.max_version} {path}: {found}"] if found else []
    assert not long, "\n".join(long)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_no_short_request_has_an_answer_that_makes_a_turn_long(tmp_path: Path) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    every = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    asked: list[tuple[Request, int]] = [
        (DescribeConfigsRequest(resources=[resource] * 1200, include_synonyms=True, include_documentation=True), 4),
        (OffsetFetchRequest(groups=[every] * 800), 9),
        (DescribeGroupsRequest(groups=["g"] * 3500), 5),
        (FindCoordinatorRequest(coordinator_keys=["g"] * 3500), 4),
    ]
    long = []
    async with live_node(tmp_path, {"offsets.topic.num.partitions": "1"}) as node, Peer(broker_port(node)) as peer:
        await with_topic(node, 200)
        await peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        kind = OffsetCommitRequest
        partitions = [kind.OffsetCommitRequestPartition(partition_index=n, committed_offset=n) for n in range(200)]
        commit = kind(group_id="g", topics=[kind.OffsetCommitRequestTopic(name="t", partitions=partitions)])
        while (await peer.ask(commit, 8)).topics[0].partitions[0].error_code:
            await asyncio.sleep(0.01)
        for request, version in asked:
            assert len(request.encode(version)) < LONG_BYTES
            await peer.ask(request, version)
            with without_coverage():
                found = await too_long(functools.partial(peer.ask, request, version))
            long += [f"{type(request).__name__}: {found}"] if found else []
    assert not long, "\n".join(long)


# -- what is served in parts is answered as a whole -----------------------------------------------------------------------


async def with_topic(node: Node, partitions: int) -> None:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=partitions, replication_factor=1)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_answers_to_parts_make_one_answer(tmp_path: Path) -> None:
    many = 3 * PART_ENTRIES
    async with live_node(tmp_path, AUTHORIZER) as node, Peer(broker_port(node)) as peer:
        await with_topic(node, 2)
        keys = [f"group-{number}" for number in range(many)]
        found = await peer.ask(FindCoordinatorRequest(coordinator_keys=keys), 4)
        assert [one.key for one in found.coordinators] == keys

        kind = ListOffsetsRequest
        topics = [
            kind.ListOffsetsTopic(name=name, partitions=[kind.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(many)])
            for name in ("t", "u")
        ]
        offsets = await peer.ask(kind(topics=topics), 7)
        assert [topic.name for topic in offsets.topics] == ["t", "u"]
        assert all([p.partition_index for p in topic.partitions] == list(range(many)) for topic in offsets.topics)
        codes = {index: p.error_code for index, p in enumerate(offsets.topics[0].partitions)}
        assert [codes.pop(0), codes.pop(1)] == [0, 0] and set(codes.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

        names = [MetadataRequest.MetadataRequestTopic(name="t" if n == many - 1 else f"none-{n}") for n in range(many)]
        metadata = await peer.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
        assert len(metadata.topics) == many and len(metadata.brokers) == 1
        assert [topic.name for topic in metadata.topics if topic.error_code == 0] == ["t"]


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_many_offsets_are_committed_and_fetched(tmp_path: Path) -> None:
    many = 2 * PART_ENTRIES + 100
    async with live_node(tmp_path) as node, Peer(broker_port(node)) as peer:
        await with_topic(node, 2)
        while (await peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0].error_code:
            await asyncio.sleep(0.05)
        commit = OffsetCommitRequest
        # Only two partitions are there: each may be named as often as one likes.
        row = commit.OffsetCommitRequestPartition
        rows = [row(partition_index=n % 2, committed_offset=n, committed_metadata="x" * 20) for n in range(many)]
        request = commit(group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t", partitions=rows)])
        while (answer := await peer.ask(request, 8)).topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.05)
        assert [p.error_code for p in answer.topics[0].partitions] == [0] * many

        fetch = OffsetFetchRequest
        wanted = [fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[n % 2 for n in range(5 * many)])]
        fetched = await peer.ask(fetch(groups=[fetch.OffsetFetchRequestGroup(group_id="g", topics=wanted)]), 8)
        assert [p.committed_offset for p in fetched.groups[0].topics[0].partitions] == [many - 2, many - 1] * (5 * many // 2)


@pytest.mark.asyncio
async def test_requests_of_a_connection_keep_their_order_behind_a_long_one(tmp_path: Path) -> None:
    keys = [f"group-{number}" for number in range(2 * PART_ENTRIES)]
    async with live_node(tmp_path) as node, Peer(broker_port(node)) as peer:
        for number in range(6):
            is_long = number % 3 == 0
            peer.send(FindCoordinatorRequest(coordinator_keys=keys) if is_long else ApiVersionsRequest(), 4 if is_long else 0, number)
        assert [int.from_bytes((await peer.frame())[:4], "big") for _ in range(6)] == list(range(6))


# -- bounds ----------------------------------------------------------------------------------------------------------------


def acls(count: int) -> CreateAclsRequest:
    kind = CreateAclsRequest.AclCreation
    entries = [
        kind(resource_type=2, resource_name=f"t{n}", resource_pattern_type=3, principal="User:a", host="*", operation=3, permission_type=3)
        for n in range(count)
    ]
    return CreateAclsRequest(creations=entries)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_a_controller_is_not_asked_for_more_changes_than_kafkas_is(tmp_path: Path) -> None:
    async with live_node(tmp_path, AUTHORIZER) as node, Peer(broker_port(node)) as peer:
        answer = await peer.ask(acls(USER_OPERATION_ENTRIES_MAX + 1), 3)
        assert {one.error_code for one in answer.results} == {ErrorCode.POLICY_VIOLATION}
        assert len(answer.results) == USER_OPERATION_ENTRIES_MAX + 1
        kind = CreateTopicsRequest.CreatableTopic
        topics = [kind(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(USER_OPERATION_ENTRIES_MAX + 1)]
        answer = await peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        assert {one.error_message for one in answer.topics} == {TOO_MANY_PARTITIONS}
        answer = await peer.ask(acls(PART_ENTRIES + 1), 3)
        assert [one.error_code for one in answer.results] == [0] * (PART_ENTRIES + 1)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_requests_that_cannot_be_split_have_few_entries(tmp_path: Path) -> None:
    kind = JoinGroupRequest.JoinGroupRequestProtocol

    def join(count: int) -> JoinGroupRequest:
        protocols = [kind(name=f"p{number}", metadata=b"") for number in range(count)]
        return JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols, session_timeout_ms=6000)

    async with live_node(tmp_path) as node:
        async with Peer(broker_port(node)) as peer:
            assert (await peer.ask(join(WHOLE_ENTRIES_MAX), 5)).error_code
            peer.send(join(WHOLE_ENTRIES_MAX + 2 * PART_ENTRIES), 5)
            assert await peer.is_closed()
        async with Peer(broker_port(node)) as peer:
            assert len((await peer.ask(FindCoordinatorRequest(coordinator_keys=["k"] * ELEMENTS_MAX), 4)).coordinators) == ELEMENTS_MAX
            peer.send(FindCoordinatorRequest(coordinator_keys=["k"] * (ELEMENTS_MAX + 2 * PART_ENTRIES)), 4)
            assert await peer.is_closed()


@pytest.mark.asyncio
async def test_long_requests_are_read_one_after_the_other_when_they_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["k" * 20] * 2000)
    size = len(request.encode(4))
    monkeypatch.setattr(large_requests, "BYTES_AT_ONCE", 2 * size + 1000)
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        large, seen = node.broker.dispatcher.large, []
        decoded = large._decoded

        async def counted(*arguments: Any) -> Any:
            seen.append(large._bytes // size)
            return await decoded(*arguments)

        monkeypatch.setattr(large, "_decoded", counted)

        async def one() -> int:
            async with Peer(broker_port(node)) as peer:
                return len((await peer.ask(request, 4)).coordinators)

        assert await asyncio.gather(*(one() for _ in range(7))) == [2000] * 7
        assert len(seen) == 7 and max(seen) == 2 and large._bytes == 0 and not large._waiting


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_an_encoded_answer_is_an_answer_too(tmp_path: Path) -> None:
    hello = ApiVersionsRequest(client_software_name="a" * (LONG_BYTES + 1), client_software_version="1")
    async with live_node(tmp_path) as node, Peer(broker_port(node)) as peer:
        for _ in range(2):
            peer.send(hello, 3)
            frame = await asyncio.wait_for(peer.frame(), 10)
            assert ApiVersionsResponse.decode(3, frame, 4).api_keys


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_a_fetch_has_so_many_partitions(tmp_path: Path) -> None:
    kind = FetchRequest

    def fetch(count: int) -> FetchRequest:
        partitions = [kind.FetchPartition(partition=number, fetch_offset=0) for number in range(count)]
        return kind(max_wait_ms=0, topics=[kind.FetchTopic(topic="none", partitions=partitions)])

    async with live_node(tmp_path) as node, Peer(broker_port(node)) as peer:
        answer = await peer.ask(fetch(FETCH_ENTRIES_MAX - 1), 12)
        assert len(answer.responses[0].partitions) == FETCH_ENTRIES_MAX - 1
        # What is there is sent from its file.
        await with_topic(node, 1)
        batch = bytes(build_batch([(0, 1, b"k", bytes(50_000), ())]))
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        produced = await peer.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
        assert produced.responses[0].partition_responses[0].error_code == 0
        request = fetch(4_000)
        request.topics.append(kind.FetchTopic(topic="t", partitions=[kind.FetchPartition(partition=0, partition_max_bytes=1 << 20)]))
        request.max_bytes = 1 << 20
        answer = await peer.ask(request, 12)
        assert len(answer.responses[0].partitions) == 4_000 and len(answer.responses[1].partitions[0].records) == len(batch)
        peer.send(fetch(FETCH_ENTRIES_MAX + 2 * PART_ENTRIES), 12)
        assert await peer.is_closed()


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_topics_that_are_not_there_are_described_some_at_a_time(tmp_path: Path) -> None:
    kind = DescribeTopicPartitionsRequest
    names = [f"none-{number:05}" for number in range(2 * UNKNOWN_TOPICS_PER_RESPONSE_MAX + 10)]
    async with live_node(tmp_path) as node, Peer(broker_port(node)) as peer:
        found, cursor, asked = [], None, 0
        while asked == 0 or cursor is not None:
            request = kind(topics=[kind.TopicRequest(name=name) for name in names])
            if cursor is not None:
                request.cursor = kind.Cursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
            answer = await peer.ask(request, 0)
            assert len(answer.topics) <= UNKNOWN_TOPICS_PER_RESPONSE_MAX
            found += [topic.name for topic in answer.topics]
            cursor, asked = answer.next_cursor, asked + 1
        assert found == names and asked == 3
        # Those that are there and are described in no answer but theirs, and a cursor behind all of them.
        await with_topic(node, 1)
        many = [f"a-none-{number:05}" for number in range(PART_ENTRIES)]
        request = kind(topics=[kind.TopicRequest(name=name) for name in ("t", *many)])
        answer = await peer.ask(request, 0)
        request.cursor = kind.Cursor(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)
        seen = [topic.name for topic in answer.topics]
        answer = await peer.ask(request, 0)
        assert [*seen, *(topic.name for topic in answer.topics)] == [*many, "t"] and answer.next_cursor is None
        request.cursor = kind.Cursor(topic_name="z", partition_index=0)
        answer = await peer.ask(request, 0)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST} and len(answer.topics) == len(request.topics)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_a_long_request_with_two_lists_and_one_in_an_envelope(tmp_path: Path) -> None:
    kind = AlterUserScramCredentialsRequest
    request = kind(
        deletions=[kind.ScramCredentialDeletion(name=f"deleted-{number}", mechanism=1) for number in range(PART_ENTRIES + 5)],
        upsertions=[
            kind.ScramCredentialUpsertion(name=f"changed-{number}", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32)
            for number in range(5)
        ],
    )
    async with live_node(tmp_path) as node:
        async with Peer(broker_port(node)) as peer:
            answer = await peer.ask(request, 0)
            codes = {result.user: result.error_code for result in answer.results}
            assert {code for user, code in codes.items() if user.startswith("deleted")} == {ErrorCode.RESOURCE_NOT_FOUND}
            assert [codes[f"changed-{number}"] for number in range(5)] == [0] * 5 and len(codes) == PART_ENTRIES + 10
        async with Peer(controller_port(node)) as peer:
            inner = b"".join(bytes(piece) for piece in encode_request(request, 0, 9, "c"))[4:]
            envelope = EnvelopeRequest(
                request_data=inner, request_principal=principal_bytes("User:a"), client_host_address=address_bytes("127.0.0.1")
            )
            answer = await peer.ask(envelope, 0)
            assert answer.error_code == 0
            reported = AlterUserScramCredentialsResponse.decode(0, answer.response_data, 5)
            assert len(reported.results) == PART_ENTRIES + 10
            envelope.request_data = inner[:-20]
            assert (await peer.ask(envelope, 0)).error_code


def test_parts_hold_everything_once_and_not_much_each() -> None:
    kind = ListOffsetsRequest

    def request() -> ListOffsetsRequest:
        sizes = [0, 1, PART_ENTRIES - 1, 3 * PART_ENTRIES + 7, 2]
        topics = [
            kind.ListOffsetsTopic(name=f"t{n}", partitions=[kind.ListOffsetsPartition(partition_index=i) for i in range(size)])
            for n, size in enumerate(sizes)
        ]
        return kind(topics=topics, isolation_level=1)

    def rows(parted: Any) -> list[tuple[str, int]]:
        nothing = [kind.ListOffsetsPartition(partition_index=-1)]
        return [(topic.name, p.partition_index) for topic in parted.topics for p in topic.partitions or nothing]

    cut = [part for part in parts(request(), ("topics", "partitions")) if part is not None]
    assert [row for part in cut for row in rows(part)] == rows(request())
    assert len(cut) == 6 and all(part.isolation_level == 1 and weight_of(part, 10**6) <= PART_ENTRIES + 8 for part in cut)

    answers = Answers(("topics", "partitions"))
    answer = ListOffsetsResponse
    for part in cut:
        topics = [
            answer.ListOffsetsTopicResponse(
                name=t.name, partitions=[answer.ListOffsetsPartitionResponse(partition_index=p.partition_index) for p in t.partitions]
            )
            for t in part.topics
        ]
        assert answers.add(answer(topics=topics, throttle_time_ms=len(topics)))
    assert rows(answers.merged) == rows(request()) and answers.merged.throttle_time_ms == max(len(part.topics) for part in cut)


def test_an_entry_that_holds_too_much_is_refused() -> None:
    kind = CreateTopicsRequest
    config = kind.CreatableTopicConfig(name="a", value="b")
    few = kind(topics=[kind.CreatableTopic(name="t", configs=[config] * (WHOLE_ENTRIES_MAX - 1))])
    assert len(list(parts(few, ("topics",)))) == 1
    with pytest.raises(WireError, match="holds more than"):
        list(parts(kind(topics=[kind.CreatableTopic(name="t", configs=[config] * WHOLE_ENTRIES_MAX)]), ("topics",)))


def test_every_rule_names_lists_that_are_there() -> None:
    for request, cuts in CUTS.items():
        entry = api(request.API_KEY)
        assert entry is not None
        for cut in cuts:
            version = entry.max_version if any(path == cut.entries for path in lists_of(request, entry.max_version)) else None
            versions = range(entry.min_version, entry.max_version + 1) if version is None else [version]
            assert any(cut.entries in lists_of(request, one) for one in versions), (entry.name, cut)
            assert any(cut.answers in lists_of(entry.response, one) for one in versions), (entry.name, cut)  # type: ignore[arg-type]


def test_an_entry_of_an_answer_may_hold_very_much() -> None:
    """Describing a group with many members closed the connection: the bound on requests was applied to its answer."""
    kind = ConsumerGroupDescribeResponse
    for beyond in (0, 1):
        group = kind.DescribedGroup(group_id="g", members=[kind.Member() for _ in range(WHOLE_ENTRIES_MAX + beyond)])
        found = list(parts(kind(groups=[group, kind.DescribedGroup(group_id="h")]), ("groups",), is_answer=True))
        assert [one.group_id for part in found for one in part.groups] == ["g", "h"]
    group = kind.DescribedGroup(group_id="g", members=[kind.Member() for _ in range(WHOLE_ENTRIES_MAX + 1)])
    with pytest.raises(WireError, match="holds more than"):
        list(parts(kind(groups=[group]), ("groups",)))
