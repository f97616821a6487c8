"""Topics: create, delete, add partitions. The checks, their order and their messages are Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minikafka.core.controller.config import PARTITIONS_PER_REQUEST_MAX, ControllerConfig, RandomSource
from minikafka.core.controller.configs import ConfigControl
from minikafka.core.controller.forwarded import Forwarded, SeenTopic, uuid_of
from minikafka.core.controller.placement import UsableBroker, placing_replicas
from minikafka.core.controller.state import ControllerState, Result
from minikafka.core.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    PartitionRegistration,
    TopicImage,
)
from minikafka.core.topic_name import topic_name_fault
from minikafka.steps import Steps, paced
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from minikafka.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from minikafka.wire.records.metadata_records import RemoveTopicRecord, TopicRecord

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
_ZERO_ID = bytes(16)
#: Partitions that are placed, or made into records, in one step.
STEP_PARTITIONS = 256
#: Topics created in one step: the answer to each has all of its configurations.
STEP_TOPICS = 16

Failure = tuple[ErrorCode, str | None]
#: Counts partitions that are created or deleted. Raises ApiError THROTTLING_QUOTA_EXCEEDED. They are counted when they have been placed;
#: none are before, so that those of a client in debt are not placed (Kafka places them first).
Spend = Callable[[int], None]


def random_uuid(random: RandomSource) -> bytes:
    """A random (version 4) UUID whose text form does not begin with a dash, like Kafka's Uuid.randomUuid."""
    while True:
        topic_id = uuid_of(random.randbytes(16))
        if topic_id is not None:
            return topic_id


class TopicControl:
    """Decides about topics; reads the state, never writes it."""

    def __init__(self, config: ControllerConfig, state: ControllerState, configs: ConfigControl, random: RandomSource) -> None:
        self._config = config
        self._state = state
        self._configs = configs
        self._random = random

    # -- create ----------------------------------------------------------------------------------------------------

    def create(self, request: CreateTopicsRequest, spend: Spend | None = None, forwarded: Forwarded | None = None) -> Steps[Result]:
        """CreateTopics: each topic succeeds or fails on its own; the records of all that succeed form one batch.

        An earlier attempt of a forwarded request may have been carried out, by this controller or its predecessor, and its answer lost. A
        topic from such an attempt is recognized by its id and counts as created. Apache Kafka answers TOPIC_ALREADY_EXISTS."""
        failures: dict[str, Failure] = {}
        topics = self._distinct(request.topics, failures)
        self._check_partition_count(topics)
        records: list[Any] = []
        successes: dict[str, CreateTopicsResponse.CreatableTopicResult] = {}
        for topic in topics:
            if topic.name in failures:
                continue
            made = self._state.image.topics_by_name.get(topic.name)
            if made is not None and forwarded is not None and made.topic_id in forwarded.earlier_ids(topic.name):
                successes[topic.name] = self._created(made)
            else:
                self._check_name(topic.name, failures)
        for topic, is_step in paced(topics, STEP_TOPICS):
            if is_step:
                yield
            if topic.name in failures or topic.name in successes:
                continue
            try:
                successes[topic.name] = yield from self._create_one(topic, records, spend, forwarded)
            except ApiError as error:
                failures[topic.name] = (error.code, error.message)
        response = CreateTopicsResponse()
        for name in dict.fromkeys(topic.name for topic in request.topics):
            response.topics.append(successes[name] if name not in failures else _failed_topic(name, failures[name]))
        return Result(response, [] if request.validate_only else records)

    def _distinct(
        self, topics: Sequence[CreateTopicsRequest.CreatableTopic], failures: dict[str, Failure]
    ) -> list[CreateTopicsRequest.CreatableTopic]:
        """The topics that are named once. A duplicate name, or that of the metadata log, is refused."""
        counts: dict[str, int] = {}
        for topic in topics:
            counts[topic.name] = counts.get(topic.name, 0) + 1
        for name, count in counts.items():
            if count > 1:
                failures[name] = (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            elif name == CLUSTER_METADATA_TOPIC:
                failures[name] = (ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.")
        return [topic for topic in topics if topic.name not in failures]

    def _check_partition_count(self, topics: Sequence[CreateTopicsRequest.CreatableTopic]) -> None:
        total = 0
        for topic in topics:
            if topic.assignments:
                total += len(topic.assignments)
            else:
                total += self._config.num_partitions if topic.num_partitions == -1 else max(0, topic.num_partitions)
        if total > PARTITIONS_PER_REQUEST_MAX:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")

    def _check_name(self, name: str, failures: dict[str, Failure]) -> None:
        fault = topic_name_fault(name)
        if fault is not None:
            failures[name] = (ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        elif name in self._state.image.topics_by_name:
            failures[name] = (ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        elif "." in name or "_" in name:
            other = self._state.colliding_topic(name)
            if other is not None:
                failures[name] = (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")

    def _create_one(
        self, topic: CreateTopicsRequest.CreatableTopic, records: list[Any], spend: Spend | None, forwarded: Forwarded | None
    ) -> Steps[CreateTopicsResponse.CreatableTopicResult]:
        overrides, config_records = self._configs.for_new_topic(topic.name, [(entry.name, entry.value) for entry in topic.configs])
        if spend is not None:
            spend(0)
        partitions = yield from self._manual(topic) if topic.assignments else self._placed(topic)
        if spend is not None:
            spend(len(partitions))
        topic_id = self._new_topic_id(forwarded, topic.name)
        records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        records.extend(config_records)
        for (index, partition), is_step in paced(enumerate(partitions), STEP_PARTITIONS):
            records.append(partition.to_record(topic_id, index))
            if is_step:
                yield
        return self._success(topic.name, topic_id, len(partitions), len(partitions[0].replicas), overrides)

    def _created(self, topic: TopicImage) -> CreateTopicsResponse.CreatableTopicResult:
        """The answer for a topic that an earlier attempt created, if nothing has changed since."""
        overrides = self._state.image.config(RESOURCE_TOPIC, topic.name)
        return self._success(topic.name, topic.topic_id, len(topic.partitions), len(topic.partitions[0].replicas), overrides)

    def _success(
        self, name: str, topic_id: bytes, partitions: int, replication_factor: int, overrides: Mapping[str, str]
    ) -> CreateTopicsResponse.CreatableTopicResult:
        cluster = self._state.image.config(RESOURCE_BROKER, "")
        return CreateTopicsResponse.CreatableTopicResult(
            name=name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.NONE,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[
                CreateTopicsResponse.CreatableTopicConfigs(
                    name=entry.name,
                    value=None if entry.sensitive else entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in self._configs.rules.effective_topic(overrides, cluster)
            ],
        )

    def _new_topic_id(self, forwarded: Forwarded | None, name: str) -> bytes:
        if forwarded is not None:
            topic_id = forwarded.topic_id(name)
            if topic_id not in self._state.image.topics_by_id:
                return topic_id
        while True:
            topic_id = random_uuid(self._random)
            if topic_id not in self._state.image.topics_by_id:
                return topic_id

    def _manual(self, topic: CreateTopicsRequest.CreatableTopic) -> Steps[list[PartitionRegistration]]:
        if topic.replication_factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if topic.num_partitions != -1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1.")
        partitions: dict[int, PartitionRegistration] = {}
        factor: int | None = None
        for assignment, is_step in paced(topic.assignments, STEP_PARTITIONS):
            if is_step:
                yield
            index = assignment.partition_index
            if index in partitions:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Found multiple manual partition assignments for partition {index}"
                )
            check_manual_assignment(self._state, assignment.broker_ids, factor)
            factor = len(assignment.broker_ids)
            partitions[index] = self._assigned(index, assignment.broker_ids)
        if any(index not in partitions for index in range(len(partitions))):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
        return [partitions[index] for index in range(len(partitions))]

    def _assigned(self, index: int, replicas: Sequence[int]) -> PartitionRegistration:
        """A partition with a manual assignment. At least one of its brokers must be active."""
        partition = self._new_partition(replicas)
        if partition is None:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in controlled shutdown.",
            )
        return partition

    def _placed(self, topic: CreateTopicsRequest.CreatableTopic) -> Steps[list[PartitionRegistration]]:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        count = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = self._config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        try:
            return (yield from self._place(count, factor))
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
            raise ApiError(error.code, f"Unable to replicate the partition {factor} time(s): {error.message}") from None

    def _place(self, count: int, factor: int) -> Steps[list[PartitionRegistration]]:
        partitions = []
        for replicas, is_step in paced(placing_replicas(self._usable_brokers(), count, factor, self._random), STEP_PARTITIONS):
            if is_step:
                yield
            partition = self._new_partition(replicas)
            if partition is None:
                raise ApiError(
                    ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
                )
            partitions.append(partition)
        return partitions

    def _usable_brokers(self) -> list[UsableBroker]:
        """Brokers for new replicas. A broker that is shutting down counts as fenced; one with only cordoned directories is left out."""
        return [
            UsableBroker(broker.broker_id, broker.rack, not broker.is_active)
            for broker in self._state.image.brokers.values()
            if not broker.cordoned_log_dirs or any(directory not in broker.cordoned_log_dirs for directory in broker.log_dirs)
        ]

    def _new_partition(self, replicas: Sequence[int]) -> PartitionRegistration | None:
        """A new partition led by its first active replica, or None if no replica is active. If a broker has one directory, it is assigned
        at once."""
        image = self._state.image
        isr = [replica for replica in replicas if image.is_active(replica)]
        if not isr:
            return None
        directories = [image.brokers[replica].directory_of_new_replica for replica in replicas]
        return PartitionRegistration(replicas, isr, isr[0], 0, 0, directories=directories)

    # -- add partitions --------------------------------------------------------------------------------------------

    def create_partitions(
        self, request: CreatePartitionsRequest, spend: Spend | None = None, forwarded: Forwarded | None = None
    ) -> Steps[Result]:
        """CreatePartitions: add partitions to topics, with their existing replication factor.

        If a topic had fewer partitions before the first attempt of a forwarded request and now has the requested number, an earlier attempt
        added them, and the topic counts as a success."""
        seen = {} if forwarded is None else forwarded.seen_before()
        response = CreatePartitionsResponse()
        records: list[Any] = []
        counts: dict[str, int] = {}
        for topic in request.topics:
            counts[topic.name] = counts.get(topic.name, 0) + 1
        for name in (name for name, count in counts.items() if count > 1):
            response.results.append(
                CreatePartitionsResponse.CreatePartitionsTopicResult(
                    name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
                )
            )
        for topic in request.topics:
            if counts[topic.name] > 1:
                continue
            code, message = ErrorCode.NONE, None
            try:
                if not self._has_grown(topic, seen.get(topic.name)):
                    records += yield from self._add_partitions(topic, spend)
            except ApiError as error:
                # For a topic that does not exist, Kafka answers the error code without a message here.
                code, message = error.code, None if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.message
            response.results.append(
                CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            )
        return Result(response, [] if request.validate_only else records)

    def _has_grown(self, request: CreatePartitionsRequest.CreatePartitionsTopic, before: SeenTopic | None) -> bool:
        topic = self._state.image.topics_by_name.get(request.name)
        if topic is None or before is None or topic.topic_id != before.topic_id:
            return False
        if not before.partitions < request.count == len(topic.partitions):
            return False
        asked = [] if request.assignments is None else [tuple(assignment.broker_ids) for assignment in request.assignments]
        return not asked or asked == [tuple(topic.partitions[index].replicas) for index in range(before.partitions, request.count)]

    def _add_partitions(self, request: CreatePartitionsRequest.CreatePartitionsTopic, spend: Spend | None) -> Steps[list[Any]]:
        topic = self._state.image.topics_by_name.get(request.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        present = len(topic.partitions)
        if request.count == present:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
        if request.count < present:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {request.name} currently has {present} partition(s); {request.count} would not be an increase.",
            )
        added = request.count - present
        if added > PARTITIONS_PER_REQUEST_MAX:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request.")
        if request.assignments is not None and len(request.assignments) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} assignment(s) were specified.",
            )
        factor = len(topic.partitions[0].replicas)
        if spend is not None:
            spend(0)
        if request.assignments is not None:
            partitions = []
            for (offset, assignment), is_step in paced(enumerate(request.assignments), STEP_PARTITIONS):
                if is_step:
                    yield
                check_manual_assignment(self._state, assignment.broker_ids, factor)
                partitions.append(self._assigned(present + offset, assignment.broker_ids))
        else:
            partitions = yield from self._place(added, factor)
        if spend is not None:
            spend(added)
        records: list[Any] = []
        for (offset, partition), is_step in paced(enumerate(partitions), STEP_PARTITIONS):
            records.append(partition.to_record(topic.topic_id, present + offset))
            if is_step:
                yield
        return records

    # -- delete ----------------------------------------------------------------------------------------------------

    def delete(
        self, request: DeleteTopicsRequest, version: int, spend: Spend | None = None, forwarded: Forwarded | None = None
    ) -> Result:
        """DeleteTopics, by name or (version 6) by id.

        A topic that existed before the first attempt of a forwarded request and no longer exists counts as deleted. A topic that was
        created since with the same name was not meant, and stays."""
        if not self._config.delete_topic_enable:
            code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
            raise ApiError(code, "Topic deletion is disabled.")
        requested = [(name, _ZERO_ID) for name in request.topic_names] if version < 6 else [(t.name, t.topic_id) for t in request.topics]
        response = DeleteTopicsResponse()
        records: list[Any] = []
        names: dict[str, int] = {}
        ids: dict[bytes, int] = {}
        removed: set[bytes] = set()
        seen = {} if forwarded is None else forwarded.seen_before()
        for name, topic_id in requested:
            if name is not None:
                names[name] = names.get(name, 0) + 1
            if topic_id != _ZERO_ID:
                ids[topic_id] = ids.get(topic_id, 0) + 1
        for name, topic_id in dict.fromkeys(requested):
            failure = _ambiguous(name, topic_id, names, ids)
            topic = None if failure is not None else self._find(name, topic_id)
            before = seen.get(topic_id if name is None else name)
            is_gone = before is not None and failure is None and before.topic_id not in self._state.image.topics_by_id
            if before is not None and is_gone:
                topic, name, topic_id = None, before.name, before.topic_id
            elif failure is None and topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
                failure = (code, code.text)
            elif topic is not None and topic.topic_id in removed:
                failure = (ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
            if failure is None and topic is not None and spend is not None:
                try:
                    spend(len(topic.partitions))
                except ApiError as error:
                    failure = (error.code, error.message)
            if failure is None and topic is not None:
                records.append(RemoveTopicRecord(topic_id=topic.topic_id))
                removed.add(topic.topic_id)
                name, topic_id = topic.name, topic.topic_id
            code, message = failure or (ErrorCode.NONE, None)
            response.responses.append(
                DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
            )
        return Result(response, records)

    def _find(self, name: str | None, topic_id: bytes) -> TopicImage | None:
        image = self._state.image
        return image.topics_by_name.get(name) if name is not None else image.topics_by_id.get(topic_id)


def _ambiguous(name: str | None, topic_id: bytes, names: Mapping[str, int], ids: Mapping[bytes, int]) -> Failure | None:
    if name is None and topic_id == _ZERO_ID:
        return ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
    if name is not None and topic_id != _ZERO_ID:
        return ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
    if name is not None and names[name] > 1:
        return ErrorCode.INVALID_REQUEST, "Duplicate topic name."
    if topic_id != _ZERO_ID and ids[topic_id] > 1:
        return ErrorCode.INVALID_REQUEST, "Duplicate topic id."
    return None


def _failed_topic(name: str, failure: Failure) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=failure[0], error_message=failure[1], num_partitions=-1, replication_factor=-1, configs=[]
    )


def check_manual_assignment(state: ControllerState, replicas: Sequence[int], factor: int | None) -> None:
    """Raises ApiError INVALID_REPLICA_ASSIGNMENT unless `replicas` are registered, distinct and `factor` many (None: any number)."""
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not replicas:
        raise ApiError(code, "The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in state.image.brokers:
            raise ApiError(code, f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.")
        if broker_id == previous:
            raise ApiError(code, f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id
    if factor is not None and len(replicas) != factor:
        raise ApiError(
            code,
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not consistent "
            f"with previous partitions, which have {factor} replica(s).",
        )


