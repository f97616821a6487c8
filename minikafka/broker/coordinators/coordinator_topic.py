"""The internal topic that holds a coordinator's state: the leader for each key, and the topic's creation on first use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minikafka.core.java_hash import partition_for_key
from minikafka.counted import counted
from minikafka.net.channel import UnsupportedVersion
from minikafka.net.tasks import within
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.supervise import Supervisor
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

#: FindCoordinator waits this long for the topic to be created before it answers COORDINATOR_NOT_AVAILABLE.
TOPIC_WAIT_MS_MAX = 3000
CREATE_TIMEOUT_MS = 5000
logger = logging.getLogger("minikafka.coordinator")


class CoordinatorTopic:
    """`__consumer_offsets` or `__transaction_state`."""

    def __init__(
        self,
        name: str,
        metadata: MetadataHost,
        controller: ControllerChannel,
        supervisor: Supervisor,
        *,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
    ) -> None:
        """The counts and `configs` are used when the topic is created."""
        self.name = name
        self._metadata = metadata
        self._controller = controller
        self._supervisor = supervisor
        self._partitions = partitions
        self._replication_factor = replication_factor
        self._configs = dict(configs)
        self._creation: asyncio.Task[None] | None = None
        self._exists = asyncio.Event()
        metadata.subscribe(self._metadata_changed)

    def partition_of(self, key: str) -> int | None:
        """The partition that coordinates a group or transactional id; None while the topic does not exist."""
        topic = self._metadata.image.topics_by_name.get(self.name)
        return None if topic is None else partition_for_key(key, len(topic.partitions))

    def leader_of(self, key: str) -> int | None:
        """The id of the broker that coordinates the key; None while there is none."""
        index = self.partition_of(key)
        if index is None:
            return None
        leader = self._metadata.image.topics_by_name[self.name].partitions[index].leader
        return leader if leader >= 0 else None

    async def ensure(self) -> None:
        """Create the topic if it is missing, and wait until it exists or the time is up."""
        if self.name not in self._metadata.image.topics_by_name:
            if self._creation is None or self._creation.done():
                self._creation = self._supervisor.start(self._create(), f"creation of {self.name}")
            try:
                await within(TOPIC_WAIT_MS_MAX / 1000, self._exists.wait())
            except TimeoutError:
                return

    def stop(self) -> None:
        """Cancel a creation in progress."""
        if self._creation is not None:
            self._creation.cancel()

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self.name in image.topics_by_name:
            self._exists.set()
        else:
            self._exists.clear()

    async def _create(self) -> None:
        alive = sum(1 for broker in self._metadata.image.brokers.values() if not broker.fenced)
        topic = CreateTopicsRequest.CreatableTopic(
            name=self.name,
            num_partitions=self._partitions,
            replication_factor=self._replication_factor,
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in self._configs.items()],
        )
        try:
            response: Any = await self._controller.request(CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS))
        except (ConnectionError, TimeoutError, UnsupportedVersion) as error:
            logger.warning("could not create %s: %s", self.name, error)
            return
        code = ErrorCode(response.topics[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning(
                "could not create %s with replication factor %d (%s alive): %s %s",
                self.name,
                self._replication_factor,
                counted(alive, "broker"),
                code.name,
                response.topics[0].error_message,
            )
