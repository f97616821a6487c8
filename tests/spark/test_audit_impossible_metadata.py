"""Metadata records that no controller loads, or that none ever writes, the same on all nodes."""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic
from helpers.log_clusters import MetadataLog, Partition, plain, unsigned, uuid_text, write_broker

from minikafka.spark.audit import AuditResult
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_log import read_image

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
    (registered_topic().topic("u", OTHER).remove(OTHER).topic("u", OTHER).partition(OTHER, BROKERS, BROKERS, 1), ""),
    (registered_topic().remove(TOPIC).topic("t", OTHER).partition(OTHER, BROKERS, BROKERS, 1), ""),
])  # fmt: skip
def test_topics_that_no_controller_loads(tmp_path: Path, log: MetadataLog, text: str) -> None:
    """It ends at the first such record (ReplicationControlManager.replay)."""
    found = messages_of(audited(tmp_path, log), "metadata-log")
    assert len(found) == (3 if text else 0) and all(text in one for one in found)


def of_broker(kind: int, node: int, epoch: int, tags: bytes = b"\0") -> MetadataLog:
    return registered_topic().other(kind, struct.pack(">iq", node, epoch) + tags, version=kind == 17)


def producer_ids(*ends: int) -> MetadataLog:
    log = registered_topic()
    for end in ends:
        log.other(15, struct.pack(">iqq", 1, 0, end) + b"\0")
    return log


def placed(*numbers: int, changed: int | None = None) -> MetadataLog:
    """A partition in directories with these numbers as ids."""
    log = registered_topic().partition(TOPIC, BROKERS, BROKERS, 1, number=1, directories=[number.to_bytes(16, "big") for number in numbers])
    if changed is not None:
        places = unsigned(4) + b"".join(number.to_bytes(16, "big") for number in (*numbers[:2], changed))
        log.other(5, struct.pack(">i", 1) + TOPIC + b"\1\x08" + unsigned(len(places)) + places, version=2)
    return log


def others(*records: tuple[int, bytes]) -> MetadataLog:
    log = registered_topic()
    for kind, body in records:
        log.other(kind, body)
    return log


RULE = 18, OTHER + b"\x02\x02t\x03\x07User:x\x02*\x03\x03\x00"
CREDENTIAL = 11, b"\x02u\x01\x02a\x21" + b"b" * 32 + b"\x21" + b"c" * 32 + struct.pack(">i", 4096) + b"\0"
BEGIN, END, ABORT = (23, b"\0"), (24, b"\0"), (25, b"\0")


@pytest.mark.parametrize(("log", "text"), [
    *((of_broker(kind, 9, 9), "broker 9 of epoch 9 is changed or removed, but it is not registered") for kind in (1, 7, 8, 17)),
    *((of_broker(kind, 1, 9), "broker 1 of epoch 9 is changed or removed, but its epoch is 0") for kind in (1, 7, 8, 17)),
    *((of_broker(kind, 3, 2), "") for kind in (7, 8, 17)),
    (of_broker(17, 1, 0, b"\1\0\1\5"), "the unknown state 5"), (of_broker(17, 1, 0, b"\1\1\1\xff"), "the unknown state 0, -1"),
    (of_broker(17, 1, 0, b"\2\0\1\xff\1\1\1"), ""),
    (producer_ids(1000, 2000), ""), (producer_ids(1000, 1000), "falls from 1000 to 1000"), (producer_ids(2000, 1000), "from 2000 to 1000"),
    (others((19, OTHER + b"\0")), "a rule is removed that does not exist"), (others(RULE, (19, OTHER + b"\0")), ""),
    (others((22, b"\x02u\x01\0")), "a credential is removed that does not exist"), (others(CREDENTIAL, (22, b"\x02u\x01\0")), ""),
    (others((12, b"\x02f\xff\xfd\0")), "the feature f has level -3"),
    (others((28, b"\x02u\0")), "of the unknown topic u"), (others((28, b"\x02t\0"), (28, b"\x01\0")), ""),
    (others(BEGIN, BEGIN), "begins at 6 inside another"), (others(END), "ends at 5, and none has begun"),
    (others(BEGIN, ABORT, ABORT), "ends at 7, and none"), (others(BEGIN, RULE, END, BEGIN), ""),
    (others(BEGIN, (19, OTHER + b"\0"), ABORT), ""),
    (others((20, b"\0x")), "1 bytes behind"), (others(BEGIN, (24, b"\0x")), "1 bytes behind"),
    (registered_topic().topic("a/b", OTHER), "made with the name 'a/b'"),
    (registered_topic().topic("..", OTHER), "made with the name '..'"), (registered_topic().topic("x" * 250, OTHER), "made with the name"),
    (registered_topic().topic("u", bytes(16)), "the id AAAAAAAAAAAAAAAAAAAAAA"),
    (registered_topic().topic("x" * 249, OTHER), ""),
    (registered_topic().topic("__cluster_metadata", OTHER), "made with the name '__cluster_metadata'"),
    (registered_topic().topic("u", bytes(15) + b"\1"), "the id AAAAAAAAAAAAAAAAAAAAAQ"),
    (registered_topic().partition(TOPIC, BROKERS, BROKERS, 1, number=1, directories=[OTHER]), "has 3 replicas in 1 directory"),
    (placed(0, 1, 2), ""), (placed(100, 1, 2), ""), (placed(0, 1, 3), "directory AAAAAAAAAAAAAAAAAAAAAw, whose id is reserved"),
    (placed(0, 99, 2), "whose id is reserved"), (placed(0, 1, 2, changed=5), "whose id is reserved"), (placed(0, 1, 2, changed=2), ""),
    (registered_topic(leader_epoch=1).partition(TOPIC, BROKERS, BROKERS, 1), "fall from (1, 0) to (0, 0)"),
    (registered_topic().partition(TOPIC, BROKERS, BROKERS, 1), ""),
    (registered_topic().other(5, struct.pack(">i", 0) + TOPIC + b"\1\5\1\7"), "the unknown recovery state 7"),
])  # fmt: skip
def test_records_at_which_a_controller_ends(tmp_path: Path, log: MetadataLog, text: str) -> None:
    """The replay methods of ClusterControlManager, ProducerIdControlManager, AclControlManager and so on throw."""
    (tmp_path / f"{0:020d}.log").write_bytes(log.encode())
    with pytest.raises(FormatError, match=re.escape(text)) if text else contextlib.nullcontext():
        read_image(str(tmp_path), "1")


def test_an_audit_reports_such_a_record(tmp_path: Path) -> None:
    result = audited(tmp_path, of_broker(1, 9, 9))
    assert len(messages_of(result, "metadata-log")) == 3 and result.exit_code == 1


def test_a_partition_that_is_made_again_keeps_its_past(tmp_path: Path) -> None:
    """Broker 3 was in sync, so that its log must exist."""
    audited(tmp_path, registered_topic().partition(TOPIC, BROKERS, (1,), 1))
    shutil.rmtree(tmp_path / "b3" / "t-0")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / "b3" / name).write_text("0\n0\n")
    assert audit(tmp_path).exit_code == 1


def test_a_snapshot_has_no_metadata_transaction(tmp_path: Path) -> None:
    log = registered_topic()
    audited(tmp_path, log)
    held = log.snapshot([*log.values, b"\x01\x17\0\0"])
    (tmp_path / "b1" / "__cluster_metadata-0" / f"{len(log.values):020d}-0000000000.checkpoint").write_bytes(held)
    assert ["it has a metadata transaction" in one for one in messages_of(audit(tmp_path), "metadata-snapshot")] == [True]


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
    (registered_topic().change(TOPIC, adding=(9,)), "counts 9 as replicas to be added, but the replicas are 1, 2, 3"),
    (registered_topic().change(TOPIC, removing=(9,)), "counts 9 as replicas to be removed, but the replicas are 1, 2, 3"),
    (registered_topic().change(TOPIC, removing=(3,)), ""), (registered_topic().change(TOPIC, removing=(1,), adding=(2, 3)), ""),
    (registered_topic(elr=(3,)), "counts broker 3 as in sync and as an eligible leader"),
    (registered_topic().change(TOPIC, removing=(3,), adding=(3,)), "counts broker 3 as a replica to be added and removed"),
    (registered_topic().change(TOPIC, removing=BROKERS), "counts all replicas, 1, 2, 3, as replicas to be removed"),
    (registered_topic().change(TOPIC, adding=BROKERS), "counts all replicas, 1, 2, 3, as replicas to be added"),
    (registered_topic().change(TOPIC, isr=(1, 2), leader=1, recovering=True), "1, 2 as in sync with a leader that has not recovered"),
    (registered_topic(isr=(), elr=BROKERS, leader=-1), ""), (registered_topic(isr=(1, 2), elr=(3,)), ""),
    (registered_topic().change(TOPIC, isr=(2,), leader=2), ""),
])  # fmt: skip
def test_what_no_controller_decides(tmp_path: Path, log: MetadataLog, text: str) -> None:
    result = audited(tmp_path, log)
    found = messages_of(result, "isr-claim")
    assert len(found) == bool(text) and all(text in one for one in found)
    assert result.exit_code == (1 if text else 0)
