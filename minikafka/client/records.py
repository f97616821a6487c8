"""The record type that consumers return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minikafka.wire.record import Header


class ConsumedRecord(NamedTuple):
    """A record with its topic, partition and offset; timestamp in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    leader_epoch: int
