"""A broker whose disk takes no more bytes for a while, as a process among others: acknowledged records stay, the others serve everybody
meanwhile, and all is well when there is room again. (Within one process: tests/broker/test_disk_failure.py.)

The limit on the size of a process's files needs no mount and no privilege: a write beyond it fails like one to a full disk.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import psutil
import pytest
from system.test_starvation import REFUSALS, TOPIC, Load, numbers_in, process_of

from minikafka.testing import EmbeddedBroker, EmbeddedCluster

PARTITIONS = 4
#: What a broker of three says of itself that has no log directory left, and clients of one that is gone.
ALLOWED = REFUSALS | {confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION, confluent_kafka.KafkaError._ALL_BROKERS_DOWN}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, topics={TOPIC: PARTITIONS}, mode="process", directory=tmp_path / "data") as running:
        yield running


def largest_log(process: psutil.Process) -> int:
    """The size of the largest segment of the topic that a process has open."""
    paths = [Path(file.path) for file in process.open_files()]
    return max((path.stat().st_size for path in paths if path.suffix == ".log" and path.parent.name.startswith(f"{TOPIC}-")), default=0)


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.timeout(300)
def test_a_full_disk_costs_nothing_that_was_acknowledged(cluster: EmbeddedCluster) -> None:
    broker: EmbeddedBroker = cluster.broker(cluster.leader(TOPIC, 0))
    process, load = process_of(broker), Load(cluster)
    try:
        cluster.wait_until(lambda: len(load.acknowledged) > 50, "the first acknowledgements")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest_log(process), resource.RLIM_INFINITY))
        cluster.wait_until(lambda: is_gone(process), "the broker, which has only this disk, to end", 60)
        seen = len(load.acknowledged)
        cluster.wait_until(lambda: len(load.acknowledged) > seen + 50, "writes by way of the others", 60)
        assert cluster.leader(TOPIC, 0) != broker.node_id
        cluster.repair()
        seen = len(load.acknowledged)
        cluster.wait_until(lambda: len(load.acknowledged) > seen + 50, "writes when there is room again", 60)
    finally:
        load.stop()
    assert load.errors <= ALLOWED
    assert load.acknowledged <= set(numbers_in(cluster, PARTITIONS))
    assert "cannot append" in cluster.logs() or "File too large" in cluster.logs()
    cluster.audit()
