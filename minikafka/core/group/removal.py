"""Removal from a shard: deleted groups, expired offsets (KIP-211), offsets of deleted topics.

A group may have a million offsets, and a shard many groups, so all of this runs in steps of at most one batch of tombstones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from minikafka.core.coordinator.shard import Append, CoordinatorRecord, append_error
from minikafka.core.group.expiry import ExpiringGroups
from minikafka.core.group.offsets import NO_EXPIRY, CommittedOffset, OffsetStore, offset_tombstone
from minikafka.wire.errors import ErrorCode

#: Most tombstones in one batch, and offsets that are examined in one step.
BATCH_RECORDS_MAX = 500
STEP_OFFSETS = 5000
#: A group with no more offsets is deleted at once, one with more in steps: one request may name very many groups.
FEW_OFFSETS = 16
Done = Callable[[ErrorCode], None]
Partition = tuple[str, int]


class Removals:
    """Writes tombstones; replay applies them.

    `groups`: groups that are being deleted, with the callback to call at the end. Joins and commits are refused until then.
    """

    def __init__(self, offsets: OffsetStore, append: Callable[[Append], None]) -> None:
        self.groups: dict[str, Done] = {}
        self._offsets = offsets
        self._append = append

    def shutdown(self) -> None:
        """The shard is shut down."""
        waiting, self.groups = self.groups, {}
        for done in waiting.values():
            done(ErrorCode.NOT_COORDINATOR)

    def delete_group(self, group_id: str, end: list[CoordinatorRecord], done: Done) -> Iterator[None]:
        """Delete a group with its offsets. `end`: the tombstones of the group itself. `done` is called when everything is committed, or
        with the first error. Of a group with few offsets they are written before the first step."""
        self.groups[group_id] = done

        def finish(code: ErrorCode) -> None:
            if self.groups.get(group_id) is done:
                del self.groups[group_id]
                done(code)

        def steps() -> Iterator[None]:
            keys = self._offsets.to_delete(group_id)
            yield from self._write(group_id, keys, end, finish, lambda: self.groups.get(group_id) is done)

        work = steps()
        if self._offsets.has_few(group_id, FEW_OFFSETS):
            next(work, None)
        return work

    def delete_offsets(self, group_id: str, partitions: Iterable[Partition], done: Done) -> Iterator[None]:
        """Delete a group's offsets for some partitions; steps and `done` are as in `delete_group`."""
        held = frozenset(self._offsets.to_delete(group_id))
        keys = [key for key in partitions if key in held]
        if not keys:
            done(ErrorCode.NONE)
            return iter(())
        is_over = False

        def finish(code: ErrorCode) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                done(code)

        steps = self._write(group_id, keys, [], finish, lambda: not is_over)
        next(steps, None)
        return steps

    def _write(
        self, group_id: str, keys: list[Partition], end: list[CoordinatorRecord], finish: Done, is_running: Callable[[], bool]
    ) -> Iterator[None]:
        """Write tombstones of offsets, and then those of `end`. Each batch is made in its step: very many take long."""
        count = len(keys) + len(end)
        for start in range(0, count, BATCH_RECORDS_MAX):
            if not is_running():
                return
            stop = start + BATCH_RECORDS_MAX
            is_last = stop >= count
            records = [offset_tombstone(group_id, *key) for key in keys[start:stop]]
            records += end[max(start - len(keys), 0) : max(stop - len(keys), 0)]

            def stored(error: ErrorCode, now_ms: int, is_last: bool = is_last) -> None:
                if is_last or error is not ErrorCode.NONE:
                    finish(append_error(error))

            self._append(Append(records, stored))
            yield

    # -- without a request -----------------------------------------------------------------------------------------

    def forget_topics(self, topics: Iterable[str]) -> Iterator[None]:
        """Topics were deleted from the cluster: delete the offsets that groups committed for them, also in open transactions."""
        gone = set(topics)
        batch = _Batch(self._append)
        for group_id in self._offsets.group_ids_to_delete():
            for key in self._offsets.to_delete(group_id):
                batch.look(offset_tombstone(group_id, *key) if key[0] in gone else None)
                if batch.is_full:
                    batch.write()
                    yield
        batch.write()

    def expire(self, groups: ExpiringGroups, wall_ms: int, retention_ms: int) -> Iterator[None]:
        """Delete offsets that are older than `offsets.retention.minutes` and not needed, and empty groups without offsets (KIP-211)."""
        batch = _Batch(self._append)
        for group_id in groups.ids():
            batch.count(groups.looks(group_id))
            if batch.is_full:
                batch.write()
                yield
            is_due = self._rule(groups, group_id, wall_ms, retention_ms)
            expired = 0
            for key in list(self._offsets.of_group(group_id)):
                committed = self._offsets.get(group_id, *key)
                is_expired = committed is not None and is_due(key, committed)
                expired += is_expired
                batch.look(offset_tombstone(group_id, *key) if is_expired else None)
                if batch.is_full:
                    batch.write()
                    yield
                    batch.count(groups.looks(group_id))
                    is_due = self._rule(groups, group_id, wall_ms, retention_ms)
            for record in self._end(groups, group_id, expired):
                batch.look(record)
        batch.write()

    def _rule(
        self, groups: ExpiringGroups, group_id: str, wall_ms: int, retention_ms: int
    ) -> Callable[[Partition, CommittedOffset], bool]:
        """Which offsets of the group expire (OffsetExpirationCondition of Apache Kafka)."""
        found = None if group_id in self.groups else groups.needs(group_id)
        if found is None:
            return lambda key, committed: False
        unused_since_ms, needed = found

        def is_due(key: Partition, committed: CommittedOffset) -> bool:
            since_ms = max(committed.commit_wall_ms, unused_since_ms)
            due_ms = committed.expire_wall_ms if committed.expire_wall_ms != NO_EXPIRY else since_ms + retention_ms
            is_used = self._offsets.is_open(group_id, *key) or self._offsets.writes.concern(group_id, key)
            return wall_ms >= due_ms and key[0] not in needed and not is_used

        return is_due

    def _end(self, groups: ExpiringGroups, group_id: str, expired: int) -> list[CoordinatorRecord]:
        """Tombstones of an empty group that has no offsets left."""
        is_used = group_id in self.groups or len(self._offsets.to_delete(group_id)) != expired
        return [] if is_used else groups.end(group_id)


class _Batch:
    """Tombstones of one step. They are written in the same step in which they are decided, before a new commit can arrive."""

    def __init__(self, append: Callable[[Append], None]) -> None:
        self._append = append
        self._records: list[CoordinatorRecord] = []
        self._looked = 0

    @property
    def is_full(self) -> bool:
        """Whether the step has done enough."""
        return self._looked >= STEP_OFFSETS or len(self._records) >= BATCH_RECORDS_MAX

    def look(self, record: CoordinatorRecord | None) -> None:
        """Count one examined item; `record` is its tombstone, None if it stays."""
        self._looked += 1
        if record is not None:
            self._records.append(record)

    def count(self, items: int) -> None:
        """Count what else took as long as `items` examined items."""
        self._looked += items

    def write(self) -> None:
        """End the step: write its tombstones."""
        if self._records:
            self._append(Append(self._records, _ignore))
        self._records, self._looked = [], 0


def _ignore(error: ErrorCode, now_ms: int) -> None:
    """Ignores the error: the next check tries again."""
