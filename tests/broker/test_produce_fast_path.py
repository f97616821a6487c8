"""The fast path of Produce says and does what the ordinary way does, to the byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.fast_paths import Side
from helpers.live_node import broker_port, live_node, still
from helpers.produce_frames import TOPICS, batch, damaged, decoded, log_bytes, prepare, produce

from minikafka.broker.partitions.fast_path import MISSES_MAX
from minikafka.client.admin import Admin
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.produce import ProduceRequest

VERSIONS = [9, 10, 11, 12, 13]


async def test_interceptors_see_repeated_requests_too(tmp_path: Path) -> None:
    """Injected faults: while requests are intercepted, no connection takes its fast path, new or not."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        dispatcher = node.broker.dispatcher
        old = Side(dispatcher, fast=True)
        seen: list[int] = []

        def ask(side: Side, number: int) -> None:
            assert side.ask(produce("fastpath", ids["fastpath"], 9, batch(b"x"), correlation_id=number)) is not None

        def around(handler: Callable[..., Any]) -> Callable[..., Any]:
            def intercepted(context: Any, request: Any) -> Any:
                seen.append(context.correlation_id)
                return handler(context, request)

            return intercepted

        for number in (1, 2):
            ask(old, number)
        assert old.fast_path(0)._templates
        dispatcher.intercept(around)
        ask(old, 3)
        for number in (4, 5):
            ask(Side(dispatcher, fast=True), number)
        dispatcher.intercept(None)
        ask(old, 6)
        assert seen == [3, 4, 5]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
async def test_answers_and_logs_are_those_of_the_ordinary_way(tmp_path: Path, version: int, acks: int) -> None:
    """Good batches, empty, small, large, compressed, idempotent and repeated ones, damaged ones, cut ones, wrong partitions and epochs."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        sides = {topic: Side(node.broker.dispatcher, fast=topic == "fastpath") for topic in TOPICS}
        good = batch(b"one")
        idempotent = [batch(b"x", b"y", producer_id=77, producer_epoch=0, base_sequence=sequence) for sequence in (0, 2, 2, 9, 4)]
        payloads: list[tuple[int, bytes]] = [
            (0, good), (0, good), (1, batch(b"two", b"three")), (1, batch(b"v" * 5000)), (0, batch(*[b"r"] * 50)),
            (0, batch(b"v" * 130_000)),
            *((0, payload) for payload in idempotent), (0, damaged(good, 65)), (0, damaged(good, 16)), (0, good[:-4]), (0, good + good),
            (0, good[:40]), (0, b""), (0, batch(b"z" * 1_100_000)), (7, good), (0, good),
        ]  # fmt: skip
        for number, (partition, payload) in enumerate(payloads):
            answers = {}
            for topic, side in sides.items():
                frame = produce(topic, ids[topic], version, payload, correlation_id=number, partition=partition, acks=acks)
                answers[topic] = side.ask(frame)
            fast, ordinary = answers["fastpath"], answers["ordinary"]
            assert fast is not None and ordinary is not None, f"payload {number}"
            assert fast.replace(b"fastpath", b"ordinary").replace(ids["fastpath"], ids["ordinary"]) == ordinary, f"payload {number}"
        assert log_bytes(node, "fastpath") == log_bytes(node, "ordinary")
        assert log_bytes(node, "fastpath", 1) == log_bytes(node, "ordinary", 1)
        assert len(sides["fastpath"].fast_path(0)._templates) == 3
        served = [entry.count for entry in node.broker.dispatcher.entries if entry.api_key == 0]
        assert served == [2 * len(payloads)]


async def test_a_template_is_served_the_second_time(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        frame = produce("fastpath", ids["fastpath"], 9, batch(b"one"))
        assert not side.fast_path(0).serve(side.connection, memoryview(bytearray(frame)))
        assert side.fast_path(0).serve(side.connection, memoryview(bytearray(frame)))
        assert not side.fast_path(0).serve(side.connection, memoryview(bytearray(frame[:-1] + b"\1")))
        assert not side.fast_path(0).serve(side.connection, memoryview(bytearray(frame[:30])))
        assert not side.fast_path(0).serve(side.connection, memoryview(bytearray(frame[:5])))


async def test_a_template_outlives_neither_its_topic_nor_its_leader(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        frame = produce("fastpath", ids["fastpath"], 13, batch(b"one"))
        for _ in range(3):
            assert side.ask(frame) is not None
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.delete_topic("fastpath")
        while ("fastpath", 0) in node.broker.replicas.partitions:
            await asyncio.sleep(0)
        answer = side.ask(frame)
        assert answer is not None
        assert decoded(answer, 13)[1].responses[0].partition_responses[0].error_code == 100


@pytest.mark.parametrize("version", [12, 13])
async def test_batches_sent_behind_a_refused_one_are_refused_too(tmp_path: Path, version: int) -> None:
    """Two batches are under way, and the broker begins to lead between them: librdkafka would take an error of sequence for a reason to
    write all it has under way again in a new epoch of its own, acknowledged or not."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        frames = [
            produce("fastpath", ids["fastpath"], version, batch(b"v", producer_id=77, producer_epoch=0, base_sequence=sequence))
            for sequence in range(5)
        ]

        def code(frame: bytes) -> int:
            answer = side.ask(frame)
            assert answer is not None
            return int(decoded(answer, version)[1].responses[0].partition_responses[0].error_code)

        partition = node.broker.replicas.partitions[("fastpath", 0)]
        leader = partition.leader
        for first in (0, 2):
            partition.leader = partition.appending = None
            assert code(frames[first]) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            partition.leader = partition.appending = leader
            assert code(frames[first + 1]) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert [code(frames[first]), code(frames[first + 1])] == [0, 0]
        assert code(frames[4]) == 0
        assert code(produce("fastpath", ids["fastpath"], version, batch(b"v", producer_id=77, producer_epoch=0, base_sequence=9))) == 45
        assert not node.broker.replicas.refusals


@pytest.mark.parametrize("version", [12, 13])
async def test_batches_after_ones_that_a_replaced_leader_refused_are_neither_held_nor_accepted(tmp_path: Path, version: int) -> None:
    """Two batches are written, parked and refused, because the leadership is lost; perhaps the next leader has never seen them. The third,
    which comes late, must not get there before they are sent again, and not into this log if the broker leads again without them."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        replicas = node.broker.replicas
        side = Side(node.broker.dispatcher, fast=True)
        frames = [
            produce("fastpath", ids["fastpath"], version, batch(b"v", producer_id=77, producer_epoch=0, base_sequence=sequence))
            for sequence in range(3)
        ]

        def code(frame: bytes) -> int:
            answer = side.ask(frame)
            assert answer is not None, "it is held"
            return int(decoded(answer, version)[1].responses[0].partition_responses[0].error_code)

        assert [code(frame) for frame in frames[:2]] == [0, 0]
        partition = replicas.partitions[("fastpath", 0)]
        leader = partition.leader
        partition.log.watermarks.high_watermark = 0
        partition.leader = partition.appending = None
        replicas._publish_role(partition, False)
        assert code(frames[2]) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.log.truncate_to(0, 0)
        partition.leader = partition.appending = leader
        assert [code(frame) for frame in (frames[2], *frames)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0, 0]


@pytest.mark.parametrize("version", [12, 13])
async def test_a_new_leader_does_not_take_a_late_predecessor_for_a_lost_one(tmp_path: Path, version: int) -> None:
    """librdkafka may send what comes next before what the former leader has just refused: OUT_OF_ORDER_SEQUENCE_NUMBER would make it write
    all it has under way again in a new epoch. Whoever has written in this epoch, or goes on like that, is told what Kafka tells."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        replicas = node.broker.replicas
        side = Side(node.broker.dispatcher, fast=True)

        def code(sequence: int) -> int:
            records = batch(b"v", producer_id=77, producer_epoch=0, base_sequence=sequence)
            answer = side.ask(produce("fastpath", ids["fastpath"], version, records))
            assert answer is not None
            return int(decoded(answer, version)[1].responses[0].partition_responses[0].error_code)

        partition = replicas.partitions[("fastpath", 0)]

        def lead_anew() -> None:
            registration = PartitionRegistration([1], [1], leader=1, leader_epoch=partition.leader_epoch + 1)
            assert partition.make_leader(registration, 1, 0)

        out_of_order, later = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NOT_ENOUGH_REPLICAS
        assert [code(0), code(2)] == [0, out_of_order]
        lead_anew()
        assert [code(2), code(3), code(1), code(2), code(3)] == [later, later, 0, 0, 0]
        assert code(5) == out_of_order
        lead_anew()
        assert code(5) == later
        replicas.refusals.entries.clear()
        assert code(5) == out_of_order, "not for ever"


async def test_internal_topics_stay_closed_by_name_and_by_id(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        assert node.broker is not None
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("__consumer_offsets", partitions=1, replication_factor=1)
        topic_id = node.broker.replicas._metadata.image.topics_by_name["__consumer_offsets"].topic_id
        side = Side(node.broker.dispatcher, fast=True)
        for version in (12, 12, 13, 13):
            answer = side.ask(produce("__consumer_offsets", topic_id, version, batch(b"one")))
            assert answer is not None
            assert decoded(answer, version)[1].responses[0].partition_responses[0].error_code == 17


async def test_a_parked_batch_ends_with_its_timeout(tmp_path: Path) -> None:
    """acks=all where the in-sync set cannot confirm: parked on the fast path, answered REQUEST_TIMED_OUT."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        partition = node.broker.replicas.partitions[("fastpath", 0)]
        side = Side(node.broker.dispatcher, fast=True)
        frame = produce("fastpath", ids["fastpath"], 9, batch(b"one"), acks=-1, timeout_ms=1)
        assert side.ask(frame) is not None
        assert partition.leader is not None
        partition.leader.update_replicas((1, 2), 1, 0)
        partition.leader.isr.committed = partition.leader.isr.maximal = (1, 2)
        side.connection.arrived.clear()
        assert side.ask(frame) is None
        await side.connection.arrived.wait()
        assert decoded(list(side.connection.frames.values())[-1], 9)[1].responses[0].partition_responses[0].error_code == 7


async def test_a_connection_that_sends_nothing_to_be_learned_stops_learning(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        data = [ProduceRequest.PartitionProduceData(index=index, records=batch(b"one")) for index in (0, 1)]
        topics = [ProduceRequest.TopicProduceData(name="fastpath", partition_data=data)]
        request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=topics)
        frame = b"".join(bytes(piece) for piece in encode_request(request, 9, 1, "fast-path"))[4:]
        for _ in range(MISSES_MAX + 5):
            assert side.ask(frame) is not None
        assert side.ask(produce("fastpath", ids["fastpath"], 9, batch(b"one"))) is not None
        assert not side.fast_path(0)._templates


@pytest.mark.parametrize("version", VERSIONS)
async def test_frames_that_are_cut_anywhere_end_the_connection_as_the_ordinary_way_does(tmp_path: Path, version: int) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        sides = [Side(node.broker.dispatcher, fast=is_fast) for is_fast in (True, False)]
        frame = produce(TOPICS[0], ids[TOPICS[0]], version, batch(b"v" * 300))
        for side in sides:
            assert side.ask(frame) is not None and side.ask(frame) is not None
        for end in range(8, len(frame)):
            reasons = []
            for side in sides:
                side.connection.reason = None
                assert side.ask(frame[:end]) is None
                reasons.append(side.connection.reason)
            assert reasons[0] is not None and reasons[0] == reasons[1] and "inside" not in reasons[0], (end, reasons)
