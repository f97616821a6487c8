"""Configuration of a group shard, and the sender of a request."""

from __future__ import annotations

from minikafka.late_dataclass import dataclass

#: Kinds of groups besides those of the classic protocol.
CONSUMER, SHARE, STREAMS = "consumer", "share", "streams"


@dataclass(slots=True, frozen=True)
class GroupConfig:
    """The broker properties that the group coordinator uses; times in milliseconds."""

    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    group_size_max: int = 2_147_483_647
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    #: Most groups of one shard. Kafka has no limit.
    groups_max: int = 50_000

    def allows_session(self, timeout_ms: int) -> bool:
        """Whether a member of a classic group may have this session timeout."""
        return self.session_timeout_ms_min <= timeout_ms <= self.session_timeout_ms_max


@dataclass(slots=True, frozen=True)
class Client:
    """The sender of a request: `client.id`, the peer's address as Kafka writes it ("/127.0.0.1"), and the API version."""

    client_id: str
    host: str
    version: int
