"""DescribeConfigs for topics, brokers, loggers, groups and client metrics, from the node's image and properties (Kafka's ConfigHelper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING

from minikafka.broker.admin import broker_loggers
from minikafka.broker.config.group_rules import ASSIGNOR, GROUP_DEFAULTS, GROUP_PROPERTIES
from minikafka.broker.config.listener_security import general_name
from minikafka.broker.config.listeners import base_of
from minikafka.broker.config.properties import INT64_MAX, Property
from minikafka.broker.config.rules import (
    BROKER_SOURCE,
    CLUSTER_SOURCE,
    DEFAULT_SOURCE,
    HIDDEN_PROPERTIES,
    STATIC_SOURCE,
    TOPIC_SOURCE,
    static_names,
)
from minikafka.broker.config.table import BROKER_PROPERTIES
from minikafka.broker.config.topic_config import TOPIC_PROPERTIES, inherited, text_of
from minikafka.core.client_metrics.subscriptions import DEFAULTS, INTERVAL_MS, MATCH, METRICS
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC
from minikafka.core.node_id import parse_node_id
from minikafka.core.topic_name import topic_name_fault
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.quorum.metadata_log import MetadataHost

#: DescribeConfigs type ids (DescribeConfigsResponse.ConfigType).
_TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8, "password": 9}
GROUP_SOURCE, CLIENT_METRICS_SOURCE, LOGGER_SOURCE = 8, 7, 6

_DYNAMIC_SOURCES = frozenset({TOPIC_SOURCE, BROKER_SOURCE, CLUSTER_SOURCE})
#: Topic property -> the broker property and default that Kafka reports as its source, where this broker inherits from another or none.
_DEFAULT_ORIGINS = {
    "retention.ms": ("log.retention.hours", "168"),
    "segment.ms": ("log.roll.hours", "168"),
    "segment.jitter.ms": ("log.roll.jitter.hours", "0"),
    "flush.ms": ("log.flush.scheduler.interval.ms", str(INT64_MAX)),
    "local.retention.ms": ("log.local.retention.ms", "-2"),
    "local.retention.bytes": ("log.local.retention.bytes", "-2"),
}

#: When unset, these derive from their next synonyms (log.retention.hours). Kafka reports them as unset.
_DERIVED = frozenset({"log.roll.ms", "log.roll.jitter.ms", "log.retention.ms", "log.flush.interval.ms"})

#: Kafka lists these for a broker only when they are set: throttles, properties of its authorizer, and those of older releases.
_SHOWN_WHEN_SET = frozenset(
    {
        "leader.replication.throttled.rate", "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second",
        "allow.everyone.if.no.acl.found", "super.users", "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms",
        "controller.quorum.retry.backoff.max.ms", "leader.imbalance.per.broker.percentage",
    }
)  # fmt: skip
#: The next synonym of a property, which applies if the property is not set: the one in a coarser unit, or how often it is looked at.
_COARSER = {
    "log.retention.ms": "log.retention.hours",
    "log.roll.ms": "log.roll.hours",
    "log.roll.jitter.ms": "log.roll.jitter.hours",
    "log.flush.interval.ms": "log.flush.scheduler.interval.ms",
}

_SUBSCRIPTION_PROPERTIES = {
    INTERVAL_MS: ("int", "How often a client pushes its metrics, in milliseconds."),
    MATCH: ("list", "The clients that are selected: a list of attribute=pattern, all of which must match. Empty: every client."),
    METRICS: ("list", "Prefixes of the names of the requested metrics; * requests all."),
}

#: (name, value or None, source)
Synonym = tuple[str, str | None, int]


class ConfigDescriptions:
    """Answers DescribeConfigs on brokers and on controllers. A controller describes itself."""

    def __init__(self, config: BrokerConfig, metadata: MetadataHost) -> None:
        self._config = config
        self._metadata = metadata

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve DescribeConfigs."""
        dispatcher.register(DescribeConfigsRequest, self.describe)

    def describe(self, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """DescribeConfigs. Without keys (null or empty) all properties are described."""
        response = DescribeConfigsResponse()
        for resource in request.resources:
            result = DescribeConfigsResponse.DescribeConfigsResult(
                error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            keys = resource.configuration_keys or None
            try:
                result.configs = self._describe_one(resource.resource_type, resource.resource_name, keys, request)
            except ApiError as error:
                result.error_code = error.code
                # For a missing topic Kafka sends no error message here.
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    result.error_message = error.message
            response.results.append(result)
        return response

    def _describe_one(
        self, kind: int, name: str, keys: Sequence[str] | None, request: DescribeConfigsRequest
    ) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
        if kind == RESOURCE_TOPIC:
            return self._describe_topic(name, keys, request)
        if kind == RESOURCE_BROKER:
            return self._describe_broker(name, keys, request)
        if kind == RESOURCE_BROKER_LOGGER:
            broker_loggers.check_broker_id(name, self._config.node_id)
            return [
                _entry(key, level, LOGGER_SOURCE, [], "string", "", request)
                for key, level in broker_loggers.levels().items()
                if keys is None or key in keys
            ]
        if kind == RESOURCE_CLIENT_METRICS:
            return self._describe_subscription(name, keys, request)
        if kind == RESOURCE_GROUP:
            return self._describe_group(name, keys, request)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")

    def _describe_subscription(
        self, name: str, keys: Sequence[str] | None, request: DescribeConfigsRequest
    ) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
        """A subscription to clients' metrics (KIP-714). A missing one has the defaults."""
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        values = self._metadata.image.config(RESOURCE_CLIENT_METRICS, name)
        return [
            _entry(
                key,
                values.get(key, default),
                CLIENT_METRICS_SOURCE if key in values else DEFAULT_SOURCE,
                [(key, values[key], CLIENT_METRICS_SOURCE)] if key in values else [],
                *_SUBSCRIPTION_PROPERTIES[key],
                request,
            )
            for key, default in DEFAULTS.items()
            if keys is None or key in keys
        ]

    def _describe_group(
        self, name: str, keys: Sequence[str] | None, request: DescribeConfigsRequest
    ) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
        """A group: its own values, the brokers' values for all groups, and the defaults."""
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        image = self._metadata.image
        overrides = image.config(RESOURCE_GROUP, name)
        own, cluster = image.config(RESOURCE_BROKER, str(self._config.node_id)), image.config(RESOURCE_BROKER, "")
        layers = ((own, BROKER_SOURCE), (cluster, CLUSTER_SOURCE), (self._config.given, STATIC_SOURCE))
        results = []
        for key in sorted(GROUP_PROPERTIES if keys is None else GROUP_PROPERTIES.intersection(keys)):
            general = BROKER_PROPERTIES.get("group.streams.assignors" if key == ASSIGNOR else f"group.{key}")
            if general is not None and general.internal:
                continue
            synonyms: list[Synonym] = [(key, overrides[key], GROUP_SOURCE)] if key in overrides else []
            if general is None:
                kind, default = GROUP_DEFAULTS[key]
                synonyms.append((key, default, DEFAULT_SOURCE))
            else:
                kind = "string" if key == ASSIGNOR else general.kind
                synonyms += [(general.name, values[general.name], source) for values, source in layers if general.name in values]
                synonyms.append((general.name, general.default, DEFAULT_SOURCE))
            doc = "" if general is None else general.doc
            results.append(_entry(key, synonyms[0][1], synonyms[0][2], synonyms, kind, doc, request))
        return results

    def _describe_topic(
        self, name: str, keys: Sequence[str] | None, request: DescribeConfigsRequest
    ) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
        image = self._metadata.image
        fault = topic_name_fault(name)
        if fault is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name not in image.topics_by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        overrides = image.config(RESOURCE_TOPIC, name)
        own = image.config(RESOURCE_BROKER, str(self._config.node_id))
        cluster = image.config(RESOURCE_BROKER, "")
        results = []
        for entry in TOPIC_PROPERTIES:
            if (entry.name in HIDDEN_PROPERTIES and entry.name not in overrides) or (keys is not None and entry.name not in keys):
                continue
            synonyms = self._topic_synonyms(entry, overrides, own, cluster)
            source = synonyms[0][2] if synonyms else DEFAULT_SOURCE
            # A static value may have a coarser unit (log.retention.hours); the inherited one has the topic's unit.
            value = synonyms[0][1] if source in _DYNAMIC_SOURCES else inherited(entry, self._config)
            results.append(_entry(entry.name, value, source, synonyms, entry.kind, entry.doc, request))
        return results

    def _topic_synonyms(
        self, entry: Property, overrides: Mapping[str, str], own: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[Synonym]:
        """The possible sources of a topic property, in order of precedence."""
        topic = [(entry.name, overrides[entry.name], TOPIC_SOURCE)] if entry.name in overrides else []
        found: list[Synonym] = []
        for name in entry.synonyms:
            if name in own:
                found.append((name, own[name], BROKER_SOURCE))
            if name in cluster:
                found.append((name, cluster[name], CLUSTER_SOURCE))
        given = self._config.given
        found += [(name, given[name], STATIC_SOURCE) for name in static_names(entry) if name in given]
        origin = _DEFAULT_ORIGINS.get(entry.name)
        for name in entry.synonyms:
            declared = BROKER_PROPERTIES.get(name)
            if declared is not None and declared.default is not None:
                origin = (name, declared.default)
        if origin is not None:
            found.append((*origin, DEFAULT_SOURCE))
        return [*topic, *(_from(entry.synonyms[0], found) if entry.synonyms else found)]

    def _describe_broker(
        self, name: str, keys: Sequence[str] | None, request: DescribeConfigsRequest
    ) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
        image = self._metadata.image
        if name and name != str(self._config.node_id):
            if parse_node_id(name) is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {self._config.node_id} or empty string, but received {name}"
            )
        cluster = image.config(RESOURCE_BROKER, "")
        if not name:
            return [
                _entry(key, value, CLUSTER_SOURCE, [(key, value, CLUSTER_SOURCE)], _kind(key), _doc(key), request)
                for key, value in cluster.items()
                if keys is None or key in keys
            ]
        own = image.config(RESOURCE_BROKER, name)
        # As in Kafka, each of the two names also reports the value of the other.
        given = {"node.id": name, "broker.id": name, **self._config.given}
        results = []
        for entry in BROKER_PROPERTIES:
            if entry.name not in keys if keys is not None else entry.internal:
                continue
            synonyms: list[Synonym] = []
            for values, source in ((own, BROKER_SOURCE), (cluster, CLUSTER_SOURCE), (given, STATIC_SOURCE)):
                if entry.name in values:
                    synonyms.append((entry.name, values[entry.name], source))
            if entry.default is not None:
                synonyms.append((entry.name, entry.default, DEFAULT_SOURCE))
            coarser = BROKER_PROPERTIES.get(_COARSER.get(entry.name, ""))
            if synonyms and coarser is not None:
                if coarser.name in self._config.given:
                    synonyms.append((coarser.name, self._config.given[coarser.name], STATIC_SOURCE))
                synonyms.append((coarser.name, coarser.default or "", DEFAULT_SOURCE))
            if entry.name in _SHOWN_WHEN_SET and not any(entry.name in values for values in (own, cluster, given)):
                continue
            if synonyms:
                value, source = synonyms[0][1], synonyms[0][2]
            else:
                typed = None if entry.name in _DERIVED else getattr(self._config, entry.attribute, None)
                value, source = (None if typed is None else text_of(typed)), DEFAULT_SOURCE
            results.append(_entry(entry.name, value, source, synonyms, entry.kind, entry.doc, request, read_only=not entry.dynamic))
        layers = ((own, BROKER_SOURCE), (cluster, CLUSTER_SOURCE), (self._config.given, STATIC_SOURCE))
        for key in sorted({*own, *cluster, *self._config.given}):
            if key not in BROKER_PROPERTIES and (keys is None or key in keys):
                results.append(_other_entry(key, layers, request))
        return results


def _other_entry(
    name: str, layers: Sequence[tuple[Mapping[str, str], int]], request: DescribeConfigsRequest
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    """A property of one listener, which falls back to the general one, or an unknown property, which may be a plug-in's secret."""
    base = base_of(name)
    general = general_name(name)
    names = (name, general) if general else (name,)
    synonyms: list[Synonym] = [(key, values[key], source) for values, source in layers for key in names if key in values]
    if base is not None and base.default is not None:
        synonyms.append((base.name, base.default, DEFAULT_SOURCE))
    synonyms = _from(name, synonyms)
    return _entry(name, synonyms[0][1], synonyms[0][2], synonyms, _kind(name), _doc(name), request, read_only=True)


def _from(name: str, synonyms: Sequence[Synonym]) -> list[Synonym]:
    """The synonyms from the first one with that name on, as Kafka reports them (ConfigHelper)."""
    return list(dropwhile(lambda synonym: synonym[0] != name, synonyms))


def _kind(name: str) -> str:
    """The property's type; "" if it is unknown."""
    entry = BROKER_PROPERTIES.get(name) or base_of(name)
    return "" if entry is None else entry.kind


def _doc(name: str) -> str:
    entry = BROKER_PROPERTIES.get(name) or base_of(name)
    return "" if entry is None else entry.doc


def _entry(
    name: str,
    value: str | None,
    source: int,
    synonyms: Sequence[Synonym],
    kind: str,
    doc: str,
    request: DescribeConfigsRequest,
    *,
    read_only: bool = False,
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    secret = kind in ("password", "")
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=name,
        value=None if secret else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=secret,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(name=key, value=None if secret else text, source=origin)
            for key, text, origin in synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=_TYPES.get(kind, 0),
        documentation=doc if request.include_documentation else None,
    )
