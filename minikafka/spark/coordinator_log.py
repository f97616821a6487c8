"""The audit's own reader of `__consumer_offsets`, `__transaction_state` and `__share_group_state`: the latest record of each key.

Keys and values begin with a two-byte version. For offsets: OffsetCommitKey 0 and 1, OffsetCommitValue 0 to 4. For transactions:
TransactionLogKey 0, TransactionLogValue 0 and 1. For share groups: ShareSnapshotKey, ShareUpdateKey and their values of version 0 (the
coordinator schemas of Apache Kafka 4.3). The group is the first field of all keys of groups. group_records.py reads the
groups' other records.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from minikafka.spark.claims import GROUPS, SHARE_GROUPS, TRANSACTIONS
from minikafka.spark.group_records import CLASSIC, LAYOUTS
from minikafka.spark.logformat import FormatError
from minikafka.spark.logical import data_records
from minikafka.spark.metadata_fields import Fields
from minikafka.spark.metadata_topics import NAME
from minikafka.spark.producers import ABORT, COMMIT
from minikafka.spark.sources import SegmentTask

#: Records, and bytes of log, of which a pass keeps the latest of every key: about 200 MB of memory at most.
RECORDS_A_PASS, BYTES_A_PASS = 250_000, 64 << 20
OFFSET_KEYS = {0, 1}
SHARE_SNAPSHOT, SHARE_UPDATE = 0, 1
#: Available, acknowledged, archiving, archived (RecordState). What is acquired is not written down.
DELIVERY_STATES = {0, 2, 3, 4}
FLEXIBLE_OFFSET, FLEXIBLE_TRANSACTION = 4, 1
#: {tag of TransactionLogValue: bytes}: producer ids, the version of the client's transactions, the epoch to come.
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)
_TRANSACTION_TAGS = {_PREVIOUS_ID: 8, _NEXT_ID: 8, _CLIENT_VERSION: 2, _NEXT_EPOCH: 2}
#: From this version of transactions on each has an epoch of its own, so that its markers can be told from earlier ones (KIP-890). It is
#: the newest one.
EPOCH_EACH = 2
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_FENCE = range(8)
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
FINISHED = {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
#: States that a coordinator keeps to itself.
UNWRITTEN = {DEAD, PREPARE_FENCE}
#: How the transaction's markers are to end it.
DECIDED = {PREPARE_COMMIT: COMMIT, COMPLETE_COMMIT: COMMIT, PREPARE_ABORT: ABORT, COMPLETE_ABORT: ABORT}
UNDECIDED = {ONGOING, PREPARE_COMMIT, PREPARE_ABORT}


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset that a group committed. `leader_epoch` -1 and `topic_id` "": not in the record. `topic` "" and `is_of_share_group`: a share
    group took all records below the offset, or has them in hand."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    topic_id: str = ""
    is_of_share_group: bool = False


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A transactional id's state at its coordinator. Times are ms since 1970, -1 none."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    update_ms: int
    start_ms: int
    #: From 2 on each transaction has an epoch of its own (KIP-890).
    client_version: int = 0
    #: The largest producer id that the record names: the id's own, the one before, the one to come.
    newest_producer: int = -1


def latest_records(
    tasks: list[SegmentTask], end: int, skipped: list[tuple[int, int, int]], records: int, size_bytes: int, undecoded: dict[int, str],
    check: Callable[[int, bytes, bytes | None], object] = lambda offset, key, value: None,
    follow: Callable[[int, bytes, bytes, bytes | None], object] = lambda offset, key, before, after: None,
) -> Iterator[tuple[int, bytes, bytes]]:  # fmt: skip
    """(offset, key, value) of the latest record of every key below `end`, unless it is a tombstone. `undecoded` gets batches that cannot be
    decoded: {offset: why}, and `check` all other records, each once: a coordinator reads them, too, when it loads its partition. `follow`
    gets each record that replaces another one: (offset, key, the value before, its own; None for a tombstone).

    `skipped`: (producer id, first offset, last offset) of aborted and undecided transactions. `records` and `size_bytes` of the log, about,
    determine the number of passes over it: each keeps a share of the keys in memory. Raises OSError.
    """
    by_producer: dict[int, list[tuple[int, int]]] = {}
    for producer, first, last in skipped:
        by_producer.setdefault(producer, []).append((first, last))
    passes = 1 + max(records // RECORDS_A_PASS, size_bytes // BYTES_A_PASS)
    for number in range(passes):
        newest: dict[bytes, tuple[int, bytes]] = {}
        for found, is_data, is_skipped in data_records([(task, 0) for task in tasks], 0, end, by_producer, undecoded):
            for index in is_data.nonzero()[0].tolist():
                offset, key, value = int(found.offset[index]), found.key(index) or b"", found.value(index)
                if offset >= end or (passes > 1 and zlib.crc32(key) % passes != number):
                    continue
                if value is None or is_skipped[index]:
                    check(offset, key, value)
                if not is_skipped[index]:
                    if (earlier := newest.pop(key, None)) is not None:
                        check(earlier[0], key, earlier[1])
                        follow(offset, key, earlier[1], value)
                    if value is not None:
                        newest[key] = offset, value
        yield from ((offset, key, value) for key, (offset, value) in newest.items())


#: Kinds of keys that coordinators know; they pass over others (UnknownRecordTypeException).
_KNOWN = {SHARE_GROUPS: {SHARE_SNAPSHOT, SHARE_UPDATE}, TRANSACTIONS: {0}, GROUPS: OFFSET_KEYS | {CLASSIC} | LAYOUTS.keys()}


def is_known(topic: str, key: bytes) -> bool:
    """Whether the topic's coordinator knows this kind of key. Raises FormatError if it cannot be read, or if no kind has the number."""
    kind = Fields(key).integer(2)
    if kind < 0:
        raise FormatError(f"a key has the unknown kind {kind}")
    return kind in _KNOWN[topic]


def is_state(key: bytes) -> bool:
    """Whether a key of `__share_group_state` is that of a whole state, not of a change."""
    return int.from_bytes(key[:2], "big", signed=True) == SHARE_SNAPSHOT


def group_of(key: bytes) -> str:
    """The group id in a key of `__consumer_offsets`. Raises FormatError."""
    fields = Fields(key)
    fields.integer(2)
    return _text(fields)


def committed_offset(key: bytes, value: bytes) -> CommittedOffset | None:
    """The committed offset in a record; None for other kinds of records. Raises FormatError."""
    fields = Fields(key)
    if fields.integer(2) not in OFFSET_KEYS:
        return None
    group, topic, partition = _text(fields), _text(fields), fields.integer(4)
    fields.finish()
    if partition < 0 or not NAME.fullmatch(topic):
        raise FormatError(f"an offset is committed for partition {partition} of {topic!r}")
    fields = Fields(value)
    version, offset = fields.integer(2), fields.integer(8)
    if not 0 <= version <= FLEXIBLE_OFFSET:
        raise FormatError(f"a committed offset has the unknown version {version}")
    epoch = fields.integer(4) if version >= 3 else -1
    if version < FLEXIBLE_OFFSET:
        _text(fields)
        fields.integer(8 if version != 1 else 16)
        fields.finish()
        return CommittedOffset(group, topic, partition, offset, epoch)
    fields.string()
    fields.integer(8)
    tagged = fields.tagged()
    fields.finish()
    return CommittedOffset(group, topic, partition, offset, epoch, tagged[0].uuid() if 0 in tagged else "")


def check_key(topic: str, key: bytes) -> None:
    """Read the key of a tombstone to its end; read_group_record reads those of other records of groups. Raises FormatError."""
    fields = Fields(key)
    kind = fields.integer(2)
    if topic == SHARE_GROUPS and kind in {SHARE_SNAPSHOT, SHARE_UPDATE}:
        _text(fields), fields.uuid(), fields.integer(4)
    elif topic == GROUPS and kind in OFFSET_KEYS:
        _text(fields), _text(fields), fields.integer(4)
    elif topic == TRANSACTIONS and kind == 0:
        _text(fields)
    else:
        return
    fields.finish()


def share_state(key: bytes, value: bytes) -> tuple[CommittedOffset, str] | None:
    """How far a share group has read a partition, and the name by which its coordinator is found (SharePartitionKey); None for other kinds
    of records. Raises FormatError."""
    fields = Fields(key)
    kind = fields.integer(2)
    if kind not in {SHARE_SNAPSHOT, SHARE_UPDATE}:
        return None
    group, topic_id, partition = _text(fields), fields.uuid(), fields.integer(4)
    fields.finish()
    fields = Fields(value)
    if version := fields.integer(2):
        raise FormatError(f"a share group's state has the unknown version {version}")
    snapshot_epoch, state_epoch = fields.integer(4), fields.integer(4 if kind == SHARE_SNAPSHOT else 0)
    epoch, start = fields.integer(4), fields.integer(8)
    times = [fields.integer(8) for _ in ("creation", "writing") if kind == SHARE_SNAPSHOT]
    # -1 stands for nothing, but in a snapshot's epoch.
    if min(partition, snapshot_epoch, state_epoch + 1, epoch + 1, start + 1, *(time + 1 for time in times)) < 0:
        text = f"a share group reads partition {partition} from {start} in epochs {(snapshot_epoch, state_epoch)}"
        raise FormatError(f"{text} and leader epoch {epoch}")
    reach = start
    for _ in range(fields.count(19)):
        first, last, state, deliveries = fields.integer(8), fields.integer(8), fields.integer(1), fields.integer(2)
        fields.tagged()
        if not reach <= first <= last or state not in DELIVERY_STATES or deliveries < 0:
            raise FormatError(f"a share group has offsets {first} to {last} in delivery state {state} behind offset {reach}")
        reach = last + 1
    tagged = fields.tagged()
    fields.finish()
    if 0 in tagged and (completed := tagged[0].integer(4)) < -1:
        raise FormatError(f"the number of records that a share group has taken behind offset {start} is {completed}")
    return CommittedOffset(group, "", partition, reach, epoch, topic_id, True), f"{group}:{topic_id}:{partition}"


def transaction_state(key: bytes, value: bytes) -> TransactionState | None:
    """The transaction state in a record; None for other kinds of keys. Raises FormatError."""
    fields = Fields(key)
    if fields.integer(2) != 0:
        return None
    name = _text(fields)
    fields.finish()
    fields = Fields(value)
    version = fields.integer(2)
    if not 0 <= version <= FLEXIBLE_TRANSACTION:
        raise FormatError(f"a transaction's state has the unknown version {version}")
    producer, epoch, timeout, state = (fields.integer(size) for size in (8, 2, 4, 1))
    is_flexible = version >= FLEXIBLE_TRANSACTION
    partitions = _transaction_partitions(fields, is_flexible)
    if not 0 <= state < len(STATES):
        raise FormatError(f"a transaction has the unknown state {state}")
    times = fields.integer(8), fields.integer(8)
    tagged = fields.tagged() if is_flexible else {}
    fields.finish()
    is_at_rest = state in FINISHED and partitions
    if min(producer, epoch, timeout - 1, *partitions) < 0 or state in UNWRITTEN or is_at_rest:
        raise FormatError(f"no coordinator writes state {STATES[state]} of producer {producer}, epoch {epoch}, partitions {partitions[:9]}")
    if min(times) < -1 or (times[1] < 0 and state in {ONGOING, PREPARE_COMMIT}):
        raise FormatError(f"no coordinator writes state {STATES[state]} at {times[0]} of a transaction that began at {times[1]}")
    more = {tag: tagged[tag].integer(size) for tag, size in _TRANSACTION_TAGS.items() if tag in tagged}
    version = more.get(_CLIENT_VERSION, 0)
    if min(more.values(), default=0) < -1 or not 0 <= version <= EPOCH_EACH:
        raise FormatError(f"no coordinator writes the ids and epochs {list(more.values())}, with version {version} of transactions")
    ids = (producer, more.get(_PREVIOUS_ID, -1), more.get(_NEXT_ID, -1))
    return TransactionState(name, producer, epoch, timeout, state, *times, version, max(ids))


def _transaction_partitions(fields: Fields, is_flexible: bool) -> list[int]:
    """The numbers of the partitions in a transaction, of all topics. Raises FormatError for topics and partitions that a coordinator, which
    holds a set of them, cannot have."""
    found: dict[str, list[int]] = {}
    for _ in range(max(0, fields.varint() - 1 if is_flexible else fields.integer(4))):
        topic = fields.string() if is_flexible else _text(fields)
        if is_flexible:
            numbers = list(map(int, fields.nodes()))
            fields.tagged()
        else:
            count = fields.integer(4)
            numbers = np.frombuffer(fields.raw(4 * count), ">i4").tolist()
        if topic in found or len(set(numbers)) < max(1, len(numbers)) or not NAME.fullmatch(topic):
            raise FormatError(f"a transaction has the partitions {numbers[:9]} of {topic!r}{', a second time' if topic in found else ''}")
        found[topic] = numbers
    return [number for numbers in found.values() for number in numbers]


def _text(fields: Fields) -> str:
    return fields.raw(fields.integer(2)).decode("utf-8", "replace")


def home_of(name: str, partitions: int) -> int:
    """The partition that holds a group or transactional id: the absolute value of String.hashCode (Utils.abs), modulo `partitions`."""
    value = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def overdue(found: Iterable[TransactionState], now_ms: int) -> Iterator[tuple[TransactionState, str]]:
    """Transactions that their coordinator should have ended long ago, and why. `now_ms`: a time until which it certainly ran."""
    for one in found:
        if one.state == ONGOING and one.start_ms >= 0 and now_ms - one.start_ms > 2 * one.timeout_ms:
            yield one, f"has been open for {(now_ms - one.start_ms) // 1000} s, its timeout is {one.timeout_ms // 1000} s"
        elif one.state in UNDECIDED - {ONGOING} and one.update_ms >= 0 and now_ms - one.update_ms > 2 * one.timeout_ms:
            yield one, f"has been in state {STATES[one.state]} for {(now_ms - one.update_ms) // 1000} s: its markers have not been written"
