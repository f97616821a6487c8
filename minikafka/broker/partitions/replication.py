"""What leading and following need of the rest of the broker, in one object that is complete from the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.throttles import ReplicationThrottles
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.net.channel import ChannelSecurity


@dataclass(frozen=True, slots=True)
class Replication:
    """`broker_epoch()` is -1 until the controller has registered the broker; `is_session_over()`: whether the controller may have given
    this broker's leaderships to others; `security`: how connections to leaders are secured, None =
    not."""

    config: BrokerConfig
    environment: Environment
    metadata: MetadataHost
    broker_epoch: Callable[[], int]
    is_session_over: Callable[[], bool]
    throttles: ReplicationThrottles
    security: ChannelSecurity | None = None

    @property
    def broker_id(self) -> int:
        """Of this broker."""
        return self.config.node_id
