"""Current values of broker properties: dynamic properties (KIP-226) take effect with the metadata, without a restart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.config.attributes import BrokerProperties
from minikafka.broker.config.listeners import limit_of_listener
from minikafka.broker.config.properties import attribute_of
from minikafka.broker.config.table import BROKER_PROPERTIES
from minikafka.core.metadata.image import RESOURCE_BROKER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

log = logging.getLogger("minikafka.config")
_WITHOUT_EFFECT = frozenset(entry.attribute for entry in BROKER_PROPERTIES if entry.effect != "full")
SECRETS = frozenset(entry.attribute for entry in BROKER_PROPERTIES if entry.kind == "password")


class MetadataSource(Protocol):
    """Publishes metadata images (MetadataHost)."""

    def subscribe(self, callback: Callable[[MetadataDelta, MetadataImage], None], /) -> None:
        """Call `callback` after each change of the image."""


class Settings(BrokerProperties):
    """`settings.log_cleaner_backoff_ms` is this broker's dynamic value, else the cluster's dynamic value, else that of the properties file.

    Read values when you use them, or use `watch` to be called after a change. For defaults of topics see topic_config.py.
    """

    def __init__(self, config: BrokerConfig, metadata: MetadataSource) -> None:
        self._config = config
        self._dynamic: dict[str, Any] = {}
        #: Values for single listeners, by name in lower case: from the properties file, and currently.
        self._static_of_listeners = _of_listeners(config.given)
        self._of_listeners = dict(self._static_of_listeners)
        self._watchers: list[Callable[[], None]] = []
        metadata.subscribe(self._on_metadata)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            dynamic = self.__dict__["_dynamic"]
            return dynamic[name] if name in dynamic else getattr(self.__dict__["_config"], name)

    def of_listener(self, listener: str, name: str) -> Any:
        """The value for one listener: of listener.name.LISTENER.NAME if it is set, else of the property without a prefix."""
        own = self._of_listeners.get(f"listener.name.{listener.lower()}.{name}")
        return getattr(self, attribute_of(name)) if own is None else own

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after every change of a dynamic property."""
        self._watchers.append(callback)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        own = str(self._config.node_id)
        if (RESOURCE_BROKER, "") not in delta.changed_configs and (RESOURCE_BROKER, own) not in delta.changed_configs:
            return
        dynamic: dict[str, Any] = {}
        given = {**image.config(RESOURCE_BROKER, ""), **image.config(RESOURCE_BROKER, own)}
        of_listeners = _of_listeners(given)
        for name, text in given.items():
            entry = BROKER_PROPERTIES.get(name)
            if entry is None or not entry.dynamic:
                continue
            try:
                dynamic[entry.attribute] = entry.parse(text)
            except ValueError as error:
                log.warning("the dynamic value %s=%s is not used: %s", name, text, error)
        new_of_listeners = {**self._static_of_listeners, **of_listeners}
        if dynamic == self._dynamic and new_of_listeners == self._of_listeners:
            return
        for name in sorted({**dynamic, **self._dynamic}):
            if dynamic.get(name) != self._dynamic.get(name):
                without = ", which has no effect in this broker" if name in _WITHOUT_EFFECT else ""
                shown = "(hidden)" if name in SECRETS and name in dynamic else dynamic.get(name, "as in the properties")
                log.info("dynamic configuration: %s = %s%s", name.replace("_", "."), shown, without)
        for name in sorted({**new_of_listeners, **self._of_listeners}):
            if new_of_listeners.get(name) != self._of_listeners.get(name):
                log.info("dynamic configuration: %s = %s", name, new_of_listeners.get(name, "as for all listeners"))
        self._dynamic, self._of_listeners = dynamic, new_of_listeners
        for watcher in self._watchers:
            watcher()


def _of_listeners(given: Mapping[str, str]) -> dict[str, Any]:
    """The limits of single listeners in these properties."""
    found: dict[str, Any] = {}
    # Upper case sorts first, so that Kafka's own spelling wins.
    for name in sorted(given):
        entry = limit_of_listener(name)
        if entry is None:
            continue
        try:
            found[name.lower()] = entry.parse(given[name])
        except ValueError as error:
            log.warning("the dynamic value %s=%s is not used: %s", name, given[name], error)
    return found
