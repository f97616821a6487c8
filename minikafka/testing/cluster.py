"""A cluster of broker processes on this machine, for the demo and for tests, with methods that break it on purpose.

The first nodes are combined broker and controller (or controllers only), the others brokers. They use free ports of 127.0.0.1. Storage is
under one directory, which is removed at the end unless the caller gave it. A node dies with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from minikafka.testing.errors import ClusterError
from minikafka.testing.leftovers import TemporaryDirectory
from minikafka.testing.ports import ReservedPorts
from minikafka.testing.probe import led_epoch, metadata
from minikafka.testing.proxy import FaultyNetwork
from minikafka.testing.wait import wait_until
from minikafka.wire.errors import WireError
from minikafka.wire.messages.metadata import MetadataResponse
from minikafka.wire.uuid import uuid_to_text

__all__ = ["EMBEDDED_PROPERTIES", "ClusterError", "ClusterNode", "ProcessCluster", "free_ports"]

#: Properties that let a small cluster on one machine start quickly and notice a dead broker quickly.
EMBEDDED_PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "500",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "250",
    "replica.lag.time.max.ms": "5000",
    "log.segment.delete.delay.ms": "500",
}
PR_SET_PDEATHSIG = 1
STOP_TIMEOUT_S = 10.0


@dataclass(slots=True)
class ClusterNode:
    """One node: its ports, its files and its process; `process` is None until the first start."""

    node_id: int
    port: int
    controller_port: int | None
    directory: Path
    is_broker: bool = True
    #: The ports that other nodes and clients connect to: a proxy's (see proxy.py), or else the node's own.
    front_port: int = -1
    front_controller_port: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.front_port < 0:
            self.front_port, self.front_controller_port = self.port, self.controller_port

    @property
    def log_dir(self) -> Path:
        """The broker's only entry of `log.dirs`."""
        return self.directory / "data"

    @property
    def config_path(self) -> Path:
        """The node's server.properties."""
        return self.directory / "server.properties"

    @property
    def output_path(self) -> Path:
        """The file with the process's output."""
        return self.directory / "broker.log"

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    @property
    def ended(self) -> bool:
        """Whether the process was started and has ended by itself, not by SIGKILL."""
        return self.process is not None and self.process.poll() not in (None, -signal.SIGKILL)

    @property
    def roles(self) -> str:
        """Value of `process.roles`."""
        if self.controller_port is None:
            return "broker"
        return "broker,controller" if self.is_broker else "controller"


def _replication_properties(brokers: int) -> dict[str, str]:
    """Replication factors that are possible with this number of brokers."""
    replicas = str(min(brokers, 3))
    factors = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "share.coordinator.state.topic.replication.factor": replicas,
        "default.replication.factor": replicas,
    }
    isr = ("min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")
    return factors if brokers >= 3 else {**factors, **dict.fromkeys(isr, "1")}


class ProcessCluster:
    """Brokers as processes; a context manager."""

    def __init__(
        self,
        size: int = 3,
        *,
        controllers: int = 1,
        dedicated: bool = False,
        properties: Mapping[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
        node_properties: Mapping[int, Mapping[str, str]] | None = None,
        environment: Mapping[str, str] | None = None,
        faulty_network: bool = False,
        directory: Path | None = None,
        release: str | None = None,
    ) -> None:
        """`properties` are added to `EMBEDDED_PROPERTIES`; `racks` sets `broker.rack` by node id, `node_properties` any property. With
        `dedicated` the controllers are not brokers; `size` counts them nevertheless. `environment` is added to that of the processes. With
        `faulty_network` all connections go through `network`, which can cut and delay them. Features have the levels of `release`, or
        those of a new cluster."""
        self._temporary = None
        if directory is None:
            self._temporary = TemporaryDirectory("minikafka-")
            directory = self._temporary.path
        self.directory = directory
        self._ports = ReservedPorts(size + controllers)
        ports = self._ports.numbers
        self.nodes: dict[int, ClusterNode] = {}
        for number in range(size):
            node_id = number + 1
            controller_port = ports[size + number] if number < controllers else None
            self.nodes[node_id] = ClusterNode(
                node_id,
                ports[number],
                controller_port,
                self.directory / f"broker-{node_id}",
                is_broker=controller_port is None or not dedicated,
            )
        self.network = FaultyNetwork(self._processes) if faulty_network else None
        if self.network is not None:
            for node in self.nodes.values():
                node.front_port = self.network.front(node.node_id, node.port)
                if node.controller_port is not None:
                    node.front_controller_port = self.network.front(node.node_id, node.controller_port)
        brokers = sum(node.is_broker for node in self.nodes.values())
        self._properties = {**EMBEDDED_PROPERTIES, **_replication_properties(brokers), **(properties or {})}
        self._node_extras = {node_id: dict((node_properties or {}).get(node_id, {})) for node_id in self.nodes}
        for node_id, rack in (racks or {}).items():
            self._node_extras[node_id]["broker.rack"] = rack
        self._environment = dict(environment or {})
        self._release = release
        self.cluster_id = ""

    def _processes(self) -> dict[int, int]:
        return {node.process.pid: node.node_id for node in self.nodes.values() if node.process is not None}

    # -- life ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> ProcessCluster:
        try:
            self.format()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def format(self) -> None:
        """Write the properties files and format the storage of every node."""
        self.cluster_id = uuid_to_text(uuid.uuid4().bytes)
        for node in self.nodes.values():
            node.directory.mkdir(parents=True, exist_ok=True)
            lines = [f"{name}={value}" for name, value in self._node_properties(node).items()]
            node.config_path.write_text("\n".join(lines) + "\n")
            self._format(node)

    def _format(self, node: ClusterNode) -> None:
        from minikafka.broker.config.broker_config import BrokerConfig
        from minikafka.broker.quorum.format import FormatError, format_storage
        from minikafka.storage.filesystem import OsFileSystem

        config, now_ms = BrokerConfig.from_properties(self._node_properties(node)), time.time_ns() // 1_000_000
        try:
            format_storage(
                OsFileSystem(),
                config,
                cluster_id=self.cluster_id,
                wall_ms=now_ms,
                random_bytes=os.urandom,
                release_version=self._release,
            )
        except FormatError as error:
            raise ClusterError(f"storage format failed: {error}") from error

    def _node_properties(self, node: ClusterNode) -> dict[str, str]:
        voters = [n for n in self.nodes.values() if n.controller_port is not None]
        listeners = [f"PLAINTEXT://127.0.0.1:{node.port}"] if node.is_broker else []
        if node.controller_port is not None:
            listeners.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
        properties = {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(f"{n.node_id}@127.0.0.1:{n.front_controller_port}" for n in voters),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(node.log_dir),
            **self._properties,
        }
        advertised = [f"PLAINTEXT://127.0.0.1:{node.front_port}"] if node.is_broker else []
        if node.controller_port is not None:
            advertised.append(f"CONTROLLER://127.0.0.1:{node.front_controller_port}")
        properties["advertised.listeners"] = ",".join(advertised)
        return {**properties, **self._node_extras[node.node_id]}

    def start(self, timeout_s: float = 30.0) -> None:
        """Start every node and wait until each broker lists all of them."""
        for node in self.nodes.values():
            self._spawn(node)
        self.wait_for_brokers(timeout_s=timeout_s)

    def _spawn(self, node: ClusterNode) -> None:
        with node.output_path.open("ab") as output:
            node.process = subprocess.Popen(
                [sys.executable, "-m", "minikafka", "start", "--config", str(node.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment, **node.environment},
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
            )

    def close(self) -> None:
        """Stop every node, by SIGTERM and after a timeout SIGKILL, and remove the directory if it is a temporary one."""
        # Controllers last: a broker's controlled shutdown needs the controller.
        for is_controller in (False, True):
            self._stop([node for node in self.nodes.values() if (node.controller_port is not None) == is_controller])
        if self.network is not None:
            self.network.close()
        self._ports.release()
        if self._temporary is not None:
            self._temporary.remove()

    @staticmethod
    def _stop(nodes: list[ClusterNode]) -> None:
        for node in nodes:
            if node.process is not None and node.running:
                node.process.send_signal(signal.SIGCONT)
                node.process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for node in nodes:
            if node.process is not None:
                try:
                    node.process.wait(max(deadline - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    node.process.kill()
                    node.process.wait()

    # -- faults ----------------------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """SIGKILL: no flush, no controlled shutdown."""
        process = self._process(node_id)
        process.kill()
        process.wait()

    def terminate(self, node_id: int, timeout_s: float = 20.0) -> int:
        """Send SIGTERM and wait for the end. Returns the exit status."""
        process = self._process(node_id)
        process.terminate()
        return process.wait(timeout_s)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: the node hangs with its connections open."""
        self._process(node_id).send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self._process(node_id).send_signal(signal.SIGCONT)

    def restart(self, node_id: int, *, timeout_s: float = 30.0) -> None:
        """Start a node that has ended, and wait until it is a live broker again."""
        self.spawn(node_id)
        self.wait_for_brokers(timeout_s=timeout_s)

    def spawn(self, node_id: int) -> None:
        """Start a node that has ended, without waiting for it."""
        node = self.nodes[node_id]
        if node.running:
            raise ClusterError(f"node {node_id} is still running")
        self._spawn(node)

    def wipe(self, node_id: int) -> None:
        """Give a node that has ended a new, empty disk, formatted for the same cluster."""
        node = self.nodes[node_id]
        if node.running:
            raise ClusterError(f"node {node_id} is still running")
        shutil.rmtree(node.log_dir)
        self._format(node)

    def _process(self, node_id: int) -> subprocess.Popen[bytes]:
        process = self.nodes[node_id].process
        if process is None:
            raise ClusterError(f"node {node_id} was never started")
        return process

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for a client."""
        return ",".join(f"127.0.0.1:{node.front_port}" for node in self.nodes.values() if node.is_broker)

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """The metadata response of any running broker. Raises ClusterError if none answers."""
        failures: list[str] = []
        for node in self.nodes.values():
            if node.running and node.is_broker:
                try:
                    return metadata("127.0.0.1", node.port, topics)
                except (OSError, WireError) as error:
                    failures.append(f"node {node.node_id}: {error}")
        raise ClusterError("no broker answers: " + "; ".join(failures))

    def metadata_of(self, node_id: int, topics: list[str] | None = None) -> MetadataResponse:
        """The metadata response of one broker. Raises OSError and WireError."""
        return metadata("127.0.0.1", self.nodes[node_id].port, topics)

    def active_controller(self) -> int:
        """The controller that claims to lead the quorum, in the highest epoch if several do; -1 while there is none."""
        found: list[tuple[int, int]] = []
        for node in self.nodes.values():
            if node.running and node.controller_port is not None:
                with contextlib.suppress(OSError, WireError):
                    epoch = led_epoch("127.0.0.1", node.controller_port)
                    found += [] if epoch is None else [(epoch, node.node_id)]
        return max(found, default=(0, -1))[1]

    def wait_for_brokers(self, *, timeout_s: float = 30.0) -> None:
        """Wait until every running broker's metadata lists exactly the running brokers."""
        expected = {node.node_id for node in self.nodes.values() if node.running and node.is_broker}

        def agreed() -> bool:
            for node in self.nodes.values():
                if node.process is None or node.node_id not in expected:
                    continue
                if not node.running:
                    raise ClusterError(f"node {node.node_id} ended with status {node.process.returncode}")
                if {b.node_id for b in metadata("127.0.0.1", node.port, []).brokers} != expected:
                    return False
            return True

        self.wait_for(agreed, f"brokers {sorted(expected)} to know each other", timeout_s=timeout_s)

    def wait_for(self, condition: Callable[[], bool], what: str, *, timeout_s: float = 30.0) -> None:
        """Poll until `condition` holds; a connection error counts as not yet. Raises ClusterError."""
        wait_until(condition, what, timeout_s, self.logs)

    def logs(self, lines_max: int = 15) -> str:
        """The end of every node's output."""
        parts = []
        for node in self.nodes.values():
            tail = node.output_path.read_text(errors="replace").splitlines()[-lines_max:] if node.output_path.exists() else []
            parts.append("\n".join([f"--- node {node.node_id} ({'running' if node.running else 'ended'})", *tail]))
        return "\n".join(parts)


def free_ports(count: int) -> list[int]:
    """Ports that are free at the moment."""
    with contextlib.ExitStack() as stack:
        return [port for port in _bound_ports(stack, count)]


def _bound_ports(stack: contextlib.ExitStack, count: int) -> Iterator[int]:
    for _ in range(count):
        holder = stack.enter_context(socket.socket())
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
