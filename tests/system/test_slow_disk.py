"""A broker whose disk is slow, as a process: every call that may wait for a disk takes long, and what was in the page cache is gone. Its
clients go on, nothing is lost, and the event loop waits for hardly anything."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from chaos import disk
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.shell import minikafka

from minikafka.testing.cluster import ProcessCluster

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(disk.compiler() is None, reason="needs a C compiler"),
]
DELAY_MS = 100
SLOW = 2
PARTITIONS = 3
#: What the event loop still waits for, each a call: a roll creates its `.log` file; a new replica its directory and three files; retention
#: renames the files of segments, and the deletion of a topic its directories, after a look at the descriptors that are left.
ALLOWED = re.compile(
    r"create [^ ]*/\d{20}\.log|open /meta\.properties|create [^ ]*/leader-epoch-checkpoint|mkdir [^ ]*-\d+"
    r"|create [^ ]*/partition\.metadata(\.\d+)?\.tmp|rename [^ ]*/partition\.metadata(\.\d+)?\.tmp"
    r"|rename [^ ]*/\d{20}\.(log|index|timeindex|txnindex|snapshot)|rename /[^/ ]*-\d+"
)
PROPERTIES = {
    "log.retention.check.interval.ms": "1000", "log.flush.offset.checkpoint.interval.ms": "1000", "log.segment.delete.delay.ms": "500",
    "replica.lag.time.max.ms": "20000", "broker.session.timeout.ms": "9000",
}  # fmt: skip


@pytest.fixture
def disks() -> dict[int, disk.FaultyDisk]:
    return {}


@pytest.fixture
def cluster(tmp_path: Path, disks: dict[int, disk.FaultyDisk]) -> Iterator[ProcessCluster]:
    library = disk.build(tmp_path)
    made = ProcessCluster(3, controllers=1, directory=tmp_path / "cluster", properties=PROPERTIES)
    for node_id, node in made.nodes.items():
        disks[node_id] = disk.FaultyDisk(library, tmp_path / f"disk-{node_id}", node.log_dir)
        node.environment.update(disks[node_id].environment)
    with made:
        yield made


class Load:
    """Numbers that are written to a topic, and read."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.bootstrap = cluster.bootstrap
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "batch.size": 4096}
        self._producer = confluent_kafka.Producer(settings)
        self.acknowledged: dict[str, int] = Counter()
        self.errors: list[str] = []

    def create(self, topic: str, **configs: str) -> None:
        made = self.admin.create_topics([NewTopic(topic, PARTITIONS, 3, config=configs)])
        made[topic].result(60)

    def write(self, topic: str, count: int) -> None:
        """Write records of 2 KB, and wait until they are acknowledged."""

        def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged[topic] += 1
            else:
                self.errors.append(str(error))

        for number in range(count):
            self._producer.produce(topic, bytes(2000), partition=number % PARTITIONS, on_delivery=delivered)
            self._producer.poll(0.002)
        assert self._producer.flush(120) == 0

    def read(self, topic: str, group: str) -> int:
        """Read all that is left of a topic, and commit."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
        ends = [consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, index), 60) for index in range(PARTITIONS)]
        consumer.subscribe([topic])
        left, count = sum(high - low for low, high in ends), 0
        while count < left:
            message = consumer.poll(60)
            assert message is not None and message.error() is None, message
            count += 1
        consumer.commit(asynchronous=False)
        times = [confluent_kafka.TopicPartition(topic, index, 1000 * int(time.time() - 3600)) for index in range(PARTITIONS)]
        assert all(found.offset >= 0 for found in consumer.offsets_for_times(times, timeout=60))
        consumer.close()
        return count


def test_the_event_loop_waits_for_no_disk(cluster: ProcessCluster, disks: dict[int, disk.FaultyDisk]) -> None:
    load = Load(cluster)
    small = {"internal.segment.bytes": "100000", "segment.bytes": "1048576"}
    load.create("t", **small)
    load.create("old", **small, **{"retention.bytes": "150000"})
    for topic in ("t", "old"):
        load.write(topic, 400)
    slow = disks[SLOW]
    slow.slow(DELAY_MS)
    load.write("t", 300)
    assert load.read("t", "readers") == 700
    assert load.read("old", "readers")
    load.create("new", **small)
    load.write("new", 30)
    assert load.read("new", "others") == 30
    assert minikafka("log-dirs", "-b", cluster.bootstrap, "--describe").returncode == 0
    load.admin.delete_topics(["new"])["new"].result(60)
    load.write("old", 100)
    slow.heal()
    load.write("t", 10)
    waited, elsewhere = slow.delayed_on_loop, slow.delayed
    print(Counter(re.sub(r"[0-9a-f-]{32,}|\d+", "N", call) for call in waited), elsewhere)
    assert not load.errors and elsewhere > len(waited) > 0
    assert sorted({call for call in waited if not ALLOWED.fullmatch(call)}) == []
    rolls = sum(call.endswith(".log") and call.startswith("create") and "/t-" in call for call in waited)
    assert 0 < rolls <= 300 * 2000 // 100_000 + 2 * PARTITIONS
    audit = minikafka("audit", *(str(node.log_dir) for node in cluster.nodes.values()))
    assert audit.returncode == 0, audit.stdout
