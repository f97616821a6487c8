"""The interfaces between the parts of a simulated world. Each part depends on these alone; only `world` puts the parts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.sim.stage import Stage

if TYPE_CHECKING:
    from collections import deque

    from minikafka.client.maintenance import Maintenance
    from minikafka.sim.client import Client
    from minikafka.sim.loop import ProcessLoop
    from minikafka.sim.node import SimNode
    from minikafka.sim.replicas import Batch, Truth
    from minikafka.sim.swarm import Fault


class Isolation(Protocol):
    """The transactions in the committed batches (isolation.Isolation)."""

    def deciding(self, node: SimNode, markers: Any) -> None:
        """Markers are about to be sent."""

    def unrest(self) -> tuple[str, str] | None:
        """Why transactions are not at rest yet, as (rule, text), or None."""


class Memberships(Protocol):
    """The consumer groups in the committed batches (memberships.Memberships)."""

    def committed(self, node: SimNode, log: Any, batch: Batch) -> None:
        """A batch of the groups' topic is below a high watermark."""

    def answered(self, node: SimNode, response: Any, client_id: str) -> None:
        """A heartbeat of a consumer group is answered."""

    def streams_answered(self, node: SimNode, response: Any) -> None:
        """A heartbeat of a streams group is answered."""

    def unrest(self) -> tuple[str, str] | None:
        """Why the group is not at rest yet, as (rule, text), or None."""


class DeadLetters(Protocol):
    """The dead-letter queue of the share group (dead_letters.DeadLetters)."""

    def arrived(self, place: tuple[int, int], value: bytes | None) -> None:
        """The topic has a record."""

    def unwritten(self, batch: bytes) -> None:
        """A leader could not write a batch, and has given up."""

    def missing(self) -> list[tuple[int, int]]:
        """The records that the topic must have and does not."""

    def judge(self, final: dict[tuple[int, int], bytes]) -> None:
        """Compare the contents with those of the topic itself."""


class Shares(Protocol):
    """The history of the share group (shares.Shares)."""

    @property
    def letters(self) -> DeadLetters: ...

    def acquired(self, node: SimNode, partition: Any, runs: Iterable[Any]) -> None:
        """A leader gives out records."""

    def trying(self, attempt: Any) -> None:
        """A member is about to acknowledge a record."""

    def answered(self, attempts: list[Any], code: int) -> None:
        """A leader has answered acknowledgements."""

    def unsettled(self, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The records that must still be delivered."""


class Invariants(Protocol):
    """The invariants (invariants.Invariants); `image` is the newest metadata that any node has published. `checked` counts how often each
    rule was exercised."""

    image: Any
    checked: Counter[str]
    #: Batches of clients that were appended together with others of their partition.
    appended_together: int
    truths: dict[tuple[bytes, int], Truth]

    @property
    def world(self) -> World: ...

    @property
    def isolation(self) -> Isolation: ...

    @property
    def memberships(self) -> Memberships: ...

    @property
    def shares(self) -> Shares: ...

    def is_compacted(self, topic: str) -> bool:
        """Whether the cleaner may rewrite the topic's batches."""

    def high_watermark_moved(self, node: SimNode, log: Any, before: int) -> None:
        """A log's high watermark has moved."""

    def truncating(self, node: SimNode, log: Any, offset: int) -> None:
        """A log is about to be truncated."""

    def truncated(self, log: Any) -> None:
        """A log has been truncated."""

    def image_published(self, node: SimNode, image: Any) -> None:
        """A node has published a metadata image."""

    def metadata_fetched(self, node: SimNode, reply: Any) -> None:
        """A node of the quorum answers a fetch."""

    def voted(self, node: SimNode, state: Any) -> None:
        """A node has made its election state durable."""

    def recovered(self, node: SimNode, directory: Any) -> None:
        """A node has loaded a log directory."""

    def acknowledging(self, node: SimNode, response: Any, client_id: str) -> None:
        """A broker answers a Produce."""

    def acknowledged(self, partition: int, offset: int, name: str = ...) -> None:
        """An acknowledgement has reached a producer."""

    def forget_disk(self, node: SimNode) -> None:
        """The node has got a new disk."""

    def forget_log(self, node: SimNode, directory: str) -> None:
        """One of the node's logs has been removed."""

    def has_lost(self, node: SimNode) -> bool:
        """Whether the node lost power and has not registered again since, as far as the metadata say."""

    def min_isr(self, topic: str, registration: Any) -> int:
        """The effective min.insync.replicas of a partition."""

    def active_controller(self) -> int:
        """Node id of the active controller, or -1."""

    def voters(self) -> tuple[int, ...]:
        """Node ids of the metadata quorum's voters."""


class Rotten(Protocol):
    """The rotten batches (rot.Rot): base offsets by node and directory, and for metadata logs by node."""

    batches: dict[tuple[int, str], set[int]]
    metadata: dict[int, set[int]]

    def of(self, node: SimNode, directory: str) -> set[int]:
        """Base offsets of the rotten batches in a log of the node."""


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


class GroupHistory(Protocol):
    """What one group has read and committed (history.GroupHistory). The commits are history.Commit."""

    def read(self, partition: int, offset: int) -> None:
        """A member read a record."""

    def committing(self, partition: int, offset: int) -> Any:
        """A member is about to commit."""

    def committed(self, commit: Any) -> None:
        """The coordinator has acknowledged the commit."""

    def refused(self, commit: Any) -> None:
        """The coordinator has refused the commit."""


class Workload(Protocol):
    """Clients (workload.Workload)."""

    is_over: bool
    consumed: int
    clients: list[Client]

    def group(self, name: str) -> GroupHistory:
        """What a group has read and committed."""

    @property
    def admin(self) -> Callable[..., Maintenance]:
        """Makes an admin client."""

    def took(self, name: str, group: GroupHistory, records: list[Any]) -> None:
        """A member of a group has polled records."""


class World(Stage, Protocol):
    """The whole world (world.World)."""

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
        """bootstrap.servers for clients."""

    @property
    def brokers(self) -> Sequence[SimNode]:
        """Nodes with the broker's role."""

    @property
    def controllers(self) -> Sequence[SimNode]:
        """Nodes with the controller's role."""

    def voter_directory_id(self, node_id: int) -> bytes:
        """The directory id of a controller's metadata log, with dynamic voters."""
