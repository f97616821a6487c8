"""Requests of a transactional producer that are held back for the coordinator: each partition gets its batches in the order in which they
came, though clients name the partitions of every request in another order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import T0, batch, marker
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.partitions.produce_transactional import TransactionalProduce, Verdicts, verdict_of
from minikafka.broker.supervise import Supervisor
from minikafka.storage.config import LogConfig
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import TRANSACTIONAL_BIT
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.produce import ProduceRequest

PRODUCER = 7
CONTEXT = SimpleNamespace(api_version=12, close=lambda reason: None, keep=lambda size: None)


class Coordinator:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[frozenset[Any], Callable[[dict[Any, ErrorCode]], None]]] = []

    def is_enabled(self, support: object) -> bool:
        return True

    def verify(self, name: str, producer_id: int, epoch: int, partitions: frozenset[Any], support: object, done: Any) -> None:
        self.asked.append((partitions, done))

    def answer(self) -> None:
        partitions, done = self.asked.pop(0)
        done(dict.fromkeys(partitions, ErrorCode.NONE))


class Requests:
    """Sends requests whose batches have one record each; what is let in is appended."""

    def __init__(self, partitions: int) -> None:
        disk, settings = MemoryFileSystem(), LogConfig(segment_index_bytes=1200)
        self.logs = [load_log(disk, f"/t-{index}", "t", index, settings, wall_ms=T0, is_clean=True) for index in range(partitions)]
        self.coordinator = Coordinator()
        replicas: Any = SimpleNamespace(require=lambda name, topic_id, index: self._partition(index))
        self._held = TransactionalProduce(replicas, self.coordinator, lambda: T0, Supervisor(asyncio.get_running_loop()))
        self._next = [0] * partitions
        self.leaders: list[Any] = [True] * partitions
        self.is_hosted = [True] * partitions
        self.refused: list[ErrorCode] = []
        #: Requests with more partitions append the others in a later turn: these functions.
        self.partitions_at_once = partitions
        self.rests: list[Callable[[], object]] = []

    def _partition(self, index: int) -> Any:
        if not self.is_hosted[index]:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return SimpleNamespace(key=("t", index), leader=self.leaders[index], log=self.logs[index])

    def send(self, *partitions: int) -> None:
        data = []
        for index in partitions:
            records = batch(b"v", producer=(PRODUCER, 0, self._next[index]), attributes=TRANSACTIONAL_BIT)
            self._next[index] += 1
            data.append(ProduceRequest.PartitionProduceData(index=index, records=memoryview(records)))
        request = ProduceRequest(
            transactional_id="id", topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=data)], acks=-1, timeout_ms=1
        )
        context: Any = CONTEXT

        def go_on(verdicts: Verdicts, appended: Callable[[], None]) -> None:
            def append(parts: list[ProduceRequest.PartitionProduceData]) -> None:
                for part in parts:
                    try:
                        verification = verdict_of(verdicts, ("t", part.index), part.records)
                        self.logs[part.index].append_as_leader(part.records, 0, T0, verification=verification)  # type: ignore[arg-type]
                    except ApiError as error:
                        self.refused.append(error.code)

            append(data[:1])
            if len(data) > self.partitions_at_once:
                self.rests.append(lambda: (append(data[1:]), appended()))
            else:
                append(data[1:])
                appended()

        verdicts = self._held.hold(context, request, go_on)
        if verdicts is not None:
            go_on(verdicts, lambda: None)

    def ends(self) -> list[int]:
        return [log.log_end_offset for log in self.logs]


async def test_partitions_in_another_order_in_every_request() -> None:
    requests = Requests(3)
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 1, 2)):
        requests.send(*order)
    assert requests.ends() == [0, 0, 0] and len(requests.coordinator.asked) == 1
    requests.coordinator.answer()
    assert requests.ends() == [4, 4, 4]


async def test_no_request_overtakes_one_that_waits_for_another_partition() -> None:
    requests = Requests(3)
    requests.send(0)
    requests.send(0, 1)
    requests.send(1, 2)
    requests.send(2)
    assert len(requests.coordinator.asked) == 1
    for ends in ([1, 0, 0], [2, 1, 0], [2, 2, 2]):
        requests.coordinator.answer()
        assert requests.ends() == ends
    assert requests.coordinator.asked == []


async def test_a_request_that_is_appended_in_several_turns_keeps_its_place_until_the_last() -> None:
    requests = Requests(2)
    requests.partitions_at_once = 1
    requests.send(0, 1)
    requests.send(1, 0)
    requests.coordinator.answer()
    assert requests.ends() == [1, 0] and not requests.coordinator.asked
    requests.rests.pop()()
    assert requests.ends() == [1, 2]
    requests.rests.pop()()
    assert requests.ends() == [2, 2]


async def test_a_partition_that_is_led_only_when_the_coordinator_has_answered_is_sent_again() -> None:
    """Nobody had asked for it, and its batch was refused for good: Kafka Streams ended when a leader died."""
    requests = Requests(2)
    requests.leaders[1] = None
    requests.send(0, 1)
    requests.leaders[1] = True
    requests.coordinator.answer()
    assert requests.refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER] and requests.logs[1].log_end_offset == 0
    assert requests.logs[0].log_end_offset == 1


async def test_a_partition_that_comes_to_this_broker_while_the_coordinator_is_asked_is_sent_again() -> None:
    """Its batch was refused for good, with INVALID_TXN_STATE: this broker's metadata were older than the client's. What the producer sent
    behind it does not pass it."""
    requests = Requests(2)
    requests.is_hosted[1] = False
    requests.send(0, 1)
    requests.is_hosted[1] = True
    requests.send(1)
    assert len(requests.coordinator.asked) == 1
    requests.coordinator.answer()
    assert requests.refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER] and requests.ends() == [1, 0]
    assert [sorted(partitions) for partitions, _ in requests.coordinator.asked] == [[("t", 1)]]


@pytest.mark.parametrize("is_hosted", [True, False])
async def test_a_partition_that_is_led_when_a_later_turn_appends_is_sent_again(is_hosted: bool) -> None:
    """The coordinator need not be asked for the others, so that nothing waited."""
    requests = Requests(2)
    requests.partitions_at_once = 1
    requests.send(0)
    requests.coordinator.answer()
    requests.leaders[1] = None
    requests.is_hosted[1] = is_hosted
    requests.send(0, 1)
    requests.leaders[1], requests.is_hosted[1] = True, True
    requests.rests.pop()()
    assert requests.refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER] and requests.ends() == [2, 0]


async def test_batches_outside_transactions_need_no_verdict() -> None:
    requests = Requests(1)
    for attributes in (0, TRANSACTIONAL_BIT):
        assert verdict_of({}, ("t", 0), memoryview(batch(b"v", attributes=attributes))) is None
    assert verdict_of({}, ("t", 0), None) is None
    requests.send(0)
    requests.coordinator.answer()
    assert requests.ends() == [1]


async def test_a_batch_of_an_older_epoch_than_the_logs_is_refused_without_asking() -> None:
    requests = Requests(2)
    requests.logs[0].append_as_leader(memoryview(marker(PRODUCER, 1, abort=True, coordinator_epoch=0)), 0, T0, origin="coordinator")
    requests.send(0)
    assert requests.refused == [ErrorCode.INVALID_PRODUCER_EPOCH] and not requests.coordinator.asked
    requests.send(0, 1)
    requests.coordinator.answer()
    assert requests.refused == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2 and requests.ends() == [1, 1]
