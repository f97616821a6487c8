"""GetTelemetrySubscriptions and PushTelemetry (KIP-714).

The receiver is built in. ApiVersions names both APIs while there is a subscription, because clients that find them ask at once, and log it.
Apache Kafka names them while it has a telemetry plug-in.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from minikafka.broker.client_metrics import otlp
from minikafka.core.client_metrics.instances import COMPRESSION_TYPES, Instance, Instances
from minikafka.core.client_metrics.series import Labels, Series
from minikafka.core.client_metrics.subscriptions import (
    CLIENT_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
    Subscriptions,
)
from minikafka.core.metadata.image import RESOURCE_CLIENT_METRICS
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from minikafka.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from minikafka.wire.uuid import uuid_to_text

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

logger = logging.getLogger("minikafka.clients")

#: A push that is larger, or larger when decompressed, is read in a thread.
READ_AT_ONCE_BYTES = 4096
#: How often silent clients are removed.
SWEEP_S = 10.0


class ClientMetricsHandlers:
    """Keeps subscriptions, clients (`instances`) and their metrics (`series`). The last two are read by metrics and the page."""

    def __init__(self, config: BrokerConfig, metadata: MetadataHost, environment: Environment, heavy_work: HeavyWork) -> None:
        self.subscriptions = Subscriptions()
        self.instances = Instances(self.subscriptions, config.telemetry_max_bytes, environment.random.randbytes)
        self.series = Series()
        #: Number of accepted pushes, their bytes, and pushes that could not be read.
        self.pushes = self.pushed_bytes = self.unreadable = 0
        self._clock = environment.clock
        self._supervisor = environment.supervisor
        self._heavy_work = heavy_work
        self._dispatcher: Dispatcher | None = None
        #: Whether the import of the parser was attempted.
        self._has_loaded = False
        #: Whether a sweep is scheduled or in progress: there is at most one.
        self._is_sweeping = False
        for kind, name in metadata.image.configs:
            if kind == RESOURCE_CLIENT_METRICS:
                self._put(name, metadata.image)
        metadata.subscribe(self._on_metadata)

    def register(self, dispatcher: Dispatcher) -> None:
        """Register both APIs."""
        self._dispatcher = dispatcher
        dispatcher.register(GetTelemetrySubscriptionsRequest, self.get)
        dispatcher.register(PushTelemetryRequest, self.push)
        dispatcher.subscribe_connection_ends(self._connection_ended)
        self._offer(dispatcher)

    def _offer(self, dispatcher: Dispatcher) -> None:
        api_keys = (GetTelemetrySubscriptionsRequest.API_KEY, PushTelemetryRequest.API_KEY)
        dispatcher.offer(api_keys, is_offered=len(self.subscriptions) > 0)

    def get(self, context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
        """GetTelemetrySubscriptions."""
        now_ms = self._clock.now_ms()
        instance = self.instances.ask(request.client_instance_id, self._attributes(context), context.connection, now_ms)
        self._schedule_sweep()
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.instance_id,
            subscription_id=instance.requested.subscription_id,
            accepted_compression_types=list(COMPRESSION_TYPES),
            push_interval_ms=instance.requested.interval_ms,
            telemetry_max_bytes=self.instances.telemetry_max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.requested.metrics),
        )

    def push(self, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse | None:
        """PushTelemetry: answer when the metrics are decoded."""
        instance = self.instances.push(request, self._attributes(context), context.connection, self._clock.now_ms())
        self._schedule_sweep()
        self.pushes += 1
        self.pushed_bytes += len(request.metrics)
        if not request.metrics:
            return PushTelemetryResponse()
        if self._has_loaded and len(request.metrics) <= READ_AT_ONCE_BYTES:
            try:
                self._keep(instance, otlp.read(request.compression_type, request.metrics, READ_AT_ONCE_BYTES))
                return PushTelemetryResponse()
            except otlp.Unreadable:
                pass  # It may only be larger than READ_AT_ONCE_BYTES.
        self._heavy_work.start(self._read_in_thread(context, request, instance), "a push of metrics", context.connection)
        return None

    async def _read_in_thread(self, context: RequestContext, request: PushTelemetryRequest, instance: Instance) -> None:
        if not self._has_loaded:
            self._has_loaded = True
            if not await self._heavy_work.run(otlp.load):
                logger.warning("clients push metrics, but the package to read them is missing: pip install 'minikafka[client-metrics]'")
        code = ErrorCode.NONE
        try:
            size_max = self.instances.telemetry_max_bytes
            self._keep(instance, await self._heavy_work.run(otlp.read, request.compression_type, request.metrics, size_max))
        except otlp.Unreadable as error:
            logger.debug("%s pushed unreadable metrics: %s", context.connection, error)
            self.unreadable += 1
            instance.last_error = code = ErrorCode.INVALID_RECORD
        context.respond(PushTelemetryResponse(error_code=code))

    def _keep(self, instance: Instance, found: otlp.Read) -> None:
        self.series.dropped += found.left
        self.series.add(instance.instance_id, _client_labels(instance), found.points, instance.expires_ms)

    def _attributes(self, context: RequestContext) -> dict[str, str | None]:
        assert self._dispatcher is not None
        _, name, version = self._dispatcher.software.get(context.connection, ("", "unknown", "unknown"))
        return {
            CLIENT_ID: context.client_id,
            CLIENT_SOFTWARE_NAME: name,
            CLIENT_SOFTWARE_VERSION: version,
            CLIENT_SOURCE_ADDRESS: context.connection.peer_host,
            CLIENT_SOURCE_PORT: str(context.connection.peer_port),
        }

    def _connection_ended(self, connection: object) -> None:
        instance_id = self.instances.connection_ended(connection)
        if instance_id is not None:
            self.series.leave(instance_id, self._clock.now_ms())

    def _schedule_sweep(self) -> None:
        if not self._is_sweeping:
            self._is_sweeping = True
            self._supervisor.call_later(SWEEP_S, "removal of silent clients", self._sweep)

    def _sweep(self) -> None:
        self._sweep_step(self.instances.expire(self._clock.now_ms()))

    def _sweep_step(self, steps: Iterator[object]) -> None:
        """Run one step, and the next one in the next turn."""
        if next(steps, None) is not None:
            self._supervisor.call_soon("removal of silent clients", self._sweep_step, steps)
            return
        self.series.expire(self._clock.now_ms())
        self._is_sweeping = False
        if self.instances.by_id or self.series.by_instance:
            self._schedule_sweep()

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        changed = [name for kind, name in delta.changed_configs if kind == RESOURCE_CLIENT_METRICS]
        for name in changed:
            self._put(name, image)
        if changed and self._dispatcher is not None:
            self._offer(self._dispatcher)

    def _put(self, name: str, image: MetadataImage) -> None:
        try:
            self.subscriptions.put(name, image.config(RESOURCE_CLIENT_METRICS, name))
        except ApiError as error:
            # A controller of Apache Kafka accepts more than this broker can serve.
            logger.warning("the client metrics subscription %s is not served: %s", name, error.message)


def _client_labels(instance: Instance) -> Labels:
    """The labels of all metrics of a client."""
    attributes, most = instance.attributes, otlp.TEXT_CHARACTERS_MAX
    return (
        (CLIENT_ID, (attributes.get(CLIENT_ID) or "")[:most]),
        ("client_instance_id", uuid_to_text(instance.instance_id)),
        (CLIENT_SOFTWARE_NAME, attributes.get(CLIENT_SOFTWARE_NAME) or ""),
    )
