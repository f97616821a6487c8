"""DescribeLogDirs, DescribeProducers and AlterReplicaLogDirs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from minikafka.core.topic_name import topic_name_fault
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import AT_ONCE, lazy_list
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from minikafka.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.storage.log import Log
    from minikafka.storage.producer_state import ProducerEntry

    #: Of a partition: its index, its log, and, if that is the copy of a move, the log that it copies.
    _Described = tuple[int, Log, "Log | None"]

UNKNOWN_VOLUME_BYTES = -1


class LogDirHandlers:
    """Serves DescribeLogDirs, DescribeProducers and AlterReplicaLogDirs."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve these APIs on a broker listener."""
        dispatcher.register(DescribeLogDirsRequest, self.describe_log_dirs)
        dispatcher.register(AlterReplicaLogDirsRequest, self.alter_replica_log_dirs)
        dispatcher.register(DescribeProducersRequest, self.describe_producers)

    def alter_replica_log_dirs(self, context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        """Move replicas between log directories. Answered when copying has started (KIP-113)."""
        response = AlterReplicaLogDirsResponse()
        results: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
        for wanted in request.dirs:
            for topic in wanted.topics:
                result = results.get(topic.name)
                if result is None:
                    result = results[topic.name] = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=topic.name)
                    response.results.append(result)
                for index in topic.partitions:
                    code = self._replicas.alter_directory(wanted.path, topic.name, index)
                    result.partitions.append(
                        AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    )
        return response

    def describe_log_dirs(self, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Size and lag of each requested replica; null topics ask for all."""
        wanted = None if request.topics is None else {(t.topic, index) for t in request.topics for index in t.partitions}
        # A request that names partitions is served in parts, whose answers are joined.
        at_once = AT_ONCE if wanted is None else sys.maxsize
        response = DescribeLogDirsResponse()
        for directory in self._replicas.directories:
            result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=os.path.abspath(directory.path))
            response.results.append(result)
            if directory.is_offline:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            result.total_bytes, result.usable_bytes = _volume(directory.path)
            result.is_cordoned = directory in self._replicas.cordons
            topics: dict[str, list[_Described]] = {}
            for (name, index), log in directory.logs.items():
                if wanted is None or (name, index) in wanted:
                    topics.setdefault(name, []).append((index, log, None))
            for (name, index), future, log in self._replicas.moves.future(directory):
                if wanted is None or (name, index) in wanted:
                    topics.setdefault(name, []).append((index, future, log))
            result.topics = lazy_list(topics.items(), lambda entry: self._described_topic(*entry, at_once), at_once)
        return response

    def _described_topic(self, name: str, logs: list[_Described], at_once: int) -> DescribeLogDirsResponse.DescribeLogDirsTopic:
        def described(entry: _Described) -> DescribeLogDirsResponse.DescribeLogDirsPartition:
            index, log, moved = entry
            if moved is not None:
                lag = moved.log_end_offset - log.log_end_offset
            else:
                partition = self._replicas.partition(name, index)
                lag = 0 if partition is not None and partition.is_leader else log.high_watermark - log.log_end_offset
            return DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=index, partition_size=log.size, offset_lag=max(lag, 0), is_future_key=moved is not None
            )

        return DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=lazy_list(logs, described, at_once))

    def describe_producers(self, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
        """The producers in the state of this broker's replica, even if it does not lead, as in Kafka (KIP-664)."""
        response = DescribeProducersResponse()
        for topic in request.topics:
            answers = []
            fault = topic_name_fault(topic.name)
            for index in topic.partition_indexes:
                answer = DescribeProducersResponse.PartitionResponse(partition_index=index)
                answers.append(answer)
                try:
                    if fault is not None:
                        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
                    partition = self._replicas.require(topic.name, None, index)
                except ApiError as error:
                    answer.error_code, answer.error_message = error.code, error.message
                    continue
                answer.active_producers = lazy_list(partition.log.producer_state.entries.values(), _described_producer)
            response.topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=answers))
        return response


def _described_producer(entry: ProducerEntry) -> DescribeProducersResponse.ProducerState:
    return DescribeProducersResponse.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )


def _volume(path: str) -> tuple[int, int]:
    try:
        found = os.statvfs(path)
    except OSError:
        return UNKNOWN_VOLUME_BYTES, UNKNOWN_VOLUME_BYTES
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
