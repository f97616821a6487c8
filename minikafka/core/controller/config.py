"""What the controller core is given: limits and defaults, supported features, and the rules for configurations."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from minikafka.core.controller.sessions import DISCONNECT_GRACE_MS

#: Features of Apache Kafka 4.4 as (lowest, highest) level that a node of ours supports.
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 33),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
}

#: Feature levels of a cluster that is formatted without saying otherwise, in the order of Kafka's bootstrap.checkpoint: Kafka's own.
DEFAULT_FEATURES: Mapping[str, int] = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}

#: Records that one request may cause, and partitions that one CreateTopics may ask for (QuorumController).
RECORDS_PER_REQUEST_MAX = 10_000
PARTITIONS_PER_REQUEST_MAX = 10_000


class RandomSource(Protocol):
    """The part of `random.Random` that the core draws from."""

    def randrange(self, stop: int, /) -> int:
        """An integer in [0, stop)."""

    def shuffle(self, items: MutableSequence[Any], /) -> None:
        """Shuffle a list in place."""

    def randbytes(self, count: int, /) -> bytes:
        """`count` random bytes."""


@dataclass(slots=True, frozen=True)
class TopicConfigValue:
    """One effective property of a topic, for CreateTopics v5+. `source` is a DescribeConfigs source id (5: default)."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False


class ConfigRules(Protocol):
    """Judges configuration values; the broker side implements it from its tables of properties."""

    def validate(self, resource_type: int, resource_name: str, name: str, value: str) -> str | None:
        """A message saying what is wrong with one property, or None. `resource_name` is empty for the cluster default."""

    def validate_together(self, resource_type: int, values: Mapping[str, str]) -> str | None:
        """A message when properties that are right alone cannot stand together, or None."""

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether the property is a list, so that APPEND and SUBTRACT apply."""

    def default(self, resource_type: int, name: str) -> str | None:
        """The value that an APPEND or SUBTRACT starts from when there is no override."""

    def effective_topic(self, overrides: Mapping[str, str], cluster: Mapping[str, str]) -> list[TopicConfigValue]:
        """Every property of a topic with these overrides and these cluster-wide dynamic defaults, in order of name."""


@dataclass(slots=True)
class ControllerConfig:
    """Times in milliseconds. Names are those of server.properties with `_` for `.` where there is one."""

    cluster_id: str
    node_id: int = 0
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    broker_session_timeout_ms: int = 9000
    minikafka_heartbeat_reconnect_ms: int = DISCONNECT_GRACE_MS
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_per_broker_percentage: int = 10
    unclean_leader_election_interval_ms: int = 300_000
    producer_id_block_size: int = 1000
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: dict(SUPPORTED_FEATURES))
