"""Follows Apache Kafka's `core/replication_test.py` and `core/replication_replica_failure_test.py`: a leader or the active controller is
stopped or killed while VerifiableProducer writes; every acknowledged record is read at its acknowledged offset, none twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafkatest.verifiable import Producer, bounce, create, in_sync, leader_of, read_all

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]
TOPIC, RECORDS = "test_topic", 200


def judge(cluster: ProcessCluster, producer: Producer) -> None:
    """The producer ends, and what it was told holds. It sends nothing again: what was refused may be there or not."""
    producer.stop()
    found = read_all(cluster, TOPIC)
    assert {place: found.get(place) for place in producer.acknowledged} == producer.acknowledged
    assert len(set(found.values())) == len(found), "a record is there twice"


def of_leader(cluster: ProcessCluster) -> int:
    return leader_of(cluster, TOPIC)


def of_controller(cluster: ProcessCluster) -> int:
    return cluster.active_controller()


def bounced(directory: Path, whose: Callable[[ProcessCluster], int], *, hard: bool, times: int, keys: bool = False) -> None:
    with ProcessCluster(3, controllers=3) as cluster:
        create(cluster, TOPIC, 3)
        producer = Producer(directory, cluster.bootstrap, TOPIC)
        if keys:
            producer.command += ["--repeating-keys", "5"]
        with producer.running():
            producer.more(RECORDS)
            for _ in range(times):
                bounce(cluster, whose(cluster), hard=hard)
                in_sync(cluster, TOPIC)
                producer.more(RECORDS)
            judge(cluster, producer)


def test_a_leader_is_killed_and_comes_back(tmp_path: Path) -> None:
    """The slice of the default run."""
    bounced(tmp_path, of_leader, hard=True, times=1)


@pytest.mark.kafkatest
@pytest.mark.parametrize("hard", [False, True], ids=["clean_bounce", "hard_bounce"])
@pytest.mark.parametrize("whose", [of_leader, of_controller], ids=["leader", "controller"])
def test_replication_with_broker_failure(tmp_path: Path, whose: Callable[[ProcessCluster], int], hard: bool) -> None:
    bounced(tmp_path, whose, hard=hard, times=5, keys=hard)


@pytest.mark.kafkatest
@pytest.mark.parametrize("hard", [False, True], ids=["clean_shutdown", "hard_shutdown"])
def test_replication_with_a_broker_that_stays_away(tmp_path: Path, hard: bool) -> None:
    with ProcessCluster(3, controllers=3) as cluster:
        create(cluster, TOPIC, 3)
        producer = Producer(tmp_path, cluster.bootstrap, TOPIC)
        with producer.running():
            producer.more(RECORDS)
            victim = leader_of(cluster, TOPIC)
            if hard:
                cluster.kill(victim)
            else:
                cluster.terminate(victim)
            producer.more(3 * RECORDS)
            judge(cluster, producer)


@pytest.mark.kafkatest
def test_replication_with_replica_failure(tmp_path: Path) -> None:
    """Two of three replicas are frozen for longer than the lag that is allowed; min.insync.replicas=1 lets the third go on."""
    with ProcessCluster(4, controllers=1, properties={"replica.lag.time.max.ms": "2000"}) as cluster:
        create(cluster, TOPIC, 1, min_insync_replicas="1")
        producer = Producer(tmp_path, cluster.bootstrap, TOPIC, properties={"request.timeout.ms": "40000", "delivery.timeout.ms": "90000"})
        with producer.running():
            producer.more(RECORDS)
            partition = cluster.metadata([TOPIC]).topics[0].partitions[0]
            frozen = [node for node in partition.replica_nodes if node not in (partition.leader_id, 1)]
            for node in frozen:
                cluster.pause(node)
            cluster.wait_for(
                lambda: set(cluster.metadata_of(1, [TOPIC]).topics[0].partitions[0].isr_nodes).isdisjoint(frozen), "a smaller set"
            )
            producer.more(RECORDS)
            for node in frozen:
                cluster.resume(node)
            in_sync(cluster, TOPIC)
            judge(cluster, producer)
