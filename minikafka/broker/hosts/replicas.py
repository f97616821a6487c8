"""All partitions of this broker: follows the metadata, runs leaders and followers, keeps checkpoints and retention going."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.hosts.alter_partition import AlterPartitionManager
from minikafka.broker.hosts.directory_assignments import DirectoryAssignments
from minikafka.broker.hosts.fetcher_manager import FetcherManager
from minikafka.broker.hosts.partition import TRAFFIC, Partition
from minikafka.broker.metrics.durations import Durations
from minikafka.broker.topic_config import log_config
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import DIRECTORY_UNASSIGNED, empty_image
from minikafka.core.metadata.records import image_records
from minikafka.core.partition.isr import AlterOutcome, IsrProposal
from minikafka.core.partition.refusals import Refusals
from minikafka.core.purgatory import Purgatory
from storage.errors import StorageError
from wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.config import BrokerConfig
    from minikafka.broker.controller_channel import ControllerChannel
    from minikafka.broker.environment import Environment
    from minikafka.broker.hosts.cordons import Cordons
    from minikafka.broker.hosts.directory_moves import DirectoryMoves
    from minikafka.broker.hosts.metadata import MetadataHost
    from minikafka.broker.hosts.throttles import ReplicationThrottles
    from minikafka.core.metadata.image import MetadataImage, PartitionRegistration
    from storage.config import LogConfig
    from storage.log import Log
    from storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.replicas")
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
FLUSH_INTERVAL_S = 1.0
ALTER_RETRY_S = 0.05
OnLeadership = Callable[[int, int, bool], None]


class _InternalProduce:
    """An append of a coordinator that waits for its replicas."""

    __slots__ = ("_on_complete", "_partition", "_required", "base_offset", "is_done")

    def __init__(self, partition: Partition, required: int, base_offset: int, on_complete: Callable[[ErrorCode, int], None]) -> None:
        self._partition = partition
        self._required = required
        self._on_complete = on_complete
        self.base_offset = base_offset
        self.is_done = False

    def try_complete(self) -> bool:
        leader = self._partition.leader
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.is_replicated(self._required)
        if code is None:
            return False
        self.is_done = True
        self._on_complete(code, self.base_offset)
        return True

    def expire(self) -> None:
        self.is_done = True
        self._on_complete(ErrorCode.REQUEST_TIMED_OUT, self.base_offset)


class ReplicaManager:
    """Partitions by topic and index, and by topic id and index.

    Invariants: a partition is here exactly while the metadata assigns a replica of it to this broker and its log directory is online, once
    the metadata has this incarnation's registration (what it says before is about an earlier one, which may have had a longer log);
    purgatories are woken after every change of leadership, so that nothing waits for a leader that is none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        log_directories: list[LogDirectory],
        metadata: MetadataHost,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._config = config
        self._environment = environment
        self._clock = environment.clock
        self.directories = log_directories
        self._metadata = metadata
        self.broker_id: int = config.node_id
        self.lag_ms_max: int = config.replica_lag_time_max_ms
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.partitions_by_id: dict[tuple[bytes, int], Partition] = {}
        self.produces = Purgatory()
        #: Batches of idempotent producers that were refused a moment ago.
        self.refusals = Refusals()
        self.fetches = Purgatory()
        self.deletes = Purgatory()
        self._alter = AlterPartitionManager(self.broker_id, broker_epoch, controller, self._altered)
        self._assignments = DirectoryAssignments(self.broker_id, broker_epoch, controller)
        self.fetchers = FetcherManager(config, environment, self, metadata, broker_epoch)
        self._leadership: dict[str, list[OnLeadership]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._purgatory_timers: dict[int, tuple[asyncio.TimerHandle, int]] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._unlinking: set[asyncio.Task[None]] = set()
        self._stopping = False
        #: Throttles of replication, if there are any.
        self.throttles: ReplicationThrottles | None = None
        #: Log directories that get no new replicas, if this broker asks for any.
        self.cordons: Cordons | None = None
        #: Moves between log directories, if this broker makes any.
        self.moves: DirectoryMoves | None = None
        #: Told of every leadership that this broker has lost.
        self.on_leadership_lost: Callable[[Partition], None] = lambda partition: None
        #: Told when configurations of topics have changed.
        self.on_topic_configs: Callable[[], None] = lambda: None
        #: The configurations that `_settings_by_topic` was made from: a step of the metadata that changes any makes another mapping.
        self._configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None
        self._settings_by_topic: dict[str, tuple[LogConfig, int]] = {}
        self._is_registered = False
        self._broker_epoch = broker_epoch
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.isr_refusals = 0
        self.strays = 0
        self.stray_bytes = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.truncated_records = 0
        self.flushes = Durations(environment.monotonic_s)
        #: Traffic of partitions that have left, by topic: what has been counted must not fall.
        self.traffic_of_gone: dict[str, list[int]] = {}
        metadata.subscribe(self.apply)

    # -- looking up ------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """This broker's replica, or None."""
        return self.partitions.get((topic, index))

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """This broker's replica, or None."""
        return self.partitions_by_id.get((topic_id, index))

    def require(self, topic: str, topic_id: bytes | None, index: int) -> Partition:
        """The replica. Raises KAFKA_STORAGE_ERROR for one on a failed disk, NOT_LEADER_OR_FOLLOWER for one that is elsewhere, UNKNOWN_*."""
        partition = self.partitions.get((topic, index)) if topic_id is None else self.partitions_by_id.get((topic_id, index))
        if partition is not None:
            if partition.log.failure is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(partition.log.failure))
            return partition
        image = self._metadata.image
        known = image.topics_by_name.get(topic) if topic_id is None else image.topics_by_id.get(topic_id)
        if known is not None and index in known.partitions:
            if self.broker_id in known.partitions[index].replicas:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {known.name}-{index} is offline")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if topic_id is not None and known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a follower may be in sync: alive, not shutting down, and the incarnation that fetches is the registered one (KIP-903)."""
        broker = self._metadata.image.brokers.get(broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and (broker_epoch in (-1, broker.epoch))
        )

    def subscribe_leadership(self, topic: str, callback: OnLeadership) -> None:
        """Call `callback(partition, leader_epoch, is_leader)` when this broker gains or loses a partition of `topic`."""
        self._leadership.setdefault(topic, []).append(callback)

    @property
    def log_directory_ids(self) -> list[bytes]:
        """Ids of the directories that work."""
        return [directory.directory_id for directory in self.directories if not directory.is_offline]

    # -- metadata --------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow one step of the metadata."""
        if self._stopping:
            return
        if not self._is_registered:
            own = image.brokers.get(self.broker_id)
            if own is None or own.epoch != self._broker_epoch():
                return
            self._is_registered = True
            delta = MetadataDelta.from_snapshot(empty_image(), image_records(image), image.offset, image.epoch)
            image = delta.image(image.offset, image.epoch)
            self._set_strays_aside(image)
        wall_ms = self._clock.wall_ms()
        for topic_id, gone in delta.deleted_topics.items():
            for index in gone.partitions:
                partition = self.partitions_by_id.get((topic_id, index))
                if partition is not None:
                    self._remove(partition, wall_ms, "its topic was deleted")
        followers: list[Partition] = []
        for topic_id, changed in delta.changed_topics.items():
            for index, registration in changed.changed.items():
                if self.broker_id in registration.replicas:
                    partition = self._place(changed.name, topic_id, index, registration, image)
                    if partition is not None:
                        self._assume_role(partition, registration, image, followers)
                        self._observe_directory(partition, registration)
                else:
                    partition = self.partitions_by_id.get((topic_id, index))
                    if partition is not None:
                        self._remove(partition, wall_ms, "it was reassigned to other brokers")
        self._apply_configs(delta, image)
        if delta.changed_brokers:
            self.fetchers.brokers_changed(delta.changed_brokers)
        self.fetchers.follow(followers)

    def registered(self) -> None:
        """The controller has told the broker epoch; the metadata may have come before."""
        image = self._metadata.image
        if not self._is_registered:
            self.apply(MetadataDelta(image), image)

    def _place(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> Partition | None:
        partition = self.partitions_by_id.get((topic_id, index))
        if partition is not None:
            return partition
        try:
            log = self._log(topic, topic_id, index, registration, image)
        except (StorageError, ApiError) as error:
            logger.error("%s-%d cannot be served here: %s", topic, index, error)
            return None
        partition = Partition(self, topic, topic_id, index, log)
        self.partitions[(topic, index)] = partition
        self.partitions_by_id[(topic_id, index)] = partition
        if self.moves is not None:
            self.moves.resume(partition)
        return partition

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Whether the directory gets no new replicas (cordoned.log.dirs)."""
        return self.cordons is not None and directory in self.cordons

    def moved(self, partition: Partition) -> None:
        """A replica lies in another log directory now: tell the controller, and who waits for the log."""
        if partition.registration is not None:
            self._observe_directory(partition, partition.registration)
        self.purgatory_wake(partition.key)

    def _observe_directory(self, partition: Partition, registration: PartitionRegistration) -> None:
        told = registration.directory(self.broker_id)
        for directory in self.directories:
            if directory.logs.get(partition.key) is partition.log:
                self._assignments.observe((partition.topic_id, partition.index), told, directory.directory_id)

    def _log(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> Log:
        wall_ms = self._clock.wall_ms()
        config = self._topic_settings(topic, image)[0]
        for directory in self.directories:
            log = directory.logs.get((topic, index))
            if log is None:
                continue
            if log.topic_id not in (topic_id, bytes(16)):
                logger.warning("%s-%d on disk is of an older topic of that name: set aside", topic, index)
                directory.set_aside(topic, index)
                continue
            log.update_config(config)
            return directory.create_log(topic, index, topic_id, config, wall_ms)
        told = registration.directory(self.broker_id)
        if told != DIRECTORY_UNASSIGNED and told not in self.log_directory_ids and any(d.is_offline for d in self.directories):
            # Its records may be on the disk that has failed: an empty log in their place would be taken for all there is (KIP-858).
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "it lies in a log directory that is offline")
        online = [directory for directory in self.directories if not directory.is_offline]
        if not online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        # The controller gives none to a broker whose directories are all cordoned; an operator may.
        free = [directory for directory in online if not self.is_cordoned(directory)] or online
        emptiest = min(free, key=lambda directory: len(directory.logs))
        return emptiest.create_log(topic, index, topic_id, config, wall_ms)

    def _assume_role(
        self, partition: Partition, registration: PartitionRegistration, image: MetadataImage, followers: list[Partition]
    ) -> None:
        was_leader = partition.is_leader
        if registration.leader == self.broker_id:
            known = None if partition.leader is None or registration.leader_epoch != partition.leader_epoch else partition.leader.isr
            if known is not None and registration.partition_epoch > known.partition_epoch:
                pending = known.pending
                asked = pending is not None and set(pending.isr) == set(registration.isr)
                why = "as this leader asked" if asked else "by the controller's decision"
                self._note_isr(partition, known.committed, registration.isr, registration.partition_epoch, why)
            self.fetchers.unfollow(partition)
            try:
                is_new = partition.make_leader(registration, self.min_isr(partition.topic, registration, image), self._clock.now_ms())
            except StorageError as error:
                logger.error("%s cannot be led: %s", partition, error)
                return
            if is_new:
                logger.info(
                    "%s: leads in epoch %d from offset %d, in sync %s", partition, partition.leader_epoch,
                    partition.log.log_end_offset, list(registration.isr),
                )  # fmt: skip
                self._tell(partition, True)
        else:
            changed = partition.make_follower(registration)
            if changed or registration.leader < 0:
                self.fetchers.unfollow(partition)
            if changed and registration.leader >= 0:
                logger.info(
                    "%s: follows broker %d in epoch %d, log end %d, high watermark %d", partition, registration.leader,
                    registration.leader_epoch, partition.log.log_end_offset, partition.log.high_watermark,
                )  # fmt: skip
                followers.append(partition)
            if was_leader:
                self._tell(partition, False)
        self.purgatory_wake(partition.key)

    def _tell(self, partition: Partition, is_leader: bool) -> None:
        if not is_leader:
            partition.note_lost(self.refusals, self._clock.now_ms())
            self.on_leadership_lost(partition)
        for callback in self._leadership.get(partition.topic, ()):
            callback(partition.index, partition.leader_epoch, is_leader)

    def _remove(self, partition: Partition, wall_ms: int, reason: str) -> None:
        self.fetchers.unfollow(partition)
        if self.moves is not None:
            self.moves.cancel(partition)
        self._assignments.forget((partition.topic_id, partition.index))
        was_leader = partition.is_leader
        partition.resign()
        if self.partitions.pop(partition.key, None) is not None:
            of_topic = self.traffic_of_gone.get(partition.topic, [0] * len(TRAFFIC))
            self.traffic_of_gone[partition.topic] = [a + b for a, b in zip(of_topic, partition.traffic, strict=True)]
        self.partitions_by_id.pop((partition.topic_id, partition.index), None)
        if was_leader:
            self._tell(partition, False)
        self.purgatory_wake(partition.key)
        for directory in self.directories:
            if directory.logs.get(partition.key) is partition.log:
                logger.info("%s: removed, because %s", partition, reason)
                try:
                    directory.remove(partition.topic, partition.index, wall_ms)
                except StorageError as error:
                    logger.error("%s cannot be removed: %s", partition, error)

    def _set_strays_aside(self, image: MetadataImage) -> None:
        for directory in self.directories:
            for topic, index in list(directory.logs):
                known = image.topics_by_name.get(topic)
                registration = None if known is None else known.partitions.get(index)
                is_ours = registration is not None and self.broker_id in registration.replicas
                if not is_ours and not directory.is_offline:
                    logger.warning("%s-%d is not a replica of this broker in the cluster: set aside as stray", topic, index)
                    self.strays += 1
                    self.stray_bytes += directory.logs[topic, index].size
                    directory.set_aside(topic, index)

    # -- configuration ---------------------------------------------------------------------------------------------

    def _cluster_defaults(self, image: MetadataImage) -> dict[str, str]:
        return {**image.config(RESOURCE_BROKER, ""), **image.config(RESOURCE_BROKER, str(self.broker_id))}

    def _topic_settings(self, topic: str, image: MetadataImage) -> tuple[LogConfig, int]:
        """Configuration of the topic's logs, and its min.insync.replicas. Its partitions share them while no configuration changes."""
        if self._configs is not image.configs:
            self._configs = image.configs
            self._settings_by_topic.clear()
        known = self._settings_by_topic.get(topic)
        if known is None:
            overrides, defaults = image.config(RESOURCE_TOPIC, topic), self._cluster_defaults(image)
            text = overrides.get("min.insync.replicas") or defaults.get("min.insync.replicas")
            known = log_config(self._config, overrides, defaults), int(text) if text else self._config.min_insync_replicas
            self._settings_by_topic[topic] = known
        return known

    def min_isr(self, topic: str, registration: PartitionRegistration, image: MetadataImage) -> int:
        """The topic's min.insync.replicas, but not more than it has replicas (KIP-966)."""
        return min(self._topic_settings(topic, image)[1], len(registration.replicas))

    def _apply_configs(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not delta.changed_configs:
            return
        kinds = {kind for kind, _ in delta.changed_configs}
        names = None if RESOURCE_BROKER in kinds else {name for kind, name in delta.changed_configs if kind == RESOURCE_TOPIC}
        for partition in self.partitions.values():
            if names is not None and partition.topic not in names:
                continue
            partition.log.update_config(self._topic_settings(partition.topic, image)[0])
            registration = partition.registration
            if partition.leader is not None and registration is not None:
                min_isr = self.min_isr(partition.topic, registration, image)
                partition.leader.update_replicas(registration.replicas, min_isr, self._clock.now_ms())
                if partition.leader.advance(self._clock.now_ms()):
                    partition.high_watermark_moved()
        self.on_topic_configs()

    # -- in-sync replicas ------------------------------------------------------------------------------------------

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller for a change of the in-sync set."""
        self._alter.submit(partition, proposal)

    def _altered(self, partition: Partition, proposal: IsrProposal, error: ErrorCode, isr: tuple[int, ...], partition_epoch: int) -> None:
        leader = partition.leader
        if leader is None or leader.leader_epoch != proposal.leader_epoch or leader.isr.pending is not proposal:
            return
        if error is ErrorCode.NONE:
            before = leader.isr.committed
            has_moved = leader.committed(isr, partition_epoch, self._clock.now_ms(), is_answer=True)
            if leader.isr.pending is proposal:
                return  # the metadata bring it
            self._note_isr(partition, before, isr, partition_epoch, "as this leader asked")
            if has_moved:
                partition.high_watermark_moved()
            else:
                self.purgatory_wake(partition.key)
            return
        outcome = leader.refused(proposal, error)
        self.isr_refusals += 1
        logger.info(
            "%s: in epoch %d the in-sync replicas %s are refused: %s (%s)",
            partition, partition.leader_epoch, list(proposal.isr), error.name, outcome.value,
        )  # fmt: skip
        if outcome is AlterOutcome.RETRY:
            self._environment.loop.call_later(ALTER_RETRY_S, self._propose_again, partition, proposal)

    def _note_isr(self, partition: Partition, before: tuple[int, ...], now: tuple[int, ...], partition_epoch: int, why: str) -> None:
        """The in-sync set has changed; told once, whether the controller's answer or the metadata brings the news first."""
        if set(before) == set(now):
            return
        self.isr_expands += bool(set(now) - set(before))
        self.isr_shrinks += bool(set(before) - set(now))
        logger.info(
            "%s: in epoch %d the in-sync replicas are %s after %s, %s (partition epoch %d)",
            partition, partition.leader_epoch, list(now), list(before), why, partition_epoch,
        )  # fmt: skip

    def _propose_again(self, partition: Partition, proposal: IsrProposal) -> None:
        if not self._stopping and partition.leader is not None and partition.leader.isr.pending is proposal:
            self._alter.submit(partition, proposal)

    def _shrink(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in list(self.partitions.values()):
            if partition.leader is not None:
                proposal = partition.leader.shrinkage(now_ms)
                if proposal is not None:
                    logger.info(
                        "%s: in epoch %d proposing in-sync replicas %s, because the others have not caught up for %d ms",
                        partition, partition.leader_epoch, list(proposal.isr), self.lag_ms_max,
                    )  # fmt: skip
                    self.propose(partition, proposal)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def purgatory_wake(self, key: Hashable) -> None:
        """Look at everything that waits for a partition."""
        self.produces.wake(key)
        self.fetches.wake(key)
        self.deletes.wake(key)

    def park(self, purgatory: Purgatory, operation: Any, keys: list[Hashable], wait_ms: int) -> None:
        """Park an operation and see to its deadline."""
        deadline_ms = self._clock.now_ms() + wait_ms
        purgatory.park(operation, keys, deadline_ms)
        timer = self._purgatory_timers.get(id(purgatory))
        if timer is None or timer[1] > deadline_ms:
            if timer is not None:
                timer[0].cancel()
            self._arm(purgatory, deadline_ms)

    def _arm(self, purgatory: Purgatory, deadline_ms: int) -> None:
        delay_s = max(deadline_ms - self._clock.now_ms(), 0) / 1000
        handle = self._environment.loop.call_later(delay_s, self._purgatory_due, purgatory)
        self._purgatory_timers[id(purgatory)] = (handle, deadline_ms)

    def _purgatory_due(self, purgatory: Purgatory) -> None:
        self._purgatory_timers.pop(id(purgatory), None)
        purgatory.on_deadline(self._clock.now_ms())
        deadline_ms = purgatory.next_deadline()
        if deadline_ms is not None and id(purgatory) not in self._purgatory_timers:
            self._arm(purgatory, deadline_ms)

    # -- coordinators ----------------------------------------------------------------------------------------------

    def append_records(
        self,
        topic: str,
        index: int,
        batch: bytearray,
        acks: int,
        timeout_ms: int,
        on_complete: Callable[[ErrorCode, int], None],
        origin: str = "coordinator",
    ) -> None:
        """Append a batch of a coordinator; `on_complete(error, base_offset)` follows, perhaps at once, when it is replicated."""
        try:
            partition = self.require(topic, None, index)
            info = partition.append(memoryview(batch), acks, self._clock.wall_ms(), self._clock.now_ms(), origin)
        except ApiError as error:
            on_complete(error.code, -1)
            return
        self.when_replicated(partition, info.last_offset + 1, timeout_ms, on_complete, info.first_offset)

    def when_replicated(
        self, partition: Partition, required: int, timeout_ms: int, on_complete: Callable[[ErrorCode, int], None], base_offset: int = -1
    ) -> None:
        """Call `on_complete(error, base_offset)`, perhaps at once, when everything before `required` is replicated or time is up."""
        operation = _InternalProduce(partition, required, base_offset, on_complete)
        if not operation.try_complete():
            self.park(self.produces, operation, [partition.key], timeout_ms)

    # -- background ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the periodic work."""
        config = self._config
        self._every("shrink", max(self.lag_ms_max // 2, 1) / 1000, self._shrink)
        self._every("high watermarks", config.replica_high_watermark_checkpoint_interval_ms / 1000, self._checkpoint_high_watermarks)
        self._every("recovery points", config.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint_recovery_points)
        self._every("retention", config.log_retention_check_interval_ms / 1000, self._retain)
        self._every("flush", FLUSH_INTERVAL_S, self._flush)
        await self.fetchers.start()

    def _every(self, name: str, interval_s: float, work: Callable[[], None]) -> None:
        def run() -> None:
            self._timers[name] = self._environment.loop.call_later(interval_s, run)
            try:
                work()
            except StorageError as error:
                logger.error("%s: %s", name, error)

        self._timers[name] = self._environment.loop.call_later(interval_s, run)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    def _checkpoint_high_watermarks(self) -> None:
        for directory in self._online():
            directory.checkpoint_high_watermarks()

    def _checkpoint_recovery_points(self) -> None:
        for directory in self._online():
            directory.checkpoint_recovery_points()
            directory.checkpoint_log_start_offsets()

    def _retain(self) -> None:
        wall_ms = self._clock.wall_ms()
        for directory in self._online():
            directory.retain(wall_ms)

    def _flush(self) -> None:
        wall_ms = self._clock.wall_ms()
        for directory in self._online():
            self._unlink(directory, wall_ms)
        if self._flushing is None or self._flushing.done():
            logs = (log for directory in self._online() for log in directory.logs.values())
            wanted = [log for log in logs if log.is_flush_wanted or log.should_sync_ahead]
            if wanted:
                self._flushing = asyncio.ensure_future(self._run_flushes(wanted))

    def _unlink(self, directory: LogDirectory, wall_ms: int) -> None:
        """Free what retention and deletion left, off the loop: a file system takes its time over large files."""
        paths = directory.take_doomed(wall_ms)
        if paths:
            running = asyncio.ensure_future(self._run_unlink(directory, paths))
            self._unlinking.add(running)
            running.add_done_callback(self._unlinking.discard)

    async def _run_unlink(self, directory: LogDirectory, paths: list[str]) -> None:
        try:
            await self._environment.run_blocking(directory.unlink, paths)
        except OSError as error:
            logger.error("%s", directory.disk_failed("delete files in", error))

    async def _run_flushes(self, logs: list[Log]) -> None:
        """One log after the other: the quorum's syncs must not wait behind hundreds of ours."""
        for log in logs:
            if log.failure is not None or self._stopping:
                continue
            try:
                task = log.prepare_flush(None if log.should_sync_ahead else log.active_segment_base_offset)
                if task is not None:
                    with self.flushes.measured():
                        await self._environment.run_blocking(task.run)
                    task.finish()
            except StorageError as error:
                logger.error("%s cannot be flushed: %s", log.name, error)
            except OSError as error:
                log.fail("flush the log", error)

    async def stop(self, *, broker_epoch: int = -1) -> None:
        """Stop fetching, answer what is parked, write checkpoints and the clean-shutdown mark, close the logs."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        for handle, _ in self._purgatory_timers.values():
            handle.cancel()
        if self.moves is not None:
            await self.moves.stop()
        await self.fetchers.stop()
        await self._alter.stop()
        await self._assignments.stop()
        for purgatory in (self.produces, self.fetches, self.deletes):
            purgatory.expire_all()
        for partition in self.partitions.values():
            # Connections are still open: nothing may be written to a log that is being closed.
            partition.resign()
        if self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)
        if self._unlinking:
            await asyncio.wait(self._unlinking)
        for directory in self.directories:
            try:
                await self._environment.run_blocking(directory.close, broker_epoch)
            except StorageError as error:
                logger.error("log directory %s cannot be closed cleanly: %s", directory.path, error)
