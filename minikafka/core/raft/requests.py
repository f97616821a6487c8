"""Our requests in flight: one at a time per node, with a timeout and a back-off after a failure (Kafka's RequestManager)."""

from __future__ import annotations

from minikafka.core.raft import messages as m
from minikafka.core.raft.lateness import Lateness
from minikafka.core.raft.types import QuorumConfig
from minikafka.late_dataclass import dataclass


@dataclass(slots=True)
class InFlight:
    """A request that has been sent."""

    node_id: int
    request: m.Request
    sent_ms: int
    deadline_ms: int


class Requests:
    """Requests in flight by id. An id is never used twice."""

    __slots__ = ("_backoff_until", "_busy", "_config", "_in_flight", "_lateness", "_next_id")

    def __init__(self, config: QuorumConfig, lateness: Lateness) -> None:
        self._config = config
        self._lateness = lateness
        self._in_flight: dict[int, InFlight] = {}
        self._busy: dict[int, int] = {}
        self._backoff_until: dict[int, int] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._in_flight)

    def is_busy(self, node_id: int) -> bool:
        return node_id in self._busy

    def ready_at(self, node_id: int) -> int:
        """When the node's back-off ends."""
        return self._backoff_until.get(node_id, 0)

    def deadlines(self) -> list[int]:
        return [entry.deadline_ms for entry in self._in_flight.values()]

    def begin(self, node_id: int, request: m.Request, now_ms: int) -> int | None:
        """The id to send the request with; None if the node is busy or backed off."""
        if node_id in self._busy or self.ready_at(node_id) > now_ms:
            return None
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._in_flight[request_id] = InFlight(node_id, request, now_ms, now_ms + self._lateness.allow(self._config.request_timeout_ms))
        self._busy[node_id] = request_id
        return request_id

    def take(self, request_id: int) -> InFlight | None:
        """None for an answer that came too late, or to a request of an earlier role."""
        entry = self._in_flight.pop(request_id, None)
        if entry is not None:
            self._busy.pop(entry.node_id, None)
        return entry

    def take_expired(self, now_ms: int) -> list[InFlight]:
        expired = [request_id for request_id, entry in self._in_flight.items() if entry.deadline_ms <= now_ms]
        return [entry for request_id in expired if (entry := self.take(request_id)) is not None]

    def back_off(self, node_id: int, now_ms: int) -> None:
        self._backoff_until[node_id] = now_ms + self._config.retry_backoff_ms

    def forgive(self, node_id: int) -> None:
        self._backoff_until.pop(node_id, None)

    def forget(self) -> None:
        """Drop all requests: answers to requests of an earlier role no longer count."""
        self._in_flight.clear()
        self._busy.clear()
        self._backoff_until.clear()
