"""A broker's life as the controller sees it: registered, fenced, unfenced, shutting down (KIP-631, KIP-841)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.broker.controller_channel import ControllerChannel
    from minikafka.broker.environment import Environment
    from minikafka.broker.hosts.metadata import MetadataHost


class BrokerLifecycle:
    """Registers the broker and keeps its session alive.

    broker_epoch: -1 until registered; incarnation_id: 16 bytes of this process; fenced: what the controller last said;
    ready: set when the controller has unfenced the broker and this node's image says so too.
    """

    broker_epoch: int
    incarnation_id: bytes
    fenced: bool
    ready: asyncio.Event

    def __init__(
        self,
        config: Any,
        environment: Environment,
        metadata: MetadataHost,
        controller: ControllerChannel,
        *,
        cluster_id: str,
        listeners: Mapping[str, tuple[str, int, int]],
        log_dirs: Callable[[], list[bytes]],
        offline_log_dirs: Callable[[], list[bytes]],
        previous_broker_epoch: int = -1,
    ) -> None: ...

    async def start(self) -> None:
        """Begin to register in the background; `ready` tells when the broker is in service."""

    async def controlled_shutdown(self, timeout_ms: int) -> bool:
        """Ask the controller to move leaderships away; True when it said that the broker may go now."""

    async def stop(self) -> None:
        """Stop heartbeats."""
