"""Produces that arrive together are appended together: answers, logs and counters are those of requests that come one by one."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.fast_paths import Side
from helpers.live_node import broker_port, live_node, still
from helpers.produce_frames import TOPICS, batch, damaged, decoded, log_bytes, prepare, produce

from minikafka.broker import log_flush
from minikafka.broker.node import Node
from minikafka.broker.partitions import produce_fast_path
from minikafka.broker.partitions.partition import TRAFFIC, Partition
from minikafka.client.admin import Admin
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.storage.filesystem import OsFile
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.produce import ProduceRequest

TOGETHER, ONE_BY_ONE = TOPICS
VERSION = 9


def partition_of(node: Node, topic: str, index: int = 0) -> Any:
    assert node.broker is not None
    return node.broker.replicas.partitions[(topic, index)]


def payload(generator: random.Random, sequences: dict[int, int]) -> bytes:
    """A batch of a client: mostly good, of various sizes, with and without a producer."""
    kind = generator.randrange(12)
    if kind < 5:
        return batch(*[b"v" * generator.choice((0, 1, 60, 300)) for _ in range(generator.choice((1, 1, 1, 2, 5, 30)))])
    if kind == 5:
        return batch(b"v" * generator.choice((produce_fast_path.PUT_OFF_BYTES_MAX, 30_000)))
    if kind == 6:
        return damaged(batch(b"one"), generator.randrange(8, 70))
    if kind == 7:
        return batch(*[b"r" * 300] * 9, compression=generator.choice((1, 4)))
    if kind == 8:
        return batch(b"t", producer_id=99, producer_epoch=0, base_sequence=0, is_transactional=True)
    producer_id, records = generator.choice((7, 8)), generator.choice((1, 3))
    sequence = sequences.get(producer_id, 0)
    if kind == 9 and generator.random() < 0.5:
        sequence = generator.choice((max(sequence - records, 0), sequence + 5))
    else:
        sequences[producer_id] = sequence + records
    return batch(*[b"i"] * records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def fetch(topic: str, correlation_id: int) -> bytes:
    """A fetch of everything that was written so far: it must see what was sent before it."""
    wanted = [FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=wanted)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    return b"".join(bytes(piece) for piece in encode_request(request, 12, correlation_id, "fast-path"))[4:]


@pytest.mark.parametrize("seed", range(6))
async def test_answers_logs_and_counters_are_those_of_requests_one_by_one(tmp_path: Path, seed: int) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node, **{"segment.bytes": "1048576"})
        assert node.broker is not None
        together, one_by_one = Side(node.broker.dispatcher, fast=True), Side(node.broker.dispatcher, fast=False)
        generator, sequences, put_off = random.Random(seed), dict[int, int](), 0
        for _ in range(150):
            frames: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
            for _ in range(generator.choice((1, 2, 8, 90))):
                correlation_id, index, acks = generator.randrange(1 << 20), int(generator.random() < 0.3), generator.choice((1, 1, -1))
                records, is_fetch = payload(generator, sequences), generator.random() < 0.02
                for topic in TOPICS:
                    frames[topic].append(
                        fetch(topic, correlation_id)
                        if is_fetch
                        else produce(topic, ids[topic], VERSION, records, correlation_id=correlation_id, partition=index, acks=acks)
                    )
            put_off += len(frames[TOGETHER]) > 1
            answers = together.ask_together(frames[TOGETHER])
            expected = [one_by_one.ask(frame) for frame in frames[ONE_BY_ONE]]
            assert [answer.replace(TOGETHER.encode(), ONE_BY_ONE.encode()) for answer in answers] == expected
        assert put_off
        for index in (0, 1):
            pair = [partition_of(node, topic, index) for topic in TOPICS]
            assert log_bytes(node, TOGETHER, index) == log_bytes(node, ONE_BY_ONE, index)
            first, second = (partition.log for partition in pair)
            assert first.segments.bases == second.segments.bases
            assert [s.offset_index.all_entries() for s in first.segments] == [s.offset_index.all_entries() for s in second.segments]
            assert [s.time_index.all_entries() for s in first.segments] == [s.time_index.all_entries() for s in second.segments]
            assert first.watermarks.high_watermark == second.watermarks.high_watermark
            states = [{key: entry.batches for key, entry in log.producer_state.entries.items()} for log in (first, second)]
            assert states[0] == states[1] and set(states[0]) <= {7, 8}
            counters = [dict(zip(TRAFFIC, partition.traffic, strict=True)) for partition in pair]
            assert counters[0] == counters[1]


def writes(monkeypatch: pytest.MonkeyPatch, topic: str) -> list[int]:
    """Sizes of the writes to the logs of a topic, from now on."""
    original, sizes = OsFile.pwrite, list[int]()

    def pwrite(self: OsFile, data: Any, position: int, /) -> int:
        if f"/{topic}-" in self.path and self.path.endswith(".log"):
            sizes.append(len(data))
        return original(self, data, position)

    monkeypatch.setattr(OsFile, "pwrite", pwrite)
    return sizes


async def begun(node: Node, ids: dict[str, bytes], **options: Any) -> tuple[Side, list[bytes]]:
    """A connection that has its template and whose partition has a record, and ten requests."""
    assert node.broker is not None
    side = Side(node.broker.dispatcher, fast=True)
    frames = [produce(TOGETHER, ids[TOGETHER], VERSION, batch(b"record-%d" % n), correlation_id=n, **options) for n in range(10)]
    for frame in frames[:2]:
        assert side.ask(frame) is not None
    side.connection.frames.clear()
    return side, frames


async def test_one_write_for_each_partition_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        sizes = writes(monkeypatch, TOGETHER)
        assert len(side.ask_together(frames)) == 10 and len(sizes) == 1
        many = produce_fast_path.RUN_BATCHES_MAX * 3
        assert len(side.ask_together(frames[:1] * many)) == many and len(sizes) == 4
        large = [produce(TOGETHER, bytes(16), VERSION, batch(b"v" * 8000)) for _ in range(14)]
        assert len(side.ask_together(large)) == 14 and len(sizes) == 6
        assert max(sizes) <= produce_fast_path.RUN_BYTES_MAX + produce_fast_path.PUT_OFF_BYTES_MAX


async def test_a_run_reads_each_clock_once(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        path, read = side.fast_path(0), list[str]()
        for name in ("_now_ms", "_wall_ms"):
            clock = getattr(path, name)
            setattr(path, name, lambda name=name, clock=clock: (read.append(name), clock())[1])
        assert len(side.ask_together(frames)) == 10
        assert sorted(read) == ["_now_ms", "_wall_ms"]


async def test_few_requests_are_not_worth_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        sizes = writes(monkeypatch, TOGETHER)
        few = produce_fast_path.FRAMES_BEHIND_MIN
        assert len(side.ask_together(frames[:few])) == few and len(sizes) == few
        assert len(side.ask_together(frames[: few + 1])) == few + 1 and len(sizes) == few + 1


async def test_with_followers_two_requests_are_worth_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        partition_of(node, TOGETHER).leader.update_replicas((1, 2), 1, 0)
        sizes = writes(monkeypatch, TOGETHER)
        side.ask_together(frames[:2])
        assert len(sizes) == 1


async def test_a_new_segment_begins_at_the_same_batch(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node, **{"segment.bytes": "1048576"})
        assert node.broker is not None
        sides = {TOGETHER: Side(node.broker.dispatcher, fast=True), ONE_BY_ONE: Side(node.broker.dispatcher, fast=False)}
        records = batch(b"v" * 7000)
        for number in range(40):
            if number == 1:
                # Requests that cannot be appended together are no reason to leave the fast path.
                sides[TOGETHER].fast_path(ProduceRequest.API_KEY)._refer = None
            for topic, side in sides.items():
                frames = [produce(topic, ids[topic], VERSION, records)] * 7
                assert len(side.ask_together(frames) if topic == TOGETHER else [side.ask(frame) for frame in frames]) == 7
        first, second = (partition_of(node, topic).log for topic in TOPICS)
        assert first.segments.bases == second.segments.bases and len(first.segments) > 1


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.ENOSPC, errno.EIO])
async def test_a_failed_write_is_answered_as_if_the_requests_had_come_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """After a shortage the same batches are appended unchanged. After a disk failure each gets the error, in order."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        log = partition_of(node, TOGETHER).log
        end, original, failures = log.log_end_offset, OsFile.pwrite, [OSError(code, "injected")]

        def pwrite(self: OsFile, data: Any, position: int, /) -> int:
            if self.path.endswith(".log") and f"/{TOGETHER}-" in self.path and failures:
                raise failures.pop()
            return original(self, data, position)

        monkeypatch.setattr(OsFile, "pwrite", pwrite)
        answers = [decoded(answer, VERSION) for answer in side.ask_together(frames)]
        assert not failures and [correlation_id for correlation_id, _ in answers] == list(range(10))
        partitions = [response.responses[0].partition_responses[0] for _, response in answers]
        if code == errno.ENOMEM:
            assert [(p.error_code, p.base_offset) for p in partitions] == [(0, end + n) for n in range(10)]
            assert log.failure is None and log.log_end_offset == end + 10
        else:
            assert {p.error_code for p in partitions} == {ErrorCode.KAFKA_STORAGE_ERROR}
            assert log.failure is not None and log.log_end_offset == end


@pytest.mark.parametrize("is_together", [False, True])
async def test_a_batch_whose_write_fails_for_a_shortage_is_as_the_client_sent_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_together: bool
) -> None:
    """The ordinary way gets it after that, and would refuse a base offset that is not 0."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        original, failures = OsFile.pwrite, [OSError(errno.ENOMEM, "injected")]

        def pwrite(self: OsFile, data: Any, position: int, /) -> int:
            if self.path.endswith(".log") and f"/{TOGETHER}-" in self.path and failures:
                raise failures.pop()
            return original(self, data, position)

        monkeypatch.setattr(OsFile, "pwrite", pwrite)
        (answer,) = side.ask_together(frames[:1]) if is_together else [side.ask(frames[0])]
        assert answer is not None
        assert decoded(answer, VERSION)[1].responses[0].partition_responses[0].error_code == 0


async def test_with_acks_all_each_waits_for_its_own_batch(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node), acks=-1)
        partition = partition_of(node, TOGETHER)
        leader, end = partition.leader, partition.log.log_end_offset
        leader.update_replicas((1, 2), 1, 0)
        leader.isr.committed = leader.isr.maximal = (1, 2)
        assert side.ask_together(frames) == []
        partition.follower_fetched(2, end + 4, 0, -1, 0)
        assert sorted(side.connection.frames) == sorted(side.connection.frames)[:4] and len(side.connection.frames) == 4
        partition.follower_fetched(2, end + 10, 0, -1, 0)
        answers = [decoded(side.connection.frames[ticket], VERSION) for ticket in sorted(side.connection.frames)]
        assert [number for number, _ in answers] == list(range(10))
        assert [r.responses[0].partition_responses[0].base_offset for _, r in answers] == [end + n for n in range(10)]
        leader.min_isr = 3
        answers = [decoded(answer, VERSION) for answer in side.ask_together(frames)[-10:]]
        assert {r.responses[0].partition_responses[0].error_code for _, r in answers} == {ErrorCode.NOT_ENOUGH_REPLICAS}


async def test_behind_a_batch_whose_segment_is_synced_first_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is full in the middle of a run, in a log that compaction has left gaps in. The first sync takes the longest."""
    flush, turns = log_flush.flush, [50]

    async def slow_at_first(log: Any, run_blocking: Any) -> None:
        for _ in range(turns.pop() if turns else 0):
            await asyncio.sleep(0)
        await flush(log, run_blocking)

    monkeypatch.setattr(log_flush, "flush", slow_at_first)
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node, **{"segment.index.bytes": "64", "index.interval.bytes": "0"}))
        log = partition_of(node, TOGETHER).log
        log.segments.may_have_gaps, end = True, log.log_end_offset
        answers = dict(enumerate(side.ask_together(frames)))
        assert len(answers) < 10 and side.connection.holds
        while side.connection.holds:
            await asyncio.sleep(0)
        answers |= side.connection.frames
        assert len(log.segments) > 1 and not turns
        found = sorted((decoded(answer, VERSION) for answer in answers.values()), key=lambda answer: answer[0])
        partitions = [response.responses[0].partition_responses[0] for _, response in found]
        assert [(p.error_code, p.base_offset) for p in partitions] == [(0, end + n) for n in range(10)]


async def test_a_frame_of_another_kind_is_served_after_what_was_put_off(tmp_path: Path) -> None:
    """A frame that ends the connection, too: what came before it is in the log."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        log = partition_of(node, TOGETHER).log
        end = log.log_end_offset
        answers = side.ask_together([*frames[:3], fetch(TOGETHER, 77), *frames[3:5]])
        assert b"record-2" in answers[3] and b"record-3" not in answers[3] and log.log_end_offset == end + 5
        side.ask_together([*frames[:3], b"\x7f\xff" + frames[0][2:]])
        assert side.connection.reason is not None and log.log_end_offset == end + 8


async def test_the_frame_of_a_client_with_quotas_is_served_after_what_was_put_off(tmp_path: Path) -> None:
    """Quotas are those of a client id, and a connection may name another one in every request."""

    class Gate:
        def limits(self, connection: Any, frame: memoryview) -> object | None:
            return self if b"limited" in bytes(frame) else None

        def serve(self, dispatch: Any, connection: Any, listener: str, frame: memoryview, sample: Any) -> None:
            dispatch(connection, listener, frame, sample)

    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        node.broker.dispatcher.limit(Gate())
        side, frames = await begun(node, ids)
        end = partition_of(node, TOGETHER).log.log_end_offset
        frames[4] = frames[4].replace(b"fast-path", b"limited!!")
        answers = [decoded(answer, VERSION) for answer in side.ask_together(frames)]
        assert [number for number, _ in answers] == list(range(10))
        assert [r.responses[0].partition_responses[0].base_offset for _, r in answers] == [end + n for n in range(10)]


async def test_a_leadership_that_ends_between_is_seen(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        partition = partition_of(node, TOGETHER)
        end, append_run = partition.log.log_end_offset, type(partition).append_run

        def resigned(self: Any, run: Any, now_ms: int) -> bool:
            self.make_follower(PartitionRegistration([2, 1], [2], leader=2, leader_epoch=self.leader_epoch + 1))
            return bool(append_run(self, run, now_ms))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(partition), "append_run", resigned)
            answers = [decoded(answer, VERSION) for answer in side.ask_together(frames)]
        assert {r.responses[0].partition_responses[0].error_code for _, r in answers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert partition.log.log_end_offset == end


@pytest.mark.parametrize("is_lost_between", [False, True])
async def test_requests_held_for_the_next_leader_are_those_of_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost_between: bool
) -> None:
    """The answers to several requests of one connection must not name the new leader early (`gives_hint`)."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        side, frames = await begun(node, await prepare(node))
        assert node.broker is not None
        partition, append_run = partition_of(node, TOGETHER), Partition.append_run

        def held(self: Partition, run: Any, now_ms: int) -> bool:
            self.hold()
            return append_run(self, run, now_ms)

        if is_lost_between:
            monkeypatch.setattr(Partition, "append_run", held)
        else:
            partition.hold()
        assert side.ask_together(frames) == []
        (line,) = node.broker.handover._core._lines.values()
        assert line.sources == {side.connection: 10} and line.concurrent_sources == {side.connection}


async def test_over_a_socket_many_requests_at_once(tmp_path: Path) -> None:
    """More than a connection may have under way (256), cut anywhere by the receive buffer."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        await prepare(node)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker_port(node))
        frames = [produce(TOGETHER, bytes(16), VERSION, batch(b"v" * (n % 50)), correlation_id=n) for n in range(1500)]
        writer.write(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        for number in range(len(frames)):
            size = int.from_bytes(await reader.readexactly(4), "big")
            correlation_id, response = decoded(size.to_bytes(4, "big") + await reader.readexactly(size), VERSION)
            partition = response.responses[0].partition_responses[0]
            assert (correlation_id, partition.error_code, partition.base_offset) == (number, 0, number)
        writer.close()
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            assert (await admin.list_offsets({(TOGETHER, 0): "latest"}))[(TOGETHER, 0)].offset == len(frames)
