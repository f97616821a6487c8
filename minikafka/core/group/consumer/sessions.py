"""Until when the members of consumer groups have to be heard of, to give partitions up, to join again and to ask for their assignment."""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.core.timers import TimerQueue

_SESSION, _REBALANCE, _JOIN, _SYNC = "session", "rebalance", "join", "sync"


class Sessions:
    """Deadlines of members. One that has passed counts until it is known that the member was in time: it may wait for its turn."""

    def __init__(self) -> None:
        #: By kind, group and member.
        self.timers: TimerQueue[tuple[str, str, str]] = TimerQueue()
        self._overdue: set[tuple[str, str, str]] = set()
        self._unrevoked_epochs: dict[tuple[str, str], int] = {}

    def clear(self) -> None:
        """Nothing is due any more."""
        self.timers.clear()
        self._overdue.clear()
        self._unrevoked_epochs.clear()

    def touch(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        """It has been heard of."""
        self._schedule((_SESSION, group_id, member_id), deadline_ms)

    def expect_revocation(self, group_id: str, member_id: str, epoch: int, deadline_ms: int) -> None:
        """It has to give partitions up, which it was told in an epoch."""
        self._unrevoked_epochs[group_id, member_id] = epoch
        self._schedule((_REBALANCE, group_id, member_id), deadline_ms)

    def settle(self, group_id: str, member_id: str) -> None:
        """It has nothing to give up."""
        self._unrevoked_epochs.pop((group_id, member_id), None)
        self._cancel((_REBALANCE, group_id, member_id))

    def expect_join(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        """It was told to join again; the first time counts."""
        key = _JOIN, group_id, member_id
        if key not in self.timers and key not in self._overdue:
            self.timers.schedule(key, deadline_ms)

    def joined(self, group_id: str, member_id: str, sync_deadline_ms: int) -> None:
        """It has, and asks for its assignment now."""
        self._cancel((_JOIN, group_id, member_id))
        self._schedule((_SYNC, group_id, member_id), sync_deadline_ms)

    def synced(self, group_id: str, member_id: str) -> None:
        """It has its assignment."""
        self._cancel((_SYNC, group_id, member_id))

    def forget(self, group_id: str, member_id: str) -> None:
        """It is gone."""
        self._unrevoked_epochs.pop((group_id, member_id), None)
        for kind in (_SESSION, _REBALANCE, _JOIN, _SYNC):
            self._cancel((kind, group_id, member_id))

    def expired(self, now_ms: int) -> Iterator[tuple[str, str, str]]:
        """What is due: kind, group and member."""
        for key in self.timers.expired(now_ms):
            self._overdue.add(key)
            yield key

    def take_overdue(self, key: tuple[str, str, str], member_epoch: int) -> bool:
        """Whether the member was not in time indeed; what it was to give up counts while it is in the epoch in which it was told."""
        if key not in self._overdue:
            return False
        self._overdue.discard(key)
        return key[0] != _REBALANCE or self._unrevoked_epochs.pop(key[1:], None) == member_epoch

    def _schedule(self, key: tuple[str, str, str], deadline_ms: int) -> None:
        self._overdue.discard(key)
        self.timers.schedule(key, deadline_ms)

    def _cancel(self, key: tuple[str, str, str]) -> None:
        self._overdue.discard(key)
        self.timers.cancel(key)
