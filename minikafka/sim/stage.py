"""What every process of a simulated world stands on: time, the network, chance, the story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from minikafka.sim.loop import Scheduler
    from minikafka.sim.network import Fabric
    from minikafka.sim.swarm import Options


class Stage(Protocol):
    """The part of a World that knows nothing of its nodes and clients."""

    seed: int
    options: Options
    scheduler: Scheduler
    fabric: Fabric
    cluster_id: str

    @property
    def now(self) -> float:
        """Seconds since the world began."""

    def tell(self, who: str, text: str) -> None:
        """A line of the story."""

    def violate(self, rule: str, text: str) -> None:
        """The run has failed; the first violation counts."""

    def on_error(self, name: str, context: dict[str, Any]) -> None:
        """An exception that nobody took (S24)."""
