"""What a group shard needs to know of the broker and of a request's sender."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class GroupConfig:
    """The broker properties that the group coordinator heeds; times in milliseconds."""

    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    group_size_max: int = 2_147_483_647
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    #: Groups of one shard. Kafka has no bound.
    groups_max: int = 50_000


@dataclass(slots=True, frozen=True)
class Client:
    """Who sent a request: `client.id`, the peer's address as Kafka writes it ("/127.0.0.1"), and the API version."""

    client_id: str
    host: str
    version: int
