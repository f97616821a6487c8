"""Chooses the log directory of a new replica, finds the log of an old one, and sets stray logs aside."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import TYPE_CHECKING

from minikafka.core.metadata.image import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, NO_LEADER
from minikafka.steps import Steps, paced
from minikafka.storage.errors import StorageError
from minikafka.storage.lost_marks import MARK
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.partitions.cordons import Cordons
    from minikafka.broker.partitions.directory_assignments import DirectoryAssignments
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.image import PartitionRegistration
    from minikafka.storage.config import LogConfig
    from minikafka.storage.log import Log
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.replicas")
_ZERO_UUID = bytes(16)
#: Replicas that do not exist yet and whose directory was chosen: the oldest choices are forgotten beyond this. Kafka has no such limit.
PREFERENCES_MAX = 100_000


class LogPlacement:
    """The logs in this broker's directories."""

    def __init__(self, broker_id: int, directories: list[LogDirectory], cordons: Cordons, assignments: DirectoryAssignments) -> None:
        self._broker_id = broker_id
        self._directories = directories
        self._cordons = cordons
        self._assignments = assignments
        #: Where AlterReplicaLogDirs wants replicas that do not exist yet.
        self._preferred: dict[tuple[str, int], LogDirectory] = {}
        #: Logs set aside because the cluster has no such replica here, or has it in another directory.
        self.strays = 0
        self.stray_bytes = 0

    def log(self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, config: LogConfig, wall_ms: int) -> Log:
        """The replica's log, created if it does not exist. Raises StorageError, ApiError(KAFKA_STORAGE_ERROR)."""
        directory = self._find(topic, topic_id, index, registration, wall_ms)
        preferred = self._preferred.pop((topic, index), None)
        if directory is None:
            directory = preferred if preferred is not None and not preferred.is_offline else self._place_for(registration)
        else:
            directory.logs[topic, index].update_config(config)
        return directory.create_log(topic, index, topic_id, config, wall_ms)

    def prefer(self, topic: str, index: int, directory: LogDirectory) -> None:
        """Create this replica in `directory` when it is assigned to this broker. Forgotten with a restart, as in Kafka."""
        self._preferred.pop((topic, index), None)
        if len(self._preferred) >= PREFERENCES_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic, index] = directory

    def _find(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, wall_ms: int
    ) -> LogDirectory | None:
        """The directory that has the log. Two have it if the broker stopped between the renames of a move. Then the directory in the
        metadata counts (Apache Kafka does not start), else the one with the longer log. If the other is the move's copy, the move goes on,
        as after a stop before the renames; else it is set aside, not deleted."""
        found: list[LogDirectory] = []
        for directory in self._directories:
            log = directory.logs.get((topic, index))
            if log is None:
                continue
            if log.topic_id not in (topic_id, _ZERO_UUID):
                logger.warning("%s-%d on disk belongs to an older topic with the same name: set aside", topic, index)
                self._set_aside(directory, topic, index)
                continue
            found.append(directory)
        if len(found) < 2:
            return found[0] if found else None
        registered = registration.directory(self._broker_id)

        def rank(directory: LogDirectory) -> tuple[bool, int, int]:
            log = directory.logs[topic, index]
            return directory.directory_id == registered, log.epochs.latest, log.log_end_offset

        kept = max(found, key=rank)
        for directory in found:
            if directory is not kept:
                self._put_away(directory, topic, index, kept, wall_ms)
        return kept

    def _put_away(self, directory: LogDirectory, topic: str, index: int, kept: LogDirectory, wall_ms: int) -> None:
        """Take the second log of a partition out of the way."""
        try:
            if directory.take_back_copy(topic, index, wall_ms):
                logger.info("%s-%d moves from %s to %s: the move begins again", topic, index, kept.path, directory.path)
                return
            logger.error("%s-%d is also in %s: the log in %s is set aside as stray", topic, index, kept.path, directory.path)
            self._set_aside(directory, topic, index)
        except StorageError as error:
            logger.error("%s-%d in %s cannot be set aside: %s", topic, index, directory.path, error)

    def _set_aside(self, directory: LogDirectory, topic: str, index: int) -> None:
        """Set a log aside as stray, and count it. Raises StorageError."""
        size = directory.logs[topic, index].size
        directory.set_aside(topic, index)
        self.strays += 1
        self.stray_bytes += size

    def _place_for(self, registration: PartitionRegistration) -> LogDirectory:
        online = [directory for directory in self._directories if not directory.is_offline]
        registered = registration.directory(self._broker_id)
        if (
            registered != DIRECTORY_UNASSIGNED
            and registered not in [directory.directory_id for directory in online]
            and len(online) < len(self._directories)
        ):
            # The records may be on the failed disk; an empty log in their place would be taken for the complete one (KIP-858).
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the replica is in a log directory that is offline")
        if not online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        # The controller places no replicas on a broker whose directories are all cordoned, but an operator may.
        free = [directory for directory in online if directory not in self._cordons] or online
        return min(free, key=lambda directory: len(directory.logs))

    def is_unfit_to_lead(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """Whether the log lost records while the broker was down, and another replica may have them. The controller does not know: it
        would elect the last known leader (KIP-966), and the others would lose the records, too. Once told that the replica is lost, ours
        elects another. That of Apache Kafka 4.4 insists, and nobody but the one that it chose can lead."""
        is_chosen = registration.leader == self._broker_id
        return (
            partition.log.watermarks.lost is not None
            and (is_chosen or registration.leader == NO_LEADER)
            and not (is_chosen and registration.directory(self._broker_id) == DIRECTORY_LOST)
            and len(registration.replicas) > 1
            and self._assignments.may_report
        )

    def observe(self, partition: Partition) -> None:
        """Tell the controller the replica's directory, if the metadata say otherwise. A replica that is unfit to lead is in none, as one
        on a failed disk."""
        registration = partition.registration
        if registration is None:
            return
        replica, registered = (partition.topic_id, partition.index), registration.directory(self._broker_id)
        lost = partition.log.watermarks.lost
        if lost is not None and self.is_unfit_to_lead(partition, registration):
            if self._assignments.observe(replica, registered, DIRECTORY_LOST):
                logger.error(
                    "%s: does not lead, because records among offsets %d to %d were removed while the broker was down. Another replica"
                    " leads if it was in sync, or after an unclean election, and this one gets its records. To lead with what is left,"
                    " remove %s/%s and start the broker again",
                    partition, *lost, partition.log.directory, MARK,
                )  # fmt: skip
            return
        for directory in self._directories:
            if directory.logs.get(partition.key) is partition.log:
                self._assignments.observe(replica, registered, directory.directory_id)

    def remove(self, partition: Partition, wall_ms: int, reason: str) -> None:
        """Delete the files of a replica that is no longer assigned to this broker."""
        self._assignments.forget((partition.topic_id, partition.index))
        for directory in self._directories:
            if directory.logs.get(partition.key) is partition.log:
                logger.info("%s: removed, because %s", partition, reason)
                try:
                    directory.remove(partition.topic, partition.index, wall_ms)
                except StorageError as error:
                    logger.error("%s cannot be removed: %s", partition, error)

    def setting_strays_aside(self, metadata: MetadataHost, placed: Container[tuple[str, int]]) -> Steps[None]:
        """Set aside logs that were found at the start but are not assigned to this broker. One that is `placed` meanwhile has a replica."""
        found = [(directory, key, log) for directory in self._directories for key, log in directory.logs.items()]
        for (directory, (topic, index), log), is_step in paced(found):
            if is_step:
                yield
            image = metadata.image.topics_by_name.get(topic)
            registration = None if image is None else image.partitions.get(index)
            is_ours = (topic, index) in placed or (registration is not None and self._broker_id in registration.replicas)
            if is_ours or directory.is_offline or directory.logs.get((topic, index)) is not log:
                continue
            logger.warning("%s-%d is not a replica of this broker in the cluster: set aside as stray", topic, index)
            try:
                self._set_aside(directory, topic, index)
            except StorageError as error:
                logger.error("%s-%d in %s cannot be set aside: %s", topic, index, directory.path, error)
                continue
            yield
