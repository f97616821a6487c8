"""The controller core's configuration: limits and defaults, supported features, and the rules for configurations."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import field
from typing import Any, Protocol

from minikafka.core.controller.sessions import DISCONNECT_GRACE_MS
from minikafka.late_dataclass import dataclass

#: Features of Apache Kafka 4.4, with the (lowest, highest) level that this implementation supports.
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 33),
    "share.version": (0, 2),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
}

#: Default feature levels of a newly formatted cluster, which are Kafka's own, in the order of Kafka's bootstrap.checkpoint.
DEFAULT_FEATURES: Mapping[str, int] = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}

#: Most records that one request may cause, and partitions that one CreateTopics may ask for (QuorumController).
RECORDS_PER_REQUEST_MAX = 10_000
PARTITIONS_PER_REQUEST_MAX = 10_000


class RandomSource(Protocol):
    """The part of `random.Random` that the core uses."""

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
    """Validates configuration values. The broker implements it from its tables of properties."""

    def validate(self, resource_type: int, resource_name: str, name: str, value: str) -> str | None:
        """What is wrong with one property, or None. `resource_name` is empty for the cluster default."""

    def validate_together(self, resource_type: int, values: Mapping[str, str]) -> str | None:
        """What is wrong with a combination of properties that are valid on their own, or None."""

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether the property is a list, so that APPEND and SUBTRACT apply."""

    def default(self, resource_type: int, name: str) -> str | None:
        """The value that an APPEND or SUBTRACT starts from if there is no override."""

    def effective_topic(self, overrides: Mapping[str, str], cluster: Mapping[str, str]) -> list[TopicConfigValue]:
        """Every property of a topic with these overrides and these cluster-wide dynamic defaults, sorted by name."""


@dataclass(slots=True)
class ControllerConfig:
    """Times in milliseconds. Names are those of server.properties with `_` for `.`, where such a property exists."""

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
    #: Whether there is a delegation.token.secret.key.
    delegation_tokens_enable: bool = False
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: dict(SUPPORTED_FEATURES))
