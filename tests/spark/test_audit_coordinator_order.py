"""What coordinators never write one after the other, and what the latest of their records cannot say together: the same on all replicas."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, audit, messages_of
from helpers.consumer_group_world import GroupsWorld
from helpers.log_clusters import Batch, MetadataLog, Partition, lines, plain, unsigned, write_broker
from helpers.log_fault_groups import group_record, living, text
from helpers.streams_group_world import StreamsWorld

from minikafka.spark import coordination, coordinator_log, coordinator_whole
from minikafka.spark.audit import AuditResult
from minikafka.spark.coordinator_order import check_order
from minikafka.spark.coordinator_whole import Whole
from minikafka.spark.group_records import read_group_record
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value

TOPIC, GROUPS = bytes(range(16)), bytes(range(16, 32))
OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
Row = tuple[bytes, bytes | None]
#: (kind of the group's record, of members, of what a member holds, is to hold, of the target's epoch, a value's state)
CONSUMER, SHARE, STREAMS = (3, 5, 8, 7, 6, 0), (11, 10, 14, 13, 12, 0), (17, 19, 22, 21, 20, 1)


def cluster(path: Path, topic: str, rows: Sequence[Row], high_watermark: int | None = None, clean: bool = True) -> AuditResult:
    """Three brokers with t-0 and these records in the only partition of a coordinator's topic, one a batch, in two segments."""
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.topic("t", TOPIC).partition(TOPIC, BROKERS, BROKERS, 1).topic(topic, GROUPS).config(topic, "cleanup.policy", "compact")
    log.partition(GROUPS, BROKERS, BROKERS, 1)
    batches = [Batch(at, [(0, *row)]) for at, row in enumerate(rows)]
    for broker in BROKERS:
        held = Partition(f"{topic}-0", batches, (0, len(rows) // 2 or 1), topic_id=GROUPS, high_watermark=high_watermark)
        write_broker(path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(99)]), held], log.encode(), clean)
    return audit(path)


def found_in(path: Path, topic: str, rows: Sequence[Row]) -> list[str]:
    result = cluster(path, topic, rows)
    found = messages_of(result, "coordinator-record")
    assert result.exit_code == (1 if found else 0), messages_of(result, "group-offset")
    return found


def of(kind: int, member: str = "", group: str = "g", epoch: int = 5, gone: bool = False) -> Row:
    """A record of a group, or of its member, in this epoch."""
    key = struct.pack(">h", kind) + text(group) + (text(member) if member else b"")
    return key, None if gone else group_record(kind, group, epoch)[1]


def life(family: tuple[int, ...], *steps: str) -> list[Row]:
    """What a coordinator writes of a group: "joins" and "leaves" of member a, "epoch 7", "removed", and its mistakes."""
    group, member, current, target, target_epoch, _ = family
    rows: list[Row] = []
    for step in steps:
        name, _, number = step.partition(" ")
        rows += {
            "joins": [of(member, "a"), of(group), of(target, "a"), of(target_epoch), of(current, "a")],
            "leaves": [of(current, "a", gone=True), of(target, "a", gone=True), of(member, "a", gone=True)],
            "epoch": [of(group, epoch=int(number or 0))], "assigned": [of(target_epoch, epoch=int(number or 0))],
            "removed": [of(target_epoch, gone=True), of(group, gone=True)], "half": [of(current, "b")],
            "holds": [of(current, "a", epoch=int(number or 0))], "came": [of(member, "a"), of(current, "a", epoch=0)],
            "unassigned": [of(current, "a", gone=True), of(member, "a", gone=True)],
        }[name]  # fmt: skip
    return rows


@pytest.fixture(autouse=True, params=[1, coordination.RECORDS_HELD_MAX], ids=["many readings", "one reading"])
def readings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In how many readings records are held against each other makes no difference."""
    monkeypatch.setattr(coordination, "RECORDS_HELD_MAX", request.param)


@pytest.mark.parametrize("limit", [1, 250_000])
@pytest.mark.parametrize("family", [CONSUMER, SHARE, STREAMS], ids=["consumer", "share", "streams"])
@pytest.mark.parametrize(("steps", "said"), [
    (["joins"], ""), (["joins", "leaves"], ""), (["joins", "leaves", "removed"], ""), (["joins", "leaves", "removed", "joins"], ""),
    (["joins", "epoch 7", "assigned 7", "holds 7"], ""), (["joins", "leaves", "epoch 9", "removed", "joins"], ""),
    (["came"], ""), (["joins", "leaves", "removed", "came"], ""), (["came", "removed"], "belongs to a group that was removed"),
    (["joins", "epoch 5", "assigned 5"], ""), (["joins", "removed"], "belongs to a group that was removed"),
    (["joins", "epoch 3"], "the epoch falls from 5 to 3"),
    (["joins", "epoch 9", "assigned 9", "assigned 3"], "the epoch falls from 9 to 3"),
    (["joins", "assigned 6"], "is of epoch 6, and its group of 5"), (["joins", "holds 6"], "is of epoch 6, and its group of 5"),
    (["joins", "half"], "is of somebody who is no member"), (["joins", "unassigned"], "is of somebody who is no member"),
    (["joins", "epoch 7", "holds 6"], "is of epoch 6, and the assignment of 5"), (["joins", "epoch 7", "assigned 6", "holds 6"], ""),
])  # fmt: skip
def test_lives_of_groups(
    tmp_path: Path, family: tuple[int, ...], steps: list[str], said: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that loads the end of a group with members, or of a member with an assignment, ends (GroupMetadataManager.replay)."""
    monkeypatch.setattr(coordinator_log, "RECORDS_A_PASS", limit)
    found = found_in(tmp_path, OFFSETS, life(family, *steps))
    assert any(said in one for one in found) if said else not found, found


def classic(generation: int, *static: str) -> Row:
    members = b"".join(
        text(str(number)) + (text(name) if name else b"\xff\xff") + text("c") + text("h") + struct.pack(">iiii", 9, 9, 0, 0)
        for number, name in enumerate(static)
    )
    head = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", generation) + text("range")
    leader = text("0") if static else b"\xff\xff"
    return struct.pack(">h", 2) + text("g"), head + leader + struct.pack(">qi", 1, len(static)) + members


@pytest.mark.parametrize(("rows", "said"), [
    ([classic(1, "", ""), classic(2), classic(2), (classic(1)[0], None), classic(1, "s")], ""),
    ([classic(4, ""), classic(3, "")], "the epoch falls from 4 to 3"), ([classic(-1, "")], "in generation -1"),
    ([classic(1, "s", "s")], "has a member twice"), ([classic(1, "s", "r", "", "")], ""),
    ([(classic(1)[0] + b"x", None)], "1 bytes behind"), ([(of(3)[0] + b"x", of(3)[1])], "1 bytes behind"),
    ([(b"\xff\xfe" + text("g"), b"")], "unknown kind -2"), ([(b"\xff\xfe" + text("g"), None)], "unknown kind -2"),
    ([*life(CONSUMER, "joins"), of(8, "a", epoch=-2)], ""), ([*life(CONSUMER, "joins"), of(8, "a", epoch=-3)], "in epoch -3"),
])  # fmt: skip
def test_records_of_groups(tmp_path: Path, rows: list[Row], said: str) -> None:
    found = found_in(tmp_path, OFFSETS, rows)
    assert bool(found) == bool(said) and all(said in one for one in found), found


def offset(topic: str) -> Row:
    key = struct.pack(">h", 1) + text("g") + text(topic) + struct.pack(">i", 0)
    return key, struct.pack(">hqi", 3, 5, -1) + text("") + struct.pack(">q", 1)


@pytest.mark.parametrize(("row", "said"), [
    (offset("t"), ""), (offset(""), "partition 0 of ''"), (offset("a/b"), "partition 0 of 'a/b'"), ((offset("t")[0], None), ""),
    ((offset("t")[0] + b"x", None), "1 bytes behind"),
])  # fmt: skip
def test_committed_offsets(tmp_path: Path, row: Row, said: str) -> None:
    found = found_in(tmp_path, OFFSETS, [row])
    assert bool(found) == bool(said) and all(said in one for one in found), found


EMPTY, ONGOING, COMMITTING, ABORTING, COMMITTED, ABORTED = range(6)


def transaction(
    state: int, producer: int = 7, epoch: int = 3, name: str = "x", timeout: int = 9, partitions: int = 0, began: int = 1,
    listed: Sequence[tuple[str | int, ...]] = (),
) -> Row:  # fmt: skip
    topics = [("t", 0)] if partitions else listed
    encoded = b"".join(text(str(topic)) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers) for topic, *numbers in topics)
    head = struct.pack(">hqhib", 0, producer, epoch, timeout, state) + struct.pack(">i", len(topics))
    return struct.pack(">h", 0) + text(name), head + encoded + struct.pack(">qq", 1, began)


def tagged(fields: dict[int, int]) -> Row:
    """A transactional id with nothing open, whose record names other producer ids, a version of transactions, and an epoch to come."""
    found = b"".join(
        bytes([tag, size]) + number.to_bytes(size, "big", signed=True)
        for tag, number in fields.items() for size in (8 if tag < 2 else 2,)
    )  # fmt: skip
    return GONE[0], struct.pack(">hqhib", 1, 7, 3, 9, EMPTY) + b"\1" + struct.pack(">qq", 1, 1) + bytes([len(fields)]) + found


#: Of a later release: a coordinator passes over it, whatever it says.
UNKNOWN_KIND = b"\0\x63ab", b"\0\5c"


GONE = transaction(EMPTY)[0], None
WHOLE = [transaction(EMPTY), transaction(ONGOING, partitions=1), transaction(COMMITTING, partitions=1), transaction(COMMITTED)]


@pytest.mark.parametrize(("rows", "said"), [
    (WHOLE, ""), ([*WHOLE, transaction(COMMITTED), transaction(EMPTY, epoch=4)], ""),
    ([transaction(EMPTY), transaction(EMPTY, 8, 0)], "the producer id changes from 7, whose epoch is 3, to 8"),
    ([transaction(EMPTY, epoch=32766), transaction(EMPTY, 8, 0)], ""), ([transaction(EMPTY), GONE, transaction(EMPTY, 8, 0)], ""),
    ([transaction(EMPTY, 8, 0), transaction(ONGOING, epoch=32765)], ""),  # the write of the new id had timed out
    ([transaction(EMPTY, epoch=5), transaction(EMPTY, epoch=3)], "the epoch of producer 7 falls from 5 to 3"),
    ([transaction(EMPTY, epoch=4), transaction(ONGOING)], ""),
    ([transaction(ONGOING), transaction(COMMITTED)], "goes from Ongoing to CompleteCommit"),
    ([transaction(COMMITTING), transaction(ABORTED)], "goes from PrepareCommit to CompleteAbort"),
    ([transaction(COMMITTING), transaction(ABORTING), transaction(ABORTED)], ""),
    ([transaction(COMMITTED, partitions=1)], "no coordinator writes state CompleteCommit"), ([transaction(7)], "PrepareEpochFence"),
    ([transaction(EMPTY, timeout=0)], "no coordinator writes state Empty"), ([(GONE[0] + b"x", None)], "1 bytes behind"),
    ([(GONE[0] + b"x", WHOLE[0][1])], "1 bytes behind"),
    ([transaction(EMPTY), transaction(EMPTY, name="y")], "ids x and y both have producer id 7"),
    ([transaction(EMPTY), transaction(EMPTY, 8, name="y"), transaction(EMPTY, 9, name="z")], ""),
    ([transaction(EMPTY), GONE, transaction(EMPTY, name="y")], ""),
    ([transaction(EMPTY), transaction(COMMITTING)], "goes from Empty to PrepareCommit"), ([transaction(EMPTY), transaction(ABORTING)], ""),
    ([transaction(COMMITTED), transaction(COMMITTING)], "goes from CompleteCommit to PrepareCommit"),
    ([transaction(COMMITTED), transaction(ONGOING), transaction(ONGOING, epoch=4), transaction(ABORTING)], ""),
    ([transaction(COMMITTING), transaction(EMPTY)], "goes from PrepareCommit to Empty"),
    ([transaction(COMMITTING), transaction(ONGOING)], ""),  # the coordinator took the write for failed
    ([transaction(COMMITTING), transaction(COMMITTED), transaction(ONGOING)], ""), ([*WHOLE, GONE], ""),
    ([transaction(COMMITTING), GONE], "is forgotten in state PrepareCommit"), ([transaction(ONGOING), GONE], ""),
    ([transaction(ONGOING, began=-1)], "of a transaction that began at -1"), ([transaction(EMPTY, began=-1)], ""),
    ([transaction(EMPTY, began=-2)], "began at -2"), ([transaction(ONGOING, listed=[("t", 0), ("t", 1)])], "of 't', a second time"),
    ([transaction(ONGOING, listed=[("t", 0, 0)])], "the partitions [0, 0] of 't'"), ([transaction(ONGOING, listed=[("t",)])], "[] of 't'"),
    ([transaction(ONGOING, listed=[("a/b", 0)])], "of 'a/b'"), ([transaction(ONGOING, listed=[("t", 0, 1), ("u", 0)])], ""),
    ([tagged({})], ""), ([tagged({0: 5, 1: 6, 2: 2, 3: 0})], ""), ([tagged({2: 3})], "with version 3"), ([tagged({2: -1})], "version -1"),
    ([tagged({1: -2})], "the ids and epochs [-2]"), ([tagged({3: -9})], "the ids and epochs [-9]"), ([UNKNOWN_KIND], ""),
])  # fmt: skip
def test_lives_of_transactional_ids(tmp_path: Path, rows: list[Row], said: str) -> None:
    found = found_in(tmp_path, TRANSACTIONS, rows)
    assert bool(found) == bool(said) and all(said in one for one in found), found


def share(
    kind: int, snapshot: int = 0, state: int = 0, leader: int = 0, start: int = 3, batches: Sequence[tuple[int, ...]] = (), number: int = 0,
    time: int = 1, completed: int | None = None,
) -> Row:  # fmt: skip
    key = struct.pack(">h", kind) + text("g") + TOPIC + struct.pack(">i", number)
    listed = unsigned(len(batches) + 1) + b"".join(struct.pack(">qqbh", *one) + b"\0" for one in batches)
    listed += b"\0" if completed is None else struct.pack(">bbbi", 1, 0, 4, completed)
    if kind:
        return key, struct.pack(">hiiq", 0, snapshot, leader, start) + listed
    return key, struct.pack(">hiiiqqq", 0, snapshot, state, leader, start, time, time) + listed


def update(snapshot: int = 0, **fields: int) -> Row:
    return share(1, snapshot, **fields)


HELD = [(3, 4, 2, 1), (5, 5, 0, 1), (9, 9, 4, 2)]


@pytest.mark.parametrize(("rows", "said"), [
    ([share(0), update(), update(), share(0, 1), update(1)], ""), ([share(0, batches=HELD), share(1, batches=HELD)], ""),
    ([share(0), update(), (share(0)[0], None)], ""), ([share(0), (share(0)[0], None), share(0)], ""),
    ([share(0, start=-1), update(start=-1)], ""), ([share(0, leader=-1)], ""), ([share(0, 0, -1)], ""),
    ([update()], "changes a state that does not exist"), ([share(0), update(number=1)], "changes a state that does not exist"),
    ([share(0), (share(0)[0], None), update()], "changes a state that does not exist"),
    ([share(0), update(2)], "is of epoch 2, and the state of 0"), ([share(0, 4), share(0, 3)], "go from (4, 0) to (3, 0)"),
    ([share(0, 4, 2), share(0, 5, 1)], "go from (4, 2) to (5, 1)"), ([share(0, 4), share(0, 4)], "go from (4, 0) to (4, 0)"),
    ([share(0, leader=5), share(0, 1, leader=0), share(0, 2, 1, start=1)], ""), ([share(0), UNKNOWN_KIND], ""),
    ([share(0), update(leader=4), update(leader=3)], "fall from (0, 4) to (0, 3)"), ([share(0), update(leader=4), update(leader=-1)], ""),
    ([share(0), update(leader=4), share(0, 1), update(1)], ""), ([share(0), update(start=9), update(start=4)], ""),
    ([share(0, 1), update(1), update(0)], "the record at offset 2"), ([share(0, 1), update(0)], "behind the state of epoch 1"),
    ([share(0, time=-2)], "a share group reads"), ([share(0, completed=-2)], "has taken behind offset"), ([share(0, completed=9)], ""),
    ([share(0, 4), (share(0)[0], None), share(0)], ""),
    ([share(0, batches=[(3, 5, 2, 1), (5, 6, 0, 1)])], "offsets 5 to 6"), ([share(0, batches=HELD[::-1])], "offsets 5 to 5"),
    ([share(0, batches=[(1, 4, 2, 1)])], "offsets 1 to 4"), ([share(0, batches=[(3, 4, 1, 1)])], "delivery state 1"),
    ([share(0, batches=[(3, 4, 2, -1)])], "delivery state 2"), ([share(0, -1)], "in epochs (-1, 0)"), ([share(0, 0, -2)], "(0, -2)"),
    ([share(0, start=-2)], "from -2"), ([share(0, leader=-2)], "leader epoch -2"), ([share(0, number=-1)], "partition -1"),
    ([(share(0)[0] + b"x", share(0)[1])], "1 bytes behind"), ([(share(0)[0] + b"x", None)], "1 bytes behind"),
])  # fmt: skip
def test_lives_of_share_partitions(tmp_path: Path, rows: list[Row], said: str) -> None:
    found = found_in(tmp_path, SHARES, rows)
    assert bool(found) == bool(said) and all(said in one for one in found), found


def test_a_cleaner_that_came_further_than_the_high_watermark_explains_what_is_missing(tmp_path: Path) -> None:
    """A killed broker's high watermark is old, and what it cleaned since went for the sake of later records."""
    rows = [of(3), of(5, "a"), of(8, "a", epoch=9), *[offset("t")] * 5]
    assert not messages_of(cluster(tmp_path, OFFSETS, rows, high_watermark=3, clean=False), "coordinator-record")
    for broker in BROKERS:
        (tmp_path / f"b{broker}" / "replication-offset-checkpoint").write_text(lines(["t 0 99", f"{OFFSETS} 0 {len(rows)}"]))
    assert messages_of(audit(tmp_path), "coordinator-record")


def test_what_a_cleaner_removed_during_the_reading_is_not_missing() -> None:
    """`Whole` sees two readings; see coordination._contradictions."""
    whole = Whole(OFFSETS)
    for at, (key, value) in enumerate(living([of(8, "a")])):
        whole.add(at, key, value)
    whole.add(9, *of(8, "a"))
    assert whole.suspects() == {}
    whole.add(10, *of(8, "b"))
    assert whole.suspects() == {10: "is of somebody who is no member"}


@pytest.mark.parametrize("topic", [OFFSETS, SHARES])
@pytest.mark.parametrize("records", [1, 7, 40])
def test_slices_say_what_all_records_at_once_say(monkeypatch: pytest.MonkeyPatch, topic: str, records: int) -> None:
    suspects = 0
    for seed in range(100):
        chance = random.Random(seed)
        whole = Whole(topic)
        for at in range(chance.randrange(60)):
            owner, member = chance.randrange(6), chance.randrange(9)
            whole._append(owner, chance.randrange(7), (owner, member), chance.randrange(4), at)
        monkeypatch.setattr(coordinator_whole, "RECORDS_A_SLICE", 1 << 30)
        expected = whole.suspects()
        monkeypatch.setattr(coordinator_whole, "RECORDS_A_SLICE", records)
        assert whole.suspects() == expected
        suspects += len(expected)
    assert suspects > 100


# ---- what coordinators write -----------------------------------------------------------------------------------------------------------


class Checked:
    """The committed records of a coordinator, each batch of which leaves what the audit does not blame."""

    def __init__(self, world: GroupsWorld) -> None:
        self.world, self.latest, self.count = world, dict[bytes, tuple[int, bytes | None, Any]](), 0

    def check(self) -> None:
        for record in self.world.log[self.count :]:
            key = encode_coordinator_key(record.key)
            value = None if record.value is None else encode_coordinator_value(record.value, record.version)
            fields = read_group_record(key, value)
            before = self.latest.get(key, (0, None, None))[1]
            if before is not None and value is not None:
                check_order(OFFSETS, key, before, value)
            self.latest[key] = self.count, value, fields
            self.count += 1
        whole = Whole(OFFSETS)
        for key, (at, value, fields) in self.latest.items():
            whole.add(at, key, value, fields)
        assert whole.suspects() == {}


def take_part(world: GroupsWorld, chance: random.Random, epochs: dict[str, int]) -> None:
    """A member joins, goes on or leaves, time passes, or another broker coordinates. Members d and e take turns as one static member."""
    member = chance.choice("abcde")
    static = {"instance_id": "i"} if member in "de" else {}
    step = chance.choice(["joins", "goes on", "goes on", "leaves", "waits", "fails over"])
    answer = None
    if step == "joins" or member not in epochs:
        names = chance.sample(["t", "u"], chance.randrange(1, 3))
        more = {"subscribed_topic_regex": chance.choice(["", "t|u"])} if type(world) is GroupsWorld else {}
        answer = world.join(member, *names, **more, **static)
    elif step == "goes on":
        answer = world.beat(member, epochs[member], **static)
    elif step == "leaves":
        world.beat(member, chance.choice([-1, -2]) if static else -1, **static)
        del epochs[member]
    elif step == "waits":
        world.advance(chance.choice([1_000, 50_000]))
    else:
        world.fail_over()
    if answer is not None and answer.error_code == ErrorCode.NONE:
        epochs[member] = answer.member_epoch
    elif answer is not None:
        epochs.pop(member, None)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [GroupsWorld, StreamsWorld])
def test_what_coordinators_write_is_not_blamed(kind: type[GroupsWorld], seed: int) -> None:
    chance, world = random.Random(seed), kind(t=3, u=2)
    checked, epochs = Checked(world), dict[str, int]()
    for _ in range(60):
        take_part(world, chance, epochs)
        if chance.random() < 0.3 and kind is GroupsWorld:
            world.resolve()
        checked.check()
    assert checked.count > 60
