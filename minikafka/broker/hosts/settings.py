"""Broker properties as they are now: dynamic ones (KIP-226) take effect when the metadata say so, without a restart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from minikafka.broker.config_table import BROKER_PROPERTIES
from minikafka.core.metadata.image import RESOURCE_BROKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.config import BrokerConfig
    from minikafka.broker.hosts.metadata import MetadataHost
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

log = logging.getLogger("minikafka.config")
_WITHOUT_EFFECT = frozenset(entry.attribute for entry in BROKER_PROPERTIES if entry.effect != "full")
SECRETS = frozenset(entry.attribute for entry in BROKER_PROPERTIES if entry.kind == "password")


class Settings:
    """`settings.log_cleaner_backoff_ms` is this broker's own dynamic value, else the cluster's dynamic one, else that of its properties.

    Ask at the time of use; who cannot, `watch`es. Defaults of topics are not here: topic_config.py knows what topics inherit.
    """

    def __init__(self, config: BrokerConfig, metadata: MetadataHost) -> None:
        self._config = config
        self._dynamic: dict[str, Any] = {}
        self._watchers: list[Callable[[], None]] = []
        metadata.subscribe(self._on_metadata)

    def __getattr__(self, name: str) -> Any:
        dynamic = self.__dict__["_dynamic"]
        return dynamic[name] if name in dynamic else getattr(self.__dict__["_config"], name)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back after every change of a dynamic property."""
        self._watchers.append(callback)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        own = str(self._config.node_id)
        if (RESOURCE_BROKER, "") not in delta.changed_configs and (RESOURCE_BROKER, own) not in delta.changed_configs:
            return
        dynamic: dict[str, Any] = {}
        for name, text in {**image.config(RESOURCE_BROKER, ""), **image.config(RESOURCE_BROKER, own)}.items():
            entry = BROKER_PROPERTIES.get(name)
            if entry is None or not entry.dynamic:
                continue
            try:
                dynamic[entry.attribute] = entry.parse(text)
            except ValueError as error:
                log.warning("the dynamic value %s=%s is not used: %s", name, text, error)
        if dynamic == self._dynamic:
            return
        for name in sorted({**dynamic, **self._dynamic}):
            if dynamic.get(name) != self._dynamic.get(name):
                without = ", which has no effect in this broker" if name in _WITHOUT_EFFECT else ""
                shown = "(hidden)" if name in SECRETS and name in dynamic else dynamic.get(name, "as in the properties")
                log.info("dynamic configuration: %s = %s%s", name.replace("_", "."), shown, without)
        self._dynamic = dynamic
        for watcher in self._watchers:
            watcher()
