"""An append that waits for its replicas: the single rule for answering acks=all (kafka.server.DelayedProduce)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Protocol

from minikafka.core.partition.leader import PartitionLeader
from minikafka.wire.errors import ErrorCode


class LedReplica(Protocol):
    """A replica that this broker may lead."""

    @property
    def leader(self) -> PartitionLeader | None:
        """The current leadership of the partition, None if this broker does not lead it."""


def replication_result(replica: LedReplica, leader: PartitionLeader | None, required: int) -> ErrorCode | None:
    """NONE if everything before offset `required`, which `leader` appended, is replicated; None if it is not replicated yet; otherwise why
    it can no longer be replicated in this epoch.

    Only the leadership that appended the records can tell that they are replicated. A new epoch cannot, not even on the same broker; the
    producer finds out by retrying."""
    if leader is None or replica.leader is not leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return leader.is_replicated(required)


class ReplicationWait(ABC):
    """A DelayedOperation of the purgatory for produce requests. Subclasses implement `settled`, which is called once."""

    __slots__ = ("_leader", "_replica", "_required", "is_done")

    def __init__(self, replica: LedReplica, leader: PartitionLeader | None, required: int) -> None:
        """`leader` appended the records; everything before offset `required` has to be replicated."""
        self._replica = replica
        self._leader = leader
        self._required = required
        self.is_done = False

    def try_complete(self, key: Hashable = None) -> bool:
        """Settle if everything is replicated, or can no longer be replicated in this epoch."""
        code = replication_result(self._replica, self._leader, self._required)
        if code is None:
            return False
        self.is_done = True
        self.settled(code)
        return True

    def expire(self) -> None:
        """The time is up: REQUEST_TIMED_OUT, although the records may still be replicated."""
        self.is_done = True
        self.settled(ErrorCode.REQUEST_TIMED_OUT)

    @abstractmethod
    def settled(self, code: ErrorCode) -> None:
        """The append ended: `code` is NONE, or the reason why it may not be replicated."""
