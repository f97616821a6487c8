"""The broker's connection to the active controller: finds it, keeps one channel to it, and retries what may be retried."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.hosts.raft import RaftHost
    from minikafka.net.channel import Channel

log = logging.getLogger(__name__)

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 500
REQUEST_TIMEOUT_MS = 30_000


class ControllerChannel:
    """Sends requests to whichever controller is active.

    `request` waits for a leader of the metadata quorum, connects, and tries again after a lost connection or a
    NOT_CONTROLLER answer until its timeout: callers see an answer of the active controller, or TimeoutError. A retry
    may repeat a request that was carried out though its answer was lost, so requests must be idempotent or fenced by
    an epoch (AlterPartition, BrokerRegistration are); `retry_lost=False` gives up with ConnectionError instead.
    """

    def __init__(self, raft: RaftHost, environment: Environment, client_id: str) -> None: ...

    async def request(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS, *, version: int | None = None, retry_lost: bool = True) -> Any:
        """The response of the active controller. Raises TimeoutError, ConnectionError, UnsupportedVersion."""

    async def close(self) -> None:
        """Close the connection; requests that wait fail with ConnectionError."""
