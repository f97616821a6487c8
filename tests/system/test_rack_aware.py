"""Consumers read from the replica in their own rack (KIP-392): who served what, by the brokers' own counters."""

from __future__ import annotations

import http.client
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from helpers.shell import minikafka
from prometheus_client.parser import text_string_to_metric_families

from minikafka.testing.cluster import ProcessCluster, free_ports
from minikafka.testing.wait import LoadAdjustedDeadline

COUNT = 2000
VALUE_BYTES = 200
RACKS = {1: "a", 2: "b", 3: "c"}
DEADLINE_S = 30.0
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
pytestmark = pytest.mark.timeout(90)


class Racks:
    """Three brokers in three racks, a topic led by broker 1, and their metrics."""

    def __init__(self, cluster: ProcessCluster, ports: dict[int, int]) -> None:
        self.cluster = cluster
        self._ports = ports

    def bytes_out(self) -> dict[int, float]:
        """What each broker has sent to consumers (not to followers) of the topic."""
        return {node_id: self._bytes_out(port) for node_id, port in self._ports.items()}

    @staticmethod
    def _bytes_out(port: int) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        wanted = "kafka_server_brokertopicmetrics_bytesout_total"
        return sum(sample.value for sample in samples if sample.name == wanted and sample.labels.get("topic") == "near")


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    directory: Path = tmp_path_factory.mktemp("racks")
    ports = dict(zip(RACKS, free_ports(3), strict=True))
    cluster = ProcessCluster(
        3,
        racks=RACKS,
        properties={"replica.selector.class": SELECTOR},
        node_properties={node_id: {"minikafka.http.port": str(port)} for node_id, port in ports.items()},
        directory=directory,
    )
    with cluster:
        made = minikafka("topics", "-b", cluster.bootstrap, "--create", "--topic", "near", "--replica-assignment", "1:2:3")
        assert made.returncode == 0, made.stderr
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        for number in range(COUNT):
            producer.produce("near", f"{number:0{VALUE_BYTES}d}".encode())
        assert producer.flush(DEADLINE_S) == 0
        assert cluster.metadata(["near"]).topics[0].partitions[0].leader_id == 1
        yield Racks(cluster, ports)


def read(bootstrap: str, rack: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest", "client.rack": rack,
            "check.crcs": True, "fetch.message.max.bytes": 20_000,
        }
    )  # fmt: skip
    consumer.subscribe(["near"])
    found: list[bytes] = []
    deadline = LoadAdjustedDeadline(DEADLINE_S)
    while len(found) < COUNT and not deadline.is_over:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize(("rack", "server"), [("a", 1), ("b", 2), ("c", 3), ("elsewhere", 1)])
def test_confluent_kafka_is_served_in_its_rack(racks: Racks, rack: str, server: int) -> None:
    before = racks.bytes_out()
    assert read(racks.cluster.bootstrap, rack) == [f"{number:0{VALUE_BYTES}d}".encode() for number in range(COUNT)]
    served = {node_id: after - before[node_id] for node_id, after in racks.bytes_out().items()}
    assert served[server] > COUNT * VALUE_BYTES, served
    assert sum(served.values()) == served[server], "nobody else sent a record"


def test_the_bundled_client_is_served_in_its_rack(racks: Racks) -> None:
    before = racks.bytes_out()
    done = minikafka("consume", "near", "-b", racks.cluster.bootstrap, "--rack", "c", "--from-beginning", "--exit-at-end")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == COUNT, done.stderr
    served = {node_id: after - before[node_id] for node_id, after in racks.bytes_out().items()}
    assert served[3] > COUNT * VALUE_BYTES and served[1] == served[2] == 0, served


def test_the_leader_serves_when_the_follower_is_gone(racks: Racks) -> None:
    racks.cluster.kill(3)
    before = Racks._bytes_out(racks._ports[1])
    assert len(read(racks.cluster.bootstrap, "c")) == COUNT
    assert Racks._bytes_out(racks._ports[1]) - before > COUNT * VALUE_BYTES
