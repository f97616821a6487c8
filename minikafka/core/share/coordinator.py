"""One shard of the share coordinator: the state of the share partitions in one partition of `__share_group_state`.

Rules: org.apache.kafka.coordinator.share.ShareCoordinatorShard of Apache Kafka 4.3. A share partition changes one step at a time. A
decision based on uncommitted state could let a leader write that a later leader has fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from minikafka.core.coordinator.shard import Append, CoordinatorRecord, append_error
from minikafka.core.group.consumer.topics import Topics
from minikafka.core.group.consumer.turns import Turns
from minikafka.core.share.state import SharePartitionKey, ShareState, snapshot_record, state_of, tombstone, update_record
from minikafka.core.share.state_batches import StateBatch, combine, is_sound
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.share_records import ShareSnapshotKey, ShareUpdateKey

#: Share partitions that are processed in one step, and records in one batch.
STEP_PARTITIONS = 2000
BATCH_RECORDS_MAX = 100
NEGATIVE_PARTITION = "The partition id cannot be a negative number."
NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
UNSOUND = "A leader could not continue from one of the state batches."
UNINITIALIZED = "{} operation on uninitialized share partition not allowed."


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """`partitions_max`: most share partitions of one shard; Kafka has no limit."""

    updates_per_snapshot: int = 500
    cold_interval_ms: int = 300_000
    partitions_max: int = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request for one share partition. `state` is set for a successful read only."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: ShareState | None = None


#: Called once with the result of a request.
Reply = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A write of a leader. A `start_offset` of -1 leaves the offset unchanged; epochs of -1 are not checked."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


@dataclass(slots=True)
class ShareEffects:
    """Appends are carried out before answers are sent."""

    appends: list[Append] = field(default_factory=list)
    answers: list[tuple[Reply, Outcome]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers)


@dataclass(slots=True)
class _Held:
    """A share partition. The `_max` epochs are the highest ever seen. `offset`: of the last snapshot in the log. `is_in_use`: whether a
    leader has used the state since it began. `updates`: updates since the last snapshot."""

    state: ShareState
    leader_epoch_max: int
    state_epoch_max: int
    offset: int
    is_in_use: bool
    updates: int = 0


class ShareStateShard:
    """The share partitions of one coordinator partition. Only replay changes it."""

    def __init__(self, config: ShareCoordinatorConfig, topics: Topics, wall_ms: Callable[[], int]) -> None:
        self._config = config
        self._topics = topics
        self._wall_ms = wall_ms
        self._effects = ShareEffects()
        self._turns = Turns()
        self._held: dict[SharePartitionKey, _Held] = {}
        #: The offset of the record that is replayed next; the host sets it.
        self.offset = -1

    # -- the host's side: minikafka.core.coordinator.shard.Shard --------------------------------------------------------

    def take_effects(self) -> ShareEffects:
        """The effects that have accumulated since the last call."""
        effects, self._effects = self._effects, ShareEffects()
        return effects

    def next_deadline(self) -> int | None:
        """None: there are no deadlines."""
        return None

    def on_deadline(self, now_ms: int) -> None:
        """Does nothing: there are no deadlines."""

    def loaded(self, now_ms: int) -> None:
        """Does nothing: there are no timers to start."""

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Does nothing: no records of this topic are written in a transaction."""

    def shutdown(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR."""
        self._turns.shutdown(0)

    def replay(self, key: Any, value: Any, producer_id: int = -1) -> None:
        """Apply one committed record."""
        partition = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        held = self._held.get(partition)
        if isinstance(key, ShareSnapshotKey):
            if value is None:
                self._held.pop(partition, None)
                return
            state = state_of(value)
            if held is None:
                self._held[partition] = _Held(state, state.leader_epoch, state.state_epoch, self.offset, not state.looks_new)
                return
            held.is_in_use = not state.looks_new or (held.is_in_use and state.state_epoch == held.state.state_epoch)
            held.state, held.updates, held.offset = state, 0, self.offset
            held.leader_epoch_max = max(held.leader_epoch_max, state.leader_epoch)
            held.state_epoch_max = max(held.state_epoch_max, state.state_epoch)
        elif isinstance(key, ShareUpdateKey) and value is not None and held is not None:
            # An update without a snapshot is left over from a deletion, and is ignored.
            held.state = held.state.merged(value)
            held.leader_epoch_max = max(held.leader_epoch_max, value.leader_epoch)
            held.updates += 1
            held.is_in_use = True

    # -- requests --------------------------------------------------------------------------------------------------------

    def initialize(self, reply: Reply, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int) -> None:
        """InitializeShareGroupState of one share partition.

        A request may be an earlier try that arrives late, when members have acknowledged records already. So one without a start offset
        begins a state and never resets one, and one with a start offset resets no state of its own epoch that a leader has used. A group
        whose offsets are altered is empty, and its epoch has grown since it had members. Apache Kafka resets the state.

        One without a start offset takes an existing state into its epoch: before members get the partition, it fences an alteration of
        which its group's coordinator never heard whether it was made, and which may yet arrive.
        """

        def work() -> CoordinatorRecord | Outcome:
            if state_epoch < 0:
                return Outcome(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)
            held = self._held.get(key)
            if held is not None and state_epoch < held.state_epoch_max:
                return _refused(ErrorCode.FENCED_STATE_EPOCH)
            if not self._exists(key):
                return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if held is not None and start_offset == -1 and state_epoch > held.state_epoch_max:
                snapshot_epoch = held.state.snapshot_epoch + 1
                return snapshot_record(key, replace(held.state, snapshot_epoch=snapshot_epoch, state_epoch=state_epoch))
            if held is not None and (start_offset == -1 or (state_epoch == held.state_epoch_max and held.is_in_use)):
                return Outcome(ErrorCode.NONE)
            if held is None and len(self._held) >= self._config.partitions_max:
                return _refused(ErrorCode.POLICY_VIOLATION)
            wall_ms = self._wall_ms()
            snapshot_epoch = 0 if held is None else held.state.snapshot_epoch + 1
            complete = -1 if start_offset == -1 else 0
            state = ShareState(snapshot_epoch, state_epoch, 0, start_offset, complete, (), wall_ms, wall_ms)
            return snapshot_record(key, state)

        self._change(reply, key, work, "initialize share group state", now_ms)

    def write(self, reply: Reply, key: SharePartitionKey, write: StateWrite, now_ms: int) -> None:
        """WriteShareGroupState of one share partition.

        The start offset of a state never goes back. A write that would move it back is an earlier try that arrives late, when the state has
        forgotten which of those records were acknowledged. Apache Kafka moves it back, and the records are delivered again.
        """

        def work() -> CoordinatorRecord | Outcome:
            negative = NEGATIVE_LEADER_EPOCH if write.leader_epoch < 0 else NEGATIVE_STATE_EPOCH if write.state_epoch < 0 else None
            if negative:
                return Outcome(ErrorCode.INVALID_REQUEST, negative)
            held = self._held.get(key)
            if held is None:
                return Outcome(ErrorCode.INVALID_REQUEST, UNINITIALIZED.format("Write"))
            if write.leader_epoch < held.leader_epoch_max:
                return _refused(ErrorCode.FENCED_LEADER_EPOCH)
            if write.state_epoch < held.state_epoch_max:
                return _refused(ErrorCode.FENCED_STATE_EPOCH)
            if not all(map(is_sound, write.batches)):
                return Outcome(ErrorCode.INVALID_REQUEST, UNSOUND)
            if not self._exists(key):
                return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self._next_record(key, held, _not_before(held.state, write), held.state.leader_epoch)

        self._change(reply, key, work, "write share group state", now_ms)

    def read(self, reply: Reply, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> None:
        """ReadShareGroupState of one share partition by its leader. From then on earlier leaders are fenced."""

        def work() -> CoordinatorRecord | Outcome:
            if leader_epoch < 0:
                return Outcome(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
            held = self._held.get(key)
            if held is None:
                return Outcome(ErrorCode.INVALID_REQUEST, UNINITIALIZED.format("Read"))
            if leader_epoch < held.leader_epoch_max:
                return _refused(ErrorCode.FENCED_LEADER_EPOCH)
            if not self._exists(key):
                return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            state = held.state
            if leader_epoch == held.leader_epoch_max:
                return Outcome(state=state)
            write = StateWrite(state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, ())
            return self._next_record(key, held, write, leader_epoch)

        self._change(reply, key, work, "read share group state", now_ms, returns_state=True)

    def read_summary(self, key: SharePartitionKey) -> Outcome:
        """ReadShareGroupStateSummary of one share partition. Without a state the answer says that it is uninitialized."""
        if key.partition < 0:
            return Outcome(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        if not self._exists(key):
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        held = self._held.get(key)
        return Outcome(state=ShareState(0, 0, 0, -1, -1) if held is None else held.state)

    def delete(self, reply: Reply, key: SharePartitionKey, now_ms: int) -> None:
        """DeleteShareGroupState of one share partition. Deleting one that does not exist succeeds."""

        def work() -> CoordinatorRecord | Outcome:
            if not self._exists(key):
                return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return tombstone(key) if key in self._held else Outcome()

        self._change(reply, key, work, "delete share group state", now_ms)

    def _exists(self, key: SharePartitionKey) -> bool:
        topic = self._topics.by_id(key.topic_id)
        return topic is not None and key.partition < topic.partition_count

    def _next_record(self, key: SharePartitionKey, held: _Held, write: StateWrite, leader_epoch: int) -> CoordinatorRecord:
        state, start = held.state, write.start_offset
        # The first record of a leader is an update: a snapshot of what is settled may look like the beginning of a state.
        if held.updates < self._config.updates_per_snapshot or not held.is_in_use:
            batches = combine((), write.batches, start)
            changed = replace(
                state,
                leader_epoch=leader_epoch,
                start_offset=start,
                delivery_complete_count=write.delivery_complete_count,
                batches=batches,
            )
            return update_record(key, changed)
        start = state.start_offset if start == -1 else start
        wall_ms = self._wall_ms()
        snapshot = replace(
            state,
            snapshot_epoch=state.snapshot_epoch + 1,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=write.delivery_complete_count,
            batches=combine(state.batches, write.batches, start),
            create_wall_ms=wall_ms,
            write_wall_ms=wall_ms,
        )
        return snapshot_record(key, snapshot)

    def _change(
        self,
        reply: Reply,
        key: SharePartitionKey,
        work: Callable[[], CoordinatorRecord | Outcome],
        what: str,
        now_ms: int,
        *,
        returns_state: bool = False,
    ) -> None:
        """Call `work` in the share partition's turn, and write the record that it returns, or answer with the outcome that it returns."""

        def refuse(code: ErrorCode, at_ms: int) -> None:
            self._effects.answers.append((reply, Outcome(code, f"Unable to {what}: {code.text}")))

        def done(error: ErrorCode, at_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self._turns.stalled(key.text, at_ms)
            if error is not ErrorCode.NONE:
                refuse(append_error(error), at_ms)
            else:
                held = self._held.get(key) if returns_state else None
                self._effects.answers.append((reply, Outcome(state=None if held is None else held.state)))

        def run(at_ms: int) -> bool:
            decided = work()
            if isinstance(decided, Outcome):
                self._effects.answers.append((reply, decided))
                return False
            self._effects.appends.append(Append([decided], done, None, lambda is_written, then_ms: self._turns.settled(key.text, then_ms)))
            return True

        if key.partition < 0:
            self._effects.answers.append((reply, Outcome(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)))
        else:
            self._turns.run(key.text, run, refuse, now_ms)

    # -- without a request -----------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of share partitions."""
        return len(self._held)

    def last_redundant_offset(self) -> int | None:
        """The offset before which everything in the log is superseded; None if nothing is."""
        offset = min((held.offset for held in self._held.values()), default=0)
        return offset if offset > 0 else None

    def snapshot_cold(self, now_ms: int) -> Iterator[None]:
        """Write snapshots of share partitions without recent writes, in steps, so that older parts of the log can be deleted."""
        due_ms = self._wall_ms() - self._config.cold_interval_ms
        if all(held.state.create_wall_ms != held.state.write_wall_ms for held in self._held.values()):
            return
        for key in self._stepwise():
            if key is None:
                yield
                continue
            held = self._held.get(key)
            if held is not None and held.state.write_wall_ms <= due_ms:
                self._snapshot(key, now_ms)

    def _snapshot(self, key: SharePartitionKey, now_ms: int) -> None:
        def work() -> CoordinatorRecord | Outcome:
            held = self._held.get(key)
            if held is None:
                return Outcome()
            state = replace(held.state, snapshot_epoch=held.state.snapshot_epoch + 1, write_wall_ms=self._wall_ms())
            return snapshot_record(key, state)

        self._change(_ignore, key, work, "snapshot share group state", now_ms)

    def topics_deleted(self, topic_ids: Collection[bytes], now_ms: int) -> Iterator[None]:
        """Topics were deleted from the cluster: delete their states, in steps."""
        gone = frozenset(topic_ids)
        for key in self._stepwise():
            if key is None:
                yield
            elif key.topic_id in gone:
                self._change(_ignore, key, lambda key=key: tombstone(key) if key in self._held else Outcome(), "", now_ms)  # type: ignore[misc]

    def _stepwise(self) -> Iterator[SharePartitionKey | None]:
        """All keys, with None at the end of each step."""
        for number, key in enumerate(list(self._held), 1):
            yield key
            if number % STEP_PARTITIONS == 0 or len(self._effects.appends) >= BATCH_RECORDS_MAX:
                yield None


def _not_before(state: ShareState, write: StateWrite) -> StateWrite:
    """The write without what comes before the start offset of the state."""
    if not -1 < write.start_offset < state.start_offset:
        return write
    return replace(write, start_offset=state.start_offset, delivery_complete_count=state.delivery_complete_count)


def _refused(code: ErrorCode) -> Outcome:
    return Outcome(code, code.text)


def _ignore(outcome: Outcome) -> None:
    """Ignores the outcome: the next check tries again."""
