"""What every process of a simulated world needs: time, the network, randomness, the log of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from minikafka.sim.loop import Scheduler
    from minikafka.sim.network import Fabric
    from minikafka.sim.swarm import Options


class Stage(Protocol):
    """The part of a World that does not depend on its nodes and clients."""

    seed: int
    options: Options
    scheduler: Scheduler
    fabric: Fabric
    cluster_id: str

    @property
    def now(self) -> float:
        """Seconds since the world began."""

    def record_event(self, source: str, text: str) -> None:
        """Record an event for the story of a failed run."""

    def violate(self, rule: str, text: str) -> None:
        """The run has failed; the first violation counts."""

    def on_error(self, name: str, context: dict[str, Any]) -> None:
        """Report an unhandled exception (S24)."""
