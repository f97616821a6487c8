"""Tells the controller the log directory of a replica where the metadata say otherwise (KIP-858).

This happens for a new replica on a broker with several directories, for all replicas when a broker's disk was replaced, and for a replica
that lost records while the broker was down, which the broker reports as lost until another one leads. Until the
controller knows the directory, it treats the replica as lost with its disk and never elects it leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.counted import counted
from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

if TYPE_CHECKING:
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.supervise import Supervisor

logger = logging.getLogger("minikafka.replicas")
RETRY_DELAY_S = 0.1
REPLICAS_PER_REQUEST = 2250
Replica = tuple[bytes, int]


class DirectoryAssignments:
    """Batches assignments, one request at a time. Keys are (topic id, partition).

    Invariant: an assignment is sent until the controller accepts it, the metadata agree with it, or the manager is stopped. It waits while
    metadata.version is too low for it.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerChannel,
        supervisor: Supervisor,
        metadata: MetadataHost,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._supervisor = supervisor
        self._metadata = metadata
        self._wanted: dict[Replica, bytes] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def may_report(self) -> bool:
        """Whether metadata.version allows assignments."""
        return self._metadata.image.has_directories

    def observe(self, replica: Replica, registered: bytes, actual: bytes) -> bool:
        """Compare the directory in the metadata (`registered`) with the replica's actual one, and submit an assignment if they differ.
        Returns whether that is news."""
        if registered == actual:
            self._wanted.pop(replica, None)
            return False
        is_news = self._wanted.get(replica) != actual
        self._wanted[replica] = actual
        self.send()
        return is_news

    def send(self) -> None:
        """Start to send what waits, if metadata.version allows it."""
        if self._wanted and self._metadata.image.has_directories and (self._task is None or self._task.done()):
            self._task = self._supervisor.start(self._run(), "assignments of replicas to directories")

    def forget(self, replica: Replica) -> None:
        """Drop the replica's assignment: the replica is no longer on this broker."""
        self._wanted.pop(replica, None)

    async def stop(self) -> None:
        """Stop sending, and drop all assignments."""
        self._wanted.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._wanted and self._metadata.image.has_directories:
            batch = dict(list(self._wanted.items())[:REPLICAS_PER_REQUEST])
            try:
                response: Any = await self._controller.request(self._request(batch))
                code = ErrorCode(response.error_code)
            except (ConnectionError, TimeoutError, UnsupportedVersion):
                code = ErrorCode.REQUEST_TIMED_OUT
            if code is not ErrorCode.NONE:
                logger.info("AssignReplicasToDirs of %s will be retried: %s", counted(len(batch), "replica"), code.name)
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            for directory in response.directories:
                for topic in directory.topics:
                    for answer in topic.partitions:
                        self._answered((topic.topic_id, answer.partition_index), directory.id, ErrorCode(answer.error_code), batch)

    def _answered(self, replica: Replica, directory: bytes, code: ErrorCode, batch: dict[Replica, bytes]) -> None:
        if code is not ErrorCode.NONE:
            logger.warning("the controller rejected the directory of replica %d of topic %s: %s", replica[1], replica[0].hex(), code.name)
        if batch.get(replica) == directory == self._wanted.get(replica):
            del self._wanted[replica]

    def _request(self, batch: dict[Replica, bytes]) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, index), directory in batch.items():
            directories.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        kind = AssignReplicasToDirsRequest
        return kind(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                kind.DirectoryData(
                    id=directory,
                    topics=[
                        kind.TopicData(topic_id=topic_id, partitions=[kind.PartitionData(partition_index=index) for index in indexes])
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in directories.items()
            ],
        )
