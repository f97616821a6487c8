"""What leaders and followers need from the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.late_dataclass import dataclass

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.throttles import ReplicationThrottles
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.net.channel import ChannelSecurity


@dataclass(frozen=True, slots=True)
class Replication:
    """`broker_epoch()` is -1 until the controller has registered the broker. `is_unheard()`: whether the heartbeat connection has ended and
    no later heartbeat has been answered, or an answer is late. `in_doubt_since_ms()`: since when the controller may have moved this
    broker's leaderships to others; None if it has not. `security`: how to secure connections to leaders; None for plaintext."""

    config: BrokerConfig
    environment: Environment
    metadata: MetadataHost
    broker_epoch: Callable[[], int]
    is_unheard: Callable[[], bool]
    in_doubt_since_ms: Callable[[], int | None]
    throttles: ReplicationThrottles
    security: ChannelSecurity | None = None

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        return self.config.node_id
