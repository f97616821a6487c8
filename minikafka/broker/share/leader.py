"""The share partitions that this broker leads.

They load their state from the share coordinator and write every change to it before a member is answered. They end with the leadership.

Rules: kafka.server.share.SharePartitionManager of Apache Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from minikafka.broker.config.group_rules import BY_DURATION, duration_ms
from minikafka.broker.share.persister import Failure
from minikafka.broker.supervise import Ends
from minikafka.core.share.acknowledgements import Acknowledgement
from minikafka.core.share.partition import DeadLetter, Done, SharePartition, ShareRules, Write
from minikafka.core.share.sessions import ShareSession, ShareSessions
from minikafka.core.share.state import SharePartitionKey, ShareState
from minikafka.core.share.state_batches import BATCHES_AT_ONCE, StateBatch, is_sound
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.share.dead_letters import DeadLetterQueues
    from minikafka.broker.share.persister import SharePersister
    from minikafka.broker.share.settings import ShareGroupSettings
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

logger = logging.getLogger("minikafka.coordinator")
#: Error of a share coordinator -> error for the member (SharePartition.fetchPersisterError).
_REPORTED = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # Why the share partition was dropped between two parts of a write.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
#: The earliest timestamp of a record.
TIMESTAMP_MIN = -(1 << 63)
#: Partitions in one request to share coordinators.
VERIFIED_AT_ONCE = 256
#: Partitions that are released in one turn of the loop when sessions end; each may start a write.
RELEASED_AT_ONCE = 64
#: After these errors the share partition is dropped; the next fetch loads it again.
_FENCED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class HeldSharePartition:
    """A share partition that this broker leads."""

    __slots__ = ("core", "error", "is_writing_letters", "key", "leader_epoch", "letters", "partition", "timer")

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        #: None until the state is loaded.
        self.core: SharePartition | None = None
        #: Why it was dropped; None while it is held.
        self.error: ErrorCode | None = None
        #: The timer of the next lock that expires, and its deadline in ms.
        self.timer: tuple[asyncio.TimerHandle, int] | None = None
        #: Records for the dead-letter queue, and whether some are on their way there.
        self.letters: deque[DeadLetter] = deque()
        self.is_writing_letters = False

    @property
    def wait_key(self) -> tuple[str, SharePartitionKey]:
        """The key that wakes fetches when records can be delivered again, in addition to the partition's own key."""
        return ("share", self.key)


class ShareLeader:
    """Share partitions by key.

    A share partition is held from the first fetch of its group until the group's last session on this broker ends, the leadership ends, or
    a share coordinator reports another leader.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        persister: SharePersister,
        settings: ShareGroupSettings,
        dead_letters: DeadLetterQueues,
    ) -> None:
        self._dead_letters = dead_letters
        self._environment = environment
        self._clock = environment.clock
        self._replicas = replicas
        self._metadata = metadata
        self._persister = persister
        self._settings = settings
        self._held: dict[SharePartitionKey, HeldSharePartition] = {}
        #: The held share partitions by the partition that this broker leads.
        self._by_partition: dict[Partition, dict[SharePartitionKey, HeldSharePartition]] = {}
        self.sessions = ShareSessions(config.group_share_max_share_sessions)
        replicas.subscribe_losses(self._lost)
        metadata.subscribe(self._metadata_changed)

    def stop(self) -> None:
        """Answer all pending writes: this broker no longer leads."""
        for held in list(self._held.values()):
            self._give_up(held, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- lookup and loading --------------------------------------------------------------------------------------------

    def get(self, key: SharePartitionKey) -> HeldSharePartition:
        """A share partition; its state may still be loading.

        Raises NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self._led(key)
        held = self._held.get(key)
        if held is not None and (held.partition is not partition or held.leader_epoch != partition.leader_epoch):
            self._drop(held, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            held = None
        if held is None:
            held = self._held[key] = HeldSharePartition(key, partition)
            self._by_partition.setdefault(partition, {})[key] = held
            self._environment.supervisor.start(self._load(held), "the state of a share partition", ends=self._ends(held))
        return held

    def _led(self, key: SharePartitionKey) -> Partition:
        topic = self._metadata.image.topics_by_id.get(key.topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._replicas.require(topic.name, key.topic_id, key.partition)
        partition.leading()
        return partition

    def is_held(self, held: HeldSharePartition) -> bool:
        """Whether the share partition was not dropped, and this broker still leads it in the same epoch."""
        partition = held.partition
        return self._held.get(held.key) is held and partition.leader is not None and partition.leader_epoch == held.leader_epoch

    def _ends(self, held: HeldSharePartition) -> Ends:
        """An unexpected failure drops this share partition only; the next fetch loads it again."""
        return Ends("share partition", lambda reason: self._give_up(held, ErrorCode.UNKNOWN_SERVER_ERROR))

    async def _load(self, held: HeldSharePartition) -> None:
        result = await self._persister.ask(ReadShareGroupStateRequest, held.key, leader_epoch=held.leader_epoch)
        if self._held.get(held.key) is not held:
            return
        code = ErrorCode(result.error_code)
        if code is not ErrorCode.NONE:
            self._drop(held, _REPORTED.get(code, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        try:
            start = await self._first_offset(held) if result.start_offset == -1 else result.start_offset
        except (ApiError, StorageError, CorruptRecord) as error:
            self._drop(held, error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if self._held.get(held.key) is not held:
            return
        batches = [StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in result.state_batches]
        unsound = next((batch for batch in batches if not is_sound(batch)), None)
        if unsound is not None:
            # Apache Kafka's leader fails here too. Deleting or altering the group's offsets repairs it.
            logger.error("The state of share partition %s is invalid: %s", held.key.text, unsound)
            self._drop(held, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        state = ShareState(0, result.state_epoch, held.leader_epoch, result.start_offset, -1, batches)
        held.core = SharePartition(state, start, self._rules(held.key.group_id))
        self.settle(held)
        self._wake(held)

    def is_known(self, key: SharePartitionKey) -> bool:
        """Whether the share partition is held, or its state is loading."""
        return key in self._held

    def verify(self, session: ShareSession, doubted: Sequence[HeldSharePartition]) -> None:
        """Ask share coordinators whether these partitions, which others fetch, still have the state that this broker holds.

        The offsets of a group without members may be altered, or deleted, while a former member still fetches. A member that joins then
        would read from the old state, and nothing if that is exhausted, until something is written. Apache Kafka's leader does not ask.
        """

        def drop(reason: str) -> None:
            for held in doubted:
                self._drop(held, ErrorCode.UNKNOWN_SERVER_ERROR)

        if doubted:
            ends = Ends("share partition", drop)
            self._environment.supervisor.start(self._verify(session, doubted), "the verification of share partitions", ends=ends)

    async def _verify(self, session: ShareSession, doubted: Sequence[HeldSharePartition]) -> None:
        try:
            for begin in range(0, len(doubted), VERIFIED_AT_ONCE):
                asked = doubted[begin : begin + VERIFIED_AT_ONCE]
                topics: dict[bytes, list[Any]] = {}
                for held in asked:
                    data = ReadShareGroupStateSummaryRequest.PartitionData(partition=held.key.partition, leader_epoch=held.leader_epoch)
                    topics.setdefault(held.key.topic_id, []).append(data)
                found = await self._persister.ask_all(ReadShareGroupStateSummaryRequest, session.group_id, topics)
                for held in asked:
                    self._verified(session, held, found[held.key.topic_id, held.key.partition])
        finally:
            for held in doubted:
                session.unverified.pop(held.key[1:], None)

    def _verified(self, session: ShareSession, held: HeldSharePartition, result: Any) -> None:
        """If the share coordinator did not answer, the state stays: a write would find out."""
        session.unverified.pop(held.key[1:], None)
        if result.error_code == ErrorCode.NONE and held.core is not None and result.state_epoch != held.core.state_epoch:
            self._drop(held, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self._wake(held)

    def _rules(self, group_id: str) -> Callable[[], ShareRules]:
        def rules() -> ShareRules:
            found = self._settings.rules(group_id)
            return ShareRules(
                found.record_lock_duration_ms, found.delivery_count_limit, found.partition_max_record_locks, found.is_renew_enabled,
                bool(found.dead_letter_topic),
            )  # fmt: skip

        return rules

    async def _first_offset(self, held: HeldSharePartition) -> int:
        """Where a new group starts (share.auto.offset.reset)."""
        log, strategy = held.partition.log, self._settings.rules(held.key.group_id).auto_offset_reset.strip().lower()
        if strategy == "earliest":
            return log.log_start_offset
        back_ms = duration_ms(strategy.removeprefix(BY_DURATION)) if strategy.startswith(BY_DURATION) else None
        if back_ms is not None:
            before = max(self._clock.wall_ms() - back_ms, TIMESTAMP_MIN)
            found = await self._environment.run_blocking(log.lookup_offset_for_timestamp, before)
            return log.high_watermark if found is None else int(found.offset)
        return log.high_watermark

    # -- changes -------------------------------------------------------------------------------------------------------

    def _wake(self, held: HeldSharePartition) -> None:
        self._replicas.waiting.fetches.wake(held.wait_key)

    def _drop(self, held: HeldSharePartition, code: ErrorCode) -> None:
        if self._held.get(held.key) is held:
            del self._held[held.key]
            others = self._by_partition[held.partition]
            del others[held.key]
            if not others:
                del self._by_partition[held.partition]
        held.error = code
        if held.timer is not None:
            held.timer[0].cancel()
            held.timer = None
        if held.core is not None:
            held.core.fence(code)
        self._wake(held)

    def _give_up(self, held: HeldSharePartition, code: ErrorCode) -> None:
        self._drop(held, code)
        if held.core is not None:
            # The write under way may be stored.
            held.core.abandon(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _lost(self, partition: Partition) -> None:
        for held in list(self._by_partition.get(partition, {}).values()):
            self._drop(held, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.deleted_topics:
            for held in [held for held in self._held.values() if held.key.topic_id in delta.deleted_topics]:
                self._drop(held, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def acknowledge(self, key: SharePartitionKey, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done) -> None:
        """Process a member's acknowledgements. `done` is called when they are written or refused, possibly before this returns."""
        held = self._held.get(key)
        try:
            self._led(key)
            if held is None or not self.is_held(held):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except ApiError as error:
            done(error.code, error.code.text)
            return
        if held.core is None:
            # All locks were lost with the previous leader.
            done(ErrorCode.INVALID_RECORD_STATE, "The share partition is loading.")
            return
        held.core.acknowledge(member_id, acknowledgements, done, self._clock.now_ms())
        self.settle(held)

    def release(self, sessions: Sequence[ShareSession]) -> None:
        """Sessions have ended: release their members' records, and drop groups without sessions when that is written.

        Long lists take several turns of the loop.
        """
        steps = self._releasing(sessions)
        for number, _ in enumerate(steps, 1):
            if number % RELEASED_AT_ONCE == 0:
                self._environment.supervisor.start(self._in_turns(steps), "the end of share sessions")
                break

    @staticmethod
    async def _in_turns(steps: Iterator[None]) -> None:
        await asyncio.sleep(0)
        for number, _ in enumerate(steps, 1):
            if number % RELEASED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _releasing(self, sessions: Sequence[ShareSession]) -> Iterator[None]:
        for session in sessions:
            for topic_id, index in session.partitions:
                if self.sessions.has(session.key):
                    # The member is back and keeps its records.
                    break
                held = self._held.get(SharePartitionKey(session.group_id, topic_id, index))
                if held is not None and held.core is not None:
                    held.core.release(session.member_id, lambda code, message: None)
                    self.settle(held)
                yield
        unused = {group_id for group_id in dict.fromkeys(session.group_id for session in sessions) if not self.sessions.is_used(group_id)}
        for held in list(self._held.values()) if unused else ():
            if held.key.group_id in unused:
                self._drop_unused(held)
                yield

    def _drop_unused(self, held: HeldSharePartition) -> None:
        is_unused = not self.sessions.is_used(held.key.group_id)
        if is_unused and self._held.get(held.key) is held and (held.core is None or held.core.is_quiet):
            self._drop(held, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def settle(self, held: HeldSharePartition) -> None:
        """Carry out what a share partition needs after a change: a write, records for the dead-letter queue, or a timer."""
        core = held.core
        if core is None or self._held.get(held.key) is not held:
            return
        write = core.take_write()
        if write is not None:
            self._environment.supervisor.start(self._write(held, core, write), "a write of a share partition", ends=self._ends(held))
        held.letters += core.take_dead_letters()
        if held.letters and not held.is_writing_letters:
            held.is_writing_letters = True
            self._environment.supervisor.start(self._write_letters(held, core), "dead letters of a share partition", ends=self._ends(held))
        deadline_ms = core.next_deadline()
        if deadline_ms is None or (held.timer is not None and held.timer[1] <= deadline_ms):
            return
        if held.timer is not None:
            held.timer[0].cancel()
        delay_s = max(deadline_ms - self._clock.now_ms(), 0) / 1000
        timer = self._environment.supervisor.call_later(delay_s, "locks of a share partition", self._due, held, ends=self._ends(held))
        held.timer = (timer, deadline_ms)

    def _due(self, held: HeldSharePartition) -> None:
        held.timer = None
        if held.core is not None and self._held.get(held.key) is held:
            has_released = held.core.on_deadline(self._clock.now_ms())
            self.settle(held)
            if has_released:
                self._wake(held)

    async def _write(self, held: HeldSharePartition, core: SharePartition, write: Write) -> None:
        code, message, may_be_stored = ErrorCode.NONE, None, False
        for part in write.parts(BATCHES_AT_ONCE):
            if held.error is not None:
                code = held.error
                break
            result = await self._stored(held, core, part)
            code, message = ErrorCode(result.error_code), result.error_message
            may_be_stored = may_be_stored or code is ErrorCode.NONE or (isinstance(result, Failure) and result.may_be_done)
            if code is not ErrorCode.NONE:
                break
        if code is ErrorCode.NONE:
            core.written(write.ticket)
            self._wake(held)
        else:
            reported = _REPORTED.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
            # NOT_LEADER_OR_FOLLOWER tells members that the records will be delivered again.
            is_certain = reported is not ErrorCode.NOT_LEADER_OR_FOLLOWER or not may_be_stored
            core.failed(write.ticket, reported if is_certain else ErrorCode.UNKNOWN_SERVER_ERROR, message, self._clock.now_ms())
            if reported in _FENCED and self._held.get(held.key) is held:
                self._drop(held, reported)
        self.settle(held)
        self._drop_unused(held)

    async def _stored(self, held: HeldSharePartition, core: SharePartition, write: Write) -> Any:
        kind = WriteShareGroupStateRequest.StateBatch
        return await self._persister.ask(
            WriteShareGroupStateRequest,
            held.key,
            state_epoch=core.state_epoch,
            leader_epoch=held.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=[kind(first_offset=b[0], last_offset=b[1], delivery_state=b[2], delivery_count=b[3]) for b in write.batches],
        )

    async def _write_letters(self, held: HeldSharePartition, core: SharePartition) -> None:
        """Write the entries one after the other, which bounds the requests in flight."""
        while held.letters and self._held.get(held.key) is held:
            letter = held.letters.popleft()
            await self._dead_letters.enqueue(held.key, held.partition, letter)
            if self._held.get(held.key) is held:
                core.buried(letter)
                self.settle(held)
                self._wake(held)
        held.is_writing_letters = False
        self._drop_unused(held)
