"""Partitions that a transaction has and the metadata have not: when a marker is needed no more, and what is never added."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.coordinators.transaction_coordinator import TransactionHost, refused_for
from minikafka.broker.coordinators.transaction_markers import MarkerSender
from minikafka.broker.coordinators.transaction_verification import _producer_error
from minikafka.core.transaction.effects import Markers
from minikafka.core.transaction.verification import Support, Verification
from minikafka.counted import NAMED_MAX
from minikafka.wire.errors import ErrorCode

HERE, GONE = ("here", 0), ("gone", 0)
E = ErrorCode


class Cluster:
    """Broker 1 is the coordinator, broker 2 leads `here`-0. Timers run when a test says so."""

    def __init__(self) -> None:
        topic = SimpleNamespace(partitions={0: SimpleNamespace(leader=2)})
        broker = SimpleNamespace(fenced=False, listeners={"INTERNAL": ("host", 9)})
        self.image = SimpleNamespace(topics_by_name={"here": topic}, brokers={2: broker}, features={})
        self.answers: list[E] = []
        self.asked = 0
        self.timers: list[Any] = []
        self.sender = MarkerSender(1, "INTERNAL", SimpleNamespace(image=self.image), self, SimpleNamespace())  # type: ignore[arg-type]

    def send(self, host: str, port: int, request: Any, answered: Any) -> None:
        """Broker 2 answers what `answers` has, then NONE."""
        self.asked += 1
        code = self.answers.pop(0) if self.answers else E.NONE
        marker = request.markers[0]
        topics = [
            SimpleNamespace(name=t.name, partitions=[SimpleNamespace(partition_index=n, error_code=code) for n in t.partition_indexes])
            for t in marker.topics
        ]
        answered(SimpleNamespace(markers=[SimpleNamespace(topics=topics)]), None)

    def call_later(self, delay_s: float, name: str, work: Any, *, ends: Any) -> None:
        self.timers.append(work)

    def watching(self, name: str, *, ends: Any) -> Any:
        """What fails inside fails the test."""
        return nullcontext()


class Shard:
    """Wants markers until every partition has one."""

    def __init__(self, partitions: frozenset[Any]) -> None:
        self.unmarked = partitions
        self.added: list[Any] = []

    def markers_answered(self, markers: Markers, results: dict[Any, E], now_ms: int) -> frozenset[Any]:
        self.unmarked -= {key for key, code in results.items() if code is E.NONE}
        return frozenset(key for key in results if key in self.unmarked)

    def add_partitions(self, *asked: Any) -> None:
        self.added.append(asked)


def host_of(cluster: Cluster, shard: Shard) -> TransactionHost:
    host = object.__new__(TransactionHost)
    host._markers = cluster.sender
    host._metadata = SimpleNamespace(image=cluster.image)  # type: ignore[assignment]
    host._clock = SimpleNamespace(wall_ms=lambda: 0)  # type: ignore[assignment]
    host._environment = SimpleNamespace(supervisor=cluster)  # type: ignore[assignment]
    host.runtime = SimpleNamespace(  # type: ignore[assignment]
        is_current=lambda *_: True, run=lambda *_: None, shard=lambda _: (0, shard), ends=lambda *_: None
    )
    return host


def markers_of(*keys: tuple[str, int]) -> Markers:
    return Markers("x", 7, 0, True, 0, 2, frozenset(keys))


def test_a_partition_that_the_metadata_do_not_have_needs_no_marker_at_once() -> None:
    """As in Kafka; a coordinator that asked twenty times first held up the id's next transaction for ten seconds."""
    cluster, shard = Cluster(), Shard(frozenset({HERE, GONE}))
    host_of(cluster, shard)._send(0, shard, markers_of(HERE, GONE), 0)  # type: ignore[arg-type]
    assert shard.unmarked == frozenset() and cluster.asked == 1 and not cluster.timers


def test_a_topic_of_very_many_partitions_that_was_deleted_makes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A line for each of 9,000 took a tenth of a second of a turn."""
    gone = frozenset((GONE[0], index) for index in range(2 * NAMED_MAX))
    cluster, shard = Cluster(), Shard(gone)
    with caplog.at_level("INFO"):
        host_of(cluster, shard)._send(0, shard, markers_of(*gone), 0)  # type: ignore[arg-type]
    assert len(caplog.messages) == 1 and caplog.text.count("gone-") == NAMED_MAX and not shard.unmarked


def test_a_partition_that_its_leader_does_not_know_is_marked_however_long_that_takes() -> None:
    """A leader that has not read of its topic yet: to take that for a deletion would leave the transaction open in it for ever."""
    cluster, shard = Cluster(), Shard(frozenset({HERE}))
    cluster.answers = [E.UNKNOWN_TOPIC_OR_PARTITION] * 100
    host_of(cluster, shard)._send(0, shard, markers_of(HERE), 0)  # type: ignore[arg-type]
    while cluster.timers:
        assert shard.unmarked
        cluster.timers.pop(0)()
    assert cluster.asked == 101 and not shard.unmarked


def test_a_topic_that_is_deleted_meanwhile_ends_it() -> None:
    cluster, shard = Cluster(), Shard(frozenset({HERE}))
    cluster.answers = [E.UNKNOWN_TOPIC_OR_PARTITION] * 100
    host_of(cluster, shard)._send(0, shard, markers_of(HERE), 0)  # type: ignore[arg-type]
    cluster.timers.pop(0)()
    cluster.image.topics_by_name.clear()
    cluster.timers.pop(0)()
    assert not cluster.timers and not shard.unmarked


def test_nothing_is_added_that_the_coordinators_metadata_do_not_have() -> None:
    """A coordinator that is behind would take it for deleted when its marker is due."""
    cluster, shard, reported = Cluster(), Shard(frozenset()), list[Any]()
    host = host_of(cluster, shard)
    host.add_or_verify(Verification("x", 7, 0, frozenset({HERE, GONE}), adds=True), reported.append)
    assert reported == [{HERE: E.OPERATION_NOT_ATTEMPTED, GONE: E.UNKNOWN_TOPIC_OR_PARTITION}] and not shard.added
    host.add_or_verify(Verification("x", 7, 0, frozenset({HERE}), adds=True), reported.append)
    assert len(shard.added) == 1
    refused = refused_for([HERE, GONE], frozenset({GONE})).values()
    assert {_producer_error(code, Support.ADDS) for code in refused} == {E.NOT_ENOUGH_REPLICAS}
