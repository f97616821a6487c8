"""Kafka Streams' own smoke test (its JARs from Maven) against our brokers: windows, joins, state stores and their changelogs, exactly once.

The driver writes 20,000 records in 90 seconds and then compares every aggregate with what it wrote; processors and brokers die meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.java_programs import STREAMS, JavaProgram, properties

from minikafka.testing.cluster import ProcessCluster

#: From streams_smoke_test.py of Apache Kafka's system tests.
TOPICS = (
    "echo", "data", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed", "dif", "cnt", "avg", "wcnt", "tagg",
)  # fmt: skip
SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"


def processor(cluster: ProcessCluster, directory: Path, number: int) -> tuple[JavaProgram, str]:
    settings = {
        "bootstrap.servers": cluster.bootstrap, "processing.guarantee": "exactly_once_v2", "state.dir": str(directory / f"state-{number}"),
        "replication.factor": "3", "num.standby.replicas": "2", "acceptable.recovery.lag": "9223372036854775807",
        "session.timeout.ms": "10000", "acks": "all",
    }  # fmt: skip
    program = JavaProgram("kafka-streams", STREAMS, SMOKE_TEST, directory / f"processor-{number}.txt")
    return program, properties(directory / f"processor-{number}.properties", settings)


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_streams_smoke_test_exactly_once_while_processors_and_brokers_die(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    with ProcessCluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(name, 5, 3) for name in TOPICS]).values():
            future.result(30)
        first, second = processor(cluster, tmp_path, 1), processor(cluster, tmp_path, 2)
        driver = JavaProgram("kafka-streams", STREAMS, SMOKE_TEST, tmp_path / "driver.txt")
        with first[0].running(first[1], "process"), driver.running(first[1], "run"):
            first[0].says("REBALANCING -> RUNNING", 90)
            first[0].says("processed", 60)
            first[0].kill()
            with second[0].running(second[1], "process"):
                second[0].says("REBALANCING -> RUNNING", 90)
                second[0].says("processed", 60)
                cluster.kill(2)
                cluster.spawn(2)
                assert driver.process is not None
                driver.process.wait(200)
        assert "SUCCESS" in driver.output(), driver.output()[-4000:]
