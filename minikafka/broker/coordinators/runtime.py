"""Hosts coordinators: one shard for each partition of an internal topic that this broker leads.

Rules: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime of Apache Kafka 4.3, for one thread. A shard's state is exactly
the committed part of its log. The runtime reads the log from its start, during the load and ever after. The shard's own records,
transaction markers and all other records reach the shard in the same way. So the state in memory cannot differ from the log, whatever
arrives late, is lost or was written by others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from minikafka.broker.coordinators.loader import UNREADABLE, CommittedReader, Step, StepQueue, is_passing
from minikafka.broker.log_flush import SYNCS_BEFORE_ROLL, flush
from minikafka.broker.measures.durations import Window
from minikafka.broker.supervise import Ends
from minikafka.core.coordinator.reload import ReloadBackoff
from minikafka.core.coordinator.shard import Append, Shard
from minikafka.late_dataclass import dataclass
from minikafka.storage.errors import LogClosed, StorageError
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ApiError, ErrorCode, NotEncodable
from minikafka.wire.record import Record
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value

if TYPE_CHECKING:
    from minikafka.broker.coordinators.coordinator_topic import CoordinatorTopic
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import OnLeadership, ReplicaManager

logger = logging.getLogger("minikafka.coordinator")
S = TypeVar("S", bound=Shard)


def _ignore_offset(shard: Any, offset: int) -> None:
    """The default: most coordinators do not need the offsets of their records."""


@dataclass(frozen=True, slots=True)
class CoordinatorKind(Generic[S]):
    """Defines one kind of coordinator for the runtime."""

    #: The name of its records in the broker's log lines: "group", "transaction".
    name: str
    #: (partition, leader epoch) -> an empty shard.
    new_shard: Callable[[int, int], S]
    #: Decode a record's key, or return None for a record to ignore; decode the value for a key. Both raise WireError.
    decode_key: Callable[[bytes], Any | None]
    decode_value: Callable[[Any, bytes], Any]
    #: (partition, shard, effects): carry out all effects but appends, one for each item. The shard may have been shut down already.
    carry_out: Callable[[int, S, Any], Iterator[None]]
    #: (partition, shard): called when the shard starts to serve requests.
    on_loaded: Callable[[int, S], None]
    #: The clock of all times in the shards, in ms.
    now_ms: Callable[[], int]
    #: How long a request waits for the replication of its record, in ms; bytes read at once while a partition is loaded.
    append_timeout_ms: int
    load_buffer_bytes: int
    #: The base sequence of the shard's batches, as Kafka writes it; these batches have no sequence of a producer.
    base_sequence: int
    #: (shard, offset): called with the offset of the record that is replayed next.
    on_offset: Callable[[S, int], None] = _ignore_offset
    #: What to call instead at a change of leadership, until the kind is ready for its first shard.
    before_leadership: Callable[[OnLeadership], OnLeadership] = lambda changed: changed


@dataclass(slots=True)
class _Written:
    """An uncommitted batch of the shard itself."""

    first_offset: int
    next_offset: int
    append: Append
    deadline_ms: int
    is_answered: bool = False


class _Led(Generic[S]):
    """A partition that this broker leads.

    Invariants: the shard has replayed exactly the records before `reader.next_offset`, which never exceeds the high watermark. `written`
    holds the shard's own batches from there on, in the order of the log. `is_loaded` becomes true when everything before `end_offset`, the
    log end offset at the start of the leadership, is replayed; from then on the shard serves requests.
    """

    __slots__ = (
        "deadline", "effects", "end_offset", "has_refused", "index", "is_appending", "is_busy", "is_following", "is_loaded", "is_loading",
        "is_syncing", "leader_epoch", "next_turn", "partition", "pause", "reader", "rest", "shard", "started_ms", "syncs", "timeout",
        "written",
    )  # fmt: skip

    def __init__(self, index: int, leader_epoch: int, partition: Partition, shard: S, reader: CommittedReader, started_ms: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.partition = partition
        self.shard = shard
        self.reader = reader
        self.end_offset: int = partition.log.log_end_offset
        self.started_ms = started_ms
        self.written: deque[_Written] = deque()
        self.is_loaded = False
        self.is_loading = False
        self.is_busy = False
        self.is_appending = False
        #: Whether records that others wrote are replayed in steps. Effects wait meanwhile.
        self.is_following = False
        #: Whether the log is synced before a roll, and the effects that wait for it; others wait in the shard.
        self.is_syncing = False
        self.syncs = 0
        self.effects: Any = None
        #: What did not fit into a turn of the loop, and the next one. All other effects come after it.
        self.rest: Iterator[None] | None = None
        self.next_turn: asyncio.Handle | None = None
        #: Whether a failed append has been logged already. Clients may repeat the request often.
        self.has_refused = False
        #: The timer and time of the shard's next deadline; the timer of the oldest batch's time-out.
        self.deadline: tuple[asyncio.TimerHandle, int] | None = None
        self.timeout: asyncio.TimerHandle | None = None
        #: The timer of a load that has to wait.
        self.pause: asyncio.TimerHandle | None = None

    def cancel_timers(self) -> None:
        """Cancel all timers."""
        if self.next_turn is not None:
            self.next_turn.cancel()
        if self.pause is not None:
            self.pause.cancel()
        if self.deadline is not None:
            self.deadline[0].cancel()
        if self.timeout is not None:
            self.timeout.cancel()


class CoordinatorRuntime(Generic[S]):
    """Feeds shards with their logs and timers, and carries out their effects.

    A batch of a shard has one of two fates. Either it was not written, and the shard learns so at once; or it is in the log and takes
    effect when the high watermark passes it, however late. A request waits for it at most `append_timeout_ms`. If a disk fails during the
    write, the outcome is unknown: the shard is given up and loaded again. So is a shard that fails unexpectedly, after a pause if it has
    failed before (`ReloadBackoff`).
    """

    def __init__(
        self, kind: CoordinatorKind[S], environment: Environment, replicas: ReplicaManager, topic: CoordinatorTopic, steps: StepQueue
    ) -> None:
        self._kind = kind
        self._environment = environment
        self._clock = environment.clock
        self._replicas = replicas
        self.topic = topic
        self._steps = steps
        self._led: dict[int, _Led[S]] = {}
        #: The pauses of partitions that have failed in the current epoch.
        self._backoffs: dict[int, ReloadBackoff] = {}
        self._stopping = False
        #: How long it took to load each partition, in ms.
        self.loads = Window()
        replicas.subscribe_leadership(topic.name, kind.before_leadership(self._leadership_changed))
        replicas.subscribe_commits(topic.name, self._committed)

    def stop(self) -> None:
        """Answer all waiting requests and forget the shards."""
        self._stopping = True
        self._steps.stop()
        self.topic.stop()
        for led in list(self._led.values()):
            self._resign(led)

    # -- finding shards --------------------------------------------------------------------------------------------

    def shard(self, key: str) -> tuple[int, S]:
        """The shard of a group or transactional id. Raises COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR.

        A coordinator that may have been replaced answers NOT_COORDINATOR. Kafka's answers from memory, with a fatal error or old offsets.
        One that FindCoordinator names already, but whose partition is not opened yet, is loading. Kafka's answers NOT_COORDINATOR, and
        clients look for the coordinator again.
        """
        index = self.topic.partition_of(key)
        led = None if index is None else self._led.get(index)
        if index is not None and led is None and self._replicas.is_about_to_lead(self.topic.name, index):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if index is None or led is None or self._replicas.is_in_doubt(led.partition):
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not led.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return index, led.shard

    def shards(self) -> list[S]:
        """Every shard, in partition order. Raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        if not all(led.is_loaded for led in self._led.values()):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.loaded_shards()

    def loaded_shards(self) -> list[S]:
        """The shards that are loaded, in partition order."""
        return [shard for _, shard in self.loaded()]

    def loaded(self) -> list[tuple[int, S]]:
        """The loaded shards, each with its partition."""
        return [(index, led.shard) for index, led in sorted(self._led.items()) if led.is_loaded]

    def all_shards(self) -> list[tuple[int, S]]:
        """The shards that are loaded or being loaded, each with its partition."""
        return [(index, led.shard) for index, led in sorted(self._led.items())]

    def loading(self) -> list[int]:
        """The partitions that are being loaded."""
        return [index for index, led in self._led.items() if not led.is_loaded]

    def is_in_doubt(self, key: str) -> bool:
        """Whether this broker leads the key's partition as far as it knows, but may have been replaced."""
        index = self.topic.partition_of(key)
        led = None if index is None else self._led.get(index)
        return led is not None and self._replicas.is_in_doubt(led.partition)

    def is_current(self, index: int, shard: S) -> bool:
        """Whether this broker leads the partition and `shard` is its shard."""
        led = self._led.get(index)
        return led is not None and led.shard is shard

    # -- leadership and loading ------------------------------------------------------------------------------------

    def _leadership_changed(self, index: int, leader_epoch: int, is_leader: bool) -> None:
        led = self._led.get(index)
        if led is not None:
            self._resign(led)
        self._backoffs.pop(index, None)
        if is_leader and not self._stopping:
            self._load(index, leader_epoch)

    def _resign(self, led: _Led[S]) -> None:
        del self._led[led.index]
        led.cancel_timers()
        led.shard.shutdown()
        for written in led.written:
            if not written.is_answered:
                written.append.on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._kind.now_ms())
        led.written.clear()
        for _ in led.rest or ():
            pass
        waiting, led.effects = led.effects, None
        if waiting:
            self._fail(led.index, led.shard, waiting)
        self._drain(led.index, led.shard)

    def _drain(self, index: int, shard: S) -> None:
        """Fail the remaining appends of a shard that has been shut down and carry out its other effects, so that every request is
        answered."""
        while effects := shard.take_effects():
            self._fail(index, shard, effects)

    def _fail(self, index: int, shard: S, effects: Any) -> None:
        for append in effects.appends:
            append.on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._kind.now_ms())
        for _ in self._kind.carry_out(index, shard, effects):
            pass

    def _load(self, index: int, leader_epoch: int, pause_ms: int = 0) -> None:
        partition = self._replicas.partition(self.topic.name, index)
        if partition is None:
            return
        reader = CommittedReader(partition.log, self._kind.load_buffer_bytes, f"load the {self._kind.name}s")
        shard = self._kind.new_shard(index, leader_epoch)
        led = self._led[index] = _Led(index, leader_epoch, partition, shard, reader, self._clock.now_ms())
        if pause_ms:
            led.is_loading = True
            led.pause = self._call_later(pause_ms, self._load_on, led)
        else:
            self._load_on(led)

    def _load_on(self, led: _Led[S]) -> None:
        """Replay what is committed so far. `_committed` replays the rest."""
        led.is_loading = True
        self._steps.run(self._load_steps(led), lambda: None)

    def _load_steps(self, led: _Led[S]) -> Iterator[Step]:
        try:
            while self._is_current(led) and led.reader.next_offset < (end := min(_committed_end(led), led.end_offset)):
                for step in led.reader.read(end, *self._replayer(led)):
                    yield step
                    if not self._is_current(led):
                        return
            led.is_loading = False
            if self._is_current(led) and led.reader.next_offset >= led.end_offset:
                self._loaded(led)
        except UNREADABLE as error:
            self._unreadable(led, error)
        except Exception as error:
            # Loading again would fail again; another leader may succeed.
            given_up = Ends("shard", lambda reason: self._unreadable(led, reason))
            self._environment.supervisor.caught(f"the loading of {self.topic.name}-{led.index}", error, given_up)

    def _unreadable(self, led: _Led[S], error: object) -> None:
        """Give up loading. Either the directory is offline and another broker will load the partition, or the log is corrupt and its
        groups or transactions have no coordinator until another broker leads it. What passes is no reason: it is loaded again then."""
        if is_passing(error, led.partition.log):
            logger.warning("%s-%d cannot be loaded yet: %s", self.topic.name, led.index, error)
            self._reload(led)
            return
        logger.error("%s-%d cannot be loaded: %s", self.topic.name, led.index, error)
        if self._is_current(led):
            self._resign(led)

    def _loaded(self, led: _Led[S]) -> None:
        led.is_loaded = True
        now_ms = self._clock.now_ms()
        self.loads.record(now_ms - led.started_ms, now_ms)
        if led.reader.records:
            logger.info(
                "loaded %d %s records of %s-%d in %d ms",
                led.reader.records, self._kind.name, self.topic.name, led.index, now_ms - led.started_ms,
            )  # fmt: skip
        led.shard.loaded(self._kind.now_ms())
        self._go_on(led)
        if self._is_current(led):
            self._kind.on_loaded(led.index, led.shard)

    def _is_current(self, led: _Led[S]) -> bool:
        return self._led.get(led.index) is led

    # -- following the log -----------------------------------------------------------------------------------------

    def _committed(self, partition: Partition) -> None:
        """The high watermark of a partition has advanced."""
        led = self._led.get(partition.index)
        if led is None or led.partition is not partition:
            return
        if led.is_loaded:
            self._go_on(led)
        elif not led.is_loading:
            self._load_on(led)

    def _replayer(self, led: _Led[S]) -> tuple[Callable[[Record, int], None], Callable[[int, bool], None]]:
        decode_key, decode_value, shard = self._kind.decode_key, self._kind.decode_value, led.shard
        on_offset = self._kind.on_offset

        def on_record(record: Record, producer_id: int) -> None:
            key = None if record.key is None else decode_key(bytes(record.key))
            if key is not None:
                on_offset(shard, record.offset)
                shard.replay(key, None if record.value is None else decode_value(key, bytes(record.value)), producer_id)

        return on_record, shard.replay_marker

    def _go_on(self, led: _Led[S]) -> None:
        """Carry out effects and replay committed records until both are exhausted, or the turn's share is: very many transactions or
        members may be concerned at once. A nested call returns at once and leaves the work to the outer one (`is_busy`)."""
        is_held = led.is_busy or led.is_appending or led.is_following or led.is_syncing
        if is_held or led.next_turn is not None or not led.is_loaded:
            return
        led.is_busy = True
        is_over, work, led.rest = self._environment.shares.begin(), led.rest or self._work(led), None
        try:
            for _ in work:
                if is_over() and self._is_current(led):
                    led.rest = work
                    name = f"work of {self.topic.name}-{led.index}"
                    led.next_turn = self._environment.supervisor.call_soon(name, self._next_turn, led, ends=self._ends(led))
                    break
        except Exception as error:
            self._not_followed(led, error)
        finally:
            led.is_busy = False

    def _next_turn(self, led: _Led[S]) -> None:
        led.next_turn = None
        self._go_on(led)

    def _work(self, led: _Led[S]) -> Iterator[None]:
        while self._is_current(led) and not led.is_following:
            effects, led.effects = led.effects or led.shard.take_effects(), None
            if effects:
                if effects.appends and self._syncs_first(led):
                    led.effects = effects
                    return
                for append in effects.appends:
                    self._append(led, append)
                    yield
                yield from self._kind.carry_out(led.index, led.shard, effects)
            elif self._replay_next(led):
                yield
            else:
                self._schedule(led)
                return

    def _syncs_first(self, led: _Led[S]) -> bool:
        """Whether the log is synced in a thread, to begin a segment, before anything is appended."""
        if led.syncs >= SYNCS_BEFORE_ROLL or not led.partition.log.must_sync_soon(self._clock.wall_ms()):
            led.syncs = 0
            return False
        led.is_syncing = True
        led.syncs += 1
        name = f"a roll of {self.topic.name}-{led.index}"
        self._environment.supervisor.start(self._roll_beside(led), name, ends=self._ends(led))
        return True

    async def _roll_beside(self, led: _Led[S]) -> None:
        log = led.partition.log
        try:
            await flush(log, self._environment.run_blocking)
            if log.failure is None:
                log.roll_if_synced(self._clock.wall_ms())
        except StorageError as error:
            if not isinstance(error, LogClosed):  # by a move: the append that waits goes to the copy, or will say so, too
                logger.error("%s-%d cannot be synced before a roll: %s", self.topic.name, led.index, error)
        finally:
            led.is_syncing = False
        if self._is_current(led):
            self._go_on(led)

    def _not_followed(self, led: _Led[S], error: Exception) -> None:
        if isinstance(error, UNREADABLE):
            logger.error("%s-%d cannot be followed and is loaded again: %s", self.topic.name, led.index, error)
            self._reload(led)
        else:
            self._environment.supervisor.caught(f"the coordinator of {self.topic.name}-{led.index}", error, self._ends(led))

    def _replay_next(self, led: _Led[S]) -> bool:
        """Replay the next batch of the shard itself, or the records of others before it. Returns False if nothing more is committed."""
        reader, end = led.reader, _committed_end(led)
        if reader.next_offset >= end:
            return False
        first = led.written[0] if led.written else None
        if first is None or reader.next_offset < first.first_offset:
            steps = reader.read(end if first is None else min(end, first.first_offset), *self._replayer(led))
            for step in steps:
                led.is_following = True
                self._steps.run(self._following(led, step, steps), lambda: self._go_on(led))
                break
            return True
        if first.next_offset > end:
            return False
        led.written.popleft()
        append = first.append
        producer_id = -1 if append.producer is None else append.producer[0]
        for offset, record in enumerate(append.records, first.first_offset):
            self._kind.on_offset(led.shard, offset)
            led.shard.replay(record.key, record.value, producer_id)
        reader.next_offset = first.next_offset
        now_ms = self._kind.now_ms()
        append.on_settled(True, now_ms)
        if not first.is_answered:
            append.on_done(ErrorCode.NONE, now_ms)
        return True

    def _following(self, led: _Led[S], step: Step, steps: Iterator[Step]) -> Iterator[Step]:
        """Replay records of others that are many or have to be decompressed: `step` and those that follow it."""
        try:
            for following in itertools.chain([step], steps):
                yield following
                if not self._is_current(led):
                    return
        except Exception as error:
            self._not_followed(led, error)
        finally:
            led.is_following = False

    def _reload(self, led: _Led[S]) -> None:
        if self._is_current(led):
            self._resign(led)
            pause_ms = self._backoffs.setdefault(led.index, ReloadBackoff()).failed(self._clock.now_ms())
            self._load(led.index, led.leader_epoch, pause_ms)

    # -- effects ---------------------------------------------------------------------------------------------------

    def run(self, index: int, shard: S) -> None:
        """Carry out the shard's effects, appends first."""
        led = self._led.get(index)
        if led is not None and led.shard is shard:
            self._go_on(led)
        else:
            self._drain(index, shard)

    def run_steps(self, index: int, shard: S, work: Iterator[None]) -> None:
        """Let the shard do long work in steps, and carry out its effects after each step. The work ends with the leadership; its failure
        ends the shard."""
        ends = self.ends(index, shard)

        def while_led() -> Iterator[None]:
            with self._environment.supervisor.watching(f"work of {self.topic.name}-{index}", ends=ends):
                for _ in work:
                    yield
                    if not self.is_current(index, shard):
                        return

        self.run(index, shard)
        self._steps.run(while_led(), lambda: self.run(index, shard))

    def _append(self, led: _Led[S], append: Append) -> None:
        if not self._is_current(led):
            append.on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._kind.now_ms())
            return
        led.is_appending = True
        try:
            partition = self._replicas.require(self.topic.name, None, led.index)
            if partition is not led.partition or partition.leader_epoch != led.leader_epoch:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            append.check()
            batch = memoryview(self._batch(append))
            info = partition.append(batch, -1, self._clock.wall_ms(), self._clock.now_ms(), origin="coordinator")
        except ApiError as error:
            led.is_appending = False
            self._not_written(led, append, error.code)
            return
        except NotEncodable as error:
            # The log may hold the largest epoch there is, written by someone else. Only the sender of this request is concerned.
            led.is_appending = False
            level, led.has_refused = logging.DEBUG if led.has_refused else logging.ERROR, True
            logger.log(level, "%s-%d: cannot write a batch: %s", self.topic.name, led.index, error)
            self._not_written(led, append, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        led.is_appending = False
        deadline_ms = self._clock.now_ms() + self._kind.append_timeout_ms
        led.written.append(_Written(info.first_offset, info.last_offset + 1, append, deadline_ms))
        if led.timeout is None:
            led.timeout = self._call_later(self._kind.append_timeout_ms, self._time_out, led)

    def _not_written(self, led: _Led[S], append: Append, code: ErrorCode) -> None:
        now_ms = self._kind.now_ms()
        append.on_settled(False, now_ms)
        append.on_done(code, now_ms)
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            # Part of the batch may be in the log.
            self._reload(led)

    def _batch(self, append: Append) -> bytearray:
        wall_ms = self._clock.wall_ms()
        return build_batch(
            (
                Record(
                    offset=number,
                    timestamp=wall_ms,
                    key=encode_coordinator_key(record.key),
                    value=None if record.value is None else encode_coordinator_value(record.value, record.version),
                    headers=(),
                )
                for number, record in enumerate(append.records)
            ),
            base_sequence=self._kind.base_sequence,
            producer_id=-1 if append.producer is None else append.producer[0],
            producer_epoch=-1 if append.producer is None else append.producer[1],
            is_transactional=append.producer is not None,
        )

    # -- timers ----------------------------------------------------------------------------------------------------

    def _call_later(self, delay_ms: int, work: Callable[[_Led[S]], None], led: _Led[S]) -> asyncio.TimerHandle:
        name = f"timers of {self._kind.name}s"
        return self._environment.supervisor.call_later(delay_ms / 1000, name, work, led, ends=self._ends(led))

    def ends(self, index: int, shard: S) -> Ends:
        """Failed background work of a shard ends the shard."""
        led = self._led.get(index)
        return Ends("shard", lambda reason: None) if led is None or led.shard is not shard else self._ends(led)

    def _ends(self, led: _Led[S]) -> Ends:
        """A shard that fails unexpectedly is given up and loaded again from its log."""
        return Ends("shard", lambda reason: self._reload(led))

    def _time_out(self, led: _Led[S]) -> None:
        """Answer requests that have waited too long. Their records stay in the log."""
        led.timeout = None
        now_ms = self._clock.now_ms()
        for written in led.written:
            if written.deadline_ms > now_ms:
                break
            if not written.is_answered:
                written.is_answered = True
                written.append.on_done(ErrorCode.REQUEST_TIMED_OUT, self._kind.now_ms())
        waiting = next((written for written in led.written if not written.is_answered), None)
        if waiting is not None:
            led.timeout = self._call_later(max(waiting.deadline_ms - now_ms, 1), self._time_out, led)
        self._go_on(led)

    def _schedule(self, led: _Led[S]) -> None:
        """Schedule `_due` no later than the shard's next deadline. A call that comes early does nothing."""
        deadline_ms = led.shard.next_deadline()
        if deadline_ms is None or (led.deadline is not None and led.deadline[1] <= deadline_ms):
            return
        if led.deadline is not None:
            led.deadline[0].cancel()
        led.deadline = (self._call_later(max(deadline_ms - self._kind.now_ms(), 0), self._due, led), deadline_ms)

    def _due(self, led: _Led[S]) -> None:
        led.deadline = None
        led.shard.on_deadline(self._kind.now_ms())
        self._go_on(led)


def _committed_end(led: _Led[Any]) -> int:
    """The end offset (exclusive) of the records that no election can remove."""
    return led.partition.log.high_watermark
