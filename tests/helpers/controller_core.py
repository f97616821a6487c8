"""A controller core with a log of its own and no time but what a test gives it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from minikafka.core.controller.config import SUPPORTED_FEATURES, ControllerConfig, TopicConfigValue
from minikafka.core.controller.controller import Controller
from minikafka.core.controller.forwarded import Forwarded
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import METADATA_VERSION, MetadataImage, PartitionRegistration, empty_image
from minikafka.core.metadata.versions import NEWEST, versioned
from minikafka.steps import at_once
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

CLUSTER_ID = "test-cluster-id-000000"


def directory_of(broker_id: int) -> bytes:
    return bytes(14) + bytes((1, broker_id))


class SimpleRules:
    """Judges just enough for the tests of the core."""

    TOPIC_CONFIGS = ("retention.ms", "min.insync.replicas", "cleanup.policy", "unclean.leader.election.enable", "segment.bytes")

    def validate(self, resource_type: int, resource_name: str, name: str, value: str) -> str | None:
        if resource_type == 2 and name not in self.TOPIC_CONFIGS:
            return f"Unknown topic config name: {name}"
        if name.endswith(("ms", "replicas")) and not value.lstrip("-").isdecimal():
            return f"Invalid value {value} for configuration {name}: Not a number of type LONG"
        return None

    def validate_together(self, resource_type: int, values: Any) -> str | None:
        return None

    def is_list(self, resource_type: int, name: str) -> bool:
        return name == "cleanup.policy"

    def default(self, resource_type: int, name: str) -> str | None:
        return "delete" if name == "cleanup.policy" else None

    def effective_topic(self, overrides: Any, cluster: Any) -> list[TopicConfigValue]:
        return [TopicConfigValue(name, value, 1) for name, value in sorted(overrides.items())]


class ControllerDriver:
    """Appends what the core decides to `log` and replays it, as the host does; checks after each step that a replay of
    the log from nothing makes the same image."""

    def __init__(self, seed: int = 1, *, features: Mapping[str, int] = MappingProxyType({}), **config: Any) -> None:
        """`features`: levels of the new cluster, instead of the newest ones."""
        self.now_ms = 1_000_000
        self.log: list[Any] = []
        self.features = features
        self.config = ControllerConfig(cluster_id=CLUSTER_ID, **config)
        self.random = random.Random(seed)
        self.core = self._elect()

    def _elect(self, predecessor: int | None = None) -> Controller:
        delta = MetadataDelta(empty_image())
        delta.apply_all(self.log, 0)
        core = Controller(self.config, SimpleRules(), self.random, delta.image(), len(self.log), self.now_ms, predecessor)
        at_once(core.load())
        bootstrap = core.bootstrap(self.features)
        at_once(core.replay(bootstrap.records, len(self.log)))
        self.log += bootstrap.records
        return core

    def fail_over(self, predecessor: int | None = None) -> None:
        """Start another controller from the log alone; the last one was on node `predecessor`."""
        self.core = self._elect(predecessor)

    @property
    def image(self) -> MetadataImage:
        return self.core.image

    def write(self, records: Sequence[Any]) -> None:
        base = len(self.log)
        level = self.image.features.get(METADATA_VERSION, NEWEST)
        records = [versioned(record, level)[0] for record in records]
        self.log += records
        at_once(self.core.replay(list(records), base))
        replayed = MetadataDelta(empty_image())
        replayed.apply_all(self.log, 0)
        image = replayed.image()
        for name in ("brokers", "topics_by_id", "topics_by_name", "configs", "features", "client_quotas"):
            assert getattr(image, name) == getattr(self.image, name), name

    def do(self, request: Any, version: int | None = None, forwarded: Forwarded | None = None, is_direct: bool = False) -> Any:
        """The response. Raises ApiError if the request fails as a whole."""
        chosen = type(request).MAX_VERSION if version is None else version
        result = at_once(self.core.handle(request, chosen, self.now_ms, None, forwarded, is_direct))
        self.last_records = result.records
        self.write(result.records)
        if result.written is not None:
            result.written(len(self.log) - 1)
        return result.response

    def advance(self, ms: int) -> None:
        """Let time pass, meeting every deadline on its way."""
        end = self.now_ms + ms
        while (due := self.core.next_deadline()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            for decision in self.core.on_deadline(self.now_ms):
                self.write(at_once(decision))
        self.now_ms = end

    # -- brokers ---------------------------------------------------------------------------------------------------

    def register(self, broker_id: int, *, incarnation: int = 1, rack: str | None = None, previous_epoch: int = -1, **changes: Any) -> int:
        """Register a broker; its epoch."""
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": bytes((incarnation, broker_id)) * 8,
            "listeners": [BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
            "features": [
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            "rack": rack,
            "log_dirs": [directory_of(broker_id)],
            "previous_broker_epoch": previous_epoch,
        }
        return self.do(BrokerRegistrationRequest(**(fields | changes))).broker_epoch

    def heartbeat(self, broker_id: int, *, offset: int | None = None, **changes: Any) -> Any:
        """A heartbeat of the present incarnation."""
        return self.do(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=changes.pop("broker_epoch", self.image.brokers[broker_id].epoch),
                current_metadata_offset=len(self.log) if offset is None else offset,
                **changes,
            )
        )

    def start(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        """Register and unfence brokers."""
        for broker_id in broker_ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.heartbeat(broker_id)

    def stay_alive(self, ms: int, *broker_ids: int) -> None:
        """Let time pass while these brokers send heartbeats every two seconds."""
        for _ in range(ms // 2000):
            self.advance(2000)
            for broker_id in broker_ids:
                self.heartbeat(broker_id)

    def fence(self, broker_id: int) -> None:
        """Let a broker's session end while all others live."""
        others = [other for other, broker in self.image.brokers.items() if other != broker_id and not broker.fenced]
        self.stay_alive(10_000, *others)
        assert self.image.brokers[broker_id].fenced

    # -- topics ----------------------------------------------------------------------------------------------------

    def create(self, name: str, assignments: Sequence[Sequence[int]] = (), **changes: Any) -> Any:
        """Create one topic; its result."""
        configs = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in changes.pop("configs", {}).items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=changes.pop("partitions", -1),
            replication_factor=changes.pop("factor", -1),
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(assignments)
            ],
            configs=configs,
        )
        return self.do(CreateTopicsRequest(topics=[topic], **changes)).topics[0]

    def partition(self, name: str, index: int = 0) -> PartitionRegistration:
        found = self.image.partition(name, index)
        assert found is not None
        return found

    def alter_isr(self, name: str, isr: Sequence[int], *, index: int = 0, broker_id: int | None = None, **changes: Any) -> Any:
        """AlterPartition by the leader, as it knows things now; the partition's answer."""
        partition = self.partition(name, index)
        leader = partition.leader if broker_id is None else broker_id
        epochs = changes.pop("epochs", {})
        data = AlterPartitionRequest.PartitionData(
            partition_index=changes.pop("partition_index", index),
            leader_epoch=changes.pop("leader_epoch", partition.leader_epoch),
            partition_epoch=changes.pop("partition_epoch", partition.partition_epoch),
            leader_recovery_state=changes.pop("recovery", 0),
            new_isr_with_epochs=[
                AlterPartitionRequest.BrokerState(
                    broker_id=member,
                    broker_epoch=epochs.get(member, self.image.brokers[member].epoch if member in self.image.brokers else -1),
                )
                for member in isr
            ],
        )
        topic_id = changes.pop("topic_id", self.image.topics_by_name[name].topic_id)
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.image.brokers[leader].epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[data])],
        )
        return self.do(request).topics[0].partitions[0]

    def configure(self, kind: int, resource: str, name: str, value: str | None, operation: int = 0) -> tuple[ErrorCode, str | None]:
        entry = IncrementalAlterConfigsRequest.AlterableConfig(name=name, value=value, config_operation=operation)
        request = IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[entry])]
        )
        answer = self.do(request).responses[0]
        return ErrorCode(answer.error_code), answer.error_message
