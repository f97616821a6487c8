"""Assigns partitions to fetchers: `num.replica.fetchers` for each leader, chosen by topic and index (AbstractFetcherManager)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minikafka.broker.partitions.fetcher import Fetcher
from minikafka.core.java_hash import string_hash
from minikafka.counted import counted

if TYPE_CHECKING:
    from minikafka.broker.partitions.partition import Partition, PartitionEvents
    from minikafka.broker.partitions.replication import Replication

logger = logging.getLogger("minikafka.fetcher")


class FetcherManager:
    """Assigns followed partitions to fetchers. `follow` and `unfollow` are idempotent."""

    def __init__(self, replication: Replication, events: PartitionEvents) -> None:
        self._replication = replication
        self._events = events
        self._count: int = replication.config.num_replica_fetchers
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._assigned: dict[tuple[str, int], Fetcher] = {}
        self._started = False
        #: Leaders whose connection broke and that have been unreachable since. The set is changed in place.
        self.lost_leaders: set[int] = set()
        # A changed rate may allow fetches that were held back.
        replication.throttles.watch(self._wake_all)

    @property
    def fetchers(self) -> Iterable[Fetcher]:
        """The running fetchers."""
        return self._fetchers.values()

    def fetcher_id(self, topic: str, index: int) -> int:
        """As in Java: 31 * topic.hashCode() + partition, masked, modulo num.replica.fetchers (AbstractFetcherManager)."""
        return ((31 * string_hash(topic) + index) & 0x7FFFFFFF) % self._count

    def resize(self, count: int) -> None:
        """num.replica.fetchers has changed: reassign all partitions, each from the end of its local log."""
        if count == self._count:
            return
        logger.info("%s for each leader instead of %d", counted(count, "fetcher"), self._count)
        self._count = count
        self.follow([partition for fetcher in self._fetchers.values() for partition in fetcher.partitions.values()])

    def follow(self, partitions: list[Partition]) -> None:
        """Fetch these partitions from their leaders."""
        touched: dict[tuple[int, int], Fetcher] = {}
        for partition in partitions:
            self.unfollow(partition)
            key = (partition.leader_id, self.fetcher_id(partition.topic, partition.index))
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = Fetcher(self._replication, self._events, self._note_reach, *key)
            fetcher.add(partition)
            self._assigned[partition.key] = fetcher
            touched[key] = fetcher
        if self._started:
            for fetcher in touched.values():
                fetcher.wake()

    def _note_reach(self, leader_id: int, is_reached: bool) -> None:
        if is_reached:
            self.lost_leaders.discard(leader_id)
        else:
            self.lost_leaders.add(leader_id)

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        fetcher = self._assigned.pop(partition.key, None)
        if fetcher is not None:
            fetcher.remove(partition)
            if not fetcher.partitions:
                fetcher.close("nothing left to fetch")
                self._fetchers.pop(fetcher.key, None)
                self.lost_leaders.discard(fetcher.leader_id)

    def brokers_changed(self, brokers: Iterable[int]) -> None:
        """Registrations changed: a leader may have a new address or be a new incarnation."""
        for fetcher in list(self._fetchers.values()):
            if fetcher.leader_id in brokers:
                fetcher.leader_changed()

    async def start(self) -> None:
        """Start fetching."""
        self._started = True
        self._wake_all()

    def _wake_all(self) -> None:
        if self._started:
            for fetcher in list(self._fetchers.values()):
                fetcher.wake()

    async def stop(self) -> None:
        """Close every connection."""
        self._started = False
        for fetcher in list(self._fetchers.values()):
            fetcher.close("the broker is stopping")
        self._fetchers.clear()
        self._assigned.clear()
