"""Applies the client quotas of the metadata to requests, connections and cluster changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from minikafka.broker.front.throttled import Gate, user_of
from minikafka.core.client_quota import ClientQuotas, MutationBudget

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage
    from minikafka.net.network import Listener

log = logging.getLogger("minikafka.quotas")
#: API key -> the version from which a client understands THROTTLING_QUOTA_EXCEEDED: CreateTopics, DeleteTopics, CreatePartitions.
STRICT_FROM = {19: 6, 20: 5, 37: 3}


class ClientQuotaHost:
    """The quotas of one node, as broker and as controller. Without quotas, requests and connections bypass this class."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self.quotas = ClientQuotas(
            config.quota_window_num,
            1000 * config.quota_window_size_seconds,
            config.controller_quota_window_num,
            1000 * config.controller_quota_window_size_seconds,
        )
        self.now_ms = environment.clock.now_ms
        self._gate = Gate(self.quotas, environment.clock, environment.monotonic_s or (lambda: environment.clock.now_ms() / 1000))
        self._dispatcher: Dispatcher | None = None
        self._listeners: Callable[[], Iterable[Listener]] = tuple
        #: Connections held and then closed because their address opened too many.
        self.held_connections = 0

    def guard(self, dispatcher: Dispatcher, listeners: Callable[[], Iterable[Listener]]) -> None:
        """Check the requests of a dispatcher and the new connections of listeners while quotas exist."""
        self._dispatcher = dispatcher
        self._listeners = listeners
        self._apply()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the quotas of a new image."""
        if delta.quotas_changed:
            self.quotas.configure(image.client_quotas)
            self._gate.forget()
            self._apply()

    def _apply(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.limit(self._gate if self.quotas.is_active else None)
            for listener in self._listeners():
                listener.admit_by(self._admit if self.quotas.limits_connections else None)

    def _admit(self, address: str) -> int:
        pause_ms = self.quotas.connection_pause_ms(address, self.now_ms())
        if pause_ms:
            self.held_connections += 1
            log.info("a connection from %s exceeds connection_creation_rate: closing it after %d ms", address, pause_ms)
        return pause_ms

    def budget(self, principal: str, client_id: str | None, api_key: int, version: int) -> MutationBudget | None:
        """How much a client's request to the active controller may change; None if there is no limit."""
        strict_from = STRICT_FROM.get(api_key)
        if strict_from is None or not self.quotas.is_active:
            return None
        now_ms = self.now_ms()
        limits = self.quotas.of(user_of(principal), client_id or "", now_ms)
        if limits is None or limits.mutation is None:
            return None
        return MutationBudget(limits.mutation, now_ms, is_strict=version >= strict_from)
