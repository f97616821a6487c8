"""The audit of running clusters under load: over the wire, of the directories under the brokers' hands, and both mixed; no false alarm."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.mixed_cluster import BOTH, BROKER, KAFKA, MINI, MixedCluster

from minikafka.spark import report as reporting
from minikafka.spark.audit import UNPROVEN, AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

PROPERTIES = {
    "log.cleaner.backoff.ms": "300", "log.retention.check.interval.ms": "400", "log.segment.delete.delay.ms": "200",
    "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "1",
    "metadata.log.max.record.bytes.between.snapshots": "8000", "replica.high.watermark.checkpoint.interval.ms": "500",
}  # fmt: skip
TOPICS = {
    "plain": {},
    "rolling": {"segment.bytes": "1048576", "retention.bytes": "2097152"},
    "compact": {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "60000"},
    "packed": {},
}


class Load:
    """Writers in threads: plain and compressed records, keys over and over, transactions of which every third is aborted."""

    def __init__(self, bootstrap: str, transactions: bool) -> None:
        self.bootstrap, self.stopping, self.acknowledged = bootstrap, threading.Event(), 0
        self.failures: list[str] = []
        self.threads = [threading.Thread(target=self._guard, args=(self._records,))]
        if transactions:
            self.threads.append(threading.Thread(target=self._guard, args=(self._transactions,)))

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def _guard(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.failures.append(repr(error))

    def _records(self) -> None:
        common = {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        plain = Producer(common)
        packed = Producer({**common, "compression.type": "zstd"})
        generator = random.Random(1)

        def taken(error: Any, _: Any) -> None:
            self.acknowledged += error is None

        while not self.stopping.is_set():
            value = generator.randbytes(generator.choice([20, 400, 3000]))
            with contextlib.suppress(BufferError):
                plain.produce("plain", value, partition=generator.randrange(3), callback=taken)
                plain.produce("rolling", value, partition=0, callback=taken)
                plain.produce("compact", value if generator.random() < 0.9 else None, key=b"%d" % generator.randrange(50), callback=taken)
                packed.produce("packed", value, key=b"%d" % generator.randrange(9), headers={"h": b"1"}, callback=taken)
            plain.poll(0.001)
            packed.poll(0)
        plain.flush(30)
        packed.flush(30)

    def _transactions(self) -> None:
        number = 0
        while not self.stopping.is_set():
            options = {"transactional.id": "t", "log_level": 0, "transaction.timeout.ms": 10_000}
            producer = Producer({"bootstrap.servers": self.bootstrap, **options})
            with contextlib.suppress(KafkaException):  # a transaction that a dying broker spoilt: another producer fences it and goes on
                producer.init_transactions(60)
                while not self.stopping.is_set():
                    number += 1
                    producer.begin_transaction()
                    for partition in range(2):
                        producer.produce("plain", b"in a transaction", partition=partition)
                        producer.produce("compact", b"%d" % number, key=b"txn-%d" % (number % 7), partition=0)
                    (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(20)


def audit(paths: list[str], bootstrap: str = "", level: str = "batches", proof: bool = True) -> dict[str, Any]:
    """No finding but notes. Without `proof` nothing need be compared: high watermarks on disk are older than the records.

    The cleaner runs every 300 ms: on a slow machine it replaces the segments of the compacted topic at each reading of a directory.
    """
    report = reporting.build(run_audit(paths, LocalEngine(1), AuditOptions(bootstrap=bootstrap, level=level)))
    wrong = [(found["check"], found["topic"], found["partition"], found["brokers"], found["message"]) for found in report["findings"]
             if found["level"] != "note"]  # fmt: skip
    assert wrong == [], wrong
    restless = {(found["topic"], found["partition"]) for found in report["findings"]
                if paths and found["topic"] == "compact" and "replaced or cut during each of" in found["message"]}  # fmt: skip
    unproven = [(one["topic"], one["partition"], one["verdict"]) for one in report["partitions"]
                if one["verdict"] in UNPROVEN and (one["topic"], one["partition"]) not in restless]  # fmt: skip
    assert not unproven or (paths and not proof), (unproven, report["findings"])
    assert report["outcome"] == "PASS" or restless or (paths and not proof)
    assert report["summary"]["batches_compared"] > 0 or (paths and not proof)
    return report


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, 3, 3, config=config) for name, config in TOPICS.items()]).values():
        future.result(30)


def look_at_it(cluster: MixedCluster, load: Load, victim: int, seconds: float) -> int:
    """Audit in every way for a while, with a broker killed and started again in the middle; returns how many audits there were."""
    directories = [str(node.data) for node in cluster.nodes.values()]
    count = 0
    for phase in ("all run", "one is dead", "it is back"):
        if phase == "one is dead":
            cluster.kill(victim)
        if phase == "it is back":
            cluster.start(victim)
            cluster.wait_for_isr("plain", set(cluster.nodes))
        end, before = time.monotonic() + seconds, load.acknowledged
        cluster.wait_for(lambda before=before: load.acknowledged > before, "the writer to go on")
        while time.monotonic() < end:
            level = "records" if count % 2 else "batches"
            if phase != "one is dead":
                audit([], cluster.bootstrap, level)
                audit(directories[:1], cluster.bootstrap, level)
            audit(directories, level=level, proof=False)
            count += 1
        assert load.failures == []
    return count


def settled(cluster: MixedCluster, load: Load) -> None:
    """When the writers are done: everything that was written is compared, on the wire and on disk, running and stopped."""
    directories = [str(node.data) for node in cluster.nodes.values()]
    live = audit([], cluster.bootstrap, "records")
    assert live["summary"]["records_compared"] > 0 and load.acknowledged > 1000
    for node_id in list(cluster.nodes)[:0:-1]:
        cluster.stop(node_id, 60)
    cluster.kill(1)  # without a quorum it would wait for one
    stopped = audit(directories, level="records")
    assert {one["verdict"] for one in stopped["partitions"]} <= {"MATCH", "EMPTY", "LAGGING", "TRUNCATION_PENDING"}


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(240)
def test_three_brokers_of_apache_kafka_under_load(tmp_path: Path) -> None:
    with MixedCluster(tmp_path, [(node, KAFKA, BOTH) for node in (1, 2, 3)], properties=PROPERTIES) as cluster:
        cluster.format()
        cluster.start()
        create(cluster.bootstrap)
        with Load(cluster.bootstrap, transactions=True) as load:
            audits = look_at_it(cluster, load, victim=3, seconds=6)
        settled(cluster, load)
    print(f"{audits} audits under load, {load.acknowledged} records acknowledged", file=sys.stderr)


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(240)
def test_brokers_of_both_kinds_under_load(tmp_path: Path) -> None:
    nodes = [(1, KAFKA, BOTH), (2, MINI, BROKER), (3, MINI, BROKER)]
    with MixedCluster(tmp_path, nodes, properties=PROPERTIES) as cluster:
        cluster.format()
        cluster.start()
        create(cluster.bootstrap)
        with Load(cluster.bootstrap, transactions=True) as load:
            look_at_it(cluster, load, victim=3, seconds=4)
        settled(cluster, load)


@pytest.mark.interop
@pytest.mark.timeout(120)
def test_three_brokers_of_ours_under_load(tmp_path: Path) -> None:
    with MixedCluster(tmp_path, [(1, MINI, BOTH), (2, MINI, BROKER), (3, MINI, BROKER)], properties=PROPERTIES) as cluster:
        cluster.format()
        cluster.start()
        create(cluster.bootstrap)
        with Load(cluster.bootstrap, transactions=True) as load:
            look_at_it(cluster, load, victim=3, seconds=0.5)
        settled(cluster, load)


def log_bytes(cluster: MixedCluster, node_id: int) -> int:
    """The size of the log of compact-0 on a broker."""
    with contextlib.suppress(FileNotFoundError):  # a segment that was just replaced
        return sum(one.stat().st_size for one in (cluster.nodes[node_id].data / "compact-0").glob("*.log"))
    return 0


@pytest.mark.interop
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", [MINI, pytest.param(KAFKA, marks=pytest.mark.java)])
def test_the_brokers_on_the_wire_have_cleaned_further_than_the_given_directory(tmp_path: Path, kind: str) -> None:
    """Broker 1, whose directory is given, keeps all in its active segment, which no cleaner touches; the others roll each second."""
    with MixedCluster(tmp_path, [(1, kind, BOTH), (2, kind, BROKER), (3, kind, BROKER)], properties=PROPERTIES) as cluster:
        for node_id in (2, 3):
            cluster.nodes[node_id].overrides["log.roll.ms"] = "1000"
        cluster.format()
        cluster.start()
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("compact", 1, 3, config=config)])["compact"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})

        def have_cleaned() -> bool:
            for number in range(50):
                producer.produce("compact", b"%d" % number * 40, key=b"%d" % (number % 5), partition=0)
            assert producer.flush(30) == 0
            return all(0 < 2 * log_bytes(cluster, node_id) < log_bytes(cluster, 1) for node_id in (2, 3))

        cluster.wait_for(have_cleaned, "the cleaners of brokers 2 and 3")
        cluster.wait_for_isr("compact", {1, 2, 3})
        report = audit([str(cluster.nodes[1].data)], cluster.bootstrap)
    assert [one["verdict"] for one in report["partitions"] if one["topic"] == "compact"] == ["MATCH"]
