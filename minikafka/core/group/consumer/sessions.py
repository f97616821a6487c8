"""Deadlines of the members of consumer groups: to send a heartbeat, to revoke partitions, to rejoin and to send SyncGroup."""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.core.timers import TimerQueue

_SESSION, _REBALANCE, _JOIN, _SYNC = "session", "rebalance", "join", "sync"
#: When the coordinator tries again what a deadline demands and could not be written (CoordinatorTimer).
RETRY_MS = 500


class Sessions:
    """Deadlines of members. A passed deadline stays overdue until it turns out that the member was in time, because its request may still
    wait for its turn."""

    def __init__(self) -> None:
        #: By kind, group and member.
        self.timers: TimerQueue[tuple[str, str, str]] = TimerQueue()
        self._overdue: set[tuple[str, str, str]] = set()
        self._unrevoked_epochs: dict[tuple[str, str], int] = {}

    def clear(self) -> None:
        """Cancel all deadlines."""
        self.timers.clear()
        self._overdue.clear()
        self._unrevoked_epochs.clear()

    def touch(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        """The member sent a request: its session now lasts until `deadline_ms`."""
        self._schedule((_SESSION, group_id, member_id), deadline_ms)

    def expect_revocation(self, group_id: str, member_id: str, epoch: int, deadline_ms: int) -> None:
        """The member has to revoke partitions until `deadline_ms`. `epoch`: the member epoch in which it was asked to."""
        self._unrevoked_epochs[group_id, member_id] = epoch
        self._schedule((_REBALANCE, group_id, member_id), deadline_ms)

    def settle(self, group_id: str, member_id: str) -> None:
        """The member has no partitions to revoke."""
        self._unrevoked_epochs.pop((group_id, member_id), None)
        self._cancel((_REBALANCE, group_id, member_id))

    def expect_join(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        """The member was told to rejoin. If it is told several times, the first deadline counts."""
        key = _JOIN, group_id, member_id
        if key not in self.timers and key not in self._overdue:
            self.timers.schedule(key, deadline_ms)

    def joined(self, group_id: str, member_id: str, sync_deadline_ms: int) -> None:
        """The member has rejoined and must send SyncGroup until `sync_deadline_ms`."""
        self._cancel((_JOIN, group_id, member_id))
        self._schedule((_SYNC, group_id, member_id), sync_deadline_ms)

    def synced(self, group_id: str, member_id: str) -> None:
        """The member has received its assignment."""
        self._cancel((_SYNC, group_id, member_id))

    def forget(self, group_id: str, member_id: str) -> None:
        """The member is gone: cancel its deadlines."""
        self._unrevoked_epochs.pop((group_id, member_id), None)
        for kind in (_SESSION, _REBALANCE, _JOIN, _SYNC):
            self._cancel((kind, group_id, member_id))

    def expired(self, now_ms: int) -> Iterator[tuple[str, str, str]]:
        """The deadlines that have passed: (kind, group id, member id)."""
        for key in self.timers.expired(now_ms):
            self._overdue.add(key)
            yield key

    def take_overdue(self, key: tuple[str, str, str], member_epoch: int) -> bool:
        """Whether the member really missed the deadline. A revocation counts only while the member is in the epoch in which it was asked to
        revoke."""
        if key not in self._overdue:
            return False
        self._overdue.discard(key)
        return key[0] != _REBALANCE or self._unrevoked_epochs.pop(key[1:], None) == member_epoch

    def try_again(self, key: tuple[str, str, str], member_epoch: int, now_ms: int) -> None:
        """The removal of a member that missed the deadline could not be written."""
        if key in self.timers:
            return
        if key[0] == _REBALANCE:
            self._unrevoked_epochs.setdefault((key[1], key[2]), member_epoch)
        self._schedule(key, now_ms + RETRY_MS)

    def _schedule(self, key: tuple[str, str, str], deadline_ms: int) -> None:
        self._overdue.discard(key)
        self.timers.schedule(key, deadline_ms)

    def _cancel(self, key: tuple[str, str, str]) -> None:
        self._overdue.discard(key)
        self.timers.cancel(key)
