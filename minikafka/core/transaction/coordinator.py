"""One shard of the transaction coordinator: the transactional ids of one partition of `__transaction_state`.

A deterministic state machine. Requests come in with a callback and the wall time. Appends, markers and requests for producer ids go out
(`take_effects`). Committed records of the partition's log come back through `replay`. Rules: TransactionCoordinator and
TransactionStateManager of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from minikafka.core.coordinator.shard import Append, CoordinatorRecord, append_error
from minikafka.core.timers import DeadlineQueue
from minikafka.core.transaction.effects import Markers, TransactionConfig, TransactionEffects
from minikafka.core.transaction.records import transaction_from, transaction_key, transaction_value
from minikafka.core.transaction.state import (
    EPOCH_BUMP_VERSION_MIN,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREVIOUS_STATES,
    PartitionKey,
    Transaction,
    TransactionState,
    is_exhausted,
)
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.records.transaction_records import TransactionLogKey, TransactionLogValue

Done = Callable[[ErrorCode], None]
#: (error, producer id, producer epoch); id and epoch are -1 with an error.
DoneWithId = Callable[[ErrorCode, int, int], None]

#: Transactional ids that are examined in one turn of the event loop, and tombstones in one append.
LOOKS_MAX = 50
#: A marker that fails with one of these can never succeed: a later coordinator has written.
FENCED_MARKER = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
#: The partition cannot hold the transaction's records, so it needs no marker.
_NOTHING_TO_MARK = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})


class _Entry:
    """A transactional id: `current` is committed; `pending` is being written, None if nothing is. `unmarked` are the partitions that still
    lack their marker. `queued` are called, with the time, when the pending step is settled."""

    __slots__ = ("current", "pending", "queued", "unmarked")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        self.pending: Transaction | None = None
        self.unmarked: frozenset[PartitionKey] = frozenset()
        self.queued: list[Callable[[int], None]] = []


class TransactionShard:
    """The transactional ids of one coordinator partition.

    Invariants: an id changes its state only after the record is committed, one step at a time, along PREVIOUS_STATES. A request is answered
    once. Markers are requested only when the decision is committed, and Complete is written only when every partition has its marker.
    """

    def __init__(self, config: TransactionConfig, coordinator_epoch: int, transaction_version: Callable[[], int]) -> None:
        """`coordinator_epoch` is the leader epoch of the partition; `transaction_version` gives the cluster's finalized level."""
        self._config = config
        self.coordinator_epoch = coordinator_epoch
        self._transaction_version = transaction_version
        self._entries: dict[str, _Entry] = {}
        #: When open transactions time out, and when idle ids expire.
        self._timeouts: DeadlineQueue[str] = DeadlineQueue()
        self._expiries: DeadlineQueue[str] = DeadlineQueue()
        self._effects = TransactionEffects()
        self._resigned = False

    # -- the host's side -------------------------------------------------------------------------------------------

    def take_effects(self) -> TransactionEffects:
        """The effects that have accumulated since the last call."""
        effects, self._effects = self._effects, TransactionEffects()
        return effects

    def replay(self, key: Any, value: Any | None, producer_id: int = -1) -> None:
        """Apply one committed record. The state of an id changes only here."""
        if not isinstance(key, TransactionLogKey):
            return
        entry = self._entries.get(key.transactional_id)
        if value is None:
            self._entries.pop(key.transactional_id, None)
            return
        if entry is None:
            entry = self._entries[key.transactional_id] = _Entry(transaction_from(key, value))
        else:
            entry.current = _as_written(entry.pending, value) or transaction_from(key, value)
        if entry.current.state is TransactionState.ONGOING:
            self._timeouts.note(key.transactional_id, _timeout_ms(entry.current))
        elif entry.current.state.is_over:
            self._expiries.note(key.transactional_id, self._expiry_ms(entry.current))

    def _expiry_ms(self, current: Transaction) -> int:
        return current.update_ms + self._config.expiration_ms

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Does nothing: no records of this topic are written in a transaction."""

    def next_deadline(self) -> int | None:
        """None: the host looks for timeouts periodically with `abort_timed_out` and `remove_expired`."""
        return None

    def on_deadline(self, now_ms: int) -> None:
        """Does nothing: there are no deadlines."""

    def loaded(self, now_ms: int) -> None:
        """The log has been replayed and is committed: continue with the transactions whose outcome is decided."""
        for entry in self._entries.values():
            if entry.current.state.is_prepared:
                self._request_markers(entry, now_ms)

    def shutdown(self) -> None:
        """This broker no longer leads the partition: requests that wait for another step or for a producer id are answered."""
        self._resigned = True
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            self._run_queued(entry, 0)

    @property
    def transactions(self) -> list[Transaction]:
        """The committed state of every id, in the order of first appearance."""
        return [entry.current for entry in self._entries.values()]

    def find(self, transactional_id: str) -> Transaction | None:
        """The committed state of an id."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.current

    def pending_state(self, transactional_id: str) -> TransactionState | None:
        """The state that is being written, None if there is none."""
        entry = self._entries.get(transactional_id)
        return None if entry is None or entry.pending is None else entry.pending.state

    # -- InitProducerId --------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None, done: DoneWithId, now_ms: int
    ) -> None:
        """Give a producer id to a client that starts, or that continues after an error (`expected` is then its id and epoch, KIP-360)."""
        try:
            if not transactional_id:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            if not 0 < timeout_ms <= self._config.timeout_ms_max:
                raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            self._init(transactional_id, timeout_ms, expected, done, now_ms, NO_PRODUCER_ID)
        except ApiError as error:
            done(error.code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def _init(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None, done: DoneWithId, now_ms: int, fresh_id: int
    ) -> None:
        def again(producer_id: int, then_ms: int) -> None:
            self._init(transactional_id, timeout_ms, expected, done, then_ms, producer_id)

        entry = self._entries.get(transactional_id)
        if entry is None:
            if len(self._entries) >= self._config.ids_max:
                raise ApiError(ErrorCode.POLICY_VIOLATION)
            if fresh_id == NO_PRODUCER_ID:
                self._request_producer_id(again, done)
                return
            entry = self._entries[transactional_id] = _Entry(
                Transaction(transactional_id, producer_id=fresh_id, timeout_ms=timeout_ms, update_ms=now_ms)
            )
            self._expiries.note(transactional_id, self._expiry_ms(entry.current))
            fresh_id = NO_PRODUCER_ID
        current = entry.current
        if entry.pending is not None:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not _may_be_current(current, expected):
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if current.state.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state is TransactionState.ONGOING:
            # The client retries once the transaction is aborted, and gets a still higher epoch. No client ever gets this one.
            self._fence(entry, lambda code: done(_busy_if_none(code), NO_PRODUCER_ID, NO_PRODUCER_EPOCH), now_ms)
            return
        expected_epoch = None if expected is None else expected[1]
        if is_exhausted(current.producer_epoch) and expected_epoch in (None, current.producer_epoch, current.last_producer_epoch):
            if fresh_id == NO_PRODUCER_ID:
                self._request_producer_id(again, done)
                return
            target = current.with_new_producer_id(fresh_id, timeout_ms, expected_epoch, now_ms)
        else:
            target = current.with_next_epoch(timeout_ms, expected_epoch, now_ms)

        def stored(code: ErrorCode, then_ms: int) -> None:
            if code is ErrorCode.NONE:
                done(code, target.producer_id, target.producer_epoch)
            else:
                done(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

        self._store(entry, target, stored)

    def _request_producer_id(self, then: Callable[[int, int], None], done: DoneWithId) -> None:
        """Get a fresh producer id, then call `then(producer_id, now_ms)`. The state may have changed meanwhile, so `then` checks again."""

        def given(code: ErrorCode, producer_id: int, now_ms: int) -> None:
            if self._resigned:
                code = ErrorCode.NOT_COORDINATOR
            if code is ErrorCode.NONE:
                try:
                    then(producer_id, now_ms)
                    return
                except ApiError as error:
                    code = error.code
            done(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

        self._effects.ids.append(given)

    # -- AddPartitionsToTxn ----------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[PartitionKey],
        client_version: int,
        done: Done,
        now_ms: int,
    ) -> None:
        """Add partitions to the transaction, which begins with the first of them.

        Several leaders may ask at once for one transaction of version 2; each request waits for the one before.
        """
        try:
            entry = self._checked(transactional_id, producer_id, producer_epoch)
            if entry.pending is not None and entry.pending.state is TransactionState.ONGOING:
                entry.queued.append(
                    lambda then_ms: self.add_partitions(
                        transactional_id, producer_id, producer_epoch, partitions, client_version, done, then_ms
                    )
                )
                return
            current = entry.current
            if entry.pending is not None or current.state.is_prepared:
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
            if current.state is TransactionState.ONGOING and partitions <= current.partitions:
                done(ErrorCode.NONE)
                return
        except ApiError as error:
            done(error.code)
            return
        self._store(entry, current.with_partitions(partitions, client_version, now_ms), lambda code, then_ms: done(code))

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[PartitionKey]
    ) -> dict[PartitionKey, ErrorCode]:
        """Whether partitions belong to the open transaction: TRANSACTION_ABORTABLE for those that do not (KIP-890)."""
        requested = list(partitions)
        try:
            current = self._checked(transactional_id, producer_id, producer_epoch).current
            if current.state.is_prepared:
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        except ApiError as error:
            return dict.fromkeys(requested, error.code)
        return {key: ErrorCode.NONE if key in current.partitions else ErrorCode.TRANSACTION_ABORTABLE for key in requested}

    def _checked(self, transactional_id: str, producer_id: int, producer_epoch: int) -> _Entry:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if self._resigned:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        entry = self._entries.get(transactional_id)
        if entry is None or entry.current.producer_id != producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if entry.current.producer_epoch != producer_epoch or producer_epoch == EPOCH_MAX:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return entry

    # -- EndTxn ----------------------------------------------------------------------------------------------------

    def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool, client_version: int, done: DoneWithId, now_ms: int
    ) -> None:
        """Decide the outcome. The answer comes when the decision is committed; the markers follow."""
        try:
            self._end(transactional_id, producer_id, producer_epoch, commit, client_version, done, now_ms, NO_PRODUCER_ID)
        except ApiError as error:
            done(error.code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def _end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
        done: DoneWithId,
        now_ms: int,
        fresh_id: int,
    ) -> None:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        entry = self._entries.get(transactional_id)
        if entry is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        current = entry.current
        if client_version >= EPOCH_BUMP_VERSION_MIN:
            is_over = _check_end_v2(entry.current, entry.pending is not None, producer_id, producer_epoch, commit)
        else:
            is_over = _check_end_v1(entry.current, entry.pending is not None, producer_id, producer_epoch, commit)
        if is_over:
            is_new = client_version >= EPOCH_BUMP_VERSION_MIN
            if is_new and current.producer_epoch == EPOCH_MAX:
                # Aborted without its producer, in the last epoch: there is none for a next transaction.
                raise ApiError(ErrorCode.PRODUCER_FENCED)
            done(ErrorCode.NONE, current.producer_id if is_new else NO_PRODUCER_ID, current.producer_epoch if is_new else NO_PRODUCER_EPOCH)
            return
        if client_version >= EPOCH_BUMP_VERSION_MIN and is_exhausted(current.producer_epoch) and fresh_id == NO_PRODUCER_ID:

            def again(new_id: int, then_ms: int) -> None:
                self._end(transactional_id, producer_id, producer_epoch, commit, client_version, done, then_ms, new_id)

            self._request_producer_id(again, done)
            return
        target = current.prepared(commit=commit, client_version=client_version, next_producer_id=fresh_id, now_ms=now_ms)

        def stored(code: ErrorCode, then_ms: int) -> None:
            if code is not ErrorCode.NONE:
                done(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
                return
            after = entry.pending or entry.current
            if client_version >= EPOCH_BUMP_VERSION_MIN:
                done(ErrorCode.NONE, after.producer_id, after.producer_epoch)
            else:
                done(ErrorCode.NONE, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

        self._store(entry, target, stored, lambda then_ms: self._request_markers(entry, then_ms))

    def _fence(self, entry: _Entry, done: Done, now_ms: int) -> None:
        """Abort an open transaction with an epoch that its producer does not have."""
        version = self._transaction_version()
        target = entry.current.fenced(client_version=version if version >= EPOCH_BUMP_VERSION_MIN else 0, now_ms=now_ms)

        self._store(entry, target, lambda code, then_ms: done(code), lambda then_ms: self._request_markers(entry, then_ms))

    def abort_timed_out(self, now_ms: int) -> list[str]:
        """Abort transactions that have been open for longer than their timeout, and return their ids. `has_timed_out` tells whether there
        may be more."""
        found = self._take_due(self._timeouts, now_ms, lambda current: current.state is TransactionState.ONGOING, _timeout_ms)
        for entry in found:
            self._fence(entry, _ignore, now_ms)
        return [entry.current.transactional_id for entry in found]

    def has_timed_out(self, now_ms: int) -> bool:
        """Whether an id has to be looked at."""
        return _is_due(self._timeouts, now_ms)

    def _take_due(
        self, queue: DeadlineQueue[str], now_ms: int, concerns: Callable[[Transaction], bool], deadline_ms: Callable[[Transaction], int]
    ) -> list[_Entry]:
        """Ids whose time is up, at most LOOKS_MAX examined per call. They are examined again later in case their step is not written."""
        found: list[_Entry] = []
        for transactional_id in queue.take(now_ms, LOOKS_MAX):
            entry = self._entries.get(transactional_id)
            if entry is None or not concerns(entry.current):
                continue
            is_due = deadline_ms(entry.current) <= now_ms
            queue.note(transactional_id, now_ms + 1 if is_due else deadline_ms(entry.current))
            if is_due and entry.pending is None:
                found.append(entry)
        return found

    # -- markers ---------------------------------------------------------------------------------------------------

    def _request_markers(self, entry: _Entry, now_ms: int) -> None:
        """Request the markers of a transaction whose outcome is committed. When all are written, it is complete."""
        current = entry.current
        self._check_step(current, current.completed(now_ms))
        entry.pending = current.completed(now_ms)
        entry.unmarked = current.partitions
        if not entry.unmarked:
            self._complete(entry)
            return
        self._effects.markers.append(
            Markers(
                current.transactional_id,
                current.producer_id,
                current.producer_epoch,
                current.state is TransactionState.PREPARE_COMMIT,
                self.coordinator_epoch,
                current.client_version,
                current.partitions,
            )
        )

    def markers_answered(self, markers: Markers, results: dict[PartitionKey, ErrorCode], now_ms: int) -> frozenset[PartitionKey]:
        """Handle the results of markers. Returns the partitions to retry. A fenced marker ends the work on the id: a later coordinator has
        taken over."""
        entry = self._entries.get(markers.transactional_id)
        if entry is None or self._resigned or entry.pending is None or not entry.current.state.is_prepared:
            return frozenset()
        current = entry.current
        if (current.producer_id, current.producer_epoch) != (markers.producer_id, markers.producer_epoch):
            return frozenset()
        if any(code in FENCED_MARKER for code in results.values()):
            return frozenset()
        finished = frozenset(key for key, code in results.items() if code is ErrorCode.NONE or code in _NOTHING_TO_MARK)
        before, entry.unmarked = entry.unmarked, entry.unmarked - finished
        if before and not entry.unmarked:
            self._complete(entry)
        return frozenset(key for key in results if key in entry.unmarked)

    def _complete(self, entry: _Entry) -> None:
        target = entry.pending
        assert target is not None

        def again(then_ms: int) -> None:
            if not self._resigned:
                self._complete(entry)

        def settled(is_written: bool, now_ms: int) -> None:
            if is_written:
                entry.pending = None
                self._run_queued(entry, now_ms)
            else:
                self._effects.later.append(again)

        self._append(target, _ignore_result, settled)

    # -- expiry ----------------------------------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> list[str]:
        """Write tombstones for ids that were idle for transactional.id.expiration.ms, and return those ids. `has_expired` tells whether
        there may be more."""
        expired = self._take_due(self._expiries, now_ms, lambda current: current.state.is_over, self._expiry_ms)
        if not expired:
            return []
        for entry in expired:
            entry.pending = replace(entry.current, state=TransactionState.DEAD, partitions=frozenset())

        def settled(is_written: bool, then_ms: int) -> None:
            for entry in expired:
                entry.pending = None
                self._run_queued(entry, then_ms)

        records = [CoordinatorRecord(transaction_key(entry.current.transactional_id), None) for entry in expired]
        self._effects.appends.append(Append(records, _ignore_result, on_settled=settled))
        return [entry.current.transactional_id for entry in expired]

    def has_expired(self, now_ms: int) -> bool:
        """Whether an id has to be looked at."""
        return _is_due(self._expiries, now_ms)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _store(
        self,
        entry: _Entry,
        target: Transaction,
        stored: Callable[[ErrorCode, int], None],
        taken: Callable[[int], None] | None = None,
    ) -> None:
        """Write a step. Replay applies it when its record is committed; then `taken(now_ms)` is called. Until then nothing else happens to
        the id. `stored(error, now_ms)` answers the client, perhaps earlier, after a timeout."""
        assert entry.pending is None, f"{target.transactional_id}: a step to {target.state.label} while another is being written"
        self._check_step(entry.current, target)
        entry.pending = target

        def settled(is_written: bool, now_ms: int) -> None:
            entry.pending = None
            if is_written and taken is not None:
                taken(now_ms)
            self._run_queued(entry, now_ms)

        self._append(target, stored, settled)

    def _append(self, target: Transaction, done: Callable[[ErrorCode, int], None], settled: Callable[[bool, int], None]) -> None:
        value, version = transaction_value(target, self._transaction_version())
        record = CoordinatorRecord(transaction_key(target.transactional_id), value, version)

        def appended(error: ErrorCode, now_ms: int) -> None:
            done(ErrorCode.NOT_COORDINATOR if self._resigned else append_error(error), now_ms)

        self._effects.appends.append(Append([record], appended, on_settled=settled))

    @staticmethod
    def _run_queued(entry: _Entry, now_ms: int) -> None:
        queued, entry.queued = entry.queued, []
        for waiting in queued:
            waiting(now_ms)

    @staticmethod
    def _check_step(current: Transaction, target: Transaction) -> None:
        if current.state not in PREVIOUS_STATES[target.state]:
            raise AssertionError(f"{current.transactional_id}: {current.state.label} -> {target.state.label} is not a step")


def _timeout_ms(current: Transaction) -> int:
    """When an open transaction times out, in wall ms."""
    return current.start_ms + current.timeout_ms + 1


def _is_due(queue: DeadlineQueue[str], now_ms: int) -> bool:
    deadline_ms = queue.next_deadline()
    return deadline_ms is not None and deadline_ms <= now_ms


def _as_written(pending: Transaction | None, value: TransactionLogValue) -> Transaction | None:
    """The step that a record describes, if this shard wrote the record: it has fields that records do not hold, and its partitions, which
    may be very many, need not be made again."""
    if pending is not None and (pending.producer_id, pending.producer_epoch, pending.state.number, pending.update_ms) == (
        value.producer_id, value.producer_epoch, value.transaction_status, value.transaction_last_update_timestamp_ms
    ):  # fmt: skip
        return pending
    return None


def _may_be_current(current: Transaction, expected: tuple[int, int]) -> bool:
    """Whether a client that sends a producer id may be the current one. Its epoch is checked later (KIP-360)."""
    producer_id, epoch = expected
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == current.producer_id
        or (producer_id == current.previous_producer_id and is_exhausted(epoch))
    )


def _busy_if_none(code: ErrorCode) -> ErrorCode:
    return ErrorCode.CONCURRENT_TRANSACTIONS if code is ErrorCode.NONE else code


def _check_end_v1(current: Transaction, is_pending: bool, producer_id: int, producer_epoch: int, commit: bool) -> bool:
    """EndTxn of transactions before version 2. Returns True for a repetition of a request that is already done. Raises ApiError."""
    if current.producer_id != producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != producer_epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if is_pending:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    state = current.state
    if state is TransactionState.ONGOING:
        return False
    if state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
        return True
    if state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT):
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    raise ApiError(ErrorCode.INVALID_TXN_STATE)


def _check_end_v2(current: Transaction, is_pending: bool, producer_id: int, producer_epoch: int, commit: bool) -> bool:
    """EndTxn of version 2. An epoch one below the current one is a repetition. Returns True for one that is already done. Raises ApiError.

    A client may abort a transaction that it may not have begun, so an abort is accepted in every state without an open transaction.
    """
    state = current.state
    overflowed = current.previous_producer_id == producer_id and producer_epoch == EPOCH_MAX - 1 and current.producer_epoch == 0
    bumped = current.producer_epoch == producer_epoch + 1
    if current.producer_id != producer_id and not overflowed:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if state.is_prepared:
        # A client that already has the bumped epoch may try to end its next transaction: it has to wait for the markers.
        is_valid = bumped or producer_epoch == current.producer_epoch
    elif state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        is_valid = bumped or overflowed or producer_epoch == current.producer_epoch
    else:
        is_valid = producer_epoch == current.producer_epoch
    if not is_valid:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if is_pending or (state.is_prepared and not bumped):
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is TransactionState.ONGOING:
        return False
    if state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT):
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not state.is_prepared:
        if bumped or overflowed:
            if state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
                return True
        elif not commit:
            return False
    raise ApiError(ErrorCode.INVALID_TXN_STATE)


def _ignore(code: ErrorCode) -> None:
    """Ignores the result of aborting a timed-out transaction, which is examined again later."""


def _ignore_result(code: ErrorCode, now_ms: int) -> None:
    """Ignores the result: no client waits for it."""
