"""Metadata records that no controller loads, or that none ever writes, the same on all nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic
from helpers.log_clusters import MetadataLog, Partition, plain, uuid_text, write_broker

from minikafka.spark.audit import AuditResult

OTHER = bytes(range(50, 66))


def audited(path: Path, log: MetadataLog) -> AuditResult:
    for broker in BROKERS:
        write_broker(path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(10)])], log.encode())
    return audit(path)


@pytest.mark.parametrize(("log", "text"), [
    (registered_topic().topic("t", OTHER), "topic t is made a second time"), (registered_topic().topic("t", TOPIC), "a second time"),
    (registered_topic().partition(OTHER, BROKERS, BROKERS, 1), "partition 0 of the unknown topic"),
    (registered_topic().remove(OTHER), "the removal of the unknown topic"),
    (registered_topic().remove(TOPIC).remove(TOPIC), "the removal of the unknown topic"),
    (registered_topic().remove(TOPIC).partition(TOPIC, BROKERS, BROKERS, 1), "partition 0 of the unknown topic"),
    (registered_topic().topic("u", OTHER).remove(OTHER).topic("u", OTHER), ""), (registered_topic().remove(TOPIC).topic("t", OTHER), ""),
])  # fmt: skip
def test_topics_that_no_controller_loads(tmp_path: Path, log: MetadataLog, text: str) -> None:
    """It ends at the first such record (ReplicationControlManager.replay)."""
    found = messages_of(audited(tmp_path, log), "metadata-log")
    assert len(found) == (3 if text else 0) and all(text in one for one in found)


@pytest.mark.parametrize("nodes", [(1,), BROKERS])
def test_the_metadata_log_has_a_reserved_topic_id(tmp_path: Path, nodes: tuple[int, ...]) -> None:
    assert audited(tmp_path, registered_topic()).outcome == "PASS"
    for node in nodes:
        (tmp_path / f"b{node}" / "__cluster_metadata-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(OTHER)}\n")
    result = audit(tmp_path)
    assert result.exit_code == 1
    assert [one for one in messages_of(result, "topic-id") if "expected AAAAAAAAAAAAAAAAAAAAAQ" in one] == [
        f"{node}: the metadata log of node {node} has topic id {uuid_text(OTHER)}, expected AAAAAAAAAAAAAAAAAAAAAQ" for node in nodes
    ]  # fmt: skip


@pytest.mark.parametrize(("log", "text"), [
    (registered_topic(isr=(2, 3)), "counts broker 1 as the leader, but only 2, 3 as in sync"),
    (registered_topic(isr=(), elr=BROKERS), "counts broker 1 as the leader, but only nobody as in sync"),
    (registered_topic(isr=(1, 2, 9)), "counts 9 as in sync, but the replicas are 1, 2, 3"),
    (registered_topic(isr=(1, 2), elr=(8,)), "counts 8 as eligible leaders, but the replicas are 1, 2, 3"),
    (registered_topic(isr=(1, 2, 2)), "counts broker 2 as in sync twice"),
    (registered_topic(isr=(1, 2), elr=(3, 3)), "counts broker 3 as an eligible leader twice"),
    (registered_topic().change(TOPIC, replicas=(1, 2, 3, 3)), "counts broker 3 as a replica twice"),
    (registered_topic(isr=(), elr=BROKERS, leader=-1), ""), (registered_topic(isr=(1, 2), elr=(3,)), ""),
    (registered_topic().change(TOPIC, isr=(2,), leader=2), ""),
])  # fmt: skip
def test_what_no_controller_decides(tmp_path: Path, log: MetadataLog, text: str) -> None:
    result = audited(tmp_path, log)
    found = messages_of(result, "isr-claim")
    assert len(found) == bool(text) and all(text in one for one in found)
    assert result.exit_code == (1 if text else 0)
