"""Registers a controller's endpoints and supported features with the active controller (KIP-919). So clients can find every controller,
and no feature level is chosen that a controller does not support. Kafka: ControllerRegistrationManager."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from minikafka.core.metadata.image import METADATA_VERSION
from minikafka.core.metadata.versions import REGISTERED_CONTROLLERS
from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.quorum.controller_host import ControllerHost
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

log = logging.getLogger("minikafka.controller")

BACKOFF_MS = 100
BACKOFF_MS_MAX = 10_000
REQUEST_TIMEOUT_MS = 30_000
#: If the record has not reached this node so long after the answer, the controller registers again.
REPLAY_TIMEOUT_MS = 10_000


class ControllerRegistrar:
    """Registers this node's controller once per process, as soon as the metadata show that it is not registered.

    Only the metadata log counts as proof: the records behind a failing controller's answer may be lost."""

    def __init__(
        self, node_id: int, environment: Environment, metadata: MetadataHost, controller: ControllerHost, channel: ControllerChannel
    ) -> None:
        self._node_id = node_id
        self._environment = environment
        self._metadata = metadata
        self._controller = controller
        self._channel = channel
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        metadata.subscribe(self._on_metadata)

    async def stop(self) -> None:
        """Stop registering."""
        self._stopping = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._channel.close()

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._task is None and not self._stopping and self._is_missing():
            self._task = self._environment.supervisor.start(self._run(), "registration of the controller")

    def _is_missing(self) -> bool:
        image = self._controller.newest_image()
        own = image.controllers.get(self._node_id)
        is_known = own is not None and own.incarnation_id == self._controller.incarnation_id
        return image.features.get(METADATA_VERSION, 0) >= REGISTERED_CONTROLLERS and not is_known

    async def _run(self) -> None:
        backoff_ms = BACKOFF_MS
        last_logged = ErrorCode.NONE
        try:
            while self._is_missing() and not self._stopping:
                code = await self._try()
                if code is ErrorCode.NONE:
                    await self._metadata.wait_until(lambda _: not self._is_missing(), REPLAY_TIMEOUT_MS)
                    continue
                if code is not last_logged:
                    last_logged = code
                    log.info("controller %d cannot register with the active one yet: %s", self._node_id, code.name)
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)
            log.info("controller %d is registered", self._node_id)
        except ConnectionError:
            return  # the node is stopping
        finally:
            self._task = None

    async def _try(self) -> ErrorCode:
        request = self._controller.registration_request()
        try:
            if self._controller.is_active:
                await self._controller.ask(request, request.MAX_VERSION)
                return ErrorCode.NONE
            return ErrorCode((await self._channel.request(request, REQUEST_TIMEOUT_MS)).error_code)
        except TimeoutError:
            return ErrorCode.REQUEST_TIMED_OUT
        except UnsupportedVersion:
            return ErrorCode.UNSUPPORTED_VERSION
        except ApiError as error:
            return error.code
