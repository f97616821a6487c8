"""The fast path of Produce for several partitions says and does what the ordinary path does, to the byte."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.fast_paths import Answers, Side
from helpers.live_node import broker_port, live_node, still
from helpers.produce_frames import batch, damaged, decoded, led, log_bytes

from minikafka.broker.measures.request_times import TimedAnswers
from minikafka.broker.node import Node
from minikafka.broker.partitions import produce_several
from minikafka.broker.partitions.fast_path import MISSES_MAX
from minikafka.broker.partitions.produce_answer import ReservedPlace
from minikafka.broker.partitions.produce_layout import BEGINNINGS_KEPT, ONE_BYTE_MAX, PARTITIONS_MAX
from minikafka.client.admin import Admin
from minikafka.wire.batch import ATTRIBUTES_LOW_BYTE, TRANSACTIONAL_BIT
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.produce import ProduceRequest

VERSIONS = [9, 10, 11, 12, 13]
#: Topics of the side with the fast path, and of the other one. The names are as long.
FAST, ORDINARY = ("fast-a", "fast-b"), ("slow-a", "slow-b")
PARTITIONS = 3
#: (topic, partition) -> records; a topic of a request is named once for each run of its partitions.
Asked = list[tuple[int, int, bytes]]


async def prepare(node: Node, partitions: int = PARTITIONS) -> dict[str, bytes]:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        for topic in (*FAST, *ORDINARY):
            await admin.create_topic(topic, partitions=partitions, replication_factor=1)
    await led(node, (*FAST, *ORDINARY), partitions)
    assert node.broker is not None
    image = node.broker.replicas._metadata.image
    return {topic: image.topics_by_name[topic].topic_id for topic in (*FAST, *ORDINARY)}


def produce(
    names: tuple[str, ...], ids: dict[str, bytes], version: int, asked: Asked, *, correlation_id: int = 1, acks: int = 1,
    timeout_ms: int = 1000, client_id: str = "several",
) -> bytes:  # fmt: skip
    topics: list[ProduceRequest.TopicProduceData] = []
    previous = -1
    for topic, index, records in asked:
        if topic != previous:
            made = ProduceRequest.TopicProduceData(partition_data=[])
            made.name, made.topic_id = (names[topic], bytes(16)) if version < 13 else ("", ids[names[topic]])
            topics.append(made)
            previous = topic
        topics[-1].partition_data.append(ProduceRequest.PartitionProduceData(index=index, records=records))
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
    return b"".join(bytes(piece) for piece in encode_request(request, version, correlation_id, client_id))[4:]


class Drawn:
    """Requests drawn from a seed. Idempotent batches have the next sequence number, mostly."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._sequences: dict[tuple[int, int], int] = {}

    def request(self) -> Asked:
        draw = self._random
        places = [(topic, index) for topic in (0, 1) for index in range(PARTITIONS)]
        chosen = draw.sample(places, draw.randint(2, len(places)))
        if draw.random() < 0.8:
            chosen.sort(key=lambda place: place[0])
        if draw.random() < 0.1:
            chosen.append(draw.choice(chosen))
        if draw.random() < 0.1:
            chosen.insert(draw.randrange(len(chosen)), (0, 7))
        is_good = draw.random() < 0.8
        return [(topic, index, self._records(topic, index, is_good)) for topic, index in chosen]

    def _records(self, topic: int, index: int, is_good: bool) -> bytes:
        draw = self._random
        values = [draw.randbytes(draw.choice((0, 1, 100, 3000))) for _ in range(draw.choice((1, 1, 2, 5)))]
        if is_good or draw.random() < 0.7:
            if draw.random() < 0.5:
                return batch(*values)
            sequence = self._sequences.get((topic, index), 0)
            if draw.random() < 0.9:
                self._sequences[(topic, index)] = sequence + len(values)
            return batch(*values, producer_id=77, producer_epoch=0, base_sequence=sequence)
        good = batch(*values)
        transactional = bytearray(good)
        transactional[ATTRIBUTES_LOW_BYTE] |= TRANSACTIONAL_BIT
        return draw.choice(
            (damaged(good, len(good) - 1), damaged(good, 16), good[:-4], good + good, good[:40], good[:10], b"", bytes(transactional),
             batch(b"z" * 1_100_000), batch(b"v" * 130_000), batch(b"v", producer_id=77, producer_epoch=0, base_sequence=5000))
        )  # fmt: skip


def unhurried(node: Node) -> Side:
    """A connection with fast paths that never use up their share of a turn, however busy the machine is."""
    assert node.broker is not None
    side = Side(node.broker.dispatcher, fast=True)
    side.fast_path(0)._several._shares = SimpleNamespace(begin=lambda: lambda: False)
    return side


async def answer_of(side: Side, frame: bytes) -> bytes:
    """The answer, in a later turn if the batches are prepared on a thread or take several turns."""
    side.connection.arrived.clear()
    answer = side.ask(frame)
    if answer is None:
        assert side.connection.reason is None
        await side.connection.arrived.wait()
        answer = list(side.connection.frames.values())[-1]
    return answer


def as_ordinary(answer: bytes, ids: dict[str, bytes]) -> bytes:
    for fast, ordinary in zip(FAST, ORDINARY, strict=True):
        answer = answer.replace(fast.encode(), ordinary.encode()).replace(ids[fast], ids[ordinary])
    return answer


def state(node: Node, names: tuple[str, ...]) -> list[Any]:
    """Logs and counters of all partitions."""
    assert node.broker is not None
    found = []
    for topic in names:
        for index in range(PARTITIONS):
            partition = node.broker.replicas.partitions[(topic, index)]
            counts = (partition.produces, partition.produces_failed, partition.bytes_in, partition.messages_in, partition.bytes_rejected)
            found.append((log_bytes(node, topic, index), counts))
    return found


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_logs_and_counters_are_those_of_the_ordinary_path(tmp_path: Path, version: int, acks: int) -> None:
    """Drawn requests, some with something wrong in some partitions. A request of which only a part can be appended fast must not
    append that part again."""
    served = {True: 0, False: 0, "rest": 0}

    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        fast, ordinary = Side(node.broker.dispatcher, fast=True), Side(node.broker.dispatcher, fast=False)
        several = fast.fast_path(0)._several
        refer, serve = several._refer, several.serve
        path = fast.fast_path(0)

        class Counting:
            def serve(self, *arguments: Any) -> bool | None:
                result: bool | None = serve(*arguments)
                served[bool(result)] += 1
                return result

        def count_rest(*arguments: Any) -> None:
            served["rest"] += 1
            refer(*arguments)

        several._refer, path._several = count_rest, Counting()
        drawn = Drawn(f"{version}/{acks}")
        for number in range(120):
            if number % 4:
                node.broker.replicas.refusals.entries.clear()
            asked = drawn.request()
            answers = [
                await answer_of(side, produce(names, ids, version, asked, correlation_id=number, acks=acks))
                for side, names in ((fast, FAST), (ordinary, ORDINARY))
            ]
            assert as_ordinary(answers[0], ids) == answers[1], (number, [(topic, index, len(data)) for topic, index, data in asked])
        assert state(node, FAST) == state(node, ORDINARY)
        counted = [entry.count for entry in node.broker.dispatcher.entries if entry.api_key == 0]
        assert counted == [240]
    assert served[True] > 40 and served[False] > 10 and served["rest"] > 5, served


async def test_a_waiting_request_is_answered_when_its_last_partition_is_settled(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = unhurried(node)
        partitions = [node.broker.replicas.partitions[("fast-a", index)] for index in range(PARTITIONS)]

        def ask(version: int, timeout_ms: int = 30_000) -> bytes | None:
            asked = [(0, index, batch(b"v" * (index + 1))) for index in range(PARTITIONS)]
            return side.ask(produce(FAST, ids, version, asked, acks=-1, timeout_ms=timeout_ms))

        def codes(version: int) -> list[tuple[int, int]]:
            answer = decoded(list(side.connection.frames.values())[-1], version)[1].responses[0]
            return [(partition.error_code, partition.base_offset) for partition in answer.partition_responses]

        for version, timeout_ms in ((9, 30_000), (13, 30_000), (9, 1)):
            assert ask(version, timeout_ms) is not None
        for partition in partitions[1:]:
            assert partition.leader is not None
            partition.leader.update_replicas((1, 2), 1, 0)
            partition.leader.isr.committed = partition.leader.isr.maximal = (1, 2)
            partition.leader.followers[2].broker_epoch = 1
        for offset, version in enumerate((9, 13), 3):
            assert ask(version) is None
            partitions[2].follower_fetched(2, offset + 1, 0, 1, 0)
            assert len(side.connection.frames) == offset, "the second partition is not replicated"
            partitions[1].follower_fetched(2, offset + 1, 0, 1, 0)
            assert codes(version) == [(0, offset)] * PARTITIONS
        side.connection.arrived.clear()
        assert ask(9, 1) is None
        await side.connection.arrived.wait()
        assert codes(9) == [(0, 5), (ErrorCode.REQUEST_TIMED_OUT, -1), (ErrorCode.REQUEST_TIMED_OUT, -1)]
        # A later leadership, which has everything, does not know what the earlier one appended.
        later: Any = SimpleNamespace(is_replicated=lambda required: ErrorCode.NONE)
        for offset, leader in ((6, later), (7, None)):
            before = partitions[2].leader, partitions[2].appending
            assert ask(13) is None
            partitions[1].follower_fetched(2, offset + 1, 0, 1, 0)
            partitions[2].leader = partitions[2].appending = leader
            node.broker.replicas.changed(partitions[2])
            assert codes(13) == [(0, offset), (0, offset), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
            partitions[2].leader, partitions[2].appending = before


async def test_what_is_known_is_not_learned_again(tmp_path: Path) -> None:
    """A request that the fast path cannot serve is decoded once, by the ordinary path; those that it can serve are served later, too."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = unhurried(node)
        good = produce(FAST, ids, 12, [(0, 0, batch(b"x")), (1, 1, batch(b"y"))])
        refused = produce(FAST, ids, 12, [(0, 0, batch(b"x")), (1, 9, batch(b"y"))])
        assert side.ask(good) is not None
        path = side.fast_path(0)
        for _ in range(2 * MISSES_MAX):
            assert side.ask(refused) is not None
        assert path._misses == 0
        assert path.serve(side.connection, memoryview(bytearray(good)))
        assert not path.serve(side.connection, memoryview(bytearray(good[:-1] + b"\1")))
        for end in range(8, len(good)):
            assert not path.serve(side.connection, memoryview(bytearray(good[:end])))


async def test_a_request_for_too_many_partitions_takes_the_ordinary_path(tmp_path: Path) -> None:
    """It is served in several turns of the loop."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node, partitions=PARTITIONS_MAX + 1)
        assert node.broker is not None
        side = unhurried(node)
        for count, is_served in ((2, False), (PARTITIONS_MAX, True), (PARTITIONS_MAX + 1, False)):
            frame = produce(FAST, ids, 13, [(0, index, batch(b"x")) for index in range(count)])
            assert side.fast_path(0).serve(side.connection, memoryview(bytearray(frame))) is is_served


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_request_whose_share_of_a_turn_is_used_up_goes_on_in_later_turns(tmp_path: Path, acks: int) -> None:
    """32 partitions of a compacted topic took 457 ms in one turn. What the first turn has appended is appended once."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        fast, ordinary = Side(node.broker.dispatcher, fast=True), Side(node.broker.dispatcher, fast=False)
        several = fast.fast_path(0)._several
        several._shares = SimpleNamespace(begin=lambda: lambda: True)
        appended: list[int] = []
        refer = several._refer

        def note(place: Any, frame: memoryview) -> None:
            appended.append(len(place.appended))
            refer(place, frame)

        several._refer = note
        asked = [(topic, index, batch(b"v" * 100)) for topic in (0, 1) for index in range(PARTITIONS)]
        for number in range(4):
            answers = [
                await answer_of(side, produce(names, ids, 13, asked, correlation_id=number, acks=acks))
                for side, names in ((fast, FAST), (ordinary, ORDINARY))
            ]
            assert as_ordinary(answers[0], ids) == answers[1]
        assert appended == [1, 1, 1]
        assert state(node, FAST) == state(node, ORDINARY)


async def test_every_version_of_a_client_is_learned(tmp_path: Path) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = unhurried(node)
        for version in VERSIONS:
            frame = produce(FAST, ids, version, [(0, 0, batch(b"x")), (1, 1, batch(b"y"))])
            assert side.ask(frame) is not None
            assert side.fast_path(0).serve(side.connection, memoryview(bytearray(frame)))


@pytest.mark.parametrize("count", [0, 1], ids=["null", "empty"])
async def test_a_topic_without_partitions_is_answered_by_the_ordinary_path(tmp_path: Path, count: int) -> None:
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = unhurried(node)
        good = produce(FAST, ids, 13, [(0, 0, batch(b"x")), (0, 1, batch(b"y")), (1, 1, batch(b"z"))])
        assert side.ask(good) is not None
        assert side.fast_path(0).serve(side.connection, memoryview(bytearray(good)))
        cut = good.index(ids["fast-b"]) + 16
        odd = good[:cut] + bytes((count, 0, 0))
        before = state(node, FAST)
        assert not side.fast_path(0).serve(side.connection, memoryview(bytearray(odd)))
        assert state(node, FAST) == before


async def test_a_long_name_costs_no_learning(tmp_path: Path) -> None:
    """A connection that sent 64 of them learned nothing more."""
    async with live_node(tmp_path, turn_clock_s=still) as node:
        ids = await prepare(node)
        assert node.broker is not None
        side = unhurried(node)
        long = produce(("l" * ONE_BYTE_MAX,), ids, 12, [(0, 0, batch(b"x")), (0, 1, batch(b"y"))])
        for _ in range(MISSES_MAX):
            assert side.ask(long) is not None
        frame = produce(FAST, ids, 12, [(0, 0, batch(b"x")), (1, 1, batch(b"y"))])
        assert side.ask(frame) is not None
        assert side.fast_path(0).serve(side.connection, memoryview(bytearray(frame)))


def test_stand_ins_of_a_connection_are_equal_to_it() -> None:
    """Requests that wait are kept by their connection: one that is timed and referred came on the same one."""
    connection, other = Answers(), Answers()
    timed = TimedAnswers(connection, SimpleNamespace())  # type: ignore[arg-type]
    same = (connection, timed, ReservedPlace(connection, 1), ReservedPlace(timed, 2))  # type: ignore[arg-type]
    assert all(one == two and hash(one) == hash(two) for one in same for two in same)
    assert all(one != other and one != TimedAnswers(other, SimpleNamespace()) for one in same)  # type: ignore[arg-type]


def test_the_table_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.broker.partitions.produce_layout.TOPICS_KEPT", 4)
    layout = produce_several.ProduceLayout()
    for number in range(20):
        name = f"topic-{number}"
        frame = memoryview(produce((name,), {}, 9, [(0, 0, b"x"), (0, 1, b"y")], client_id=f"client-{number % 9}"))
        request, _ = ProduceRequest.decode_from(9, frame, 10 + len(f"client-{number % 9}") + 1)
        assert layout.learn(frame, 10 + len(f"client-{number % 9}") + 1, 9, request)
        assert len(layout._by_name) <= 4 and len(layout._beginnings) <= BEGINNINGS_KEPT and len(layout._lengths) <= BEGINNINGS_KEPT
        beginning = layout.beginning(frame)
        assert beginning is not None
        assert [(topic.key, index, bytes(records)) for topic, index, records in layout.read(frame, beginning) or ()] == [
            (name, 0, b"x"), (name, 1, b"y")
        ]  # fmt: skip
