"""Partition reassignments (KIP-455): new replicas are added first, and old ones are removed when the new ones are in sync."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.core.controller.partitions import PartitionControl
from minikafka.core.controller.state import ControllerState, Result
from minikafka.core.controller.topics import check_manual_assignment
from minikafka.core.metadata.image import PartitionRegistration, TopicImage
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


class ReassignmentControl:
    """Starts, cancels and lists reassignments."""

    def __init__(self, state: ControllerState, partitions: PartitionControl) -> None:
        self._state = state
        self._partitions = partitions

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Result:
        """AlterPartitionReassignments: null replicas cancel a reassignment."""
        response = AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
        )
        result = Result(response)
        for topic in request.topics:
            answers = AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name)
            response.responses.append(answers)
            for requested in topic.partitions:
                code, message = ErrorCode.NONE, None
                try:
                    self._alter_one(topic.name, requested, request.allow_replication_factor_change, result)
                except ApiError as error:
                    code, message = error.code, error.message
                answers.partitions.append(
                    AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                        partition_index=requested.partition_index, error_code=code, error_message=message
                    )
                )
        return result

    def _alter_one(
        self, name: str, requested: AlterPartitionReassignmentsRequest.ReassignablePartition, factor_may_change: bool, result: Result
    ) -> None:
        topic = self._state.image.topics_by_name.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        partition = topic.partitions.get(requested.partition_index)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{requested.partition_index}.")
        if requested.replicas is None:
            self._cancel(topic, requested.partition_index, partition, result)
        else:
            self._start(topic, requested.partition_index, partition, requested.replicas, factor_may_change, result)

    def _cancel(self, topic: TopicImage, index: int, partition: PartitionRegistration, result: Result) -> None:
        if not partition.is_reassigning:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.text)
        original = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
        isr = [replica for replica in partition.isr if replica in original]
        if not isr:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean leader election.",
            )
        record = self._partitions.change(topic, index, partition).target_isr(isr).target_replicas(original, (), ()).build()
        if record is not None:
            result.records.append(record)

    def _start(
        self,
        topic: TopicImage,
        index: int,
        partition: PartitionRegistration,
        target: Sequence[int],
        factor_may_change: bool,
        result: Result,
    ) -> None:
        present = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
        check_manual_assignment(self._state, target, None)
        factor = len([replica for replica in partition.replicas if replica not in partition.removing_replicas])
        if not factor_may_change and len(target) != factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {factor} to {len(target)}"
            )
        removing = [replica for replica in present if replica not in target]
        adding = [replica for replica in target if replica not in present]
        merged = [*target, *removing]
        isr = [replica for replica in partition.isr if replica in merged]
        if not isr:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to assign replicas {list(target)} to {topic.name}:{index}: none of the replicas that stay is in sync.",
            )
        change = self._partitions.change(topic, index, partition).target_isr(isr).target_replicas(merged, adding, removing)
        for replica in adding:
            change.target_directory(replica, self._state.image.brokers[replica].directory_of_new_replica)
        record = change.build()
        if record is not None:
            result.records.append(record)

    def list(self, request: ListPartitionReassignmentsRequest) -> Result:
        """ListPartitionReassignments: without topics, all reassignments in progress."""
        response = ListPartitionReassignmentsResponse(error_message=None)
        image = self._state.image
        requested = (
            [(name, list(topic.partitions)) for name, topic in image.topics_by_name.items()]
            if request.topics is None
            else [(topic.name, topic.partition_indexes) for topic in request.topics]
        )
        for name, indexes in requested:
            going_on = []
            for index in indexes:
                partition = image.partition(name, index)
                if partition is not None and partition.is_reassigning:
                    going_on.append(
                        ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                            partition_index=index,
                            replicas=list(partition.replicas),
                            adding_replicas=list(partition.adding_replicas),
                            removing_replicas=list(partition.removing_replicas),
                        )
                    )
            if going_on:
                response.topics.append(ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=name, partitions=going_on))
        return Result(response)
