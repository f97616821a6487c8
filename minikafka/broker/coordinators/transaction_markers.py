"""Markers of finished transactions: written into this broker's partitions, and sent to the leaders of others (WriteTxnMarkers)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.broker.supervise import Ends
from minikafka.core.transaction.effects import Markers
from minikafka.core.transaction.markers import MarkerStep, marker_step
from minikafka.core.transaction.records import by_topic
from minikafka.core.transaction.state import PartitionKey
from minikafka.counted import named
from minikafka.wire.control import ControlType, end_transaction_batch
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_peers import RaftPeers

logger = logging.getLogger("minikafka.transaction")
OnMarkers = Callable[[dict[PartitionKey, ErrorCode]], None]
OnMarker = Callable[[ErrorCode], None]
Marker = WriteTxnMarkersRequest.WritableTxnMarker


class MarkerWriter:
    """Writes markers into the partitions that this broker leads. Coordinators find them in the log."""

    def __init__(self, replicas: ReplicaManager, environment: Environment, timeout_ms: int) -> None:
        """`timeout_ms`: how long a sender of markers waits for their replication."""
        self._replicas = replicas
        self._environment = environment
        self._timeout_ms = timeout_ms
        #: Markers that wait for a turn of the loop, in order: each may begin a segment.
        self._left: deque[tuple[Marker, PartitionKey, OnMarker]] = deque()
        #: Whether this turn's share is used up; None before a turn's first marker.
        self._is_over: Callable[[], bool] | None = None
        self._is_writing = False

    def write(self, marker: Marker, done: OnMarkers) -> None:
        """Append the marker to each of its partitions. Calls `done` when each is replicated or has failed, perhaps at once."""
        keys = list(dict.fromkeys((topic.name, index) for topic in marker.topics for index in topic.partition_indexes))
        results: dict[PartitionKey, ErrorCode] = {}
        if not keys:
            done(results)
        for key in keys:

            def one(code: ErrorCode, key: PartitionKey = key) -> None:
                results[key] = code
                if len(results) == len(keys):
                    done({key: results[key] for key in keys})

            self._left.append((marker, key, one))
        self._write_some()

    def _write_some(self) -> None:
        """Append waiting markers until this turn's share is used up."""
        if self._is_writing:
            return
        if self._is_over is None:
            self._is_over = self._environment.shares.begin()
            self._environment.supervisor.call_soon("markers", self._next_turn)
        self._is_writing = True
        while self._left and not self._is_over():
            marker, key, done = self._left.popleft()
            ends = Ends("marker", lambda _, done=done: done(ErrorCode.UNKNOWN_SERVER_ERROR))  # type: ignore[misc]
            with self._environment.supervisor.watching(f"the marker of producer {marker.producer_id} in {key}", ends=ends):
                self._write_one(marker, key, done)
        self._is_writing = False

    def _next_turn(self) -> None:
        self._is_over = None
        if self._left:
            self._write_some()

    def _write_one(self, marker: Marker, key: PartitionKey, done: OnMarker) -> None:
        try:
            partition = self._replicas.require(key[0], None, key[1])
            partition.leading()
            step = marker_step(marker, partition.log.producer_state.entries.get(marker.producer_id))
        except ApiError as error:
            done(error.code)
            return
        if step is MarkerStep.WAIT:
            required = partition.log.log_end_offset
            self._replicas.when_replicated(partition, required, self._timeout_ms, lambda code, _: done(code))
            return
        batch = end_transaction_batch(
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._environment.clock.wall_ms(),
        )
        self._replicas.append_records(
            key[0], key[1], batch, -1, self._timeout_ms, lambda code, base_offset: done(code), origin="coordinator"
        )


class MarkerSender:
    """Sends the markers of this broker's coordinators to the partition leaders."""

    def __init__(self, node_id: int, listener: str, metadata: MetadataHost, peers: RaftPeers, writer: MarkerWriter) -> None:
        self._node_id = node_id
        self._listener = listener
        self._metadata = metadata
        self._peers = peers
        self._writer = writer

    def send(self, markers: Markers, on_results: OnMarkers) -> None:
        """Try once. Calls `on_results` for disjoint sets of partitions until all are covered, perhaps before it returns. A partition
        that is missing from the metadata has been deleted with its records, so it needs no marker (Kafka: TransactionMarkerChannelManager).
        If another broker does not know a partition, that proves nothing."""
        image = self._metadata.image
        settled: dict[PartitionKey, ErrorCode] = {}
        by_leader: dict[int, list[PartitionKey]] = {}
        for topic, indexes in by_topic(markers.partitions):
            image_topic = image.topics_by_name.get(topic)
            deleted: list[str] = []
            for index in indexes:
                registration = None if image_topic is None else image_topic.partitions.get(index)
                if registration is None:
                    deleted.append(f"{topic}-{index}")
                    settled[topic, index] = ErrorCode.NONE
                elif registration.leader < 0:
                    settled[topic, index] = ErrorCode.LEADER_NOT_AVAILABLE
                else:
                    by_leader.setdefault(registration.leader, []).append((topic, index))
            if deleted:
                logger.info("no markers of %s are sent to deleted partitions: %s", markers.transactional_id, named(deleted))
        for leader, keys in by_leader.items():
            marker = _marker(markers, keys)
            if leader == self._node_id:
                self._writer.write(marker, on_results)
            else:
                self._ask(leader, marker, keys, on_results)
        if settled:
            on_results(settled)

    def _ask(self, leader: int, marker: Marker, keys: list[PartitionKey], on_results: OnMarkers) -> None:
        broker = self._metadata.image.brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(self._listener)
        if endpoint is None:
            on_results(dict.fromkeys(keys, ErrorCode.LEADER_NOT_AVAILABLE))
            return

        def answered(response: Any, error: Exception | None) -> None:
            results = dict.fromkeys(keys, ErrorCode.NETWORK_EXCEPTION)
            if error is None:
                results |= {
                    (topic.name, p.partition_index): ErrorCode(p.error_code)
                    for answer in response.markers
                    for topic in answer.topics
                    for p in topic.partitions
                }
            on_results(results)

        self._peers.send(endpoint[0], endpoint[1], WriteTxnMarkersRequest(markers=[marker]), answered)


def _marker(markers: Markers, keys: list[PartitionKey]) -> Marker:
    topics: dict[str, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return Marker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.commit,
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.transaction_version,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
    )
