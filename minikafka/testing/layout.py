"""Directories, ports and properties of the nodes of an embedded cluster; formats their storage without a process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minikafka.addresses import host_port
from minikafka.testing.errors import ClusterError, WrongConfiguration
from minikafka.testing.ports import HOST, ReservedPorts

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.testing.security import SecuredCluster

#: Properties that let a test cluster start, rebalance and notice a dead broker quickly; `config` overrides them.
QUICK_PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
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
    "group.min.session.timeout.ms": "500",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.backoff.ms": "100",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "1000",
    "log.segment.delete.delay.ms": "500",
    "log.segment.bytes": str(64 << 20),
    "log.index.size.max.bytes": str(1 << 20),
}
REPLICAS_DEFAULT = 3
#: Names of the listeners, whatever their security protocol.
LISTENER, CONTROLLER_LISTENER = "PLAINTEXT", "CONTROLLER"


@dataclass(slots=True)
class NodeLayout:
    """One node: its id, its ports on 127.0.0.1 (`controller_port` None if it is only a broker) and its directory."""

    node_id: int
    port: int
    controller_port: int | None
    directory: Path
    properties: dict[str, str]
    http_port: int | None = None

    @property
    def log_dir(self) -> Path:
        """The only entry of `log.dirs`."""
        return self.directory / "data"

    @property
    def address(self) -> str:
        """host:port for clients."""
        return host_port(HOST, self.port)


def _node_properties(node: NodeLayout, voters: str) -> dict[str, str]:
    """Role, name, listeners and log directory of a node; `voters`: `controller.quorum.voters`."""
    listeners = f"{LISTENER}://{host_port(HOST, node.port)}"
    if node.controller_port is not None:
        listeners += f",{CONTROLLER_LISTENER}://{host_port(HOST, node.controller_port)}"
    return {
        "process.roles": "broker" if node.controller_port is None else "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": voters,
        "listeners": listeners,
        "controller.listener.names": CONTROLLER_LISTENER,
        "log.dirs": str(node.log_dir),
    }


def _cluster_properties(brokers: int) -> dict[str, str]:
    """`QUICK_PROPERTIES`, and replication factors that are possible with this number of brokers."""
    replicas = str(min(brokers, REPLICAS_DEFAULT))
    return {
        **QUICK_PROPERTIES,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "2" if brokers > 2 else "1",
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "2" if brokers > 2 else "1",
        "default.replication.factor": replicas,
    }


class ClusterLayout:
    """Nodes 1 to `brokers`, the first `controllers` of which are controllers too, under one directory."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        controllers: int,
        config: Mapping[str, str],
        racks: Mapping[int, str],
        cluster_id: str | None = None,
        *,
        first_port: int = 0,
        first_http_port: int | None = None,
        secured: SecuredCluster | None = None,
    ) -> None:
        """`first_port`: the brokers listen on this and the following ports, 0 = any free ones. `first_http_port`: likewise, None = no HTTP.
        Raises OSError if a port is taken."""
        from minikafka.wire.uuid import uuid_to_text

        self.directory = directory
        self._scram_users = [] if secured is None else secured.scram_users()
        self.cluster_id = cluster_id or uuid_to_text(_random_uuid())
        http = brokers if first_http_port is not None else 0
        ports = tuple(range(first_port, first_port + brokers)) if first_port else ()
        self.ports = ReservedPorts(brokers + controllers, ports)
        http_ports = tuple(range(first_http_port, first_http_port + brokers)) if first_http_port else ()
        self._http_ports = ReservedPorts(http, http_ports)
        numbers = self.ports.numbers
        voters = ",".join(f"{n + 1}@{host_port(HOST, numbers[brokers + n])}" for n in range(controllers))
        self.nodes: dict[int, NodeLayout] = {}
        for index in range(brokers):
            node_id = index + 1
            controller_port = numbers[brokers + index] if index < controllers else None
            node = NodeLayout(node_id, numbers[index], controller_port, directory / f"broker-{node_id}", {})
            node.properties = {
                **_node_properties(node, voters),
                **({"broker.rack": racks[node_id]} if node_id in racks else {}),
                **({} if secured is None else secured.broker_properties(LISTENER, CONTROLLER_LISTENER)),
                **_cluster_properties(brokers),
                **config,
            }
            if http:
                node.http_port = self._http_ports.numbers[index]
                node.properties |= {"minikafka.http.port": str(node.http_port), "minikafka.http.host": HOST}
            self.nodes[node_id] = node

    def format(self, node: NodeLayout) -> None:
        """Format the node's storage unless it is formatted, and write its server.properties, which nothing reads: it is for people. Raises
        WrongConfiguration, ClusterError, OSError."""
        from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError
        from minikafka.broker.quorum.format import FormatError

        try:
            config = BrokerConfig.from_properties(node.properties)
        except ConfigurationError as error:
            raise WrongConfiguration(str(error)) from error
        node.directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in node.properties.items())
        (node.directory / "server.properties").write_text(text, encoding="utf-8")
        try:
            self._format_storage(config)
        except FormatError as error:
            raise ClusterError(f"broker {node.node_id} cannot start: {error}") from error

    def _format_storage(self, config: BrokerConfig) -> None:
        from minikafka.broker.quorum.format import format_storage
        from minikafka.storage.filesystem import OsFileSystem

        format_storage(
            OsFileSystem(),
            config,
            cluster_id=self.cluster_id,
            wall_ms=time.time_ns() // 1_000_000,
            random_bytes=os.urandom,
            ignore_formatted=True,
            add_scram=self._scram_users,
        )

    def release(self) -> None:
        """Release the reserved ports."""
        self.ports.release()
        self._http_ports.release()

    def wipe(self, node: NodeLayout) -> None:
        """Delete the node's data."""
        shutil.rmtree(node.log_dir, ignore_errors=True)


def _random_uuid() -> bytes:
    import uuid

    return uuid.uuid4().bytes
