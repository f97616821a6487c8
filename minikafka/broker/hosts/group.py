"""Hosts the group coordinator: one shard per partition of `__consumer_offsets` that this broker leads."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Any

from minikafka.broker.hosts.coordinator_topic import CoordinatorTopic
from minikafka.core.group.config import GroupConfig
from minikafka.core.group.coordinator import GroupShard
from minikafka.core.group.effects import Append
from storage.batch_scan import marker_of
from storage.errors import StorageError
from wire.batch import build_batch, iterate_batches
from wire.errors import ApiError, ErrorCode, WireError
from wire.record import Record
from wire.records.frame import (
    decode_group_key,
    decode_group_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minikafka.broker.config import BrokerConfig
    from minikafka.broker.controller_channel import ControllerChannel
    from minikafka.broker.environment import Environment
    from minikafka.broker.hosts.metadata import MetadataHost
    from minikafka.broker.hosts.replicas import ReplicaManager
    from storage.log import Log

OFFSETS_TOPIC = "__consumer_offsets"
LOAD_CHUNK_BYTES = 1 << 20
#: Records that are replayed in one turn of the loop: some milliseconds.
LOAD_STEP_RECORDS = 500
logger = logging.getLogger("minikafka.group")


class _Load:
    """A partition that is being replayed; `deleted` are topics that went meanwhile."""

    __slots__ = ("deleted", "next", "records", "shard", "started_ms")

    def __init__(self, shard: GroupShard, started_ms: int) -> None:
        self.shard = shard
        self.started_ms = started_ms
        self.records = 0
        self.deleted: list[str] = []
        self.next: asyncio.Handle | None = None


class GroupHost:
    """Feeds the shards with requests, logs and time, and carries out what they ask for.

    Invariant: a shard exists exactly while this broker leads its partition and the partition's log has been replayed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        controller: ControllerChannel,
    ) -> None:
        self._config = config
        self._environment = environment
        self._replicas = replicas
        self._metadata = metadata
        self.topic = CoordinatorTopic(
            OFFSETS_TOPIC,
            metadata,
            controller,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
        self._shards: dict[int, GroupShard] = {}
        self._loads: dict[int, _Load] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._group_config = GroupConfig(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_size_max=config.group_max_size,
            offset_metadata_bytes_max=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )
        replicas.subscribe_leadership(OFFSETS_TOPIC, self._leadership_changed)
        metadata.subscribe(self._metadata_changed)

    async def start(self) -> None:
        """Begin the periodic expiry of offsets."""
        self._schedule_expiry()

    async def stop(self) -> None:
        """Answer what is parked and forget the shards."""
        if self._expiry is not None:
            self._expiry.cancel()
        self.topic.stop()
        for index in [*self._shards, *self._loads]:
            self._resign(index)

    # -- which shard -----------------------------------------------------------------------------------------------

    @property
    def group_counts(self) -> dict[str, int]:
        """Number of groups by state name, for the metrics."""
        counts: dict[str, int] = {}
        for shard in self._shards.values():
            for group in shard.groups.values():
                counts[group.state.value] = counts.get(group.state.value, 0) + 1
        return counts

    def loaded_shards(self) -> list[GroupShard]:
        """The shards that are loaded, in partition order."""
        return [self._shards[index] for index in sorted(self._shards)]

    def shards(self) -> list[GroupShard]:
        """The shards in partition order; raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        if self._loads:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [self._shards[index] for index in sorted(self._shards)]

    def partition_of(self, group_id: str) -> int | None:
        """The partition that coordinates the group; None while the offsets topic does not exist."""
        return self.topic.partition_of(group_id)

    def shard(self, group_id: str) -> tuple[int, GroupShard]:
        """The shard of a group; raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        index = self.partition_of(group_id)
        if index is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if index in self._loads:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        shard = self._shards.get(index)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return index, shard

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` when it is missing, and wait until it is there or time is up."""
        await self.topic.ensure()

    # -- metadata and leadership -----------------------------------------------------------------------------------

    def _metadata_changed(self, delta: Any, image: Any) -> None:
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        if deleted:
            for index, shard in list(self._shards.items()):
                shard.partitions_deleted(deleted)
                self.run_effects(index, shard)
            for load in self._loads.values():
                load.deleted += deleted

    def _leadership_changed(self, index: int, leader_epoch: int, is_leader: bool) -> None:
        self._resign(index)
        if is_leader:
            self._load(index)

    def _resign(self, index: int) -> None:
        load = self._loads.pop(index, None)
        if load is not None and load.next is not None:
            load.next.cancel()
        shard = self._shards.pop(index, None)
        timer = self._timers.pop(index, None)
        if timer is not None:
            timer.cancel()
        if shard is not None:
            shard.shutdown()
            for reply, response in shard.take_effects().answers:
                reply.respond(response)

    def _load(self, index: int) -> None:
        """Replay the partition. A long one is replayed in steps between which the loop works on: a coordinator of a million offsets would
        else be silent for longer than its session."""
        partition = self._replicas.partition(OFFSETS_TOPIC, index)
        if partition is None:
            return
        load = self._loads[index] = _Load(GroupShard(self._group_config, self._new_uuid, self._wall_ms), self._environment.clock.now_ms())
        self._go_on(index, load, self._steps(load, partition.log))

    def _go_on(self, index: int, load: _Load, steps: Iterator[None]) -> None:
        try:
            for _ in steps:
                load.next = self._environment.loop.call_soon(self._go_on, index, load, steps)
                return
        except (StorageError, WireError) as error:
            # The directory is offline now, and another broker will lead the partition and load its groups; or its log is corrupt, and
            # nobody coordinates them until another leads.
            logger.error("%s-%d cannot be loaded: %s", OFFSETS_TOPIC, index, error)
            del self._loads[index]
            return
        except BaseException:
            del self._loads[index]
            raise
        self._loaded(index, load)

    def _loaded(self, index: int, load: _Load) -> None:
        del self._loads[index]
        now_ms = self._environment.clock.now_ms()
        shard = self._shards[index] = load.shard
        shard.loaded(now_ms)
        if load.deleted:
            shard.partitions_deleted(load.deleted)
        if load.records:
            logger.info("loaded %d group records of %s-%d in %d ms", load.records, OFFSETS_TOPIC, index, now_ms - load.started_ms)
        self.run_effects(index, shard)

    def _steps(self, load: _Load, log: Log) -> Iterator[None]:
        """Raises StorageError; CorruptRecord for a batch that is not what its checksum says."""
        offset, due = log.log_start_offset, LOAD_STEP_RECORDS
        while offset < log.log_end_offset:
            result = log.read(offset, LOAD_CHUNK_BYTES, end_offset=log.log_end_offset)
            with log.disk("load the groups"):
                data = result.slice.read() if result is not None else b""
            if not data:
                break
            for batch in iterate_batches(memoryview(data)):
                batch.check()
                offset = batch.next_offset
                if batch.is_control:
                    marker = marker_of(batch)
                    if marker is not None:
                        load.shard.end_transaction(batch.producer_id, commit=not marker[0])
                    continue
                for record in batch.records():
                    load.records += 1
                    self._replay(load.shard, record, batch.producer_id if batch.is_transactional else -1)
                if load.records >= due:
                    due = load.records + LOAD_STEP_RECORDS
                    yield

    @staticmethod
    def _replay(shard: GroupShard, record: Record, producer_id: int) -> None:
        if record.key is None:
            return
        key = decode_group_key(bytes(record.key))
        if key is None:
            return
        value = decode_group_value(key, bytes(record.value)) if record.value is not None else None
        shard.replay(key, value, producer_id)

    def transaction_ended(self, index: int, producer_id: int, commit: bool) -> None:
        """A marker is committed in a partition of `__consumer_offsets`. A shard that is loaded later finds it in the log."""
        shard = self._shards.get(index)
        if shard is not None:
            shard.end_transaction(producer_id, commit)

    # -- effects ---------------------------------------------------------------------------------------------------

    def run_effects(self, index: int, shard: GroupShard) -> None:
        """Carry out what the shard asks for: appends first, then answers, then its next timer."""
        while effects := shard.take_effects():
            for append in effects.appends:
                self._append(index, shard, append)
            for reply, response in effects.answers:
                reply.respond(response)
        self._schedule(index, shard)

    def _append(self, index: int, shard: GroupShard, append: Append) -> None:
        wall_ms = self._environment.clock.wall_ms()
        batch = build_batch(
            (
                Record(
                    offset=number,
                    timestamp=wall_ms,
                    key=encode_coordinator_key(record.key),
                    value=None if record.value is None else encode_coordinator_value(record.value, record.value_version),
                    headers=(),
                )
                for number, record in enumerate(append.records)
            ),
            base_sequence=0,
            producer_id=-1 if append.producer is None else append.producer[0],
            producer_epoch=-1 if append.producer is None else append.producer[1],
            is_transactional=append.producer is not None,
        )

        def done(error: ErrorCode, base_offset: int) -> None:
            append.on_done(error, self._environment.clock.now_ms())
            if self._shards.get(index) is shard:
                self.run_effects(index, shard)
            else:
                for reply, response in shard.take_effects().answers:
                    reply.respond(response)

        self._replicas.append_records(
            OFFSETS_TOPIC, index, batch, -1, self._config.offsets_commit_timeout_ms, done, origin="coordinator"
        )

    def _schedule(self, index: int, shard: GroupShard) -> None:
        timer = self._timers.pop(index, None)
        if timer is not None:
            timer.cancel()
        deadline = shard.next_deadline()
        if deadline is None or self._shards.get(index) is not shard:
            return
        delay = max(deadline - self._environment.clock.now_ms(), 0) / 1000
        self._timers[index] = self._environment.loop.call_later(delay, self._on_timer, index, shard)

    def _on_timer(self, index: int, shard: GroupShard) -> None:
        self._timers.pop(index, None)
        if self._shards.get(index) is shard:
            shard.on_deadline(self._environment.clock.now_ms())
            self.run_effects(index, shard)

    def _schedule_expiry(self) -> None:
        interval = self._config.offsets_retention_check_interval_ms / 1000
        self._expiry = self._environment.loop.call_later(interval, self._expire)

    def _expire(self) -> None:
        for index, shard in list(self._shards.items()):
            shard.expire_offsets(self._environment.clock.now_ms())
            self.run_effects(index, shard)
        self._schedule_expiry()

    # -- what the shards are given -----------------------------------------------------------------------------------

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._environment.random.getrandbits(128), version=4))

    def _wall_ms(self, now_ms: int) -> int:
        clock = self._environment.clock
        return clock.wall_ms() - (clock.now_ms() - now_ms)

    def resolve_topic(self, name: str, topic_id: bytes, index: int) -> tuple[str, bytes] | None:
        """Name and id of a partition's topic, found by name or else by id; None when the cluster does not have it."""
        image = self._metadata.image
        topic = image.topics_by_name.get(name) if name else image.topics_by_id.get(topic_id)
        if topic is None or index not in topic.partitions:
            return None
        return topic.name, topic.topic_id
