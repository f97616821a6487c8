"""Mutations that break rules of transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minikafka.sim.replacements import constant
from minikafka.wire.errors import ErrorCode

COORDINATOR = "minikafka.core.transaction.coordinator"
SHARD = f"{COORDINATOR}:TransactionShard"
MARKERS = "minikafka.broker.coordinators.transaction_markers"
RUNTIME = "minikafka.broker.coordinators.runtime"
HOST = "minikafka.broker.coordinators.transaction_coordinator:TransactionHost"
GROUPS = "minikafka.core.group"
STATE_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"


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
    """Only open transactions determine the first unstable offset: a marker counts before it is replicated."""
    return lambda self: self.first_open()


def _replay_before_commit(topic: str, *, is_loaded: bool) -> Any:
    """A shard replays its log up to the end, replicated or not; during loading or afterwards."""

    def make(original: Any) -> Any:
        def committed_end(led: Any) -> int:
            log = led.partition.log
            return int(log.log_end_offset if log.topic == topic and led.is_loaded is is_loaded else original(led))

        return committed_end

    return make


def _serve_too_early(original: Any) -> Any:
    """A shard counts as loaded when it has replayed the records that were committed when its leadership began."""

    def begin(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.end_offset = min(self.end_offset, self.partition.log.high_watermark)

    return begin


def _skip_what_others_wrote(original: Any) -> Any:
    """A shard skips everything between its own batches."""

    def replay_next(self: Any, led: Any) -> bool:
        if led.written and led.reader.next_offset < led.written[0].first_offset:
            led.reader.next_offset = led.written[0].first_offset
        return bool(original(self, led))

    return replay_next


def _load_no_markers(original: Any) -> Any:
    def read(self: Any, end_offset: int, on_record: Any, on_marker: Any) -> Any:
        return original(self, end_offset, on_record, lambda producer_id, commit: None)

    return read


def _keep_the_shard(original: Any) -> Any:
    """A coordinator that regains its partition continues with its old state in memory."""

    def leadership_changed(self: Any, index: int, leader_epoch: int, is_leader: bool) -> None:
        led = self._led.get(index)
        if led is None or not led.is_loaded:
            original(self, index, leader_epoch, is_leader)
        elif is_leader:
            led.leader_epoch = leader_epoch

    return leadership_changed


def _forget_what_is_late(original: Any) -> Any:
    """A decision whose record is not committed in time counts as not made."""

    def time_out(self: Any, led: Any) -> None:
        now_ms = self._clock.now_ms()
        for written in led.written:
            if written.deadline_ms <= now_ms and not written.is_answered:
                written.append.on_settled(False, now_ms)
        original(self, led)

    return time_out


def _count_nothing(original: Any) -> Any:
    def high_watermark_moved(self: Any, partition: Any) -> None:
        before = self.waiting.produces.completions
        original(self, partition)
        self.waiting.produces.completions = before

    return high_watermark_moved


def _keep_the_epoch(original: Any) -> Any:
    def prepared(self: Any, **named: Any) -> Any:
        return replace(original(self, **named), producer_epoch=self.producer_epoch)

    return prepared


def _begin_unverified(original: Any) -> Any:
    """The leader asks the coordinator to add the partition, but stores the batch whatever the answer is."""

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


def _unstable_after_truncation(original: Any) -> Any:
    def end_at(self: Any, offset: int) -> None:
        if self.high_watermark > offset:
            original(self, offset)
        else:
            self.log_end_offset, self.truncated_to = offset, min(self.truncated_to, offset)

    return end_at


def _later_transactions_count(original: Any) -> Any:
    def last_stable_offset_after(self: Any, completed: Any) -> int:
        others = [first for producer_id, first in self.open() if producer_id != completed.producer_id]
        return int(min(others, default=completed.last_offset + 1))

    return last_stable_offset_after


_WITH = (("transactors", 3), ("committed_readers", 1), ("transaction_timeout_ms", 1000))

def _unknown_is_none(original: Any) -> Any:
    def markers_answered(self: Any, markers: Any, results: Any, now_ms: int) -> Any:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return original(self, markers, {key: ErrorCode.NONE if code is unknown else code for key, code in results.items()}, now_ms)

    return markers_answered


def _by_the_last_answer(original: Any) -> Any:
    return lambda self, now_ms: 0 if self.fenced or self.silence_ms(now_ms) > self._config.session_timeout_ms else None


def _whole_session(original: Any) -> Any:
    def in_doubt_since_ms(self: Any, now_ms: int) -> Any:
        self._lost_ms = None
        return original(self, now_ms)

    return in_doubt_since_ms


def _by_the_last_fetch(original: Any) -> Any:
    def is_confirmed(self: Any, eligible: tuple[int, ...], since_ms: int) -> bool:
        others = {*self.isr.maximal, *eligible} - {self.broker_id}
        return all(other in self.followers and self.followers[other].last_fetch_ms >= since_ms for other in others)

    return is_confirmed


def _take_all(original: Any) -> Any:
    return lambda self, now_ms, most: original(self, now_ms, 1 << 30)


TRANSACTION_MUTATIONS: list[dict[str, Any]] = [
    {"name": "marker-lost", "breaks": "one partition of a transaction gets no marker but counts as having one",
     "patches": ((f"{MARKERS}:MarkerWriter._write_one", _lose_a_marker),), "options": (*_WITH, ("partitions", 2))},
    {"name": "markers-always-commit", "breaks": "a transaction to be aborted gets a commit marker",
     "patches": ((f"{MARKERS}:MarkerWriter._write_one", _commit_every_marker),), "options": _WITH},
    {"name": "marker-ends-the-next", "breaks": "a marker that is sent twice ends the next transaction (KIP-890)",
     "patches": (("minikafka.core.transaction.markers:EPOCH_BUMP_VERSION_MIN", lambda original: 99),),
     "tests": ("tests/broker/test_transaction_markers.py",)},
    {"name": "end-in-any-epoch", "breaks": "a fenced producer ends the transaction of its successor (KIP-98)",
     "patches": ((f"{COORDINATOR}:_check_end_v2", _end_in_any_epoch),), "options": _WITH},
    {"name": "epoch-kept", "breaks": "a transaction has the same epoch as the previous one (KIP-890)",
     "patches": (("minikafka.core.transaction.state:Transaction.prepared", _keep_the_epoch),), "options": _WITH},
    {"name": "begin-unverified", "breaks": "a batch begins a transaction although the coordinator refuses it (KIP-890)", "profile": "mixed",
     "patches": (("minikafka.broker.coordinators.transaction_verification:TransactionVerifier.verify", _begin_unverified),),
     "options": _WITH},
    {"name": "stable-to-the-end", "breaks": "the last stable offset ignores open transactions",
     "patches": (("minikafka.storage.watermarks:Watermarks.last_stable_offset", lambda original: lambda self: self.high_watermark),),
     "options": _WITH},
    {"name": "stable-before-replication", "breaks": "the last stable offset passes a marker that is not replicated",
     "patches": (("minikafka.storage.open_transactions:OpenTransactions.first_unstable", _ignore_the_oldest),), "options": _WITH},
    {"name": "unstable-after-truncation", "breaks": "the last stable offset goes back after a truncation to the high watermark",
     "patches": (("minikafka.storage.watermarks:Watermarks.end_at", _unstable_after_truncation),), "profile": "crashes",
     "options": (*_WITH, ("hasty_writers", 2), ("pace_s", 0.05))},
    {"name": "stable-beyond-the-marker", "breaks": "a follower's index includes transactions that began after the marker",
     "patches": (("minikafka.storage.open_transactions:OpenTransactions.last_stable_offset_after", _later_transactions_count),),
     "tests": ("tests/storage/test_producers.py",)},
    {"name": "aborted-not-noted", "breaks": "the index of aborted transactions misses an entry",
     "patches": (("minikafka.storage.segment:Segment.append_aborted", constant(None)),), "options": _WITH},
    {"name": "aborted-not-told", "breaks": "fetches do not report aborted transactions",
     "patches": (("minikafka.storage.log:Log.upper_bound_offset", constant(0)),), "options": _WITH},
    {"name": "decision-forgotten", "breaks": "a new coordinator forgets earlier decisions", "profile": "crashes",
     "patches": ((f"{SHARD}.loaded", constant(None)),), "options": _WITH},
    {"name": "decision-unreplicated", "breaks": "a decision takes effect before it is replicated", "profile": "storm",
     "patches": ((f"{RUNTIME}:_committed_end", _replay_before_commit(STATE_TOPIC, is_loaded=True)),), "options": _WITH},
    {"name": "decision-taken-up-at-once", "breaks": "a new coordinator acts on uncommitted decisions in its log",
     "profile": "crashes", "patches": ((f"{RUNTIME}:_committed_end", _replay_before_commit(STATE_TOPIC, is_loaded=False)),),
     "options": (*_WITH, ("has_cleaner", False), ("pace_s", 0.05), ("delay_mean_s", 0.01))},
    {"name": "offsets-unreplicated", "breaks": "committed offsets take effect before they are replicated", "profile": "storm",
     "patches": ((f"{RUNTIME}:_committed_end", _replay_before_commit(OFFSETS_TOPIC, is_loaded=True)),), "options": _WITH},
    {"name": "offsets-taken-up-at-once", "breaks": "a new coordinator serves uncommitted offsets in its log",
     "profile": "crashes", "patches": ((f"{RUNTIME}:_committed_end", _replay_before_commit(OFFSETS_TOPIC, is_loaded=False)),),
     "options": (*_WITH, ("pace_s", 0.05), ("delay_mean_s", 0.01))},
    {"name": "served-too-early", "breaks": "a coordinator serves before it has replayed its predecessor's last records",
     "patches": ((f"{RUNTIME}:_Led.__init__", _serve_too_early),), "tests": ("tests/broker/test_coordinator_runtime.py",)},
    {"name": "markers-passed-over", "breaks": "a group coordinator skips the markers between its own records",
     "patches": ((f"{RUNTIME}:CoordinatorRuntime._replay_next", _skip_what_others_wrote),),
     "tests": ("tests/broker/test_coordinator_runtime.py",)},
    {"name": "markers-not-loaded", "breaks": "a new group coordinator skips the markers in its log", "profile": "crashes",
     "patches": (("minikafka.broker.coordinators.loader:CommittedReader.read", _load_no_markers),), "options": _WITH},
    {"name": "shard-kept", "breaks": "a coordinator that loses its partition and leads it again continues with its old state in memory",
     "profile": "mixed", "patches": ((f"{RUNTIME}:CoordinatorRuntime._leadership_changed", _keep_the_shard),),
     "options": (*_WITH, ("pace_s", 0.05))},
    {"name": "late-is-never", "breaks": "a decision that is not committed in time counts as not taken, although its record is in the log",
     "patches": ((f"{RUNTIME}:CoordinatorRuntime._time_out", _forget_what_is_late),),
     "tests": ("tests/broker/test_coordinator_runtime.py",)},
    {"name": "failed-append-forgotten", "breaks": "a disk fails during an append, and the shard carries on",
     "patches": ((f"{RUNTIME}:CoordinatorRuntime._reload", constant(None)),), "tests": ("tests/broker/test_coordinator_runtime.py",)},
    {"name": "loaded-in-one-turn", "breaks": "a coordinator replays its log in one turn of the loop",
     "patches": (("minikafka.broker.coordinators.loader:STEP_RECORDS", lambda original: 10**9),
                 ("minikafka.broker.coordinators.loader:STEP_VALUE_BYTES", lambda original: 10**9),
                 ("minikafka.broker.coordinators.loader:STEP_BYTES", lambda original: 10**9)),
     "tests": ("tests/broker/test_coordinator_runtime.py",)},
    {"name": "unstable-offset-served", "breaks": "an offset is returned although a transaction that is just ending changes it (KIP-447)",
     "patches": ((f"{GROUPS}.offsets:OffsetStore.is_open", constant(False)),), "tests": ("tests/broker/test_group_requests.py",)},
    {"name": "never-synced-stays", "breaks": "a member that joins a group but never asks for its assignment keeps its partitions forever",
     "patches": ((f"{GROUPS}.rebalance:Rebalancer._sync_deadline", constant(None)),), "tests": ("tests/core/group",)},
    {"name": "unknown-is-deleted", "breaks": "a partition that its leader does not know yet counts as deleted and never gets its marker",
     "patches": ((f"{SHARD}.markers_answered", _unknown_is_none),), "tests": ("tests/core/transaction/test_shard.py",)},
    {"name": "adds-what-it-does-not-know", "breaks": "a coordinator adds partitions that its metadata does not have",
     "patches": ((f"{HOST}.unknown_partitions", constant(frozenset())),),
     "tests": ("tests/broker/test_deleted_topics_in_transactions.py",)},
    {"name": "expiry-in-one-turn", "breaks": "all expired ids of a partition are removed in one turn of the loop",
     "patches": (("minikafka.core.timers:DeadlineQueue.take", _take_all),), "tests": ("tests/core/transaction/test_shard.py",)},
    {"name": "no-doubt", "breaks": "a broker that was paused for longer than its session still answers as coordinator",
     "patches": (("minikafka.broker.partitions.replica_manager:ReplicaManager.is_in_doubt", constant(False)),),
     "tests": ("tests/sim/test_awakening.py",)},
    {"name": "doubt-without-reason", "breaks": "coordinators stall while the controllers are gone",
     "patches": (("minikafka.core.partition.leader:PartitionLeader.is_confirmed", constant(False)),),
     "tests": ("tests/sim/test_awakening.py",)},
    {"name": "late-answer-renews", "breaks": "a late heartbeat response starts a new session",
     "patches": (("minikafka.core.broker_lifecycle:BrokerLifecycle.in_doubt_since_ms", _by_the_last_answer),),
     "tests": ("tests/core/test_broker_lifecycle.py",)},
    {"name": "loss-unnoticed", "breaks": "a broker that is cut off serves old offsets until its session expires",
     "patches": (("minikafka.core.broker_lifecycle:BrokerLifecycle.in_doubt_since_ms", _whole_session),),
     "tests": ("tests/sim/test_stale_coordinator.py",)},
    {"name": "followers-unasked", "breaks": "coordinators refuse requests while controllers change, although their followers are there",
     "patches": (("minikafka.broker.partitions.fetch:FetchHandlers.ask_followers", constant(None)),),
     "tests": ("tests/sim/test_stale_coordinator.py",)},
    {"name": "old-fetch-confirms", "breaks": "a fetch sent long ago confirms a leader",
     "patches": (("minikafka.core.partition.leader:PartitionLeader.is_confirmed", _by_the_last_fetch),),
     "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "never-too-late", "breaks": "transactions that take too long are not aborted",
     "patches": ((f"{SHARD}.has_timed_out", constant(False)),), "options": _WITH},
    {"name": "fetch-behind-its-back", "breaks": "a fetch waits although what it let complete has written to what it had read",
     "patches": (("minikafka.broker.partitions.replica_manager:ReplicaManager.high_watermark_moved", _count_nothing),),
     "tests": ("tests/sim/test_transactions.py",)},
    {"name": "offsets-at-once", "breaks": "a transaction's offsets take effect before it is committed",
     "patches": (("minikafka.core.group.offsets:OffsetStore.put_open", _offsets_count_at_once),), "options": _WITH},
    {"name": "offsets-in-any-case", "breaks": "an aborted transaction's offsets take effect",
     "patches": (("minikafka.core.group.offsets:OffsetStore.end_transaction", _offsets_count_always),), "options": _WITH},
]
