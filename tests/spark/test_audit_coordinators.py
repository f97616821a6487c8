"""What coordinators keep, held against the logs that it speaks of: committed offsets, transactions, and in which partition it is kept."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, verdicts
from helpers.log_clusters import (
    ABORT,
    COMMIT,
    TIME_MS,
    TRANSACTIONAL,
    Batch,
    MetadataLog,
    Partition,
    marker,
    plain,
    unsigned,
    uuid_text,
    write_broker,
)
from helpers.log_fault_groups import living
from helpers.log_fault_verbs import seal

from minikafka.core.share.state import SharePartitionKey, ShareState, snapshot_record, update_record
from minikafka.core.share.state_batches import StateBatch
from minikafka.spark import coordination, coordinator_log
from minikafka.spark.audit import AuditResult
from minikafka.spark.coordinator_log import CommittedOffset, committed_offset, home_of, transaction_state
from minikafka.spark.group_records import Held
from minikafka.spark.held_twice import Holdings, held_twice
from minikafka.spark.logformat import FormatError
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value
from minikafka.wire.records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)

GROUPS, TRANSACTIONS = bytes([1] * 16), bytes([2] * 16)
PARTITIONS = 2
HOURS_MS = 3_600_000


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commit_key(group: str, partition: int = 0, topic: str = "t") -> bytes:
    return struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", partition)


def commit_value(offset: int, epoch: int = -1, version: int = 3, topic_id: bytes = TOPIC) -> bytes:
    head = struct.pack(">hq", version, offset) + (struct.pack(">i", epoch) if version >= 3 else b"")
    if version < 4:
        return head + text("") + struct.pack(">q", TIME_MS) * (2 if version == 1 else 1)
    return head + unsigned(1) + struct.pack(">q", TIME_MS) + b"\x01\x00\x10" + topic_id


def state_value(producer: int, state: int, start_ms: int = TIME_MS, version: int = 0, timeout_ms: int = 60_000) -> bytes:
    head = struct.pack(">hqhib", version, producer, 0, timeout_ms, state)
    one, many = struct.pack(">i", 1), struct.pack(">ii", 1, 0)
    times = struct.pack(">qq", start_ms, start_ms) + (b"" if version == 0 else b"\0")
    if state not in {1, 2, 3}:  # no partitions
        return head + (struct.pack(">i", -1) if version == 0 else unsigned(0)) + times
    listed = one + text("t") + many if version == 0 else unsigned(2) + unsigned(2) + b"t" + unsigned(2) + struct.pack(">i", 0) + b"\0"
    return head + listed + times


def at_home(name: str, kind: str = "g") -> str:
    """A name like this one that is kept in partition 0."""
    return next(one for at in range(100) if home_of(one := f"{name}{at}", PARTITIONS) == 0)


def kept(records: Iterable[tuple[bytes, bytes | None]], time_ms: int = TIME_MS) -> list[Batch]:
    return [Batch(at, [(0, key, value)], 0, time_ms) for at, (key, value) in enumerate(records)]


def cluster(
    path: Path, held: Sequence[Batch], topic: str = "__consumer_offsets", data: Sequence[Batch] = (), clean: bool = True,
    number: int = 0, partitions: int = 1, log: MetadataLog | None = None,
) -> AuditResult:  # fmt: skip
    """Three brokers with t-0 (offsets 0..9), and `held` as partition `number` of a coordinator's topic of two."""
    log = log or MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.topic("t", TOPIC)
    for other in range(partitions):
        log.partition(TOPIC, BROKERS, BROKERS, 1, 3, number=other)
    log.topic(topic, GROUPS).config(topic, "cleanup.policy", "compact")
    for other in range(PARTITIONS):
        log.partition(GROUPS, BROKERS, BROKERS, 1, 3, number=other)
    batches = list(data) or [plain(at) for at in range(10)]
    for broker in BROKERS:
        mine = [Partition(f"t-{other}", batches, topic_id=TOPIC) for other in range(partitions)]
        coordinator = [Partition(f"{topic}-{other}", list(held) if other == number else [], topic_id=GROUPS) for other in range(PARTITIONS)]
        write_broker(path / f"b{broker}", broker, [*mine, *coordinator], log.encode(), clean)
    return audit(path)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_a_committed_offset_is_read(version: int) -> None:
    found = committed_offset(commit_key("g", 7), commit_value(42, 5, version))
    epoch, topic_id = 5 if version >= 3 else -1, uuid_text(TOPIC) if version >= 4 else ""
    assert found == CommittedOffset("g", "t", 7, 42, epoch, topic_id)


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_of_a_transaction_are_read(version: int) -> None:
    found = transaction_state(struct.pack(">h", 0) + text("id"), state_value(9, 1, 77, version))
    assert found is not None
    assert (found.transactional_id, found.producer_id, found.timeout_ms, found.state, found.start_ms) == ("id", 9, 60_000, 1, 77)


@pytest.mark.parametrize(("name", "home"), [("grp-classic", 1), ("grp-next-gone", 0), ("grp-regex", 1), ("grp-next", 2)])
def test_groups_live_where_apache_kafka_keeps_them(name: str, home: int) -> None:
    """As in the golden logs, whose __consumer_offsets has three partitions; one of the hashes is negative."""
    assert home_of(name, 3) == home


@pytest.mark.parametrize(("offset", "is_reported"), [(0, False), (10, False), (11, True), (500, True)])
def test_a_group_may_not_have_read_what_no_log_holds(tmp_path: Path, offset: int, is_reported: bool) -> None:
    """Records that a group has read were committed. The same tail is lost on all three, and nothing else tells of it."""
    group = at_home("group")
    result = cluster(tmp_path, kept([(commit_key(group), commit_value(offset))]))
    assert set(verdicts(result).values()) <= {"MATCH", "EMPTY"}
    assert bool(messages_of(result, "group-offset")) == is_reported and bool(result.findings.total("warning")) == is_reported


def test_only_the_latest_commit_counts(tmp_path: Path) -> None:
    one, other = at_home("one"), at_home("other")
    records = [(commit_key(one), commit_value(99)), (commit_key(other), commit_value(98)), (commit_key(one), commit_value(9)),
               (commit_key(other), None)]  # fmt: skip
    assert not cluster(tmp_path, kept(records)).findings.total("warning")


@pytest.mark.parametrize(("kind", "is_reported"), [(COMMIT, True), (ABORT, False), (None, False)])
def test_a_commit_in_a_transaction_counts_when_that_is_committed(tmp_path: Path, kind: int | None, is_reported: bool) -> None:
    key, value = commit_key(at_home("group")), commit_value(99)
    batches = [Batch(0, [(0, key, value)], 0, TIME_MS, 7, 0, 0, TRANSACTIONAL)]
    batches += [marker(1, kind, 7)] if kind is not None else []
    assert bool(messages_of(cluster(tmp_path, batches), "group-offset")) == is_reported


@pytest.mark.parametrize(("epoch", "is_reported"), [(3, False), (4, True)])
def test_a_group_may_not_know_a_newer_leader_than_the_controller(tmp_path: Path, epoch: int, is_reported: bool) -> None:
    result = cluster(tmp_path, kept([(commit_key(at_home("group")), commit_value(5, epoch))]))
    assert bool(messages_of(result, "group-offset")) == is_reported


def test_partitions_and_topics_that_do_not_exist(tmp_path: Path) -> None:
    """A commit for a deleted topic is left until the coordinator removes it; one for a partition that its topic lacks is told."""
    group = at_home("group")
    records = [(commit_key(group, 0, "gone"), commit_value(5)), (commit_key(group, 1), commit_value(5))]
    records.append((commit_key(group), commit_value(99, version=4, topic_id=bytes([7] * 16))))
    result = cluster(tmp_path, kept(records))
    assert messages_of(result, "group-offset") == [f": group {group} committed offset 5 of partition 1, the topic has 1"]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_exchanged_partitions_are_found_where_all_replicas_agree(tmp_path: Path, topic: str) -> None:
    name = at_home("name")
    groups = topic == "__consumer_offsets"
    record = (commit_key(name), commit_value(5)) if groups else (struct.pack(">h", 0) + text(name), state_value(1, 4))
    assert not cluster(tmp_path / "right", kept([record]), topic).findings.total("warning")
    assert len(messages_of(cluster(tmp_path / "wrong", kept([record]), topic, number=1), "coordinator-place")) == 1


def state_of(producer: int = 7, epoch: int = 0, timeout_ms: int = 1, state: int = 1, partition: int = 0, behind: bytes = b"") -> bytes:
    head = struct.pack(">hqhib", 0, producer, epoch, timeout_ms, state) + struct.pack(">i", 1) + text("t")
    return head + struct.pack(">iiqq", 1, partition, TIME_MS, TIME_MS) + behind


@pytest.mark.parametrize("value", [
    state_of(behind=b"x"), state_of(producer=-5), state_of(epoch=-1), state_of(timeout_ms=-1), state_of(partition=-1), state_of(state=6),
    state_of(state=0), state_value(7, 1, version=1) + b"x",
    struct.pack(">hqhibi", 0, 7, 0, 1, 1, 1) + text("t") + struct.pack(">iqq", -1, 0, 0),
])  # fmt: skip
def test_a_state_of_a_transaction_that_no_coordinator_writes(value: bytes) -> None:
    key = struct.pack(">h", 0) + text("id")
    assert transaction_state(key, state_of()) is not None
    with pytest.raises(FormatError):
        transaction_state(key, value)


@pytest.mark.parametrize(("key", "value"), [
    (commit_key("g"), commit_value(5) + b"x"), (commit_key("g"), commit_value(5, version=4) + b"x"),
    (commit_key("g") + b"x", commit_value(5)),
    (commit_key("g")[:-4] + struct.pack(">i", -1), commit_value(5)),
])  # fmt: skip
def test_a_committed_offset_that_no_coordinator_writes(key: bytes, value: bytes) -> None:
    with pytest.raises(FormatError):
        committed_offset(key, value)


@pytest.mark.parametrize(("again", "is_reported"), [(b"\0\0\0\0\0\1\0", True), (None, False)])
def test_a_group_of_two_types_keeps_its_coordinator_from_loading(tmp_path: Path, again: bytes | None, is_reported: bool) -> None:
    name = at_home("group")
    classic = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", 1, -1, -1, TIME_MS, 0)
    consumer = struct.pack(">h", 3) + text(name)
    records = [(struct.pack(">h", 2) + text(name), classic), (consumer, b"\0\0\0\0\0\1\0"), (consumer, again)]
    result = cluster(tmp_path, kept(records))
    found = messages_of(result, "coordinator-record")
    assert len(found) == is_reported and all(f"group {name} is a classic group and a consumer group" in one for one in found)
    assert result.exit_code == (1 if is_reported else 0)


@pytest.mark.parametrize("value", [struct.pack(">hq", 9, 5), commit_value(5)[:-3], commit_value(5, version=4)[:-2]])
def test_records_that_a_coordinator_cannot_load_are_errors(tmp_path: Path, value: bytes) -> None:
    result = cluster(tmp_path, kept([(commit_key(at_home("group")), value)]))
    assert result.exit_code == 1 and len(messages_of(result, "coordinator-record")) == 1


def test_a_member_of_a_group_that_a_coordinator_cannot_load_is_an_error(tmp_path: Path) -> None:
    key = encode_coordinator_key(ConsumerGroupCurrentMemberAssignmentKey(group_id=at_home("group"), member_id="m"))
    member = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3, previous_member_epoch=2, state=0, assigned_partitions=[], partitions_pending_revocation=[]
    )
    value = encode_coordinator_value(member, 0)
    before = living([(key, value)])
    assert not messages_of(cluster(tmp_path / "right", kept([*before, (key, value)])), "coordinator-record")
    result = cluster(tmp_path / "cut", kept([(key, value[:-1])]))
    assert result.exit_code == 1 and len(messages_of(result, "coordinator-record")) == 1


def member_row(
    member: str, *partitions: int, pending: Sequence[int] = (), topic: bytes = TOPIC, group: str = "group"
) -> tuple[bytes, bytes]:
    """The current assignment of a member of a consumer group."""
    of = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    held, leaving = ([of(topic_id=topic, partitions=[*numbers])] if numbers else [] for numbers in (partitions, pending))
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3, previous_member_epoch=2, state=1 if pending else 0, assigned_partitions=held, partitions_pending_revocation=leaving
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=at_home(group), member_id=member)
    return encode_coordinator_key(key), encode_coordinator_value(value, 0)


def tasks_row(member: str, active: Sequence[int] = (), pending: Sequence[int] = (), standby: Sequence[int] = ()) -> tuple[bytes, bytes]:
    """The current assignment of a member of a streams group."""
    of = StreamsGroupCurrentMemberAssignmentValue.TaskIds
    lists = [[of(subtopology_id="0", partitions=[*numbers])] if numbers else [] for numbers in (active, pending, standby)]
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=3, previous_member_epoch=2, state=2 if pending else 1, active_tasks=lists[0], standby_tasks=lists[2],
        warmup_tasks=lists[2],
        active_tasks_pending_revocation=lists[1], standby_tasks_pending_revocation=[], warmup_tasks_pending_revocation=[],
    )  # fmt: skip
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=at_home("group"), member_id=member)
    return encode_coordinator_key(key), encode_coordinator_value(value, 0)


HELD_TWICE = {
    "both": [member_row("a", 0, 1), member_row("b", 2, 1)],
    "one is to give it up": [member_row("a", 0, pending=[1]), member_row("b", 1)],
    "behind others": [member_row("a", 1), member_row("b"), member_row("a", 1, 3), member_row("b", 1)],
    "tasks": [tasks_row("a", active=[0, 1]), tasks_row("b", active=[1])],
    "a task to give up": [tasks_row("a", pending=[1]), tasks_row("b", active=[1])],
}


@pytest.mark.parametrize("limit", [1, 250_000])
@pytest.mark.parametrize("rows", HELD_TWICE.values(), ids=HELD_TWICE)
def test_two_members_that_hold_one_partition(
    tmp_path: Path, rows: list[tuple[bytes, bytes]], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that loads these records fails (ConsumerGroup.addPartitionEpochs)."""
    monkeypatch.setattr(coordinator_log, "RECORDS_A_PASS", limit)
    before = living(rows)
    result = cluster(tmp_path, kept([*before, *rows]))
    what = "0" if rows[0][0][1] == 22 else uuid_text(TOPIC)
    found = [(one.offset, one.message) for one in result.findings.kept if one.check == "coordinator-record"]
    assert found == [(len(before) + len(rows) - 1, f"members a and b of group {at_home('group')} both hold partition 1 of {what}")]
    assert result.exit_code == 1


HELD_ONCE = {
    "given up": [member_row("a", 0, 1), member_row("a", 0), member_row("b", 1)],
    "left": [member_row("a", 0, 1), (member_row("a")[0], None), member_row("b", 1)],
    "other topics": [member_row("a", 1), member_row("b", 1, topic=bytes([9] * 16))],
    "other groups": [member_row("a", 1), member_row("b", 1, group="other")],
    "standby tasks": [tasks_row("a", standby=[1]), tasks_row("b", standby=[1]), tasks_row("c", active=[1])],
}


@pytest.mark.parametrize("rows", HELD_ONCE.values(), ids=HELD_ONCE)
def test_members_of_which_each_holds_its_own(tmp_path: Path, rows: list[tuple[bytes, bytes | None]]) -> None:
    result = cluster(tmp_path, kept([*living(rows), *rows]), partitions=2)
    assert result.exit_code == 0 and not messages_of(result, "coordinator-record")


def test_what_a_cleaner_removed_during_the_reading_is_not_held() -> None:
    """The first reading passed by offset 5 before the cleaner, and by its successor, offset 6, behind it."""
    stale, now = Held("g", "a", [("t", 0), ("t", 1)]), Held("g", "b", [("t", 0)])
    holdings = Holdings()
    holdings.add(5, stale)
    holdings.add(7, now)
    assert len(holdings.suspects()) == 2
    assert not list(held_twice(holdings.suspects(), [(7, now)]))
    assert not list(held_twice(holdings.suspects(), [(7, now), (9, stale)])), "a newer record of the member is another one"
    assert list(held_twice(holdings.suspects(), [(5, stale), (7, now)])) == [(7, "members a and b of group g both hold partition 0 of t")]


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("how", ["superseded", "deleted", "aborted", "open", "a tombstone without its group"])
def test_a_coordinator_loads_each_record_not_only_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, passes: int
) -> None:
    """It fails at the first one that it cannot read, whatever became of it later (CoordinatorLoaderImpl)."""
    monkeypatch.setattr(coordinator_log, "RECORDS_A_PASS", 4 // passes)
    key, good = commit_key(at_home("group")), commit_value(5)
    first, then = {
        "superseded": ((key, good[:-3]), (key, good)), "deleted": ((key, good[:-3]), (key, None)),
        "a tombstone without its group": ((key[:5], None), (key, good)),
    }.get(how, ((key, good[:-3]), (key, good)))  # fmt: skip
    held = [Batch(0, [(0, *first)]), *(replace(one, base=one.base + 2) for one in kept([then]))]
    if how in {"aborted", "open"}:
        held[0] = Batch(0, [(0, *first)], 0, TIME_MS, 7, 0, 0, TRANSACTIONAL)
    held.insert(1, marker(1, ABORT, 7) if how == "aborted" else kept([(commit_key(at_home("other")), good)] * 2)[1])
    result = cluster(tmp_path, held)
    assert result.exit_code == 1 and [one.offset for one in result.findings.kept if one.check == "coordinator-record"] == [0]


def test_a_batch_that_a_coordinator_cannot_decode_is_an_error(tmp_path: Path) -> None:
    """Its checksum is right and it is the same on all, so that only who loads it notices."""
    broken = Batch(1, [(0, commit_key(at_home("group")), commit_value(5))])
    whole = broken.encode()

    class Cut(Batch):
        def encode(self) -> bytes:
            body = bytearray(whole)
            body[61] += 2  # the record claims a byte more than there is
            return bytes(seal(body))

    result = cluster(tmp_path, [*kept([(commit_key(at_home("other")), commit_value(3))]), Cut(1, broken.records)])
    assert result.exit_code == 1 and "cannot be decoded" in messages_of(result, "coordinator-record")[0]


def share_rows(group: str, *states: tuple[int, int, list[StateBatch]]) -> list[tuple[bytes, bytes | None]]:
    """As minikafka's share coordinator writes them: a snapshot, then updates. States: (leader epoch, start offset, batches)."""
    key, rows = SharePartitionKey(group, TOPIC, 0), []
    for number, (epoch, start, batches) in enumerate(states):
        record = (update_record if number else snapshot_record)(key, ShareState(0, 0, epoch, start, 0, batches, TIME_MS, TIME_MS))
        assert record.value is not None
        rows.append((encode_coordinator_key(record.key), encode_coordinator_value(record.value, record.version)))
    return rows


def share_group() -> str:
    """A share group whose state of t-0 is kept in partition 0."""
    names = (f"g{at}" for at in range(100))
    return next(one for one in names if home_of(f"{one}:{uuid_text(TOPIC)}:0", PARTITIONS) == 0)


@pytest.mark.parametrize(("states", "said"), [
    ([(3, 10, [])], ""), ([(3, 11, [])], "has read up to offset 11, the log ends at 10"), ([(3, 0, [StateBatch(4, 9, 2, 1)])], ""),
    ([(3, 0, [StateBatch(4, 5, 2, 1), StateBatch(6, 10, 0, 1)])], "has read up to offset 11, the log ends at 10"),
    ([(3, 5, []), (3, -1, [])], ""), ([(3, 5, []), (3, 12, [])], "has read up to offset 12, the log ends at 10"),
    ([(4, 5, [])], "of leader epoch 4, the newest one is 3"),
])  # fmt: skip
def test_a_share_group_may_not_have_read_what_no_log_holds(
    tmp_path: Path, states: list[tuple[int, int, list[StateBatch]]], said: str
) -> None:
    """Its state names the topic by its id; records in hand were read, too."""
    result = cluster(tmp_path, kept(share_rows(share_group(), *states)), "__share_group_state")
    found = messages_of(result, "group-offset")
    assert len(found) == bool(said) and all(said in one for one in found)
    assert result.outcome == "PASS" and not messages_of(result, "coordinator-place")


def test_the_state_of_a_share_group_in_another_partition_or_that_cannot_be_read(tmp_path: Path) -> None:
    rows = share_rows(share_group(), (3, 4, [StateBatch(4, 9, 2, 1)]))
    assert len(messages_of(cluster(tmp_path / "1", kept(rows), "__share_group_state", number=1), "coordinator-place")) == 1
    (key, value), other = rows[0], (struct.pack(">h", 7) + text("later"), b"kind")
    assert key and value and not cluster(tmp_path / "2", kept([other]), "__share_group_state").findings.total("warning")
    in_hand = struct.pack(">qqbh", 4, 9, 2, 1)
    assert value.count(in_hand) == 1
    wrong_state, backwards = (value.replace(in_hand, struct.pack(">qqbh", *fields)) for fields in ((4, 9, 5, 1), (9, 4, 2, 1)))
    for number, broken in enumerate((value[:-3], struct.pack(">h", 1) + value[2:], wrong_state, backwards)):
        result = cluster(tmp_path / f"broken {number}", kept([(key, broken)]), "__share_group_state")
        assert result.exit_code == 1 and len(messages_of(result, "coordinator-record")) == 1


@pytest.mark.parametrize(
    ("state", "age_ms", "is_reported"),
    [(1, 0, False), (1, HOURS_MS, True), (2, HOURS_MS, True), (3, HOURS_MS, True), (4, HOURS_MS, False), (0, HOURS_MS, False)],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_transaction_that_its_coordinator_should_have_ended(
    tmp_path: Path, state: int, age_ms: int, is_reported: bool, version: int
) -> None:
    """The metadata log tells that the cluster ran an hour longer than the transaction."""
    name = at_home("id")
    value = state_value(7, state, TIME_MS - age_ms, version)
    result = cluster(tmp_path, kept([(struct.pack(">h", 0) + text(name), value)]), "__transaction_state")
    assert bool(messages_of(result, "txn-open")) == is_reported


def test_without_a_leader_the_coordinator_could_do_nothing(tmp_path: Path) -> None:
    """It was off, so that the transaction could not be ended in time."""
    name = at_home("id")
    log = MetadataLog().topic("__transaction_state", GROUPS)
    for number in range(PARTITIONS):
        log.partition(GROUPS, BROKERS, BROKERS, -1, 3, number=number)
    for broker in BROKERS:
        held = kept([(struct.pack(">h", 0) + text(name), state_value(7, 1, TIME_MS - HOURS_MS))], TIME_MS - HOURS_MS)
        one = Partition("__transaction_state-0", held, topic_id=GROUPS)
        write_broker(tmp_path / f"b{broker}", broker, [one, Partition("__transaction_state-1", [], topic_id=GROUPS)], log.encode())
    assert not messages_of(audit(tmp_path), "txn-open")


@pytest.mark.parametrize(("producer", "state", "clean", "check"), [
    (7, 1, True, ""), (7, 2, True, ""), (7, 4, True, "txn-decision"), (7, 5, True, "txn-decision"), (7, 0, True, "txn-decision"),
    (8, 1, True, "txn-open"), (8, 4, True, "txn-open"), (7, 4, False, ""),
])  # fmt: skip
def test_a_transaction_that_will_never_end(tmp_path: Path, producer: int, state: int, clean: bool, check: str) -> None:
    """Producer 7's transaction is open in t-0; of brokers that run the coordinator may have been asked earlier."""
    data = [plain(0), Batch(1, [(0, None, b"x")], 0, TIME_MS, 7, 0, 0, TRANSACTIONAL), plain(2)]
    held = kept([(struct.pack(">h", 0) + text(at_home("id")), state_value(producer, state))])
    result = cluster(tmp_path, held, "__transaction_state", data, clean)
    assert [one.check for one in result.findings.kept if one.check.startswith("txn")] == ([check] if check else [])
    assert (result.exit_code == 1) == (check == "txn-decision")


def given_away(*ends: int) -> MetadataLog:
    """Blocks of producer ids, up to these."""
    log = MetadataLog()
    for end in ends:
        log.other(15, struct.pack(">iqq", -1, -1, end) + b"\0")
    return log


@pytest.mark.parametrize(("ends", "producer", "clean", "is_reported"), [
    ((1000, 2000), 1999, True, False), ((1000,), 1000, True, True), ((1000,), 1000, False, False), ((), 1000, True, False),
])  # fmt: skip
@pytest.mark.parametrize("where", ["t-0", "__transaction_state-0", "the id to come"])
def test_producer_ids_that_are_yet_to_be_given_away(
    tmp_path: Path, ends: tuple[int, ...], producer: int, clean: bool, is_reported: bool, where: str
) -> None:
    """The end of the metadata log is gone on all nodes: others will get the same ids, and brokers take their batches for duplicates."""
    data = [plain(0), Batch(1, [(0, None, b"x")], 0, TIME_MS, producer if where == "t-0" else 7, 0, 0), plain(2)]
    value = state_value(producer if where == "__transaction_state-0" else 7, 0, version=1)
    if where == "the id to come":
        value = value[:-1] + unsigned(1) + unsigned(1) + unsigned(8) + struct.pack(">q", producer)
    held = kept([(struct.pack(">h", 0) + text(at_home("id")), value)])
    result = cluster(tmp_path, held, "__transaction_state", data, clean, log=given_away(*ends))
    found = [one for one in messages_of(result, "not-compared") if "the metadata's end is missing" in one]
    assert len(found) == is_reported and result.exit_code == (3 if is_reported else 0)


@pytest.mark.parametrize(("second", "moved", "is_reported"), [(7, False, True), (8, False, False), (7, True, False)])
def test_a_producer_id_of_two_transactional_ids_in_two_partitions(tmp_path: Path, second: int, moved: bool, is_reported: bool) -> None:
    """One that is in a wrong partition, since partitions were added, is in its own as well."""
    other = next(one for at in range(100) if home_of(one := f"id{at}", PARTITIONS) == 1)
    name = at_home("id")
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.topic("__transaction_state", GROUPS)
    for number in range(PARTITIONS):
        log.partition(GROUPS, BROKERS, BROKERS, 1, 3, number=number)
    names = (name, name if moved else other)
    for broker in BROKERS:
        held = [
            Partition(f"__transaction_state-{number}", kept([(b"\0\0" + text(one), state_value(producer, 0))]), topic_id=GROUPS)
            for number, (one, producer) in enumerate(zip(names, (7, second), strict=True))
        ]  # fmt: skip
        write_broker(tmp_path / f"b{broker}", broker, held, log.encode())
    result = audit(tmp_path)
    found = [one for one in messages_of(result, "coordinator-record") if "producer id 7 is that of a transactional id here" in one]
    assert len(found) == is_reported and result.exit_code == (1 if is_reported else 0)


@pytest.mark.parametrize(("state", "kind", "epoch", "version", "clean", "is_reported"), [
    (4, ABORT, 3, 2, True, True), (5, COMMIT, 3, 2, True, True), (2, ABORT, 3, 2, True, True), (3, COMMIT, 3, 2, False, True),
    (4, COMMIT, 3, 2, True, False), (5, ABORT, 3, 2, True, False), (4, ABORT, 2, 2, True, False), (4, ABORT, 4, 2, True, False),
    (4, ABORT, 3, 1, True, False), (0, ABORT, 3, 2, True, False), (1, ABORT, 3, 2, True, False),
])  # fmt: skip
def test_a_log_ends_a_transaction_as_its_coordinator_decided(
    tmp_path: Path, state: int, kind: int, epoch: int, version: int, clean: bool, is_reported: bool
) -> None:
    """Marker and decision belong together where each transaction has an epoch of its own; before, several share one."""
    data = [plain(0), Batch(1, [(0, None, b"x")], 0, TIME_MS, 7, epoch - 1, 0, TRANSACTIONAL), marker(2, kind, 7, epoch), plain(3)]
    value = state_value(7, state, version=1)
    value = value[:10] + struct.pack(">h", 3) + value[12:-1] + unsigned(1) + unsigned(2) + unsigned(2) + struct.pack(">h", version)
    result = cluster(tmp_path, kept([(struct.pack(">h", 0) + text(at_home("id")), value)]), "__transaction_state", data, clean)
    assert bool(messages_of(result, "txn-decision")) == is_reported
    assert result.exit_code == (1 if is_reported else 0)


@pytest.mark.parametrize(("limit", "most"), [("RECORDS_A_PASS", 3), ("BYTES_A_PASS", 400)])
def test_more_records_than_a_pass_keeps_are_read_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    passes = set()
    read = coordinator_log.data_records
    monkeypatch.setattr(coordinator_log, "data_records", lambda *arguments: passes.add(len(passes)) or read(*arguments))
    monkeypatch.setattr(coordinator_log, limit, most)
    names = [one for at in range(60) if home_of(one := f"group-{at}", PARTITIONS) == 0]
    records = [(commit_key(name), commit_value(90 + at)) for at, name in enumerate(names)]
    result = cluster(tmp_path, kept(records))
    last = len(names) - 1
    assert messages_of(result, "group-offset") == [f": group {names[last]} committed offset {90 + last}, the log ends at 10"]
    assert len(passes) > 5


def test_more_findings_than_a_task_keeps_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination, "FINDINGS_A_TASK", 4)
    names = [one for at in range(60) if home_of(one := f"group-{at}", PARTITIONS) == 0]
    result = cluster(tmp_path, kept([(commit_key(name), commit_value(5)) for name in names]), number=1)
    assert result.findings.total("warning") == len(names) and len(messages_of(result, "coordinator-place")) == 4
