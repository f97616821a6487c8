"""Handles for tests: one broker of an embedded cluster, and an installed fault."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from minikafka.testing.errors import ClusterError
from minikafka.testing.layout import NodeLayout
from minikafka.testing.wait import wait_until

if TYPE_CHECKING:
    from minikafka.testing.layout import ClusterLayout

START_TIMEOUT_S = 30.0
WAIT_TIMEOUT_S = 15.0
ASK_TIMEOUT_S = 10.0


class Cluster(Protocol):
    """The part of EmbeddedCluster that a BrokerHandle needs."""

    @property
    def layout(self) -> ClusterLayout:
        """Directories, ports and properties of every node."""

    def logs(self) -> str:
        """The last log lines of every broker."""

    def await_start(self, node_id: int, future: Any) -> None:
        """Wait until a broker has started; `future` is that of its process."""

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until every broker is in service."""


class BrokerHandle:
    """One broker of an embedded cluster."""

    def __init__(self, cluster: Cluster, layout: NodeLayout, process: Any) -> None:
        self._cluster = cluster
        self._node = layout
        self.process = process

    def __repr__(self) -> str:
        return f"BrokerHandle({self.node_id}, {self.address}, {'running' if self.running else 'ended'})"

    @property
    def node_id(self) -> int:
        """node.id."""
        return self._node.node_id

    @property
    def port(self) -> int:
        """The port of the client listener."""
        return self._node.port

    @property
    def address(self) -> str:
        """host:port for clients."""
        return self._node.address

    @property
    def http_port(self) -> int | None:
        """The port of /metrics and /ui, or None if they are off."""
        return self._node.http_port

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port that other brokers connect to."""
        return (self._node.port,) if self._node.controller_port is None else (self._node.port, self._node.controller_port)

    @property
    def is_controller(self) -> bool:
        """Whether it is a voter of the metadata quorum."""
        return self._node.controller_port is not None

    @property
    def log_dir(self) -> Path:
        """The directory of its logs."""
        return self._node.log_dir

    @property
    def running(self) -> bool:
        """Whether it is alive; a paused broker is."""
        return bool(self.process.running)

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return bool(self.process.paused)

    def raise_if_dead(self) -> None:
        """Raises ClusterError, with the reason, if the broker has ended by itself."""
        if not self.running:
            failure = self.process.failure
            raise ClusterError(f"broker {self.node_id} has ended{f': {failure}' if failure else ''}\n{self._cluster.logs()}")

    def kill(self) -> None:
        """Kill the broker without a clean shutdown: SIGKILL, or in thread mode drop its sockets and files at once."""
        self.process.kill()

    def terminate(self) -> None:
        """Controlled shutdown: leaderships move away first. Returns when the broker has ended."""
        self.process.terminate()

    def pause(self) -> None:
        """Freeze the broker with its connections open, as SIGSTOP or a long garbage collection does."""
        self.process.pause()

    def resume(self) -> None:
        """Let a paused broker continue."""
        self.process.resume()

    def start(self, *, wipe: bool = False, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start a broker that has ended, with an empty disk if `wipe`. Returns when it is in service and all other brokers list it."""
        if self.running:
            raise ClusterError(f"broker {self.node_id} is running")
        layout = self._cluster.layout
        if wipe:
            layout.wipe(self._node)
        layout.format(self._node)
        self._cluster.await_start(self.node_id, self.process.start())
        self._cluster.wait_ready(timeout_s=timeout_s)

    def restart(self, *, wipe: bool = False, timeout_s: float = START_TIMEOUT_S) -> None:
        """Shut it down cleanly if it runs, and start it."""
        if self.running:
            self.terminate()
        self.start(wipe=wipe, timeout_s=timeout_s)

    def ask(self, command: str, **arguments: Any) -> Any:
        """For this package: run a command of `control.NodeRunner.handle` in the broker. Raises ClusterError."""
        return self.process.ask(command, arguments, ASK_TIMEOUT_S)


class Fault:
    """An installed fault; a context manager that removes it at the end."""

    def __init__(self, installed: list[tuple[BrokerHandle, int]]) -> None:
        self._installed = installed
        self._final = 0

    @property
    def hits(self) -> int:
        """How often it has taken effect, on all brokers together."""
        return self._final + sum(int(broker.ask("fault_hits", number=number)) for broker, number in self._installed if broker.running)

    def wait(self, hits: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until it has taken effect this often. Raises ClusterError."""
        wait_until(lambda: self.hits >= hits, f"{hits} hits of the fault (so far {self.hits})", timeout_s)

    def remove(self) -> int:
        """Remove the fault. Returns how often it has taken effect."""
        installed, self._installed = self._installed, []
        self._final += sum(broker.ask("fault_remove", number=number) for broker, number in installed if broker.running)
        return self._final

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()
