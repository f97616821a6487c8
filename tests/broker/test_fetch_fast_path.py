"""The fast path of Fetch says what the ordinary way says, to the byte, and leaves to it what it cannot say."""

from __future__ import annotations

import errno
import random
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.fast_paths import Side
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.broker.partitions.fast_path import MISSES_MAX, TEMPLATES_BYTES_MAX
from minikafka.client.admin import Admin
from minikafka.storage.filesystem import OsFile
from minikafka.storage.slice import SharedFile
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse

VERSIONS = range(11, 19)
FETCH = 1


async def prepare(node: Node) -> bytes:
    """A topic with an empty, a small and a large partition of several segments; its id."""
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=3, replication_factor=1, configs={"segment.bytes": "1048576"})
    assert node.broker is not None
    replicas = node.broker.replicas
    now_ms = time.time_ns() // 1_000_000
    for index, batches, size in ((1, 3, 10), (2, 60, 40_000)):
        for number in range(batches):
            data = build_batch([(n, now_ms, None, b"%d" % number * size, ()) for n in range(2)])
            replicas.partitions[("t", index)].append(memoryview(bytearray(data)), 1, now_ms, 0)
    for segment in replicas.partitions[("t", 2)].log.segments:
        segment.translate(segment.base_offset)  # their indexes are in memory
    replicas.partitions[("t", 1)].log.increment_log_start_offset(2)
    topic_id: bytes = replicas.partitions[("t", 1)].topic_id
    return topic_id


def fetch(version: int, topic_id: bytes, wanted: list[dict[str, Any]], *, correlation_id: int = 1, **options: Any) -> bytes:
    topic = FetchRequest.FetchTopic(partitions=[FetchRequest.FetchPartition(**entry) for entry in wanted])
    if version >= 13:
        topic.topic_id = topic_id
    else:
        topic.topic = "t"
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **options}
    request = FetchRequest(topics=[topic], **options)
    return b"".join(bytes(piece) for piece in encode_request(request, version, correlation_id, "fast-path"))[4:]


def one(partition: int, offset: int, bytes_max: int = 1 << 20, **options: Any) -> list[dict[str, Any]]:
    return [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": bytes_max, **options}]


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_are_those_of_the_ordinary_way(tmp_path: Path, version: int) -> None:
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        fast, ordinary = (Side(node.broker.dispatcher, fast=is_fast) for is_fast in (True, False))
        generator = random.Random(version)
        cases: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
            (one(1, 0), {}), (one(1, 2), {}), (one(1, 3), {}), (one(1, 6), {}), (one(1, 7), {}), (one(0, 0), {}), (one(0, 1), {}),
            (one(9, 0), {}), (one(2, 5, current_leader_epoch=0), {}), (one(2, 5, current_leader_epoch=3), {}),
            (one(2, 5, last_fetched_epoch=0) if version >= 12 else one(2, 5), {}),
        ]  # fmt: skip
        for _ in range(60):
            offsets = [one(index, generator.randrange(0, (2, 8, 124)[index]), generator.choice((0, 1, 70, 90_000))) for index in range(3)]
            generator.shuffle(offsets)
            wanted = [entry for offset in offsets[: generator.randrange(1, 4)] for entry in offset]
            options = {"isolation_level": generator.randrange(2), "max_bytes": generator.choice((0, 100, 100_000, 1 << 30))}
            cases.append((wanted, options))
        for number, (wanted, options) in enumerate(cases):
            for repeat in range(3):
                frame = fetch(version, topic_id, wanted, correlation_id=number * 3 + repeat, **options)
                assert fast.ask(frame) == ordinary.ask(frame), (number, repeat, wanted, options)
        assert fast.fast_path(FETCH)._templates
        served = next(entry.count for entry in node.broker.dispatcher.entries if entry.api_key == FETCH)
        assert served == 2 * 3 * len(cases)


@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_batch_that_does_not_fit_has_no_list_of_aborted_transactions(tmp_path: Path, is_fast: bool) -> None:
    """Apache Kafka answers none, as to uncommitted reads; an empty list where nothing is left to read, and where no bytes are left."""
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=is_fast)
        for bytes_max, expected in ((1, [[], None, []]), (0, [[], [], []])):
            frame = fetch(12, topic_id, one(1, 2) + one(2, 0, bytes_max) + one(0, 0), isolation_level=1)
            for _ in range(3):
                side.connection.arrived.clear()
                side.ask(frame)
                await side.connection.arrived.wait()
                answer = side.connection.frames[max(side.connection.frames)]
                (topic,) = FetchResponse.decode(12, memoryview(answer), 9).responses
                assert [data.aborted_transactions for data in topic.partitions] == expected


async def test_a_template_is_served_the_second_time_at_any_offset(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        serve = side.fast_path(FETCH).serve
        assert not serve(side.connection, memoryview(fetch(12, topic_id, one(2, 0))))
        assert serve(side.connection, memoryview(fetch(12, topic_id, one(2, 0))))
        assert serve(side.connection, memoryview(fetch(12, topic_id, one(2, 100))))
        assert not serve(side.connection, memoryview(fetch(12, topic_id, one(2, 200)))), "beyond the end: an error"
        assert not serve(side.connection, memoryview(fetch(12, topic_id, one(1, 100)))), "another partition"
        assert not serve(side.connection, memoryview(fetch(12, topic_id, one(2, 0)))[:-1])


@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_disk_that_fails_while_little_is_read_is_an_error_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fast: bool
) -> None:
    async with live_node(tmp_path, log_dirs=2) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=is_fast)
        frame, original = fetch(12, topic_id, one(1, 2)), OsFile.pread
        assert side.ask(frame) == side.ask(frame)

        def pread(self: OsFile, count: int, position: int, /) -> bytes:
            if "/t-1/" in self.path and self.path.endswith(".log"):
                raise OSError(errno.EIO, "injected")
            return original(self, count, position)

        monkeypatch.setattr(OsFile, "pread", pread)
        answer = side.ask(frame)
        assert answer is not None and side.connection.reason is None
        (topic,) = FetchResponse.decode(12, memoryview(answer), 9).responses
        assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker.replicas.partitions[("t", 1)].log.failure is not None


async def test_what_a_connection_teaches_takes_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    """Sixty fetches of long names that need not exist took four megabytes, for each connection."""
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        path, most = side.fast_path(FETCH), 0
        for number in range(40):
            topics = [
                FetchRequest.FetchTopic(topic=f"{number}-{index}".ljust(240, "x"), partitions=[FetchRequest.FetchPartition(fetch_offset=0)])
                for index in range(50)
            ]
            request = FetchRequest(topics=topics, max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=-1)
            frame = b"".join(bytes(piece) for piece in encode_request(request, 12, 1, "c"))[4:]
            assert side.ask(frame) is not None
            assert path._templates, "the latest ones are kept"
            most = max(most, sum(map(len, path._templates)))
        assert len(frame) < most <= TEMPLATES_BYTES_MAX


@pytest.mark.parametrize(
    "options",
    [{"session_epoch": 0}, {"replica_id": 2}, {"max_wait_ms": 50, "min_bytes": 1 << 30}],
    ids=["session", "follower", "waits"],
)
async def test_requests_outside_the_fast_path(tmp_path: Path, options: dict[str, Any]) -> None:
    """Sessions and followers always, a fetch that must wait until it need not; no slice stays pinned."""
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        frame = fetch(12, topic_id, one(2, 0), **options)
        for _ in range(3):
            assert not side.fast_path(FETCH).serve(side.connection, memoryview(frame))
        log = node.broker.replicas.partitions[("t", 2)].log
        shared: list[SharedFile | None] = [segment._shared for segment in log.segments]
        assert not any(file.is_pinned for file in shared if file is not None)


async def test_no_template_for_a_reader_of_another_rack(tmp_path: Path) -> None:
    properties = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector", "broker.rack": "a"}
    async with live_node(tmp_path, properties) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        for _ in range(2):
            assert not side.fast_path(FETCH).serve(side.connection, memoryview(fetch(12, topic_id, one(2, 0), rack_id="b")))


async def test_a_connection_that_never_repeats_itself_stops_learning(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        for _ in range(MISSES_MAX + 5):
            assert side.ask(fetch(12, topic_id, one(2, 0), session_epoch=0)) is not None
        assert side.ask(fetch(12, topic_id, one(2, 0))) is not None
        assert not side.fast_path(FETCH)._templates


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("version", [12, 18])
async def test_a_fetch_that_was_parked(tmp_path: Path, version: int, is_gone: bool) -> None:
    """Partitions that had nothing when it came are not read again unless something changed."""
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        replicas = node.broker.replicas
        side = Side(node.broker.dispatcher, fast=False)
        wanted = [*one(0, 0), *one(1, 6), *one(2, 120)]
        assert side.ask(fetch(version, topic_id, wanted, max_wait_ms=60_000)) is None
        if is_gone:
            del replicas.partitions[("t", 0)]
        replicas.partitions[("t", 1)].append(memoryview(build_batch([(0, 1_700_000_000_000, None, b"new", ())])), 1, 1_700_000_000_000, 0)
        (parked,) = side.connection.frames.values()
        assert b"new" in parked
        assert parked == Side(node.broker.dispatcher, fast=False).ask(fetch(version, topic_id, wanted))


@pytest.mark.parametrize("version", [12, 18])
async def test_a_parked_fetch_of_a_replica_that_leaves_this_broker_is_answered(tmp_path: Path, version: int) -> None:
    """A reassignment removed the replica: its reader gets the error at once, not after the wait."""
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        replicas = node.broker.replicas
        side = Side(node.broker.dispatcher, fast=False)
        assert side.ask(fetch(version, topic_id, one(0, 0), max_wait_ms=60_000)) is None
        replicas._remove(replicas.partitions[("t", 0)], 1_700_000_000_000, "it was reassigned to other brokers")
        assert len(side.connection.frames) == 1


async def test_a_fetch_that_waits_is_counted_once(tmp_path: Path) -> None:
    """What the fast path has looked at, and leaves to the ordinary way, has not been counted."""
    async with live_node(tmp_path) as node:
        topic_id = await prepare(node)
        assert node.broker is not None
        partition = node.broker.replicas.partitions[("t", 1)]
        side, counts = Side(node.broker.dispatcher, fast=True), []
        for _ in range(3):
            # More than is there: it is answered when its time is over.
            frame = fetch(12, topic_id, one(1, 2), max_wait_ms=30, min_bytes=1_000_000)
            side.connection.arrived.clear()
            before = partition.fetches, partition.bytes_out
            if side.ask(frame) is None:
                await side.connection.arrived.wait()
            counts.append((partition.fetches - before[0], partition.bytes_out - before[1]))
        assert side.fast_path(FETCH)._templates
        assert counts[0] == counts[1] == counts[2] and counts[0][1] > 0
