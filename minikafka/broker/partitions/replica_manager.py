"""All partitions of this broker: applies the metadata, runs leaders and followers."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.broker.partitions.counted_flushes import CountedFlushes
from minikafka.broker.partitions.directory_assignments import DirectoryAssignments
from minikafka.broker.partitions.directory_moves import DirectoryMoves
from minikafka.broker.partitions.fetcher_manager import FetcherManager
from minikafka.broker.partitions.in_sync_sets import InSyncSets
from minikafka.broker.partitions.log_placement import LogPlacement
from minikafka.broker.partitions.log_upkeep import LogUpkeep
from minikafka.broker.partitions.partition import TRAFFIC, LeaderRules, Partition
from minikafka.broker.partitions.topic_settings import TopicSettings
from minikafka.broker.partitions.waiting import Waiting
from minikafka.core.partition.isr import IsrProposal
from minikafka.core.partition.refusals import Refusals
from minikafka.core.partition.replication_wait import ReplicationWait
from minikafka.steps import Steps, paced
from minikafka.storage.errors import LogClosed, ResourceShortage, StorageError
from minikafka.storage.log_dir import NAME_MAX, future_name
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.partitions.cordons import Cordons
    from minikafka.broker.partitions.replication import Replication
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage, PartitionRegistration
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.replicas")
#: If a shortage of file descriptors prevents the creation of a replica, the next attempt comes after so long.
SHORTAGE_RETRY_S = 1.0
#: Replicas created or switched to another role in one turn of the loop, at half a millisecond each at most.
PLACED_AT_ONCE = 32
#: How long a follower's fetch proves that no other broker leads, if the fetch came after the answer to an earlier one. A follower may turn
#: away without notice. By default fetches wait up to 500 ms (replica.fetch.wait.max.ms), and half of that while no controller answers.
FOLLOWED_MS = 1000
#: Partition, leader epoch, whether this broker leads in it.
OnLeadership = Callable[[int, int, bool], None]
OnCommitted = Callable[[Partition], None]


class _InternalAppend(ReplicationWait):
    """An append of a coordinator that waits for replication."""

    __slots__ = ("_base_offset", "_on_complete")

    def __init__(self, partition: Partition, required: int, base_offset: int, on_complete: Callable[[ErrorCode, int], None]) -> None:
        super().__init__(partition, partition.leader, required)
        self._on_complete = on_complete
        self._base_offset = base_offset

    def settled(self, code: ErrorCode) -> None:
        """Report the result to the coordinator."""
        self._on_complete(code, self._base_offset)


class ReplicaManager:
    """Partitions by topic and index, and by topic id and index.

    Invariants: a partition is here exactly while the metadata assign a replica of it to this broker and its log directory is online. This
    holds from when the metadata contain this incarnation's registration (earlier metadata are about an earlier incarnation, which may have
    had a longer log), and, if very many replicas come or go at once, from when the replica's turn has come. All purgatories are
    checked after every leader change, so that no request waits for a leader that no longer leads.
    """

    def __init__(
        self,
        replication: Replication,
        directories: list[LogDirectory],
        controller: ControllerChannel,
        settings: Settings,
        cordons: Cordons,
        on_topic_configs: Callable[[], None],
    ) -> None:
        """`on_topic_configs()` is called when topic configurations have changed."""
        config, environment, metadata = replication.config, replication.environment, replication.metadata
        self._metadata, self._environment, self._clock = metadata, environment, environment.clock
        self._broker_epoch = replication.broker_epoch
        self.is_unheard = replication.is_unheard
        self._in_doubt_since_ms = replication.in_doubt_since_ms
        self._on_topic_configs = on_topic_configs
        self.broker_id: int = config.node_id
        self.directories = directories
        self.throttles = replication.throttles
        self.cordons = cordons
        self.partitions, self.partitions_by_id = dict[tuple[str, int], Partition](), dict[tuple[bytes, int], Partition]()
        self.waiting = Waiting(environment)
        self._counted_flushes = CountedFlushes(environment, self.waiting)
        #: Recently refused batches of idempotent producers.
        self.refusals = Refusals()
        self._topics = TopicSettings(config)
        self._rules = LeaderRules(config.node_id, config.replica_lag_time_max_ms, self.is_eligible)
        self._assignments = DirectoryAssignments(config.node_id, replication.broker_epoch, controller, environment.supervisor, metadata)
        self.placement = LogPlacement(config.node_id, directories, cordons, self._assignments)
        self.upkeep = LogUpkeep(config, environment, directories)
        self.in_sync_sets = InSyncSets(
            config.node_id, replication.broker_epoch, environment, controller, self, config.replica_lag_time_max_ms
        )
        self.fetchers = FetcherManager(replication, self)
        self.moves = DirectoryMoves(directories, environment, settings, self)
        self._on_leadership: dict[str, list[OnLeadership]] = {}
        self._on_commits: dict[str, list[OnCommitted]] = {}
        self._on_loss: list[Callable[[Partition], None]] = []
        #: By topic id and index: replicas that will be created in later turns of the loop, which look-ups do not find yet, those that will
        #: be switched because role or in-sync set changed, and those that will be removed, each with the reason. Before them all, the look
        #: at the logs found at the start.
        self._late: dict[tuple[bytes, int], None] = {}
        self._late_roles: dict[tuple[bytes, int], None] = {}
        self._late_removals: dict[tuple[bytes, int], str] = {}
        self._strays: Steps[None] | None = None
        self._is_placing = self._is_registered = self._stopping = False
        self.replication_bytes_in = self.replication_bytes_out = self.truncated_records = 0
        #: Topic -> traffic of its partitions that have left this broker, because counters must not decrease.
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
        """The replica. Raises KAFKA_STORAGE_ERROR if its disk has failed, NOT_LEADER_OR_FOLLOWER if it is on other brokers, or
        UNKNOWN_*."""
        partition = self.partitions.get((topic, index)) if topic_id is None else self.partitions_by_id.get((topic_id, index))
        if partition is not None:
            failure = partition.log.failure
            if failure is not None:
                # This broker stops, if the log is closed: its disk has not failed.
                is_closed = isinstance(failure, LogClosed)
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_closed else ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            return partition
        image = self._metadata.image
        topic_image = image.topics_by_name.get(topic) if topic_id is None else image.topics_by_id.get(topic_id)
        if topic_image is not None and index in topic_image.partitions:
            if self.broker_id in topic_image.partitions[index].replicas and (topic_image.topic_id, index) not in self._late:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic_image.name}-{index} is offline")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if topic_id is not None and topic_image is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def is_about_to_lead(self, topic: str, index: int) -> bool:
        """Whether the metadata name this broker as the leader, and the turn in which it becomes that has not come yet."""
        image = self._metadata.image.topics_by_name.get(topic)
        if image is None or index not in image.partitions or image.partitions[index].leader != self.broker_id:
            return False
        key = image.topic_id, index
        return key in self._late or key in self._late_roles

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a follower may be in sync: alive, not shutting down, and the incarnation that fetches is the registered one (KIP-903)."""
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown and (broker_epoch in (-1, broker.epoch))

    def is_in_doubt(self, partition: Partition) -> bool:
        """Whether another broker may lead the partition by now. That is so if the controller may have replaced this broker, and an
        electable replica has not followed this leader since, or not within FOLLOWED_MS. If only the controllers are unreachable, the
        in-sync set keeps following, and nothing is in doubt."""
        since_ms = self._in_doubt_since_ms()
        if since_ms is None:
            return False
        leader, registration = partition.leader, partition.registration
        eligible = () if registration is None else registration.elr
        return leader is None or not leader.is_confirmed(eligible, max(since_ms, self._clock.now_ms() - FOLLOWED_MS))

    def subscribe_leadership(self, topic: str, callback: OnLeadership) -> None:
        """Call `callback(partition, leader_epoch, is_leader)` when this broker gains or loses a partition of `topic`."""
        self._on_leadership.setdefault(topic, []).append(callback)

    def subscribe_commits(self, topic: str, callback: OnCommitted) -> None:
        """Call `callback(partition)` when the high watermark of a partition of an internal topic has moved."""
        self._on_commits.setdefault(topic, []).append(callback)

    def subscribe_losses(self, callback: Callable[[Partition], None]) -> None:
        """Call `callback(partition)` when this broker loses the leadership of any partition."""
        self._on_loss.append(callback)

    # -- metadata --------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow one step of the metadata."""
        if self._stopping:
            return
        if not self._is_registered:
            self._begin(image)
            return
        for topic_id, gone in delta.deleted_topics.items():
            for index in gone.partitions:
                if (topic_id, index) in self.partitions_by_id:
                    self._late_removals[topic_id, index] = "its topic was deleted"
        is_over = self._environment.shares.begin()
        for key in list(itertools.islice(self._late_removals, PLACED_AT_ONCE)):
            self._remove_late(key)
            if is_over():
                break
        followers: list[Partition] = []
        count = 0
        for topic_id, changed in delta.changed_topics.items():
            for index, registration in changed.changed.items():
                if self.broker_id in registration.replicas:
                    key = topic_id, index
                    count += 1
                    must_wait = count > PLACED_AT_ONCE or is_over()
                    if key in self._late_removals:
                        self._remove_late(key)
                    if key in self.partitions_by_id:
                        if must_wait:
                            self._late_roles[key] = None
                            continue
                    elif self._late or must_wait:
                        self._late[key] = None
                        continue
                    self._late_roles.pop(key, None)
                    self._follow_registration(changed.name, topic_id, index, registration, image, followers)
                elif (topic_id, index) in self.partitions_by_id:
                    self._late_removals[topic_id, index] = "it was reassigned to other brokers"
        self._apply_configs(delta, image)
        if delta.changed_brokers:
            self.fetchers.brokers_changed(delta.changed_brokers)
        if delta.features_changed:
            self._assignments.send()
        self.fetchers.follow(followers)
        self._place_late_soon()

    def registered(self) -> None:
        """The controller has registered this broker; the metadata may have arrived before its answer."""
        if not self._stopping and not self._is_registered:
            self._begin(self._metadata.image)

    def _begin(self, image: MetadataImage) -> None:
        """Follow the metadata if they contain this incarnation's registration: everything in them is new."""
        own = image.brokers.get(self.broker_id)
        if own is None or own.epoch != self._broker_epoch():
            return
        self._is_registered = True
        self._strays = self.placement.setting_strays_aside(self._metadata, self.partitions)
        for topic_id, topic in image.topics_by_id.items():
            self._late.update(((topic_id, index), None) for index, found in topic.partitions.items() if own.broker_id in found.replicas)
        self._place_late()
        self.fetchers.brokers_changed(image.brokers)
        self._on_topic_configs()

    def _place(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> Partition | None:
        partition = self.partitions_by_id.get((topic_id, index))
        if partition is not None:
            return partition
        earlier = self.partitions.get((topic, index))
        if earlier is not None:
            self._remove_late((earlier.topic_id, index))
        try:
            config = self._topics.log_config(topic, image)
            log = self.placement.log(topic, topic_id, index, registration, config, self._clock.wall_ms())
        except ResourceShortage as error:
            logger.warning("%s-%d will be created later: %s", topic, index, error)
            self._environment.supervisor.call_later(SHORTAGE_RETRY_S, "making a replica", self._place_again, (topic_id, index))
            return None
        except (StorageError, ApiError) as error:
            logger.error("%s-%d cannot be served here: %s", topic, index, error)
            return None
        partition = Partition(self, self._rules, topic, topic_id, index, log)
        self.partitions[(topic, index)] = partition
        self.partitions_by_id[(topic_id, index)] = partition
        self.moves.resume(partition)
        return partition

    def _place_again(self, *keys: tuple[bytes, int]) -> None:
        """Create replicas that could not be created earlier, because descriptors were short or there were too many for one turn of the
        loop, unless the metadata no longer assign them to this broker."""
        image, followers = self._metadata.image, list[Partition]()
        for key in keys:
            self._place_one(key, image, followers)
        self.fetchers.follow(followers)

    def _place_one(self, key: tuple[bytes, int], image: MetadataImage, followers: list[Partition]) -> None:
        topic_id, index = key
        topic = image.topics_by_id.get(topic_id)
        registration = None if topic is None else topic.partitions.get(index)
        if not self._stopping and topic is not None and registration is not None and self.broker_id in registration.replicas:
            self._follow_registration(topic.name, topic_id, index, registration, image, followers)

    def _follow_registration(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage, followers: list[Partition]
    ) -> None:
        """Create the replica if it is new, and let it lead or follow; followers are added to `followers`."""
        partition = self._place(topic, topic_id, index, registration, image)
        if partition is not None:
            self._assume_role(partition, registration, image, followers)
            self.placement.observe(partition)

    def _place_late_soon(self) -> None:
        if (self._late or self._late_roles or self._late_removals or self._strays is not None) and not self._is_placing:
            self._is_placing = True
            self._environment.supervisor.call_soon("making replicas", self._place_late)

    def _place_late(self) -> None:
        self._is_placing = False
        if self._stopping:
            self._late.clear()
            self._late_roles.clear()
            self._late_removals.clear()
            self._strays = None
        if self._strays is not None:
            if not self._environment.shares.take_some(self._strays):
                self._place_late_soon()
                return
            self._strays = None
        image, followers, is_over = self._metadata.image, list[Partition](), self._environment.shares.begin()
        # Replicas that clients already use come first.
        keys = list(itertools.islice(itertools.chain(self._late_roles, self._late, self._late_removals), PLACED_AT_ONCE))
        for key in keys:
            if key in self._late_removals:
                self._remove_late(key)
            else:
                self._late_roles.pop(key, None)
                self._late.pop(key, None)
                self._place_one(key, image, followers)
            if is_over():
                break
        self.fetchers.follow(followers)
        self._place_late_soon()

    def _remove_late(self, key: tuple[bytes, int]) -> None:
        """Remove a replica now that the metadata no longer have here."""
        reason = self._late_removals.pop(key, "a later topic has its name")
        partition = self.partitions_by_id.get(key)
        if partition is not None:
            self._remove(partition, self._clock.wall_ms(), reason)

    def _assume_role(
        self, partition: Partition, registration: PartitionRegistration, image: MetadataImage, followers: list[Partition]
    ) -> None:
        was_leader = partition.is_leader
        if self.placement.is_unfit_to_lead(partition, registration):
            partition.make_follower(registration)
            self.fetchers.unfollow(partition)
        elif registration.leader == self.broker_id:
            self.in_sync_sets.registered(partition, registration)
            self.fetchers.unfollow(partition)
            try:
                is_new = partition.make_leader(
                    registration, self._topics.min_isr(partition.topic, registration, image), self._clock.now_ms()
                )
            except StorageError as error:
                logger.error("%s cannot be led: %s", partition, error)
                return
            if is_new:
                logger.info(
                    "%s: leads in epoch %d from offset %d, in sync %s", partition, partition.leader_epoch,
                    partition.log.log_end_offset, list(registration.isr),
                )  # fmt: skip
                self._publish_role(partition, True)
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
                self._publish_role(partition, False)
        self.changed(partition)

    def _publish_role(self, partition: Partition, is_leader: bool) -> None:
        if not is_leader:
            partition.note_lost(self.refusals, self._clock.now_ms())
            for lost in self._on_loss:
                lost(partition)
        for callback in self._on_leadership.get(partition.topic, ()):
            callback(partition.index, partition.leader_epoch, is_leader)

    def _remove(self, partition: Partition, wall_ms: int, reason: str) -> None:
        self.fetchers.unfollow(partition)
        self.moves.cancel(partition)
        was_leader = partition.is_leader
        partition.resign()
        if self.partitions.pop(partition.key, None) is not None:
            of_topic = self.traffic_of_gone.get(partition.topic, [0] * len(TRAFFIC))
            self.traffic_of_gone[partition.topic] = [a + b for a, b in zip(of_topic, partition.traffic, strict=True)]
        self.partitions_by_id.pop((partition.topic_id, partition.index), None)
        if was_leader:
            self._publish_role(partition, False)
        self.changed(partition)
        self.placement.remove(partition, wall_ms, reason)
        if not self._late_removals:  # not for each of ten thousand
            self.upkeep.forget_removed()

    def _apply_configs(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not delta.changed_configs:
            return
        names = self._topics.changed_topics(delta)
        for partition in self.partitions.values():
            if names is not None and partition.topic not in names:
                continue
            partition.log.update_config(self._topics.log_config(partition.topic, image))
            registration = partition.registration
            if partition.leader is not None and registration is not None:
                min_isr = self._topics.min_isr(partition.topic, registration, image)
                partition.leader.update_replicas(registration.replicas, min_isr, self._clock.now_ms())
                if partition.leader.advance(self._clock.now_ms()):
                    partition.high_watermark_moved()
                partition.count_synced(self._clock.now_ms())
        self._on_topic_configs()

    # -- PartitionEvents -------------------------------------------------------------------------------------------

    def appended(self, partition: Partition) -> None:
        """Wake followers' fetches."""
        fetches = self.waiting.fetches
        if partition.key in fetches.watched:
            fetches.wake(partition.key)

    def high_watermark_moved(self, partition: Partition) -> None:
        """Wake produces and fetches, and report the commit to coordinators."""
        waiting, key = self.waiting, partition.key
        if partition.is_internal:
            for callback in self._on_commits.get(partition.topic, ()):
                callback(partition)
                # The callbacks may have answered requests and written records, so a fetch that triggered them must check again.
                waiting.produces.completions += 1
        if key in waiting.produces.watched:
            waiting.produces.wake(key)
        if key in waiting.fetches.watched:
            waiting.fetches.wake(key)

    def follower_fetched(self, partition: Partition) -> None:
        """Check waiting DeleteRecords requests."""
        deletes = self.waiting.deletes
        if partition.key in deletes.watched:
            deletes.wake(partition.key)

    def changed(self, partition: Partition) -> None:
        """Check all requests that wait for the partition."""
        self.waiting.wake(partition.key)

    def replicated(self, partition: Partition, size: int) -> None:
        """Count the replicated bytes."""
        self.replication_bytes_in += size

    def truncated(self, partition: Partition, records: int) -> None:
        """Count the truncation, and wake requests that wait for the removed records."""
        self.truncated_records += records
        self.waiting.fetches.wake(partition.key)

    async def cut_is_synced(self, partition: Partition) -> None:
        """Take a lowered recovery point out of the checkpoint. Raises StorageError."""
        await self.upkeep.lower_recovery_point(partition.log)

    def sync_due(self, partition: Partition) -> None:
        """Sync the log on another thread."""
        self._counted_flushes.begin(partition)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller for a change of the in-sync set."""
        self.in_sync_sets.propose(partition, proposal)

    def moved(self, partition: Partition) -> None:
        """Report the new directory to the controller, and wake requests that wait for the log."""
        self.placement.observe(partition)
        self.changed(partition)

    def alter_directory(self, path: str, topic: str, index: int) -> ErrorCode:
        """Move a replica to the log directory at `path`. If it is there already, only another move of it is cancelled. If it does not exist
        yet, it will be created there."""
        if len(future_name(topic, index, bytes(16))) > NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        # DescribeLogDirs reports absolute paths; log.dirs may be relative.
        wanted = os.path.abspath(path)
        target = next((d for d in self.directories if os.path.abspath(d.path) == wanted and not d.is_offline), None)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        try:
            partition = self.require(topic, None, index)
        except ApiError as error:
            if target in self.cordons:
                return ErrorCode.INVALID_REPLICA_ASSIGNMENT
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                self.placement.prefer(topic, index, target)
            return ErrorCode.REPLICA_NOT_AVAILABLE if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else error.code
        if target in self.cordons and target.logs.get(partition.key) is not partition.log:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        try:
            self.moves.start(partition, target)
        except StorageError as error:
            logger.error("%s cannot be moved to %s: %s", partition, path, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

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
        """Append a coordinator's batch. Calls `on_complete(error, base_offset)` when it is replicated or has failed, perhaps at once."""
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
        """Call `on_complete(error, base_offset)`, perhaps at once, when everything before `required` is replicated, this leadership ends,
        or the time is up."""
        operation = _InternalAppend(partition, required, base_offset, on_complete)
        if not operation.try_complete():
            self.waiting.park(self.waiting.produces, operation, [partition.key], timeout_ms)

    # -- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start fetching and the periodic work."""
        interval_s = max(self._rules.lag_ms_max // 2, 1) / 1000
        self.upkeep.every("shrink", interval_s, lambda: self.in_sync_sets.look(self.partitions.values()))
        self.upkeep.start()
        await self.fetchers.start()

    def _resigning(self) -> Steps[None]:
        """Connections are still open, so make sure that nothing is written to a log that is being closed."""
        for partition, is_step in paced(list(self.partitions.values())):
            partition.resign()
            if is_step:
                yield

    async def stop(self, *, broker_epoch: int = -1) -> None:
        """Stop fetching, answer parked requests, write the checkpoints and the clean-shutdown file, close the logs."""
        self._stopping = True
        self.upkeep.cancel()
        await self.moves.stop()
        await self.fetchers.stop()
        await self.in_sync_sets.stop()
        await self._assignments.stop()
        await self._environment.shares.take(self._resigning())
        await self.waiting.close()
        await self._counted_flushes.finish()
        await self.upkeep.finish()
        await self.upkeep.flush_all()
        for directory in self.directories:
            try:
                await self._environment.run_blocking(directory.close, broker_epoch)
            except StorageError as error:
                logger.error("log directory %s cannot be closed cleanly: %s", directory.path, error)
