"""Clusters in which some nodes are Apache Kafka and some minikafka, with the same properties, on one machine.

A node keeps its directory, id and ports when it is restarted as the other kind.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from helpers import apache_kafka
from helpers.apache_kafka import free_ports, run_tool, wait_until

from minikafka.security.client import ClientSecurity
from minikafka.testing.probe import exchange, metadata
from minikafka.wire.errors import WireError
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest

KAFKA, KAFKA_NEXT, MINI = "kafka", "kafka-next", "minikafka"
#: The release that a node of a kind runs.
RELEASES = {KAFKA: apache_kafka.VERSION, KAFKA_NEXT: apache_kafka.NEXT}
BROKER, CONTROLLER, BOTH = "broker", "controller", "broker,controller"


def other_kind(kind: str) -> str:
    return MINI if kind == KAFKA else KAFKA


REPOSITORY = Path(__file__).parents[2]
#: So that no node outlives a test run that is killed, where util-linux can do that.
DIE_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
#: Apache Kafka's errors that say nothing about its peers: a request that came while it started or took office, a heartbeat that it had no
#: time to read; an event of its own controller that took two seconds, on a busy machine; what was being written as leadership moved or
#: followers were late, and a batch that overtook the one before then (a loss is seen otherwise); a write of a share partition's leader
#: that has been replaced, which its share coordinator refuses; the batch of a group coordinator that has been replaced while it waited,
#: whose clients are told to look for the new one; share sessions that end, and requests whose metrics are gone already, as it stops.
HARMLESS = "|".join([
    "NotControllerException", r"raftManager\(\)\" is null", "controller event queue overloaded", "Exceptionally slow controller event",
    "NotLeaderOrFollowerException", "OutOfOrderSequenceException", "NotEnoughReplicasException",
    "Write request leader epoch is smaller than last recorded",
    r"Execution of FlushBatch failed due to .*\(CoordinatorRuntime\)\n.*NotCoordinatorException",
    "while releasing acquired topic partitions", r"RequestMetrics\$ErrorMeter",
])  # fmt: skip


def errors(output: str) -> list[str]:
    """Lines of a node at ERROR or FATAL, and tracebacks of ours, each with the line after it, but for the harmless ones."""
    lines = output.splitlines()
    return [
        f"{line}\n    {following}"
        for line, following in itertools.zip_longest(lines, lines[1:], fillvalue="")
        if re.search(r" (ERROR|FATAL) |^Traceback", line) and not re.search(HARMLESS, f"{line}\n{following}")
    ]


#: The same for both kinds. Sessions are long enough for a JVM on a busy machine, and short enough for a test to see them end.
PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "2500",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "5000",
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "10485760",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}

LOG4J = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = STDOUT
appender.stdout.name = STDOUT
appender.stdout.type = Console
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %m (%c{1})%n%xEx
"""


@dataclass(slots=True)
class MixedNode:
    """One node: what it is now, and where it keeps things."""

    node_id: int
    kind: str
    roles: str
    directory: Path
    port: int
    controller_port: int
    overrides: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        """Its only entry of log.dirs."""
        return self.directory / "data"

    @property
    def properties_path(self) -> Path:
        return self.directory / "server.properties"

    @property
    def output_path(self) -> Path:
        return self.directory / "output.txt"

    @property
    def output(self) -> str:
        return self.output_path.read_text(errors="replace") if self.output_path.exists() else ""

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def address(self) -> str:
        """Of its broker listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    @property
    def directory_id(self) -> str:
        """The directory id of meta.properties, as text."""
        found = re.search(r"^directory\.id=(\S+)$", (self.data / "meta.properties").read_text(), re.MULTILINE)
        assert found is not None
        return found[1]


class MixedCluster:
    """`nodes`: (node id, kind, roles). A context manager: at its end no process is left."""

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[tuple[int, str, str]],
        *,
        properties: Mapping[str, str] | None = None,
        dynamic: bool = False,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """`dynamic`: the quorum's voters are in the log (KIP-853), and `format` is told who they are. `security`: the client properties
        with which the helper looks at a cluster whose `properties` secure it."""
        self.security = ClientSecurity.from_properties(security or {})
        self.directory = directory
        ports = free_ports(2 * len(nodes))
        self.nodes = {
            node_id: MixedNode(node_id, kind, roles, directory / f"node-{node_id}", ports[2 * index], ports[2 * index + 1])
            for index, (node_id, kind, roles) in enumerate(nodes)
        }
        brokers = sum(node.is_broker for node in self.nodes.values())
        factor = str(min(max(brokers, 1), 3))
        self._properties = {
            **PROPERTIES,
            "offsets.topic.replication.factor": factor,
            "default.replication.factor": factor,
            "min.insync.replicas": "2" if brokers >= 3 else "1",
            **(properties or {}),
        }
        self.dynamic = dynamic
        self.cluster_id = "minikafka-with-kafkaAA"
        directory.mkdir(parents=True, exist_ok=True)
        self._log4j = directory / "log4j2.properties"
        self._log4j.write_text(LOG4J)

    def __enter__(self) -> MixedCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            print("\n".join([str(self.directory), self.logs(), "--- errors", *self.errors()]))
        self.close()

    # -- formatting ------------------------------------------------------------------------------------------------

    def properties(self, node: MixedNode) -> dict[str, str]:
        """The node's server.properties."""
        controllers = [other for other in self.nodes.values() if other.is_controller]
        listeners = [f"PLAINTEXT://{node.address}"] if node.is_broker else []
        if node.is_controller:
            listeners.append(f"CONTROLLER://{node.controller_address}")
        quorum = (
            {"controller.quorum.bootstrap.servers": ",".join(other.controller_address for other in controllers)}
            if self.dynamic
            else {"controller.quorum.voters": ",".join(f"{other.node_id}@{other.controller_address}" for other in controllers)}
        )
        return {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(node.data),
            **quorum,
            **self._properties,
            **node.overrides,
        }

    def write_properties(self, node: MixedNode) -> None:
        node.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in self.properties(node).items()]
        node.properties_path.write_text("".join(lines))

    def format(self, *node_ids: int, options: Iterable[str] = ()) -> None:
        """Format with the tool of the node's kind; all nodes if none is named. `options` of `storage format`."""
        running = []
        for node_id in node_ids or self.nodes:
            node = self.nodes[node_id]
            self.write_properties(node)
            arguments = ["format", "-t", self.cluster_id, "-c", str(node.properties_path), *options]
            if node.kind in RELEASES:
                command = [*apache_kafka.java(version=RELEASES[node.kind]), "kafka.tools.StorageTool", *arguments]
            else:
                command = [sys.executable, "-B", "-m", "minikafka", "storage", *arguments]
            running.append(subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for process in running:
            output, _ = process.communicate()
            if process.returncode:
                raise RuntimeError(f"storage format failed: {output}")

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self, *node_ids: int, kind: str | None = None, wait: bool = True) -> None:
        """Start nodes (all if none is named), from now on as `kind` if it is given."""
        for node_id in node_ids or self.nodes:
            node = self.nodes[node_id]
            assert not node.running
            if kind is not None:
                node.kind = kind
            self.write_properties(node)
            with node.output_path.open("ab") as output:
                node.process = subprocess.Popen(
                    [*DIE_WITH_PARENT, *self._command(node)], cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
                )  # fmt: skip
        if wait:
            self.wait_for_brokers()

    def _command(self, node: MixedNode) -> list[str]:
        if node.kind in RELEASES:
            option = f"-Dlog4j2.configurationFile={self._log4j}"
            return [*apache_kafka.java(option, heap_mb=320, version=RELEASES[node.kind]), "kafka.Kafka", str(node.properties_path)]
        return [sys.executable, "-B", "-m", "minikafka", "start", "--config", str(node.properties_path)]

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        process = self._process(node_id)
        process.kill()
        process.wait()

    def pause(self, node_id: int) -> None:
        """SIGSTOP: it hangs with its connections open."""
        self._process(node_id).send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self._process(node_id).send_signal(signal.SIGCONT)

    def stop(self, node_id: int, timeout_s: float = 30.0) -> int:
        """SIGTERM; the exit status."""
        process = self._process(node_id)
        process.terminate()
        return process.wait(timeout_s)

    def _process(self, node_id: int) -> subprocess.Popen[bytes]:
        process = self.nodes[node_id].process
        assert process is not None
        return process

    def close(self) -> None:
        """Stop brokers first, then controllers; kill those that do not stop."""
        for is_controller in (False, True):
            nodes = [node for node in self.nodes.values() if node.is_controller is is_controller and node.running]
            for node in nodes:
                self.resume(node.node_id)
                self._process(node.node_id).terminate()
            deadline = time.monotonic() + 10
            for node in nodes:
                assert node.process is not None
                try:
                    node.process.wait(max(deadline - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    node.process.kill()
                    node.process.wait()

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values() if node.is_broker)

    @property
    def controllers(self) -> str:
        """For `--bootstrap-controller`."""
        return ",".join(node.controller_address for node in self.nodes.values() if node.is_controller and node.running)

    def wait_for_brokers(self, timeout_s: float = 60.0) -> None:
        """Wait until every running broker lists exactly the running brokers."""
        expected = {node.node_id for node in self.nodes.values() if node.running and node.is_broker}

        def agreed() -> bool:
            for node in self.nodes.values():
                if node.process is not None and node.process.poll() not in (None, -signal.SIGKILL, -signal.SIGTERM, 0, 143):
                    raise RuntimeError(f"node {node.node_id} ended with status {node.process.returncode}\n{node.output[-3000:]}")
            for node in self.nodes.values():
                if node.node_id in expected:
                    brokers = metadata("127.0.0.1", node.port, [], 5.0, self.security).brokers
                    if {broker.node_id for broker in brokers} != expected:
                        return False
            return True

        self.wait_for(agreed, f"brokers {sorted(expected)} to know each other", timeout_s)

    def wait_for(self, condition: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
        """Wait until `condition()`; a node that does not answer counts as false."""

        def holds() -> bool:
            with contextlib.suppress(OSError, WireError):
                return bool(condition())
            return False

        wait_until(holds, timeout_s, what)

    def partitions(self, topic: str) -> dict[int, tuple[int, set[int]]]:
        """(leader, in-sync replicas) by partition, as some running broker says."""
        for node in self.nodes.values():
            if node.running and node.is_broker:
                with contextlib.suppress(OSError, WireError):
                    answer = metadata("127.0.0.1", node.port, [topic], 5.0, self.security)
                    return {p.partition_index: (p.leader_id, set(p.isr_nodes)) for p in answer.topics[0].partitions}
        return {}

    def describe_quorum(self, *, without: int = -1) -> Any:
        """DescribeQuorum's answer about the metadata partition, of the leader of the latest epoch; None if there is none. Node `without`
        is not asked."""
        found = None
        kind = DescribeQuorumRequest
        topic = kind.TopicData(topic_name="__cluster_metadata", partitions=[kind.PartitionData(partition_index=0)])
        for node in self.nodes.values():
            if node.running and node.is_controller and node.node_id != without:
                with contextlib.suppress(OSError, WireError):
                    answer: Any = exchange("127.0.0.1", node.controller_port, kind(topics=[topic]), 2, 2)
                    partition = answer.topics[0].partitions[0]
                    if partition.error_code == 0 and (found is None or partition.leader_epoch > found.leader_epoch):
                        found = partition
        return found

    def quorum_leader(self, *, without: int = -1) -> tuple[int, int]:
        """(epoch, node id) of the metadata quorum's leader as it says itself, (-1, -1) if there is none."""
        found = self.describe_quorum(without=without)
        return (found.leader_epoch, found.leader_id) if found is not None else (-1, -1)

    def wait_for_leader(self, after_epoch: int = -1, timeout_s: float = 30.0) -> tuple[int, int]:
        """(epoch, node id) of a leader of a later epoch than `after_epoch`."""
        self.wait_for(lambda: self.quorum_leader()[0] > after_epoch, f"a leader of the quorum after epoch {after_epoch}", timeout_s)
        return self.quorum_leader()

    def wait_for_isr(self, topic: str, expected: set[int], timeout_s: float = 40.0) -> None:
        """Until every partition of the topic has exactly this in-sync set and a leader in it."""

        def agreed() -> bool:
            found = self.partitions(topic)
            return bool(found) and all(isr == expected and leader in isr for leader, isr in found.values())

        self.wait_for(agreed, f"the in-sync replicas of {topic} to be {sorted(expected)}", timeout_s)

    def logs(self, lines_max: int = 25) -> str:
        """The end of every node's output."""
        parts = []
        for node in self.nodes.values():
            state = "running" if node.running else "ended"
            parts.append("\n".join([f"--- node {node.node_id}: {node.kind}, {state}", *node.output.splitlines()[-lines_max:]]))
        return "\n".join(parts)

    def errors(self) -> list[str]:
        """As `errors`, of all nodes."""
        return [f"node {node.node_id}: {found}" for node in self.nodes.values() for found in errors(node.output)]

    def check_errors(self) -> None:
        """The test fails if there are any, with the first one; all of them are the last that `__exit__` prints."""
        found = self.errors()
        if found:
            pytest.fail(f"{len(found)} errors, first {found[0][:500]}", pytrace=False)

    # -- tools -----------------------------------------------------------------------------------------------------

    def quorum(self, *arguments: str) -> str:
        """kafka-metadata-quorum through the brokers."""
        return run_tool("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", self.bootstrap, *arguments)

    def controller_quorum(self, *arguments: str) -> str:
        """kafka-metadata-quorum through the controllers."""
        return run_tool("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller", self.controllers, *arguments)
