"""Kafka Streams (its JARs from Maven) against our brokers: windows, joins, state stores and their changelogs, exactly once.

The driver of its own smoke test writes 20,000 records in 90 seconds and then compares every aggregate with what it wrote; processors and
brokers die meanwhile. The word count is short: every count of every word is compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.java_programs import STREAMS, JavaProgram, properties
from helpers.streams_programs import (
    INPUT,
    OUTPUT,
    QUICK_GROUPS,
    SMOKE_TEST,
    SMOKE_TOPICS,
    WordCount,
    create_topics,
    program,
    settings,
)

from minikafka.core.java_hash import partition_for_key
from minikafka.testing.cluster import ProcessCluster


def processor(cluster: ProcessCluster, directory: Path, number: int, protocol: str) -> tuple[JavaProgram, str]:
    """An instance of the smoke test's application, and the name of its properties."""
    output, state, name = directory / f"processor-{number}.txt", directory / f"state-{number}", directory / f"processor-{number}.properties"
    if protocol == "streams":
        return program(SMOKE_TEST, output), properties(name, settings(cluster.bootstrap, state))
    values = {
        "bootstrap.servers": cluster.bootstrap, "processing.guarantee": "exactly_once_v2", "state.dir": str(state),
        "replication.factor": "3", "num.standby.replicas": "2", "acceptable.recovery.lag": "9223372036854775807",
        "session.timeout.ms": "10000", "acks": "all",
    }  # fmt: skip
    return JavaProgram("kafka-streams", STREAMS, SMOKE_TEST, output), properties(name, values)


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(400)
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_streams_smoke_test_exactly_once_while_processors_and_brokers_die(tmp_path: Path, protocol: str) -> None:
    with ProcessCluster(properties=QUICK_GROUPS) as cluster:
        create_topics(cluster.bootstrap, dict.fromkeys(SMOKE_TOPICS, 5))
        first, second = processor(cluster, tmp_path, 1, protocol), processor(cluster, tmp_path, 2, protocol)
        driver = JavaProgram("kafka-streams", STREAMS, SMOKE_TEST, tmp_path / "driver.txt")
        with first[0].running(first[1], "process"):
            first[0].says("REBALANCING -> RUNNING", 90)
            # It writes for 90 seconds: the transaction of the processor that dies is aborted long before the driver looks for open ones.
            with driver.running(first[1], "run"):
                first[0].says("processed", 60)
                first[0].kill()
                with second[0].running(second[1], "process"):
                    second[0].says("REBALANCING -> RUNNING", 90)
                    second[0].says("processed", 60)
                    cluster.kill(2)
                    cluster.spawn(2)
                    assert driver.process is not None
                    driver.process.wait(300)
        assert "SUCCESS" in driver.output(), driver.output()[-4000:]


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_words_are_counted_once_in_a_streams_group_whose_coordinator_dies(tmp_path: Path) -> None:
    """A slice of `python -m interop.streams_groups`."""
    with ProcessCluster(controllers=3, properties=QUICK_GROUPS) as cluster:
        create_topics(cluster.bootstrap, {INPUT: 2, OUTPUT: 1})
        words = WordCount(cluster.bootstrap, tmp_path)
        words.write(20)
        made, name = words.instance(1)
        with made.running(name):
            words.wait(120)
            partitions = cluster.metadata(["__consumer_offsets"]).topics[0].partitions
            place = partition_for_key("words", len(partitions))
            cluster.kill(next(partition.leader_id for partition in partitions if partition.partition_index == place))
            words.write(20)
            words.wait(120)
        words.close()
