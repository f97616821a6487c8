"""Apache Kafka's verifiable clients (`org.apache.kafka.tools`), which report each thing they do as a line of JSON."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from helpers import apache_kafka
from helpers.apache_kafka import wait_until
from helpers.shell import minikafka

from minikafka.testing.cluster import ProcessCluster

TOOLS = "org.apache.kafka.tools."
#: A busy machine takes its time; a condition that comes true is never waited for longer than it takes.
PATIENCE_S = 90.0
Place = tuple[str, int, int]


class Client:
    """A verifiable client in a process of its own."""

    def __init__(self, directory: Path, name: str, tool: str, *arguments: str, properties: Mapping[str, str] | None = None) -> None:
        """`properties`: its client properties, in the file of `--command-config`."""
        self._path = directory / f"{name}.jsonl"
        self.command = [*apache_kafka.java(version=apache_kafka.NEXT), TOOLS + tool, *arguments]
        if properties:
            file = directory / f"{name}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            self.command += ["--command-config", str(file)]
        self.process: subprocess.Popen[bytes] | None = None
        self._read, self._events = 0, list[dict[str, Any]]()
        self._earlier = 0  # how many events earlier processes have told

    def start(self) -> None:
        """Start it; what an earlier process has told stays."""
        self._earlier = len(self.events()) if self._path.exists() else 0
        with self._path.open("ab") as output, self._path.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=errors, stdin=subprocess.DEVNULL)

    @contextlib.contextmanager
    def running(self) -> Iterator[Client]:
        """Started, and killed at the end unless it has ended."""
        self.start()
        try:
            yield self
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL: it does not leave its group, and commits nothing."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM: it sends what it holds, leaves its group, and ends. Raises AssertionError unless it says so."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        assert "shutdown" in json.dumps(self.latest()[-3:]).lower(), self.told()

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """What it has told, of one kind or all."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            while (line := file.readline()).endswith(b"\n"):
                self._read += len(line)
                with contextlib.suppress(ValueError):
                    self._events.append(json.loads(line))
        return [event for event in self._events if not name or event.get("name") == name]

    def latest(self) -> list[dict[str, Any]]:
        """What its latest process has told."""
        return self.events()[self._earlier :]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition comes true while this client lives. Raises RuntimeError if it ends before."""

        def holds() -> bool:
            assert self.process is not None
            if condition():
                return True
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended with status {self.process.returncode} before {what}: {self.told()}")
            return False

        wait_until(holds, PATIENCE_S, what)

    def told(self) -> str:
        """The end of what it has printed."""
        return self._path.read_text(errors="replace")[-1500:] + self._path.with_suffix(".err").read_text(errors="replace")[-1500:]


class Producer(Client):
    """VerifiableProducer, acks=all, without retries: values are numbers from 0 on."""

    def __init__(
        self, directory: Path, bootstrap: str, topic: str, *, rate: int = 300, properties: Mapping[str, str] | None = None
    ) -> None:
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(rate), "--acks", "-1")
        super().__init__(directory, "producer", "VerifiableProducer", *where, properties=properties)

    @property
    def acknowledged(self) -> dict[Place, str]:
        """(topic, partition, offset) -> value."""
        return {(event["topic"], event["partition"], event["offset"]): event["value"] for event in self.events("producer_send_success")}

    def more(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        goal = len(self.events("producer_send_success")) + count
        self.wait_for(lambda: len(self.events("producer_send_success")) >= goal, f"{goal} acknowledgements")


class Consumer(Client):
    """VerifiableConsumer of a group."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, name: str, *arguments: str, protocol: str = "consumer") -> None:
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", "group", "--group-protocol", protocol)
        session_ms = "40000" if "--group-instance-id" in arguments else "6000"
        classic = ("--session-timeout", session_ms) if protocol == "classic" else ()
        super().__init__(directory, name, "VerifiableConsumer", *where, *classic, "--reset-policy", "earliest", "--verbose", *arguments)

    @property
    def records(self) -> Counter[Place]:
        """How often each record was read."""
        return Counter((event["topic"], event["partition"], event["offset"]) for event in self.events("record_data"))

    @property
    def assignment(self) -> set[int]:
        """The partitions it owns, by what it was told last."""
        owned: set[int] = set()
        for event in self.events():
            named = {part["partition"] for part in event.get("partitions", ()) if isinstance(part, dict)}
            if event.get("name") == "partitions_assigned":
                owned |= named
            elif event.get("name") == "partitions_revoked":
                owned -= named
        return owned


class ShareConsumer(Client):
    """VerifiableShareConsumer, which acknowledges what it reads."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, name: str) -> None:
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", "shared", "--acknowledgement-mode", "sync")
        super().__init__(directory, name, "VerifiableShareConsumer", *where, "--offset-reset-strategy", "earliest", "--verbose")

    def is_served(self) -> bool:
        """Whether its latest process has acknowledged a record."""
        return any(event.get("name") == "offsets_acknowledged" and event.get("success") for event in self.latest())

    @property
    def acknowledged(self) -> Counter[Place]:
        """How often each record was acknowledged, and the broker said so."""
        found: Counter[Place] = Counter()
        for event in self.events("offsets_acknowledged"):
            for part in event["partitions"] if event.get("success") else ():
                found.update((part["topic"], part["partition"], offset) for offset in part["offsets"])
        return found

    @property
    def unanswered(self) -> set[Place]:
        """What earlier processes of this client had read when they were killed: whether the broker took their acknowledgements, nobody
        knows."""
        open_ones = set[Place]()
        for event in self.events()[: self._earlier]:
            if event.get("name") == "record_data":
                open_ones.add((event["topic"], event["partition"], event["offset"]))
            elif event.get("name") == "offsets_acknowledged" and event.get("success"):
                open_ones -= {(part["topic"], part["partition"], offset) for part in event["partitions"] for offset in part["offsets"]}
        return open_ones


def read_all(cluster: ProcessCluster, topic: str, *, isolation: str = "read_uncommitted") -> dict[Place, str]:
    """Every record of a topic, up to its end. Raises AssertionError if one is read twice."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    reader = confluent_kafka.Consumer({**settings, "isolation.level": isolation, "auto.offset.reset": "earliest", "log_level": 0})
    partitions = cluster.metadata([topic]).topics[0].partitions
    found: dict[Place, str] = {}
    ended: set[int] = set()

    def is_read() -> bool:
        for message in reader.consume(2000, 0.1):
            error, where = message.error(), (topic, message.partition(), message.offset())
            if error is None:
                assert where not in found, f"{where} was read twice"
                found[where] = message.value().decode()
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return len(ended) == len(partitions)

    try:
        reader.assign([confluent_kafka.TopicPartition(topic, partition.partition_index, 0) for partition in partitions])
        wait_until(is_read, PATIENCE_S, f"the end of {topic}")
    finally:
        reader.close()
    return found


def create(cluster: ProcessCluster, topic: str, partitions: int, **configs: str) -> None:
    """A topic with as many replicas as the cluster's default, two of which must be in sync."""
    made = minikafka(
        *("topics", "-b", cluster.bootstrap, "--create", "--topic", topic, "--partitions", str(partitions)),
        *(word for name, value in configs.items() for word in ("--config", f"{name.replace('_', '.')}={value}")),
    )
    assert made.returncode == 0, made.stderr


def leader_of(cluster: ProcessCluster, topic: str, partition: int = 0) -> int:
    """The leader's id, -1 while there is none."""
    found = cluster.metadata([topic]).topics[0].partitions
    return next(one.leader_id for one in found if one.partition_index == partition)


def in_sync(cluster: ProcessCluster, topic: str, replicas: int = 3) -> None:
    """Wait until every replica of the topic is in sync."""

    def whole() -> bool:
        partitions = cluster.metadata([topic]).topics[0].partitions
        return bool(partitions) and all(len(one.isr_nodes) == replicas and one.leader_id >= 0 for one in partitions)

    cluster.wait_for(whole, f"every replica of {topic} to be in sync")


def bounce(cluster: ProcessCluster, node_id: int, *, hard: bool) -> None:
    """Stop a node, by SIGKILL if `hard`, and start it again."""
    if hard:
        cluster.kill(node_id)
    else:
        assert cluster.terminate(node_id) == 0
    cluster.restart(node_id)
