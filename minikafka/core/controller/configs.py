"""Configuration records: IncrementalAlterConfigs (KIP-339), the older AlterConfigs, and overrides of new topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minikafka.core.client_metrics.subscriptions import check_subscription
from minikafka.core.controller.config import ConfigRules
from minikafka.core.controller.state import CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, ControllerState, Result
from minikafka.core.metadata.image import (
    METADATA_VERSION,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from minikafka.core.metadata.versions import CORDONS, NEWEST
from minikafka.core.node_id import parse_node_id
from minikafka.core.topic_name import topic_name_fault
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from minikafka.wire.records.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord
from minikafka.wire.types import STRING_BYTES_MAX

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CORDONED_LOG_DIRS = "cordoned.log.dirs"

_KINDS = {RESOURCE_TOPIC: "topic", RESOURCE_BROKER: "broker", RESOURCE_CLIENT_METRICS: "client metrics", RESOURCE_GROUP: "group"}

Operation = tuple[str, int, str | None]


def check_entries(operations: Sequence[Operation]) -> None:
    """What is refused before anything else, whatever the resource (Kafka's ConfigAdminManager.preprocess). Raises ApiError."""
    if len({name for name, _, _ in operations}) < len(operations):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, operation, value in operations if operation != DELETE and value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


class ConfigControl:
    """Changes configurations; `rules` validate names and values."""

    def __init__(self, state: ControllerState, rules: ConfigRules) -> None:
        self._state = state
        self.rules = rules

    def incremental(self, request: IncrementalAlterConfigsRequest, is_direct: bool = False) -> Result:
        """IncrementalAlterConfigs: each resource succeeds or fails on its own. `is_direct`: no broker has looked at the request."""
        response = IncrementalAlterConfigsResponse()
        records: list[Any] = []
        resources: dict[tuple[int, str], list[Operation]] = {}
        duplicates: dict[tuple[int, str], None] = {}
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            if key in resources:
                duplicates[key] = None
            resources[key] = [(entry.name, entry.config_operation, entry.value) for entry in resource.configs]
        for (kind, name), operations in resources.items():
            code, message = ErrorCode.NONE, None
            try:
                if (kind, name) in duplicates:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                records += self._alter(kind, name, operations, is_direct)
            except ApiError as error:
                code, message = error.code, error.message
            response.responses.append(
                IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=kind, resource_name=name
                )
            )
        return Result(response, [] if request.validate_only else records)

    def legacy(self, request: AlterConfigsRequest, is_direct: bool = False) -> Result:
        """AlterConfigs: the given properties replace all that the resource has."""
        response = AlterConfigsResponse()
        records: list[Any] = []
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            operations = [(entry.name, SET, entry.value) for entry in resource.configs]
            given = {entry.name for entry in resource.configs}
            dropped: list[Operation] = [(key, DELETE, None) for key in self._state.image.config(kind, name) if key not in given]
            code, message = ErrorCode.NONE, None
            try:
                records += self._alter(kind, name, [*operations, *dropped], is_direct)
            except ApiError as error:
                code, message = error.code, error.message
            response.responses.append(
                AlterConfigsResponse.AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=kind, resource_name=name
                )
            )
        return Result(response, [] if request.validate_only else records)

    def for_new_topic(self, name: str, given: Sequence[tuple[str, str | None]]) -> tuple[dict[str, str], list[Any]]:
        """Overrides and records of a topic that is being created. Raises ApiError."""
        nulls = [key for key, value in given if value is None]
        if nulls:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        overrides = {key: value for key, value in given if value is not None}
        self._judge(RESOURCE_TOPIC, name, overrides, overrides)
        return overrides, self._records(RESOURCE_TOPIC, name, overrides)

    # -- one resource ----------------------------------------------------------------------------------------------

    def _alter(self, kind: int, name: str, operations: Sequence[Operation], is_direct: bool) -> list[Any]:
        """In Kafka's order, in which faults are named: the broker's checks of the request, the operations, the values, what is there."""
        check_entries(operations)
        self._check_kind(kind, name)
        before = self._state.image.config(kind, name)
        after = dict(before)
        for key, operation, _ in operations:
            if operation in {APPEND, SUBTRACT} and not self.rules.is_list(kind, key):
                verb = "APPEND" if operation == APPEND else "SUBTRACT"
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {key} because its type is not LIST.")
        for key, operation, value in operations:
            self._operate(kind, key, operation, value, after)
        altered = [key for key, _, _ in operations]
        self._check_name(kind, name)
        changed = {key: after[key] for key in altered if key in after and after[key] != before.get(key)}
        if any(len(value.encode()) > STRING_BYTES_MAX for value in changed.values()):
            text = f"The configuration value cannot be added because it exceeds the maximum value size of {STRING_BYTES_MAX} bytes."
            raise ApiError(ErrorCode.INVALID_CONFIG, text)
        self._judge(kind, name, changed, after)
        if kind == RESOURCE_BROKER and MIN_INSYNC_REPLICAS in altered and self._state.image.is_elr_enabled:
            self._check_min_isr(name, after)
        if kind == RESOURCE_BROKER and CORDONED_LOG_DIRS in altered and CORDONED_LOG_DIRS in after:
            self._check_cordons(before, after, is_direct)
        if kind == RESOURCE_TOPIC and name not in self._state.image.topics_by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        # A broker's property is written even if its value is the same: the broker then reloads the file that it names (KAFKA-14136).
        again = {key for key in altered if key in after} if kind == RESOURCE_BROKER else set()
        changes: dict[str, str | None] = {key: after.get(key) for key in altered if key in again or after.get(key) != before.get(key)}
        return self._records(kind, name, changes)

    def _check_cordons(self, before: Mapping[str, str], after: Mapping[str, str], is_direct: bool) -> None:
        """Only a broker knows its directories, so that directly at the controller none is added."""
        level = self._state.image.features.get(METADATA_VERSION, NEWEST)
        if level < CORDONS:
            text = f"{CORDONED_LOG_DIRS} cannot be set: metadata.version is {level}, and cordoned directories came with {CORDONS}."
            raise ApiError(ErrorCode.INVALID_CONFIG, text)
        old, new = ({path.strip() for path in given.get(CORDONED_LOG_DIRS, "").split(",") if path.strip()} for given in (before, after))
        if is_direct and not new <= old:
            text = f"When updating {CORDONED_LOG_DIRS} via controllers, the new value must be a subset of the current configuration value."
            raise ApiError(ErrorCode.INVALID_CONFIG, text)

    def _check_kind(self, kind: int, name: str) -> None:
        if kind not in _KINDS:
            if kind == RESOURCE_BROKER_LOGGER:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Unsupported operation: broker loggers are not altered by the controller.")
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported or unknown resource type {kind}")
        if kind == RESOURCE_BROKER and name:
            node_id = parse_node_id(name) if name.isascii() and name.isdecimal() else None
            if node_id is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
            if node_id not in self._state.image.brokers and node_id not in self._state.image.controllers:
                raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")

    def _check_name(self, kind: int, name: str) -> None:
        if kind == RESOURCE_TOPIC:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            fault = topic_name_fault(name)
            if fault is not None:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        elif kind == RESOURCE_CLIENT_METRICS and not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        elif kind == RESOURCE_GROUP and not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Subscription name can't be empty for {_KINDS[kind]} resources.")

    def _operate(self, kind: int, key: str, operation: int, value: str | None, values: dict[str, str]) -> None:
        if operation == DELETE:
            values.pop(key, None)
            return
        if operation not in {SET, APPEND, SUBTRACT}:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} for configuration {key}")
        assert value is not None, "checked before"
        if operation == SET:
            values[key] = value
            return
        current = values.get(key)
        if current is None:
            current = self.rules.default(kind, key) or ""
        # A dict serves as an ordered list without duplicates, because both the list and the appended items may be long.
        items = dict.fromkeys(item.strip() for item in current.split(",") if item.strip())
        for item in (part.strip() for part in value.split(",")):
            if operation == APPEND:
                items.setdefault(item)
            else:
                items.pop(item, None)
        values[key] = ",".join(items)

    def _check_min_isr(self, name: str, after: Mapping[str, str]) -> None:
        """With eligible leader replicas enabled, min.insync.replicas may only be set as the cluster default, and must be set there."""
        if name != CLUSTER_DEFAULT:
            raise ApiError(ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
        if MIN_INSYNC_REPLICAS not in after:
            raise ApiError(ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")

    def _judge(self, kind: int, name: str, changed: Mapping[str, str], after: Mapping[str, str]) -> None:
        if kind == RESOURCE_CLIENT_METRICS:
            configs = self._state.image.configs.items()
            check_subscription(name, after, (values for other, values in configs if other[0] == kind and other[1] != name))
            return
        for key, value in changed.items():
            fault = self.rules.validate(kind, name, key, value)
            if fault is not None:
                # In Kafka the broker validates its own properties (ConfigAdminManager), with another error than the controller's.
                raise ApiError(ErrorCode.INVALID_REQUEST if kind == RESOURCE_BROKER else ErrorCode.INVALID_CONFIG, fault)
        fault = self.rules.validate_together(kind, after)
        if fault is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST if kind == RESOURCE_BROKER else ErrorCode.INVALID_CONFIG, fault)

    def _records(self, kind: int, name: str, changes: Mapping[str, str | None]) -> list[Any]:
        records: list[Any] = [ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value) for key, value in changes.items()]
        if MIN_INSYNC_REPLICAS in changes and self._state.image.is_elr_enabled:
            if kind == RESOURCE_TOPIC:
                records += self._clear_eligible(name)
            elif kind == RESOURCE_BROKER and name == CLUSTER_DEFAULT:
                records += self._clear_eligible("")
        return records

    def _clear_eligible(self, topic_name: str) -> list[Any]:
        """Records that clear the eligible leader replicas after a change of min ISR (KIP-966): a leader may now commit without them.

        Partitions without a leader keep them, because nothing is committed there and only these replicas can bring the partition back.
        Kafka clears them there, too, and the partition then stays offline."""
        image = self._state.image
        topic_image = image.topics_by_name.get(topic_name)
        topics = [] if topic_image is None else [topic_image]
        if not topic_name:
            topics = list(image.topics_by_name.values())
        eligible = [
            (topic.topic_id, index, partition)
            for topic in topics
            for index, partition in topic.partitions.items()
            if partition.elr or partition.last_known_elr
        ]
        if all(partition.leader >= 0 for _, _, partition in eligible):
            return [ClearElrRecord(topic_name=topic_name)]
        return [
            PartitionChangeRecord(topic_id=topic_id, partition_id=index, eligible_leader_replicas=[], last_known_elr=[])
            for topic_id, index, partition in eligible
            if partition.leader >= 0
        ]
