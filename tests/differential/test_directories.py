"""The same work leaves the same files on Apache Kafka 4.4 and on minikafka: logs, indexes, snapshots, checkpoints, the records of
coordinators and of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential.directories import contents, differences
from differential.run import brokers
from differential.workload import Workload
from helpers import apache_kafka

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
    # A broker that was fenced on a busy machine would leave records of it.
    "broker.session.timeout.ms": "60000",
}  # fmt: skip
#: Our storage is formatted with the features of 4.3.
RELEASE = "4.3-IV0"
#: What each kind of file holds at least, in lines: a workload that writes nothing would leave equal directories.
LINES_MIN = {
    "__cluster_metadata-0/00000000000000000000.log": 60,
    "__consumer_offsets-0/00000000000000000000.log": 60,
    "__consumer_offsets-0/00000000000000000000.txnindex": 4,
    "__transaction_state-0/00000000000000000000.log": 70,
    "plain-0/00000000000000002000.index": 15,
    "plain-0/00000000000000002000.timeindex": 15,
    "transactions-1/00000000000000000010.snapshot": 4,
    "transactions-1/leader-epoch-checkpoint": 3,
    "log-start-offset-checkpoint": 3,
}


def test_the_same_work_leaves_the_same_files(tmp_path: Path) -> None:
    with brokers(tmp_path, apache_kafka.NEXT, PROPERTIES, release=RELEASE) as addresses:
        for address in addresses:
            Workload(address).perform()
    kafka, ours = tmp_path / "kafka" / "data", tmp_path / "ours" / "broker-1" / "data"
    assert differences(kafka, ours) == []
    lines = {path: len(found) for path, found in contents(ours).items()}
    assert {path: count for path, count in LINES_MIN.items() if lines.get(path, 0) < count} == {}


def test_a_difference_is_found(tmp_path: Path) -> None:
    for side, text in (("kafka", "one"), ("ours", "two")):
        partition = tmp_path / side / "a-0"
        partition.mkdir(parents=True)
        (partition / "leader-epoch-checkpoint").write_text(text)
        (tmp_path / side / ".lock").touch()
        (tmp_path / side / f"{side}-offset-checkpoint").touch()
    assert differences(tmp_path / "kafka", tmp_path / "ours") == [
        "- kafka-offset-checkpoint",
        "+ ours-offset-checkpoint",
        "a-0/leader-epoch-checkpoint: - one",
        "a-0/leader-epoch-checkpoint: + two",
    ]
