"""The parts of a simulated world as they know each other: each is written against these, and only `world` puts them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.sim.stage import Stage

if TYPE_CHECKING:
    from collections import deque

    from minikafka.client.maintenance import Maintenance
    from minikafka.sim.client import Client
    from minikafka.sim.loop import ProcessLoop
    from minikafka.sim.node import SimNode
    from minikafka.sim.swarm import Fault


class Isolation(Protocol):
    """Transactions as the committed batches tell of them (isolation.Isolation)."""

    def deciding(self, node: SimNode, markers: Any) -> None:
        """Markers are about to be sent."""

    def unrest(self) -> tuple[str, str] | None:
        """What is not at rest yet: a rule and a sentence."""


class Invariants(Protocol):
    """What must hold (invariants.Invariants); `image` is the newest metadata that any node has published."""

    image: Any

    @property
    def world(self) -> World: ...

    @property
    def isolation(self) -> Isolation: ...

    def is_compacted(self, topic: str) -> bool:
        """Whether the cleaner may rewrite the topic's batches."""

    def high_watermark_moved(self, node: SimNode, log: Any, before: int) -> None:
        """A log's high watermark has moved."""

    def truncating(self, node: SimNode, log: Any, offset: int) -> None:
        """A log is about to be cut."""

    def image_published(self, node: SimNode, image: Any) -> None:
        """A node has taken a step of the metadata."""

    def voted(self, node: SimNode, state: Any) -> None:
        """A node has made its election state durable."""

    def recovered(self, node: SimNode, directory: Any) -> None:
        """A node has loaded a log directory."""

    def acknowledging(self, node: SimNode, response: Any, client_id: str) -> None:
        """A broker answers a Produce."""

    def acknowledged(self, partition: int, offset: int, name: str = ...) -> None:
        """A producer has heard of it."""

    def forget_disk(self, node: SimNode) -> None:
        """The node's disk is another one now."""

    def forget_log(self, node: SimNode, directory: str) -> None:
        """One of the node's logs is no more."""

    def has_lost(self, node: SimNode) -> bool:
        """Whether the node lost power and the controller has not heard of it yet."""

    def min_isr(self, topic: str, registration: Any) -> int:
        """What acks=all needs."""

    def active_controller(self) -> int:
        """Node id, -1 without."""

    def voters(self) -> tuple[int, ...]:
        """Of the metadata quorum."""


class Rotten(Protocol):
    """What has rotted (rot.Rot): base offsets by node and directory, and of metadata logs by node."""

    batches: dict[tuple[int, str], set[int]]
    metadata: dict[int, set[int]]

    def of(self, node: SimNode, directory: str) -> set[int]:
        """Base offsets of what is rotten in a log of the node."""


class Chaos(Protocol):
    """Faults (chaos.Chaos); `injected` counts them by kind."""

    injected: Counter[str]

    @property
    def rot(self) -> Rotten: ...

    @property
    def has_rotted(self) -> bool:
        """Whether bits have flipped anywhere."""

    def may_lose_power(self, node: SimNode) -> bool:
        """Whether the protocol survives that the node loses power now."""


class Workload(Protocol):
    """Clients (workload.Workload)."""

    is_over: bool
    consumed: int
    clients: list[Client]

    @property
    def admin(self) -> Callable[..., Maintenance]:
        """An administration client."""


class World(Stage, Protocol):
    """Everything (world.World)."""

    faults: list[Fault]
    is_healed: bool
    loop: ProcessLoop
    lines: deque[tuple[float, str, str]]
    nodes: dict[int, SimNode]

    @property
    def violation(self) -> Exception | None:
        """Why the run has failed."""

    @property
    def invariants(self) -> Invariants: ...

    @property
    def chaos(self) -> Chaos: ...

    @property
    def workload(self) -> Workload: ...

    @property
    def bootstrap(self) -> str:
        """For clients."""

    @property
    def brokers(self) -> Sequence[SimNode]:
        """Nodes with the broker's role."""

    @property
    def controllers(self) -> Sequence[SimNode]:
        """Nodes with the controller's role."""

    def voter_directory_id(self, node_id: int) -> bytes:
        """Of a controller's metadata directory, when voters are dynamic."""
