"""Partitions, tasks and states that coordinators' records name and that there are not; what two members are to have. The same on all
replicas."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, audit, messages_of
from helpers.log_clusters import Batch, MetadataLog, Partition, plain, unsigned, write_broker
from helpers.log_fault_groups import group_record, text

from minikafka.core.share.state import SharePartitionKey, ShareState, snapshot_record, update_record
from minikafka.spark.audit import AuditResult
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value

TOPIC, UNKNOWN, GROUPS, STATES = (bytes(range(16 * at, 16 * at + 16)) for at in range(4))
OFFSETS, SHARES = "__consumer_offsets", "__share_group_state"
PARTITIONS = 2
Row = tuple[bytes, bytes | None]
VERSION, SHORT_ID = struct.pack(">h", 0), b"\2"


def made() -> MetadataLog:
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.topic("t", TOPIC)
    for number in range(PARTITIONS):
        log.partition(TOPIC, BROKERS, BROKERS, 1, number=number)
    for name, topic_id in ((OFFSETS, GROUPS), (SHARES, STATES)):
        log.topic(name, topic_id).config(name, "cleanup.policy", "compact").partition(topic_id, BROKERS, BROKERS, 1)
    return log


def cluster(
    path: Path, rows: Sequence[Row], states: Sequence[Row] = (), log: MetadataLog | None = None, clean: bool = True
) -> AuditResult:  # fmt: skip
    """Three brokers with t-0 and t-1, and with these records in the only partitions of the coordinators' topics."""
    held = [Partition(f"t-{number}", [plain(at) for at in range(9)]) for number in range(PARTITIONS)]
    for name, topic_id, records in ((OFFSETS, GROUPS, rows), (SHARES, STATES, states)):
        held.append(Partition(f"{name}-0", [Batch(at, [(0, *row)]) for at, row in enumerate(records)], topic_id=topic_id))
    for broker in BROKERS:
        write_broker(path / f"b{broker}", broker, held, (log or made()).encode(), clean)
    return audit(path)


def key(kind: int, member: str = "", group: str = "g") -> bytes:
    return struct.pack(">h", kind) + text(group) + (text(member) if member else b"")


def places(*named: tuple[bytes, Iterable[int]]) -> bytes:
    """Lists of partitions by topic id, or of tasks by subtopology."""
    rows = (name + unsigned(len(list(numbers)) + 1) + b"".join(struct.pack(">i", one) for one in numbers) for name, numbers in named)
    return unsigned(len(named) + 1) + b"".join(one + b"\0" for one in rows)


def of(kind: int, member: str = "", epoch: int = 5) -> Row:
    return key(kind, member), group_record(kind, "g", epoch)[1]


def target(member: str, *named: tuple[bytes, Iterable[int]]) -> Row:
    return key(7, member), VERSION + places(*named) + b"\0"


def tasks(member: str, *named: tuple[bytes, Iterable[int]], standby: Iterable[int] = ()) -> Row:
    """A target of a streams group."""
    return key(21, member), VERSION + places(*named) + places((SUB, list(standby))) + b"\1\0"


def static(member: str, instance: str, kind: int = 5) -> Row:
    name = unsigned(len(instance) + 1) + instance.encode()
    value = group_record(kind, "g", 5)[1]
    return key(kind, member), value[:2] + name + value[3:]


def topology(*subtopologies: tuple[str, Sequence[str]], patterns: int = 0) -> Row:
    def names(found: Sequence[str]) -> bytes:
        return unsigned(len(found) + 1) + b"".join(unsigned(len(one) + 1) + one.encode() for one in found)

    rows = [names([one])[1:] + names(sources) + names(["p"] * patterns) + b"\1" * 4 + b"\0" for one, sources in subtopologies]
    return key(23), VERSION + struct.pack(">i", 5) + unsigned(len(rows) + 1) + b"".join(rows) + b"\0"


SUB = b"\2s"
HERE, BEYOND = [(TOPIC, [0, 1])], [(TOPIC, [0, 2])]
CURRENT = VERSION + struct.pack(">iib", 5, 4, 0)


def named(kind: int, found: Sequence[tuple[bytes, list[int]]]) -> Row:
    """A record that names these partitions."""
    listed, nothing = places(*found), b"\1"
    counts = b"".join(one + b"\2t" + struct.pack(">i", max(numbers) + 1) + b"\1\0" for one, numbers in found)
    infos = unsigned(len(found) + 1) + b"".join(one + b"\2t" + places((b"", numbers))[1:] for one, numbers in found)
    return key(kind, "a" if kind not in {4, 15} else ""), {
        4: VERSION + unsigned(len(found) + 1) + counts, 7: VERSION + listed, 8: CURRENT + listed + nothing, 13: VERSION + listed,
        14: CURRENT + listed, 15: VERSION + infos + nothing * 2,
    }[kind] + b"\0"  # fmt: skip


FAMILY = {4: (3, 5), 7: (3, 5), 8: (3, 5), 13: (11, 10), 14: (11, 10), 15: (11, 10)}


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize(("found", "clean", "code"), [
    (HERE, True, 0), (BEYOND, True, 3), ([(UNKNOWN, [7])], True, 0), (BEYOND, False, 0), ([*HERE, (UNKNOWN, [9])], True, 0),
])  # fmt: skip
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_group_names_partitions_that_its_topic_has(
    tmp_path: Path, kind: int, found: list[tuple[bytes, list[int]]], clean: bool, code: int, is_replaced: bool
) -> None:
    """The metadata may be older than the record while a broker runs, and a topic that is gone may have had any number."""
    rows = [of(FAMILY[kind][0]), of(FAMILY[kind][1], "a"), named(kind, found), *([named(kind, HERE)] if is_replaced else [])]
    result = cluster(tmp_path, rows, clean=clean)
    assert result.exit_code == code
    assert all("names partition 2 of t, which has 2 by the metadata" in one for one in messages_of(result, "not-compared"))


@pytest.mark.parametrize(("number", "code"), [(1, 0), (2, 3)])
def test_a_share_partition_with_a_state_exists(tmp_path: Path, number: int, code: int) -> None:
    assert cluster(tmp_path, [], [state(number)]).exit_code == code


ONE_TARGET = [of(3), of(5, "a"), of(5, "b"), target("a", (TOPIC, [0]))]


@pytest.mark.parametrize(("rows", "is_wrong"), [
    ([*ONE_TARGET, target("b", (TOPIC, [1])), of(6)], False), ([*ONE_TARGET, target("b", (TOPIC, [0])), of(6)], True),
    ([*ONE_TARGET, target("b", (TOPIC, [1, 0])), of(6)], True), ([*ONE_TARGET, target("b", (UNKNOWN, [0])), of(6)], False),
    ([*ONE_TARGET, of(6), target("b", (TOPIC, [0]))], False), ([*ONE_TARGET, target("b", (TOPIC, [0]))], False),
    ([*ONE_TARGET, of(6, epoch=4), target("b", (TOPIC, [0])), of(6)], True),
    ([*ONE_TARGET, target("b", (TOPIC, [0])), target("a"), of(6)], False),
    ([*ONE_TARGET, (key(7, "a"), None), (key(5, "a"), None), target("b", (TOPIC, [0])), of(6)], False),
    ([of(3), of(5, "b"), target("a", (TOPIC, [0])), target("b", (TOPIC, [0])), of(6)], False),
    ([of(3), of(5, "a"), target("a", (TOPIC, [0])), of(6),
      *((one.replace(text("g"), text("h")), value) for one, value in (of(3), of(5, "a"), target("a", (TOPIC, [0])), of(6)))], False),
])  # fmt: skip
def test_members_of_a_consumer_group_are_to_have_other_partitions(tmp_path: Path, rows: list[Row], is_wrong: bool) -> None:
    """An assignment is whole when the epoch of all targets is written."""
    found = messages_of(cluster(tmp_path, rows), "coordinator-record")
    assert bool(found) is is_wrong and all("is to give a member what another member is to have" in one for one in found)


@pytest.mark.parametrize(("rows", "is_wrong"), [
    ([tasks("a", (SUB, [0])), tasks("b", (SUB, [0]))], True), ([tasks("a", (SUB, [0])), tasks("b", (SUB, [1]))], False),
    ([tasks("a", (SUB, [0])), tasks("b", standby=[0])], False), ([tasks("a", (SUB, [0])), tasks("b", (b"\2u", [0]))], False),
])  # fmt: skip
def test_members_of_a_streams_group_are_to_have_other_active_tasks(tmp_path: Path, rows: list[Row], is_wrong: bool) -> None:
    found = messages_of(cluster(tmp_path, [of(17), of(19, "a"), of(19, "b"), *rows, of(20)]), "coordinator-record")
    assert bool(found) is is_wrong


@pytest.mark.parametrize("kind", [5, 19])
@pytest.mark.parametrize(("names", "is_wrong"), [(["i", "j"], False), (["i", "i"], True), (["", ""], True), (["i"], False)])
def test_a_group_has_one_static_member_of_a_name(tmp_path: Path, kind: int, names: list[str], is_wrong: bool) -> None:
    rows = [of(kind - 2), *(static(member, name, kind) for member, name in zip("ab", names, strict=False))]
    found = messages_of(cluster(tmp_path / "1", rows), "coordinator-record")
    assert bool(found) is is_wrong and all("is of a second member with one group.instance.id" in one for one in found)
    gone = [*rows[:2], (key(kind, "a"), None), static("b", names[0], kind)]
    other = [*rows[:2], *((one.replace(text("g"), text("h")), value) for one, value in rows[:2])]
    assert cluster(tmp_path / "2", gone).exit_code == cluster(tmp_path / "3", other).exit_code == 0


STREAMS = [of(17), of(19, "a")]


@pytest.mark.parametrize(("rows", "said"), [
    ([topology(("s", ["t"])), tasks("a", (SUB, [0, 1]))], ""), ([topology(("s", ["t"])), tasks("a", (b"\2u", [0]))], "a subtopology that"),
    ([tasks("a", (b"\2u", [0])), topology(("s", ["t"]))], ""), ([tasks("a", (b"\2u", [0]))], ""),
    ([topology(("s", ["t"])), tasks("a", (SUB, [2]))], "names task 2 of a subtopology that has 2 tasks, as it reads t"),
    ([topology(("s", ["t"])), tasks("a", (SUB, [0]), standby=[2])], "names task 2"),
    ([topology(("s", ["t", "u"])), tasks("a", (SUB, [2]))], ""), ([topology(("s", ["t"]), patterns=1), tasks("a", (SUB, [2]))], ""),
    ([topology(("s", ["t"]), ("u", ["t"])), tasks("a", (b"\2u", [1]))], ""), ([topology(("s", [])), tasks("a", (SUB, [2]))], ""),
])  # fmt: skip
def test_tasks_are_those_of_their_groups_topology(tmp_path: Path, rows: list[Row], said: str) -> None:
    result = cluster(tmp_path, [*STREAMS, *rows])
    found = [*messages_of(result, "coordinator-record"), *messages_of(result, "not-compared")]
    assert bool(said) is bool(found) and all(said in one for one in found), found
    assert result.exit_code == (0 if not said else 1 if "that its group" in found[0] else 3)


@pytest.mark.parametrize(("kind", "assigned"), [(22, b"\2" + SUB + b"\2\0\0\0\2\0" + b"\1" * 5), (21, b"\1\1\2" + SUB + b"\2\0\0\0\2\0")])
def test_tasks_of_every_kind_count(tmp_path: Path, kind: int, assigned: bytes) -> None:
    head = VERSION + (struct.pack(">iib", 5, 4, 1) if kind == 22 else b"")
    assert cluster(tmp_path, [*STREAMS, topology(("s", ["t"])), (key(kind, "a"), head + assigned + b"\0")]).exit_code == 3


def test_a_topic_of_a_name_that_another_had_may_have_had_more_partitions(tmp_path: Path) -> None:
    log = MetadataLog().topic("t", UNKNOWN).remove(UNKNOWN)
    log.values += made().values[: len(BROKERS)]  # brokers are registered in epochs of earlier records
    log.values += made().values[len(BROKERS) :]
    assert cluster(tmp_path, [*STREAMS, topology(("s", ["t"])), tasks("a", (SUB, [2]))], log=log).exit_code == 0


# ---- states of share groups ------------------------------------------------------------------------------------------------------------


def encoded(record: object) -> Row:
    return encode_coordinator_key(record.key), encode_coordinator_value(record.value, 0)  # type: ignore[attr-defined]


def state(number: int = 0, group: str = "g") -> Row:
    return encoded(snapshot_record(SharePartitionKey(group, TOPIC, number), ShareState(0, 0, 0, 3, 0)))


def initialized(*numbers: int, topic: bytes = TOPIC, group: str = "g") -> Row:
    value = VERSION + b"\1" + unsigned(2) + topic + b"\2t" + places((b"", numbers))[1:] + b"\1\0"
    return key(15, group=group), value


def uncleanly(log: MetadataLog, topic_id: bytes) -> MetadataLog:
    return log.change(topic_id, isr=(2,), leader=2, recovering=True)


SHARE = [of(11), of(10, "a")]
GONE = key(15), VERSION + b"\1\1\1\0"


@pytest.mark.parametrize(("rows", "states", "log", "is_lost"), [
    ([initialized(0, 1)], [state(0), state(1)], made(), ""), ([initialized(0, 1)], [state(0)], made(), "partition 1 of t"),
    ([initialized(0)], [], made(), "partition 0 of t"), ([initialized(0)], [state(0, "h")], made(), "partition 0 of t"),
    ([initialized(0)], [state(0), (state(0)[0], None)], made(), "partition 0 of t"), ([], [state(0)], made(), ""),
    ([initialized(7, topic=UNKNOWN)], [], made(), ""), ([initialized(0), GONE], [], made(), ""),
    ([initialized(0), (GONE[0], None)], [], made(), ""), ([initialized(0)], [], uncleanly(made(), STATES), "-"),
    ([initialized(0)], [], uncleanly(made(), GROUPS), "-"),
    ([initialized(0)], [], made().config(SHARES, "cleanup.policy", "delete").config(SHARES, "retention.ms", "5"), ""),
    ([initialized(0)], [], made().config(SHARES, "cleanup.policy", "delete").config(SHARES, "retention.ms", "-1"), "partition 0 of t"),
])  # fmt: skip
def test_an_initialized_share_partition_has_its_state(
    tmp_path: Path, rows: list[Row], states: list[Row], log: MetadataLog, is_lost: str
) -> None:
    result = cluster(tmp_path, [*SHARE, *rows], states, log)
    found = messages_of(result, "share-state")
    assert (len(found) == 1) is bool(is_lost) and all(is_lost.strip("-") in one and "share group g" in one for one in found)
    if is_lost:
        assert {one.topic: one.verdict for one in result.partitions}[SHARES] == ("EMPTY" if is_lost == "-" else "LOST")


def test_of_brokers_that_were_killed_nothing_is_said(tmp_path: Path) -> None:
    assert not messages_of(cluster(tmp_path, [*SHARE, initialized(0)], clean=False), "share-state")


def test_a_change_of_a_state_is_no_state(tmp_path: Path) -> None:
    change = encoded(update_record(SharePartitionKey("g", TOPIC, 0), ShareState(0, 0, 0, 3, 0)))
    assert messages_of(cluster(tmp_path, [*SHARE, initialized(0)], [change]), "share-state")
