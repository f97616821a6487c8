"""The nodes of a cluster that is written as files: ids, listeners and server.properties.

A node is given as `ID@HOST:PORT[:CONTROLLER_PORT]` or as its server.properties file; or only the number of nodes on localhost is given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from minikafka.addresses import host_port, split_host_port
from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError, load_properties
from minikafka.spark.cluster_segments import FilesFailed

FIRST_PORT = 9092
NODE_ID_MAX = 2**31 - 1
_NODE = re.compile(r"(?P<id>\d+)@(?P<host>\[[^\]]+\]|[^:\[\]\s]+):(?P<port>\d+)(?::(?P<controller>\d+))?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Properties that set log directories. They are replaced by the directory that is written.
_PLACES = ("log.dir", "log.dirs", "metadata.log.dir")


@dataclass(slots=True)
class NodePlan:
    """One node. `properties` lack only `log.dirs`, which is set once the directory is known."""

    node_id: int
    properties: dict[str, str]
    config: BrokerConfig

    @property
    def folder(self) -> str:
        return f"node-{self.node_id}"

    @property
    def is_broker(self) -> bool:
        return self.config.is_broker

    @property
    def is_controller(self) -> bool:
        return self.config.is_controller

    def configured(self, data: str) -> BrokerConfig:
        """The configuration with its log directory at `data`. Raises FilesFailed."""
        return _config({**self.properties, "log.dirs": data}, self.folder)

    def write_properties(self, path: str, data: str) -> None:
        """server.properties with `log.dirs` = `data`."""
        lines = [
            "# Written by `minikafka load --to-files`; for minikafka and for Apache Kafka 4.3.",
            f"# Start this node: minikafka start --config {os.path.dirname(data)}/server.properties",
            *(f"{name}={value}" for name, value in {**self.properties, "log.dirs": data}.items()),
        ]
        with open(path, "x", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def plan_nodes(given: Sequence[str], count: int = 3) -> list[NodePlan]:
    """The given nodes, or `count` nodes on localhost, sorted by id. Raises FilesFailed."""
    files = [text for text in given if "@" not in os.path.basename(text) and (text.endswith(".properties") or os.path.exists(text))]
    if files and len(files) != len(given):
        raise FilesFailed("--node: give either server.properties files or ID@HOST:PORT, not both")
    if files:
        plans = [_from_file(path) for path in files]
        _check_quorum(plans)
    else:
        plans = _from_addresses([_parse(text) for text in given] or [_counted(number) for number in range(count)])
    plans.sort(key=lambda plan: plan.node_id)
    ids = [plan.node_id for plan in plans]
    if len(set(ids)) != len(ids):
        raise FilesFailed(f"--node: node {next(number for number in ids if ids.count(number) > 1)} is given twice")
    if not any(plan.is_broker for plan in plans):
        raise FilesFailed("--node: none of the nodes is a broker (process.roles), so there is nowhere to put the records")
    _check_addresses(plans)
    return plans


@dataclass(frozen=True, slots=True)
class _Address:
    node_id: int
    host: str
    port: int
    controller_port: int


def _counted(number: int) -> _Address:
    port = FIRST_PORT + 2 * number
    return _Address(number + 1, "localhost", port, port + 1)


def _parse(text: str) -> _Address:
    found = _NODE.fullmatch(text.strip())
    if found is None:
        raise FilesFailed(f"--node {text}: expected ID@HOST:PORT[:CONTROLLER_PORT], as in 1@kafka1:9092, or a server.properties file")
    try:
        host, port = split_host_port(f"{found['host']}:{found['port']}")
    except ValueError:
        raise FilesFailed(f"--node {text}: ports are 1 to 65535, and an IPv6 address is in brackets, as in 1@[::1]:9092") from None
    address = _Address(int(found["id"]), host, port, int(found["controller"] or port + 1))
    if not (0 < port < 65536 and 0 < address.controller_port < 65536 and address.node_id <= NODE_ID_MAX):
        raise FilesFailed(f"--node {text}: ports are 1 to 65535, node ids 0 to {NODE_ID_MAX}")
    return address


def _from_addresses(addresses: Sequence[_Address]) -> list[NodePlan]:
    voters = ",".join(f"{one.node_id}@{host_port(one.host, one.controller_port)}" for one in sorted(addresses, key=lambda one: one.node_id))
    replicas = str(min(3, len(addresses)))
    plans = []
    for one in addresses:
        bind = one.host if one.host in _LOOPBACK else "::" if ":" in one.host else "0.0.0.0"
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(one.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{host_port(bind, one.port)},CONTROLLER://{host_port(bind, one.controller_port)}",
            "advertised.listeners": f"PLAINTEXT://{host_port(one.host, one.port)}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, len(addresses))),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, len(addresses))),
            # The first node to start leads every partition. Let the preferred leaders take over sooner than after five minutes.
            "leader.imbalance.check.interval.seconds": "10",
        }
        plans.append(NodePlan(one.node_id, properties, _config({**properties, "log.dirs": "unset"}, f"node {one.node_id}")))
    return plans


def _from_file(path: str) -> NodePlan:
    try:
        properties = {name: value for name, value in load_properties(path).items() if name not in _PLACES}
    except ConfigurationError as error:
        raise FilesFailed(f"--node {path}: {'; '.join(error.problems)}") from error
    config = _config({**properties, "log.dirs": "unset"}, path)
    return NodePlan(config.node_id, properties, config)


def _config(properties: dict[str, str], what: str) -> BrokerConfig:
    try:
        return BrokerConfig.from_properties(properties)
    except ConfigurationError as error:
        raise FilesFailed(f"--node {what}: {'; '.join(error.problems)}") from error


def _check_quorum(plans: Sequence[NodePlan]) -> None:
    """Check that all nodes belong to one quorum and that every voter is given."""
    controllers = {plan.node_id for plan in plans if plan.is_controller}
    if not controllers:
        raise FilesFailed("--node: none of the nodes is a controller (process.roles); give the controllers' server.properties too")
    quorums = {tuple(sorted(plan.config.voters.items())) for plan in plans}
    if len(quorums) > 1:
        raise FilesFailed("--node: controller.quorum.voters differs between the server.properties; all nodes need the same")
    missing = sorted(set(plans[0].config.voters) - controllers)
    if missing:
        raise FilesFailed(f"--node: controller.quorum.voters names node {missing[0]}, whose server.properties is not given")


def _check_addresses(plans: Sequence[NodePlan]) -> None:
    """Check that no two nodes advertise the same address."""
    taken: dict[tuple[str, int], int] = {}
    for plan in plans:
        own = {(endpoint.host, endpoint.port) for endpoint in plan.config.advertised.values() if endpoint.host not in ("", "0.0.0.0", "::")}
        for host, port in sorted(own):
            other = taken.setdefault((host, port), plan.node_id)
            if other != plan.node_id:
                raise FilesFailed(f"--node: nodes {other} and {plan.node_id} would both listen on {host_port(host, port)}")
