"""Snapshots of the metadata whose beginnings are gone: what remains of the log before their end has to agree with them, the same on all
nodes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic
from helpers.log_clusters import MetadataLog, Partition, directory_id, lines, plain, unsigned, write_broker

METADATA, OTHER = "__cluster_metadata-0", bytes(range(50, 66))
Change = Callable[[MetadataLog], object]


def text(value: str) -> bytes:
    return unsigned(len(value) + 1) + value.encode()


def partition(leader: int, epoch: int, isr: tuple[int, ...] = BROKERS, topic: bytes = TOPIC, more: bool = False) -> Change:
    """The partition as a snapshot has it."""
    return lambda log: log.partition(topic, BROKERS, isr, leader, epoch, partition_epoch=epoch, number=int(more))


def setting(value: str) -> Change:
    return lambda log: log.config("t", "retention.ms", value)


def feature(level: int) -> Change:
    return lambda log: log.other(12, text("group.version") + struct.pack(">h", level) + b"\0")


def broker(node: int, epoch: int, fenced: bool = False) -> Change:
    def registered(log: MetadataLog) -> None:
        tagged = b"\1\0\x11\2" + directory_id(node)
        log.other(0, struct.pack(">i?", node, False) + OTHER + struct.pack(">q", epoch) + b"\1\1\0" + bytes([fenced]) + b"\0" + tagged, 3)

    return registered


def change(**fields: object) -> Change:
    return lambda log: log.change(TOPIC, **fields)  # type: ignore[arg-type]


def of_broker(kind: int, node: int, epoch: int) -> Change:
    return lambda log: log.other(kind, struct.pack(">iq", node, epoch) + b"\0")


def topic(name: str, topic_id: bytes) -> Change:
    return lambda log: log.topic(name, topic_id)


def removed(topic_id: bytes = TOPIC) -> Change:
    return lambda log: log.remove(topic_id)


def cleared(name: str = "t") -> Change:
    return lambda log: log.other(28, text(name) + b"\0")


BEGIN, END, ABORT = (lambda log, kind=kind: log.other(kind, b"\0") for kind in (23, 24, 25))
USUAL = [topic("t", TOPIC), partition(1, 0)]


def cluster(path: Path, changes: list[Change], snapshot: list[Change]) -> list[str]:
    """Every node's log begins with these changes, behind the records that made the topic, and is followed by a snapshot."""
    whole, held = registered_topic(), MetadataLog()
    for one in BROKERS:
        held.broker(one)
    begin = len(whole.values)
    for one in changes:
        one(whole)
    for one in snapshot:
        one(held)
    end = len(whole.values)
    whole.config("t", "max.message.bytes", "5")
    for node in BROKERS:
        root = write_broker(path / f"b{node}", node, [Partition("t-0", [plain(at) for at in range(10)])], whole.encode()) / METADATA
        (root / f"{0:020d}.log").unlink()
        (root / f"{begin:020d}.log").write_bytes(b"".join(one.encode() for one in whole.batches()[begin:]))
        (root / f"{end:020d}-{1:010d}.checkpoint").write_bytes(held.snapshot())
        (root / "leader-epoch-checkpoint").write_text(lines([f"1 {begin}"]))
    return messages_of(audit(path), "metadata-snapshot")


@pytest.mark.parametrize(("changes", "snapshot", "said"), [
    ([setting("5")], [*USUAL, setting("5")], ""), ([setting("5")], [*USUAL, setting("6")], "the setting 2 t retention.ms"),
    ([setting("5")], USUAL, "the setting 2 t retention.ms"), ([setting("4"), setting("5")], [*USUAL, setting("4")], "the setting"),
    ([feature(1)], [*USUAL, feature(1)], ""), ([feature(1), feature(0)], [*USUAL, feature(1)], "the feature group.version"),
    ([change(leader=2)], [topic("t", TOPIC), partition(2, 7)], ""), ([change(leader=2)], USUAL, "t-0 is not the same"),
    ([change(leader=2), change(leader=1)], USUAL, ""), ([change(isr=(1, 2))], USUAL, "t-0 is not the same"),
    ([change(isr=(1, 2)), change(isr=BROKERS)], USUAL, ""), ([change(elr=(3,), isr=(1, 2)), cleared()], USUAL, "t-0 is not the same"),
    ([change(elr=(3,), isr=(1, 2)), change(isr=BROKERS), cleared("")], USUAL, ""),
    ([topic("u", OTHER), partition(1, 0, topic=OTHER)], [*USUAL, topic("u", OTHER), partition(1, 0, topic=OTHER)], ""),
    ([topic("u", OTHER), partition(1, 0, topic=OTHER)], USUAL, "topic u is not in the snapshot"),
    ([topic("u", OTHER), partition(1, 0, topic=OTHER)], [*USUAL, topic("u", OTHER), partition(1, 1, topic=OTHER)], "u-0 is not the same"),
    ([topic("u", OTHER), partition(1, 0, topic=OTHER), removed(OTHER)], USUAL, ""),
    ([topic("u", OTHER), partition(1, 0, topic=OTHER), removed(OTHER)],
     [*USUAL, topic("u", OTHER), partition(1, 0, topic=OTHER)], "topic u is in the snapshot, but the log has removed it"),
    ([setting("5"), change(leader=3), removed(), topic("t", OTHER), partition(1, 0, topic=OTHER)],
     [topic("t", OTHER), partition(1, 0, topic=OTHER)], ""),
    ([change(leader=3), removed()], [], ""), ([removed()], USUAL, "topic t is in the snapshot, but the log has removed it"),
    ([partition(1, 0, more=True)], USUAL, "t-1 is not the same"), ([partition(1, 0, more=True)], [*USUAL, partition(1, 0, more=True)], ""),
    ([broker(4, 5)], [*USUAL, broker(4, 5)], ""), ([broker(4, 5)], USUAL, "broker 4 is not the same"),
    ([broker(4, 5, True), of_broker(8, 4, 5)], [*USUAL, broker(4, 5, True)], "broker 4 is not the same"),
    ([of_broker(7, 2, 1)], USUAL, "broker 2 is not the same"), ([of_broker(7, 2, 1), of_broker(8, 2, 1)], USUAL, ""),
    ([broker(4, 5), of_broker(1, 4, 5)], USUAL, ""), ([of_broker(1, 4, 4)], USUAL, ""),
    ([of_broker(1, 3, 2)], USUAL, "broker 3 is in the snapshot, but the log has removed it"),
    ([of_broker(7, 4, 1), broker(4, 6)], [*USUAL, broker(4, 6)], ""),
    ([BEGIN, setting("5"), END], USUAL, "the setting"), ([BEGIN, setting("5"), ABORT], USUAL, ""), ([setting("5"), ABORT], USUAL, ""),
    ([setting("5"), END], USUAL, "the setting"),
])  # fmt: skip
def test_what_remains_of_the_log_agrees_with_the_snapshot(
    tmp_path: Path, changes: list[Change], snapshot: list[Change], said: str
) -> None:  # fmt: skip
    found = cluster(tmp_path, changes, snapshot)
    assert len(found) == (3 if said else 0) and all(said in one for one in found), found


def test_a_batch_of_a_later_kind_is_not_judged(tmp_path: Path) -> None:
    assert cluster(tmp_path, [lambda log: log.other(99, b"\0")], USUAL) == []


