"""Mutations that break rules of consumer groups (KIP-848), streams groups (KIP-1071) and share groups (KIP-932), which whole clusters catch
by their members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minikafka.core.group.consumer.checks import commit_any
from minikafka.core.share.acknowledgements import ACCEPT, REJECT, RELEASE
from minikafka.core.share.state_batches import DeliveryState
from minikafka.sim.replacements import constant, nothing, take_what_others_own
from minikafka.wire.errors import ErrorCode

CONSUMER, SHARE = "minikafka.core.group.consumer", "minikafka.core.share"
CONSUMERS = (
    ("consumer_members", 3), ("static_members", 0), ("session_timeout_s", 0.7), ("group_members", 0), ("has_cleaner", False),
    ("properties", {
        "group.consumer.min.session.timeout.ms": "500", "group.consumer.session.timeout.ms": "700",
        "group.consumer.min.heartbeat.interval.ms": "50", "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.assignment.interval.ms": "0", "log.cleaner.enable": "false",
    }),
)  # fmt: skip
STREAMS = "minikafka.core.group.streams"
STREAMERS = (
    ("streams_members", 3), ("consumer_members", 0), ("session_timeout_s", 0.7), ("group_members", 0), ("has_cleaner", False),
    ("properties", {
        "group.streams.min.session.timeout.ms": "500", "group.streams.session.timeout.ms": "700",
        "group.streams.min.heartbeat.interval.ms": "50", "group.streams.heartbeat.interval.ms": "100",
        "group.streams.assignment.interval.ms": "0", "group.streams.initial.rebalance.delay.ms": "0", "log.cleaner.enable": "false",
    }),
)  # fmt: skip
SHARERS = (
    ("share_members", 2), ("delivery_count_max", 2), ("readers", 0),
    ("properties", {
        "group.share.delivery.count.limit": "2", "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "1000", "group.share.min.session.timeout.ms": "500",
        "group.share.session.timeout.ms": "1500", "group.share.min.heartbeat.interval.ms": "50",
        "group.share.heartbeat.interval.ms": "300", "group.share.assignment.interval.ms": "0",
        "group.share.initialize.retry.interval.ms": "500", "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.snapshot.update.records.per.snapshot": "3",
    }),
)  # fmt: skip
BURIERS = (*SHARERS, ("has_dead_letters", True))


def _commit_of_anybody(original: Any) -> Any:
    return lambda *_: commit_any


def _without_the_last_target(original: Any) -> Any:
    def changes(group: Any, targets: Any) -> Any:
        return original(group, targets)[:-1]

    return changes


def _sessions_not_loaded(original: Any) -> Any:
    """A new coordinator waits for nobody: who died before is a member for ever."""
    return lambda self, now_ms: None


# -- share groups --------------------------------------------------------------------------------------------------------


def _answered_before_it_is_stored(original: Any) -> Any:
    def acknowledge(self: Any, member_id: str, acknowledgements: Any, done: Any, now_ms: int) -> None:
        refused: list[Any] = []
        original(self, member_id, acknowledgements, lambda code, message: refused.append((code, message)), now_ms)
        done(*(refused[0] if refused else (ErrorCode.NONE, None)))

    return acknowledge


def _deliveries_forgotten(original: Any) -> Any:
    def restore(self: Any, batch: Any) -> None:
        original(self, batch._replace(delivery_count=0) if batch.delivery_state == DeliveryState.AVAILABLE else batch)

    return restore


def _limit_ignored(original: Any) -> Any:
    def target(run: Any, kind: int, rules: Any) -> Any:
        return DeliveryState.AVAILABLE if kind == RELEASE else original(run, kind, rules)

    return target


def _accepted_is_released(original: Any) -> Any:
    def target(run: Any, kind: int, rules: Any) -> Any:
        return original(run, RELEASE if kind == ACCEPT else kind, rules)

    return target


def _held_records_given_up(original: Any) -> Any:
    """What members held when a leader died is not delivered again."""

    def restore(self: Any, batch: Any) -> None:
        before = len(self._flight.runs)
        original(self, batch)
        for run in self._flight.runs[before:-1]:
            run.become(DeliveryState.ARCHIVED)

    return restore


def _gaps_take_room(original: Any) -> Any:
    """Offsets without records count for the limit of locks."""

    def take_new(self: Any, acquisition: Any, last: int) -> None:
        if acquisition.batches[0][0] - self.next_offset < self._room:
            original(self, acquisition, last)

    return take_new


def _first_part_only(original: Any) -> Any:
    """The other parts of a long write are forgotten."""
    return lambda self, batches_max: original(self, batches_max)[:1]


def _letters_lost_with_their_leader(original: Any) -> Any:
    """A new leader does not write what the previous one was about to write."""

    def restore(self: Any, batch: Any) -> None:
        original(self, batch)
        self._dead_letters.clear()

    return restore


def _accepted_are_given_up(original: Any) -> Any:
    def target(run: Any, kind: int, rules: Any) -> Any:
        return original(run, REJECT if kind == ACCEPT else kind, rules)

    return target


def _nothing_is_written(original: Any) -> Any:
    async def enqueue(self: Any, key: Any, partition: Any, letter: Any) -> None:
        return

    return enqueue


def _contents_of_the_first(original: Any) -> Any:
    """All records of a batch have the contents of its first one."""

    def records(data: Any, offset: int, last_offset: int) -> Any:
        contents, end = original(data, offset, last_offset)
        return dict.fromkeys(contents, next(iter(contents.values()), None)), end

    return records


def _locks_without_end(original: Any) -> Any:
    def on_deadline(self: Any, now_ms: int) -> bool:
        self._locks = [lock for lock in self._locks if lock[0] > now_ms]
        return False

    return on_deadline


def _failed_counts(original: Any) -> Any:
    def failed(self: Any, ticket: int, code: Any, message: Any, now_ms: int) -> None:
        self.written(ticket)

    return failed


def _batches_not_combined(original: Any) -> Any:
    """An update of the state replaces what was there."""

    def combine(so_far: Any, new: Any, start_offset: int) -> Sequence[Any]:
        return list(original((), new, start_offset))

    return combine


def _snapshot_without_batches(original: Any) -> Any:
    def record(key: Any, state: Any) -> Any:
        return original(key, replace(state, batches=()))

    return record


MEMBER_MUTATIONS: list[dict[str, Any]] = [
    {"name": "cluster-takes-owned-partitions", "breaks": "a member is given what another one still owns", "options": CONSUMERS,
     "patches": ((f"{CONSUMER}.reconciliation:Reconciliation._take", take_what_others_own),)},
    {"name": "cluster-commits-of-anybody", "breaks": "members commit in epochs that they are not in, or after they have left",
     "options": CONSUMERS, "patches": (("minikafka.core.group.coordinator:check_commit", _commit_of_anybody),)},
    {"name": "cluster-silent-members-stay", "breaks": "an expired session has no consequence", "options": CONSUMERS,
     "profile": "crashes", "patches": ((f"{CONSUMER}.sessions:Sessions.take_overdue", constant(value=False)),)},
    {"name": "cluster-leaver-keeps-partitions", "breaks": "the partitions of a departed member stay reserved for it", "options": CONSUMERS,
     "profile": "crashes", "patches": ((f"{CONSUMER}.group:ConsumerGroup._release", nothing),)},
    {"name": "cluster-a-target-unwritten", "breaks": "one member's target is not written", "options": CONSUMERS,
     "patches": ((f"{CONSUMER}.plans:target_changes", _without_the_last_target),)},
    {"name": "cluster-sessions-not-loaded", "breaks": "a new coordinator does not wait for the members' heartbeats", "options": CONSUMERS,
     "profile": "crashes", "patches": ((f"{CONSUMER}.coordinator:ConsumerGroups.loaded", _sessions_not_loaded),)},
    {"name": "cluster-tasks-run-elsewhere", "breaks": "an active task is assigned while another member still runs it",
     "options": STREAMERS, "patches": ((f"{STREAMS}.reconciliation:Reconciliation._is_active_taken", constant(value=False)),)},
    {"name": "cluster-tasks-never-released", "breaks": "a task that was given up stays reserved", "options": STREAMERS,
     "patches": ((f"{STREAMS}.owners:TaskOwners.remove", nothing),)},
    {"name": "cluster-streams-target-unwritten", "breaks": "one member's tasks are not written", "options": STREAMERS,
     "patches": ((f"{STREAMS}.heartbeat:target_changes", _without_the_last_target),)},
    {"name": "cluster-silent-streamers-stay", "breaks": "a streams group member stays after its session expires",
     "options": STREAMERS, "profile": "crashes", "patches": ((f"{CONSUMER}.sessions:Sessions.take_overdue", constant(value=False)),)},
    {"name": "answered-before-stored", "breaks": "acknowledgements are confirmed before the share coordinator has stored them",
     "options": SHARERS, "profile": "crashes",
     "patches": ((f"{SHARE}.partition:SharePartition.acknowledge", _answered_before_it_is_stored),)},
    {"name": "deliveries-forgotten", "breaks": "a new leader does not know how often a record was delivered", "options": SHARERS,
     "profile": "crashes", "patches": ((f"{SHARE}.partition:SharePartition._restore", _deliveries_forgotten),)},
    {"name": "delivery-limit-ignored", "breaks": "a released record is delivered more often than allowed", "options": SHARERS,
     "patches": ((f"{SHARE}.partition:_target", _limit_ignored),)},
    {"name": "accepted-is-released", "breaks": "an accepted record is delivered again", "options": SHARERS,
     "patches": ((f"{SHARE}.partition:_target", _accepted_is_released),)},
    {"name": "held-records-given-up", "breaks": "records that members held when a leader died are not redelivered", "options": SHARERS,
     "profile": "crashes", "patches": ((f"{SHARE}.partition:SharePartition._restore", _held_records_given_up),)},
    {"name": "locks-without-end", "breaks": "a record whose lock has expired is not redelivered", "options": SHARERS,
     "patches": ((f"{SHARE}.partition:SharePartition.on_deadline", _locks_without_end),)},
    {"name": "failed-writes-count", "breaks": "an acknowledgement counts although the share coordinator could not store it",
     "patches": ((f"{SHARE}.partition:SharePartition.failed", _failed_counts),), "tests": ("tests/core/share/test_share_partition.py",)},
    {"name": "gaps-take-room", "breaks": "a gap in the log that is longer than the limit of locks is never passed",
     "patches": ((f"{SHARE}.partition:SharePartition._take_new", _gaps_take_room),),
     "tests": ("tests/core/share/test_share_partition.py",)},
    {"name": "rest-of-a-write-lost", "breaks": "only the first part of a long write of a share partition's state is stored",
     "patches": ((f"{SHARE}.partition:Write.parts", _first_part_only),), "tests": ("tests/core/share/test_long_writes.py",)},
    {"name": "state-batches-replaced", "breaks": "an update of a share partition's state loses what was stored before", "options": SHARERS,
     "profile": "crashes", "patches": ((f"{SHARE}.state:combine", _batches_not_combined),)},
    {"name": "removals-tried-once", "breaks": "a member whose removal could not be written stays in its group for ever",
     "patches": ((f"{CONSUMER}.sessions:Sessions.try_again", nothing),),
     "tests": ("tests/core/group/consumer/test_scenarios.py", "tests/core/group/streams/test_scenarios.py")},
    {"name": "letters-lost-with-their-leader", "breaks": "a new leader does not write the dead letters of the previous one",
     "options": BURIERS, "profile": "crashes",
     "patches": ((f"{SHARE}.partition:SharePartition._restore", _letters_lost_with_their_leader),)},
    {"name": "accepted-are-given-up", "breaks": "accepted records go to the dead-letter queue", "options": BURIERS,
     "patches": ((f"{SHARE}.partition:_target", _accepted_are_given_up),)},
    {"name": "letters-not-written", "breaks": "rejected records do not reach the dead-letter queue", "options": BURIERS,
     "patches": (("minikafka.broker.share.dead_letters:DeadLetterQueues.enqueue", _nothing_is_written),)},
    {"name": "letters-mixed-up", "breaks": "dead letters have other records' contents", "options": BURIERS,
     "patches": (("minikafka.broker.share.dead_letters:_records", _contents_of_the_first),)},
    {"name": "snapshots-empty", "breaks": "a snapshot of a share partition's state has no batches", "options": SHARERS,
     "profile": "crashes", "patches": ((f"{SHARE}.coordinator:snapshot_record", _snapshot_without_batches),)},
]  # fmt: skip
