"""The rules of transactions that mutants break (minikafka.sim.mutants), as `mutations` for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wire.errors import ErrorCode

COORDINATOR = "minikafka.core.transaction.coordinator"
SHARD = f"{COORDINATOR}:TransactionShard"
MARKERS = "minikafka.broker.hosts.transaction_markers"
STATE_TOPIC = "__transaction_state"


def _constant(value: Any) -> Any:
    return lambda original: lambda *_, **__: value


def _lose_a_marker(original: Any) -> Any:
    def write_one(self: Any, marker: Any, key: tuple[str, int], done: Any) -> None:
        if key[1] == 1:
            done(ErrorCode.NONE)
        else:
            original(self, marker, key, done)

    return write_one


def _end_in_any_epoch(original: Any) -> Any:
    def check(current: Any, is_pending: bool, producer_id: int, producer_epoch: int, commit: bool) -> bool:
        epoch = current.producer_epoch if current.state.label == "Ongoing" else producer_epoch
        return bool(original(current, is_pending, producer_id, epoch, commit))

    return check


def _commit_every_marker(original: Any) -> Any:
    def write_one(self: Any, marker: Any, key: tuple[str, int], done: Any) -> None:
        original(self, replace_marker(marker), key, done)

    def replace_marker(marker: Any) -> Any:
        return type(marker)(
            producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, transaction_result=True, topics=marker.topics,
            coordinator_epoch=marker.coordinator_epoch, transaction_version=marker.transaction_version,
        )  # fmt: skip

    return write_one


def _ignore_the_oldest(original: Any) -> Any:
    """The first unstable offset is that of what is open only: a marker counts before it is replicated."""

    def update_first_unstable(self: Any) -> None:
        self.first_unstable_offset = min(self._open, default=None)

    return update_first_unstable


def _decide_at_once(original: Any) -> Any:
    def append_records(self: Any, topic: str, index: int, batch: Any, acks: int, timeout_ms: int, done: Any, **named: Any) -> None:
        if topic != STATE_TOPIC:
            original(self, topic, index, batch, acks, timeout_ms, done, **named)
            return
        failures: list[ErrorCode] = []
        original(self, topic, index, batch, acks, timeout_ms, lambda error, offset: failures.append(error), **named)
        done(failures[0] if failures else ErrorCode.NONE, 0)

    return append_records


class _Replicated:
    """A ReplicaManager for which everything is replicated."""

    def __init__(self, replicas: Any) -> None:
        self._replicas = replicas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replicas, name)

    def when_replicated(self, partition: Any, end_offset: int, timeout_ms: int, done: Any) -> None:
        """It is."""
        done(ErrorCode.NONE, 0)


def _take_up_at_once(original: Any) -> Any:
    def await_commit(self: Any, *arguments: Any) -> None:
        kept, self._replicas = self._replicas, _Replicated(self._replicas)
        try:
            original(self, *arguments)
        finally:
            self._replicas = kept

    return await_commit


def _count_nothing(original: Any) -> Any:
    def wake(self: Any, key: Any) -> int:
        before = self.completions
        completed = int(original(self, key))
        self.completions = before
        return completed

    return wake


def _keep_the_epoch(original: Any) -> Any:
    def prepared(self: Any, **named: Any) -> Any:
        return replace(original(self, **named), producer_epoch=self.producer_epoch)

    return prepared


def _begin_unverified(original: Any) -> Any:
    """Leaders add partitions, and whatever the coordinator says the batch is stored."""

    def verify(self: Any, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any, support: Any, done: Any) -> None:
        original(
            self, transactional_id, producer_id, producer_epoch, partitions, support,
            lambda results: done(dict.fromkeys(results, ErrorCode.NONE)),
        )  # fmt: skip

    return verify


def _offsets_count_at_once(original: Any) -> Any:
    def put_open(self: Any, producer_id: int, group_id: str, topic: str, index: int, committed: Any) -> None:
        self.put(group_id, topic, index, committed)

    return put_open


def _offsets_count_always(original: Any) -> Any:
    return lambda self, producer_id, commit: original(self, producer_id, True)


_WITH = (("transactors", 3), ("committed_readers", 1), ("transaction_timeout_ms", 1000))

TRANSACTION_MUTATIONS: list[dict[str, Any]] = [
    {"name": "marker-lost", "breaks": "one partition of a transaction gets no marker, and is told to have one",
     "patches": ((f"{MARKERS}:MarkerWriter._write_one", _lose_a_marker),), "options": (*_WITH, ("partitions", 2))},
    {"name": "markers-always-commit", "breaks": "what is to be aborted gets a marker that commits",
     "patches": ((f"{MARKERS}:MarkerWriter._write_one", _commit_every_marker),), "options": _WITH},
    {"name": "marker-ends-the-next", "breaks": "a marker that is sent twice ends the next transaction (KIP-890)",
     "patches": ((f"{MARKERS}:EPOCH_BUMP_VERSION_MIN", lambda original: 99),), "tests": ("tests/broker/test_transaction_markers.py",)},
    {"name": "end-in-any-epoch", "breaks": "a fenced producer ends the transaction of its successor (KIP-98)",
     "patches": ((f"{COORDINATOR}:_check_end_v2", _end_in_any_epoch),), "options": _WITH},
    {"name": "epoch-kept", "breaks": "a transaction has the epoch of the one before (KIP-890)",
     "patches": (("minikafka.core.transaction.state:Transaction.prepared", _keep_the_epoch),), "options": _WITH},
    {"name": "begin-unverified", "breaks": "a batch begins a transaction though the coordinator refuses it (KIP-890)", "profile": "mixed",
     "patches": (("minikafka.broker.hosts.transaction_verification:TransactionVerifier.verify", _begin_unverified),), "options": _WITH},
    {"name": "stable-to-the-end", "breaks": "the last stable offset ignores transactions that are open",
     "patches": (("storage.log_state:LogState.last_stable_offset", lambda original: lambda self: self.high_watermark),),
     "options": _WITH},
    {"name": "stable-before-replication", "breaks": "the last stable offset passes a marker that is not replicated",
     "patches": (("storage.producer_state:ProducerStateManager.update_first_unstable", _ignore_the_oldest),), "options": _WITH},
    {"name": "aborted-not-noted", "breaks": "the index of aborted transactions misses an entry",
     "patches": (("storage.segment:Segment.append_aborted", _constant(None)),), "options": _WITH},
    {"name": "aborted-not-told", "breaks": "fetches tell of no aborted transactions",
     "patches": (("storage.log:Log.upper_bound_offset", _constant(0)),), "options": _WITH},
    {"name": "decision-forgotten", "breaks": "a new coordinator forgets what was decided before it", "profile": "crashes",
     "patches": ((f"{SHARD}.loaded", _constant(None)),), "options": _WITH},
    {"name": "decision-unreplicated", "breaks": "a decision counts before it is replicated", "profile": "storm",
     "patches": (("minikafka.broker.hosts.replicas:ReplicaManager.append_records", _decide_at_once),), "options": _WITH},
    {"name": "decision-taken-up-at-once", "breaks": "a new coordinator acts on decisions of its log that are not committed",
     "profile": "crashes", "patches": (("minikafka.broker.hosts.transaction:TransactionHost._await_commit", _take_up_at_once),),
     "options": (*_WITH, ("has_cleaner", False), ("pace_s", 0.05), ("delay_mean_s", 0.01))},
    {"name": "never-too-late", "breaks": "no transaction is aborted for taking too long",
     "patches": ((f"{SHARD}.abort_timed_out", _constant([])),), "options": _WITH},
    {"name": "fetch-behind-its-back", "breaks": "a fetch waits though what it let complete has written to what it had read",
     "patches": (("minikafka.core.purgatory:Purgatory.wake", _count_nothing),), "tests": ("tests/sim/test_transactions.py",)},
    {"name": "offsets-at-once", "breaks": "offsets of a transaction count before it is committed",
     "patches": (("minikafka.core.group.offsets:OffsetStore.put_open", _offsets_count_at_once),), "options": _WITH},
    {"name": "offsets-in-any-case", "breaks": "offsets of an aborted transaction count",
     "patches": (("minikafka.core.group.offsets:OffsetStore.end_transaction", _offsets_count_always),), "options": _WITH},
]
