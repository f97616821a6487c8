"""A marker that comes twice: the second time the next transaction may be open, which has the marker's epoch (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from minikafka.broker.coordinators.transaction_markers import Marker, MarkerWriter
from minikafka.broker.supervise import Ends
from minikafka.net.turn_share import SHARE_S, TurnShares
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest

KEY = ("t", 0)
PRODUCER_ID = 7


class Replicas:
    """One partition that knows the producer in an epoch, and what is asked of it."""

    def __init__(self, epoch: int, txn_first_offset: int) -> None:
        entry = SimpleNamespace(epoch=epoch, txn_first_offset=txn_first_offset, coordinator_epoch=3)
        log = SimpleNamespace(producer_state=SimpleNamespace(entries={PRODUCER_ID: entry}), log_end_offset=30)
        self._partition = SimpleNamespace(log=log, leading=lambda: None)
        self.calls: list[str] = []

    def require(self, *name: Any) -> Any:
        return self._partition

    def append_records(self, topic: str, index: int, batch: Any, acks: int, timeout_ms: int, done: Any, **named: Any) -> None:
        self.calls.append("append")
        done(ErrorCode.NONE, 30)

    def when_replicated(self, partition: Any, required: int, timeout_ms: int, done: Any) -> None:
        self.calls.append(f"wait for {required}")
        done(ErrorCode.NONE, -1)


class Turns:
    """An environment whose turns the test takes. An append takes a millisecond."""

    def __init__(self, replicas: Replicas) -> None:
        self.clock = SimpleNamespace(wall_ms=lambda: 0)
        self.shares = TurnShares(lambda: len(replicas.calls) / 1000)
        self.supervisor = self
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, name: str, work: Callable[[], None]) -> None:
        self.soon.append(work)

    def watching(self, name: str, *, ends: Ends) -> AbstractContextManager[None]:
        return nullcontext()

    def take(self) -> None:
        soon, self.soon = self.soon, []
        for work in soon:
            work()


def marker_of(epoch: int, version: int, *partitions: int, producer_id: int = PRODUCER_ID, coordinator_epoch: int = 3) -> Marker:
    return Marker(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=True, coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=KEY[0], partition_indexes=list(partitions))],
    )  # fmt: skip


def write(replicas: Replicas, epoch: int, version: int, producer_id: int = PRODUCER_ID, coordinator_epoch: int = 3) -> ErrorCode:
    environment: Any = Turns(replicas)
    marker = marker_of(epoch, version, KEY[1], producer_id=producer_id, coordinator_epoch=coordinator_epoch)
    results: list[dict[Any, ErrorCode]] = []
    MarkerWriter(replicas, environment, 1000).write(marker, results.append)  # type: ignore[arg-type]
    return results[0][KEY]


def test_the_first_time_it_is_written() -> None:
    replicas = Replicas(epoch=4, txn_first_offset=20)
    assert write(replicas, epoch=5, version=2) is ErrorCode.NONE
    assert replicas.calls == ["append"]


def test_the_second_time_it_waits_for_the_first() -> None:
    replicas = Replicas(epoch=5, txn_first_offset=-1)
    assert write(replicas, epoch=5, version=2) is ErrorCode.NONE
    assert replicas.calls == ["wait for 30"]


def test_the_second_time_a_coordinator_that_another_has_replaced_is_told_so() -> None:
    """As when it comes the first time; Apache Kafka 4.4 was asked."""
    replicas = Replicas(epoch=5, txn_first_offset=-1)
    assert write(replicas, epoch=5, version=2, coordinator_epoch=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert replicas.calls == []


def test_it_does_not_end_the_next_transaction() -> None:
    replicas = Replicas(epoch=5, txn_first_offset=25)
    assert write(replicas, epoch=5, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert replicas.calls == []


def test_before_version_2_the_epoch_of_a_marker_is_its_transactions_own() -> None:
    replicas = Replicas(epoch=5, txn_first_offset=25)
    assert write(replicas, epoch=5, version=1) is ErrorCode.NONE
    assert replicas.calls == ["append"]


def test_a_marker_of_an_unknown_producer_is_not_written() -> None:
    """Readers of the log would find such a batch corrupt."""
    for epoch, producer_id in ((5, -1), (5, -(1 << 63)), (-1, PRODUCER_ID)):
        replicas = Replicas(epoch=5, txn_first_offset=25)
        assert write(replicas, epoch, 1, producer_id) is ErrorCode.INVALID_REQUEST
        assert replicas.calls == []


def test_markers_of_very_many_partitions_are_written_in_several_turns() -> None:
    """In few requests with many partitions, or in many with one: each may begin a segment."""
    replicas, results = Replicas(epoch=4, txn_first_offset=20), list[dict[Any, ErrorCode]]()
    turns: Any = Turns(replicas)
    writer = MarkerWriter(replicas, turns, 1000)  # type: ignore[arg-type]
    writer.write(marker_of(5, 2, *range(40)), results.append)
    for index in range(40):
        writer.write(marker_of(5, 2, index), results.append)
    most = []
    while turns.soon:
        most.append(len(replicas.calls) - sum(most))
        turns.take()
    assert max(most) <= 1000 * SHARE_S + 1 and len(replicas.calls) == 80
    assert [list(result) for result in results] == [[("t", index) for index in range(40)], *([("t", index)] for index in range(40))]
