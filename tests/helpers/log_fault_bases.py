"""The clusters into which generated faults are planted: small, of every kind, and without faults of their own."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from helpers.log_clusters import (
    ABORT,
    COMMIT,
    CONTROL,
    TRANSACTIONAL,
    Batch,
    MetadataLog,
    Partition,
    directory_id,
    lines,
    marker,
    plain,
    unsigned,
    write_broker,
)
from helpers.log_fault_groups import AHEAD, OF_HOLDERS, group_record, living, text
from helpers.log_fault_mixed import MIXED, write_mixed
from helpers.log_fault_quorums import added_voters, late_observers, removed_voters, uncopied_tail
from helpers.log_oracle import Role

OWN_SNAPSHOTS, LOG_ENDS = "metadata snapshots of their own", "metadata snapshots with the log's last records"
TOPIC, OLD_TOPIC = bytes(range(16)), bytes(range(16, 32))
BROKERS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Base:
    """`write(folder)` makes the log directories; the faults go to `partition`. `voters` are the quorum's last ones, by whom the leader of
    its newest epoch was elected."""

    name: str
    write: Callable[[Path], None]
    role: Role
    partition: str = "t-0"
    voters: tuple[int, ...] = BROKERS


def controller(
    isr: Sequence[int] = BROKERS, elr: Sequence[int] = (), leader: int = 1, log: MetadataLog | None = None, leader_epoch: int = 4,
    policy: str = "",
) -> MetadataLog:  # fmt: skip
    """Brokers, the topic, its partition: in sync at first are all."""
    found = log or MetadataLog()
    for broker in BROKERS:
        found.broker(broker)
    found.voters(BROKERS).topic("t", TOPIC)
    if policy:
        found.config("t", "cleanup.policy", policy)
    found.partition(TOPIC, BROKERS, BROKERS, 1, leader_epoch)
    if tuple(isr) != BROKERS or elr:
        found.change(TOPIC, isr=isr, elr=elr, leader=leader)
    return found


def write(folder: Path, partition: Callable[[int], Partition], log: MetadataLog | None, clean: bool = True, cleaned: int = 0) -> None:
    """One directory a broker."""
    for broker in BROKERS:
        metadata = log.encode() if log is not None else b""
        lines = {"t-0": cleaned} if cleaned and broker != 1 else None
        write_broker(folder / f"b{broker}", broker, [partition(broker)], metadata, clean, cleaned=lines)


def two_epochs(count: int = 40, cut: int = 18, start: int = 0) -> list[Batch]:
    """Batches of one to three records by two leaders."""
    found, at = [], start
    for number in range(count):
        found.append(plain(at, 1 + number % 3, 0 if number < cut else 2, time_ms=1_700_000_000_000 + 10 * number))
        at = found[-1].last + 1
    return found


def epochs_of(batches: Sequence[Batch]) -> tuple[tuple[int, int], ...]:
    """Where each leader epoch begins."""
    starts: dict[int, int] = {}
    for batch in batches:
        starts.setdefault(batch.epoch, batch.base)
    return tuple(sorted(starts.items()))


def bases_of(batches: Sequence[Batch], segments: int = 3) -> tuple[int, ...]:
    """Where segments of about equal numbers of batches begin."""
    each = -(-len(batches) // segments)
    return tuple(batch.base for batch in batches[::each])


def _plain(folder: Path) -> None:
    batches = two_epochs()
    write(folder, lambda broker: Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC), controller())


def _many(folder: Path) -> None:
    batches = [plain(at, epoch=at // 150) for at in range(600)]
    write(folder, lambda broker: Partition("t-0", batches, (0, 300), epochs_of(batches), TOPIC), controller())


def _without_controller(folder: Path) -> None:
    batches = two_epochs()
    write(folder, lambda broker: Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC), None)


def _lagging(folder: Path) -> None:
    batches = two_epochs()

    def partition(broker: int) -> Partition:
        held = batches[:30] if broker == 3 else batches
        high_watermark = held[-2].last + 1 if broker == 3 else None
        bases = tuple(base for base in bases_of(batches) if base <= held[-1].base)
        return Partition("t-0", held, bases, epochs_of(held), TOPIC, high_watermark)

    write(folder, partition, controller(isr=(1, 2)))


def _eligible(folder: Path) -> None:
    """After a clean shutdown: no replica is in sync, broker 3 is eligible, each has the high watermark of the moment it stopped."""
    batches = two_epochs()

    def partition(broker: int) -> Partition:
        return Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC, batches[-1].last + 1 - {1: 3, 2: 0, 3: 9}[broker])

    write(folder, partition, controller(isr=(), elr=(3,), leader=-1))


def _pending(folder: Path) -> None:
    """Broker 3 led once more and was replaced: its tail, above every high watermark, is of an epoch that the others never had."""
    batches = two_epochs()
    common = batches[:34]
    high_watermark = common[-1].last + 1
    tail = [plain(high_watermark + at, 1, 3, "old") for at in range(4)]
    newer = [plain(high_watermark + at, 1, 4, "new") for at in range(6)]
    log = controller(isr=(1, 2))
    for leader in (3, 1, 2, 1):
        log.change(TOPIC, leader=leader)

    def partition(broker: int) -> Partition:
        held = [*common, *(tail if broker == 3 else newer)]
        return Partition("t-0", held, bases_of(batches), epochs_of(held), TOPIC, high_watermark)

    write(folder, partition, log)


def _transactions(folder: Path) -> None:
    batches = transactional()
    write(folder, lambda broker: Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC), controller())


def transactional(count: int = 16) -> list[Batch]:
    """Three producers, two of them in transactions that overlap, every third aborted."""
    found: list[Batch] = []
    sequences = {7: 0, 8: 0, 9: 0}

    def data(producer: int, records: int, attributes: int) -> None:
        at = found[-1].last + 1 if found else 0
        held = [(delta, None, b"value-%04d" % (at + delta)) for delta in range(records)]
        found.append(Batch(at, held, 0, 1_700_000_000_000 + at, producer, 0, sequences[producer], attributes))
        sequences[producer] += records

    for number in range(count):
        data(7, 1 + number % 2, TRANSACTIONAL)
        data(9, 1, 0)
        if number % 4 == 1:
            data(8, 2, TRANSACTIONAL)
        found.append(marker(found[-1].last + 1, ABORT if number % 3 == 0 else COMMIT, 7))
        if number % 4 == 1:
            found.append(marker(found[-1].last + 1, ABORT, 8))
    return found


def _compacted(folder: Path) -> None:
    keys = [b"k%d" % (at * 7 % 11) for at in range(60)]
    whole = [Batch(at, [(0, keys[at], b"v%d" % at)], 0, 1_700_000_000_000 + at) for at in range(60)]
    newest = {batch.records[0][1]: batch.base for batch in whole[:40]}
    cleaned = [batch for batch in whole if batch.base >= 40 or newest[batch.records[0][1]] == batch.base or batch.base % 5 == 0]
    log = controller(policy="compact")

    def partition(broker: int) -> Partition:
        least = [batch for batch in cleaned if batch.base >= 40 or newest[batch.records[0][1]] == batch.base]
        held = {1: whole, 2: cleaned, 3: least}[broker]
        return Partition("t-0", held, (0, 20, 40), ((0, held[0].base if broker == 3 else 0),), TOPIC)

    write(folder, partition, log, cleaned=40)


def _compacted_transactions(folder: Path) -> None:
    """Each broker's cleaner kept other records of the first half; markers, the newest batch of each producer, and the latest record of
    each key before the cleaners' point stay."""
    batches = transactional(26)
    batches = [replace(batch, records=[(delta, b"k%d" % ((batch.base + delta) % 5), value) for delta, _, value in batch.records])
               if not batch.attributes & CONTROL else batch for batch in batches]  # fmt: skip
    bases = (0, 20, 40)
    batches = [batch for batch in batches if not any(batch.base < base <= batch.last for base in bases)]
    log = controller(policy="compact")
    latest = {base for base, _ in _newest_of_keys(batches, 40).values()}

    def partition(broker: int) -> Partition:
        gone = [batch for batch in batches[1:] if batch.last < 38 and not batch.attributes & CONTROL and batch.base % 3 == broker % 3
                and batch.base not in latest]  # fmt: skip
        held = [batch for batch in batches if broker == 1 or batch not in gone]
        return Partition("t-0", held, bases, ((0, 0),), TOPIC)

    write(folder, partition, log, cleaned=40)


def _newest_of_keys(batches: Sequence[Batch], below: int) -> dict[bytes | None, tuple[int, int]]:
    """{key: (base offset of the batch, offset) of its latest record before this offset}, without those of aborted transactions."""
    aborted: set[int] = set()
    opened: dict[int, list[int]] = {}
    for batch in batches:
        if batch.attributes & CONTROL:
            of_it = opened.pop(batch.producer, [])
            aborted |= set(of_it) if batch.records[0][1] == struct.pack(">hh", 0, ABORT) else set()
        elif batch.attributes & TRANSACTIONAL:
            opened.setdefault(batch.producer, []).append(batch.base)
    found: dict[bytes | None, tuple[int, int]] = {}
    for batch in batches:
        for delta, key, _ in batch.records if not batch.attributes & CONTROL and batch.base not in aborted else ():
            if batch.base + delta < below:
                found[key] = batch.base, batch.base + delta
    return found


def _cleaned_epochs(folder: Path) -> None:
    """Each transaction, also of other partitions, raises its producer's epoch (KIP-890). The records of aborted ones were cleaned away: of
    the newest epoch before the last marker only the snapshot there tells."""
    whole: list[Batch] = []
    for number in range(12):
        at = 4 * number
        records: list[tuple[int, bytes | None, bytes | None]] = [(delta, b"k%d" % (at + delta), b"v") for delta in range(3)]
        whole.append(Batch(at, records, 0, 1_700_000_000_000 + at, 7, 2 * number, 0, TRANSACTIONAL))
        whole.append(marker(at + 3, ABORT if number % 2 else COMMIT, 7, 2 * number + 1))
    aborted = {4 * number for number in range(1, 12, 2)}
    held = [batch for batch in whole if batch.base not in aborted]
    log = controller(policy="compact")
    write(folder, lambda broker: Partition("t-0", held, (0, 47), ((0, 0),), TOPIC), log, cleaned=47)
    with tempfile.TemporaryDirectory() as before:
        path = Partition("t-0", whole, (0, 47)).write(Path(before))
        for name in (f"{47:020d}.txnindex", f"{47:020d}.snapshot", f"{48:020d}.snapshot"):
            for broker in BROKERS:
                (folder / f"b{broker}" / "t-0" / name).write_bytes((path / name).read_bytes())


def _recreated(folder: Path) -> None:
    log = MetadataLog().topic("t", OLD_TOPIC).config("t", "cleanup.policy", "compact").remove(OLD_TOPIC)
    batches = two_epochs(24)
    write(folder, lambda broker: Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC), controller(log=log))


def _made_again(folder: Path) -> None:
    """Killed just after the topic was created again: the checkpoints still describe the longer log of the earlier topic."""
    log = MetadataLog().topic("t", OLD_TOPIC).remove(OLD_TOPIC)
    batches = two_epochs(24)
    write(folder, lambda broker: Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC), controller(log=log), clean=False)
    for broker in BROKERS:
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            (folder / f"b{broker}" / name).write_text(lines([f"t 0 {1000 * broker}"]))


def _retained(folder: Path) -> None:
    """Retention deleted more on broker 2; DeleteRecords ended inside a batch."""
    batches = two_epochs()
    bases = bases_of(batches)
    inside = next(batch for batch in batches if batch.base > 20 and batch.span == 3)

    def partition(broker: int) -> Partition:
        held = [batch for batch in batches if batch.base >= (bases[1] if broker == 2 else 0)]
        start = max(held[0].base, inside.base + 1)
        epochs = [(epoch, max(first, start)) for epoch, first in epochs_of(batches)]
        return Partition("t-0", held, bases[1:] if broker == 2 else bases, tuple(epochs), TOPIC, log_start=start)

    write(folder, partition, controller())


def _unclean(folder: Path) -> None:
    """Broker 2 was elected uncleanly; the others have truncated their extra records and are in sync again."""
    log = controller(leader_epoch=0).change(TOPIC, isr=(1,)).change(TOPIC, leader=2, isr=(2,), recovering=True)
    log.change(TOPIC, isr=BROKERS, recovering=False)
    batches = [*two_epochs(20, 99), *two_epochs(15, 0, two_epochs(20, 99)[-1].last + 1)]
    for batch in batches[20:]:
        batch.epoch = 1
    write(folder, lambda broker: Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC), log)


def _crashed(folder: Path) -> None:
    """Killed brokers: high watermarks are a little old, the newest batch of one is torn."""
    batches = two_epochs()
    high_watermark = batches[-4].last + 1
    partition = Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC, high_watermark)
    write(folder, lambda broker: partition, controller(), clean=False)
    segment = sorted((folder / "b3" / "t-0").glob("*.log"))[-1]
    segment.write_bytes(segment.read_bytes() + plain(batches[-1].last + 1, 3, 2).encode()[:70])


def _in_an_append(folder: Path) -> None:
    """Killed brokers: 1 had cut its log, whose old entries are still in the time index; 2 had no time for the index entry of its newest
    marker, 3 none to fill a snapshot of producers."""
    batches = transactional()
    while batches[-1].records[0][1] != struct.pack(">hh", 0, ABORT):
        batches.pop()
    bases = bases_of(batches)
    write(folder, lambda broker: Partition("t-0", batches, bases, ((0, 0),), TOPIC), controller(), clean=False)
    times = folder / "b1" / "t-0" / f"{bases[-1]:020d}.timeindex"
    times.write_bytes(times.read_bytes() + struct.pack(">qi", batches[-1].time_ms + 5, batches[-1].base - bases[-1]))
    index = folder / "b2" / "t-0" / f"{bases[-1]:020d}.txnindex"
    index.write_bytes(index.read_bytes()[:-34])
    (folder / "b3" / "t-0" / f"{bases[-1]:020d}.snapshot").write_bytes(b"")
    for broker in (2, 3):
        (folder / f"b{broker}" / "recovery-point-offset-checkpoint").write_text(lines([f"t 0 {bases[1]}"]))


def _new_partition(folder: Path) -> None:
    """Killed brokers: of a new topic's partition only broker 1 has a log yet. Broker 2 has not even heard of the topic, and broker 3 still
    has checkpoints of an earlier one of its name."""
    batches, new_topic = two_epochs(), bytes(range(40, 56))
    old = controller().topic("new", OLD_TOPIC).remove(OLD_TOPIC)
    new = MetadataLog(list(old.values), dict(old.controls)).topic("new", new_topic).partition(new_topic, BROKERS, BROKERS, 1)
    for broker in BROKERS:
        held = [Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC)]
        if broker == 1:
            held.append(Partition("new-0", [], epochs=(), topic_id=new_topic))
        root = write_broker(folder / f"b{broker}", broker, held, (old if broker == 2 else new).encode(), clean=False)
        if broker == 3:
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                (root / name).write_text(lines([*(root / name).read_text().splitlines()[2:], "new 0 70"]))


def _jbod(folder: Path) -> None:
    """Two log directories a broker; t-0 lies in the second."""
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker, directories=2)
    log.voters(BROKERS).topic("t", TOPIC)
    for number in (0, 1):
        places = [directory_id(broker, 1 - number) for broker in BROKERS]
        log.partition(TOPIC, BROKERS, BROKERS, 1, 4, number=number, directories=places)
    batches = two_epochs()
    for broker in BROKERS:
        one = Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC)
        other = Partition("t-1", batches[:5], epochs=epochs_of(batches[:5]), topic_id=TOPIC)
        write_broker(folder / f"b{broker}", broker, [one], number=1)
        write_broker(folder / f"b{broker}-other", broker, [other], log.encode())


def _unequal_segments(folder: Path) -> None:
    """Each broker rolled its segments elsewhere, as brokers do that were started at other times."""
    batches = two_epochs()
    write(
        folder,
        lambda broker: Partition("t-0", batches, bases_of(batches, 1 + broker), epochs_of(batches), TOPIC, index_every=broker),
        controller(),
    )


def _compacted_and_deleted(folder: Path) -> None:
    """cleanup.policy=compact,delete: retention removed another segment on broker 2."""
    batches = [Batch(at, [(0, b"k%d" % (at % 30), b"v%d" % at)], 0, 1_700_000_000_000 + at) for at in range(60)]

    def partition(broker: int) -> Partition:
        held = [batch for batch in batches if batch.base >= (20 if broker == 2 else 0)]
        return Partition("t-0", held, (20, 40) if broker == 2 else (0, 20, 40), ((0, held[0].base),), TOPIC)

    write(folder, partition, controller(policy="compact,delete"))


def _snapshots(folder: Path) -> None:
    """Each controller has the same snapshots of its metadata log, the newest of all of it."""
    _plain(folder)
    log = controller()
    whole = len(log.values)
    for broker in BROKERS:
        for end in (whole - 2, whole):
            part = MetadataLog(log.values[:end], log.controls)
            (folder / f"b{broker}" / "__cluster_metadata-0" / f"{end:020d}-{1:010d}.checkpoint").write_bytes(part.snapshot())


def _with_own_snapshots(folder: Path) -> None:
    """Each controller made its snapshot at another offset, and removed the log before it."""
    _plain(folder)
    whole = _with_history()
    for broker in BROKERS:
        path, end = folder / f"b{broker}" / "__cluster_metadata-0", len(whole.values) - broker
        batches = whole.batches()
        (path / f"{0:020d}.log").unlink()
        (path / f"{end:020d}.log").write_bytes(b"".join(batch.encode() for batch in batches[end:]))
        snapshot = MetadataLog(whole.values[:end], whole.controls).snapshot(own_snapshot_values(end))
        (path / f"{end:020d}-{1:010d}.checkpoint").write_bytes(snapshot)
        (path / "leader-epoch-checkpoint").write_text(lines([f"1 {end}"]))


def _with_log_ends(folder: Path) -> None:
    """Each controller has the same snapshot, and the log from a setting on that the snapshot has, too."""
    _plain(folder)
    whole = _with_history()
    begin, end = len(controller().values), len(whole.values) - 1
    for broker in BROKERS:
        path = folder / f"b{broker}" / "__cluster_metadata-0"
        (path / f"{0:020d}.log").unlink()
        (path / f"{begin:020d}.log").write_bytes(b"".join(batch.encode() for batch in whole.batches()[begin:]))
        snapshot = MetadataLog(whole.values[:end], whole.controls).snapshot(own_snapshot_values(end))
        (path / f"{end:020d}-{1:010d}.checkpoint").write_bytes(snapshot)
        (path / "leader-epoch-checkpoint").write_text(lines([f"1 {begin}"]))


def _with_history() -> MetadataLog:
    return controller().config("t", "max.message.bytes", "1000").change(TOPIC, leader=2).change(TOPIC, leader=1)


def own_snapshot_values(end: int) -> list[bytes]:
    """The records that a controller's snapshot of this end has to hold in that base: of the partition one, as it is by then."""
    created, log = len(controller().values) - 1, _with_history()
    changes = max(0, end - created - 2)
    partition = MetadataLog().partition(TOPIC, BROKERS, BROKERS, 1 + changes % 2, 4 + changes, partition_epoch=changes).values
    others = [value for at, value in enumerate(log.values[: min(end, created + 2)]) if at not in log.controls and at != created]
    return [*others, *partition]


def _coordinator(topic: str, batches: Sequence[Batch]) -> Callable[[Path], None]:
    """A coordinator's partition, and t-0, of which it speaks."""

    def made(folder: Path) -> None:
        data = two_epochs()
        log = controller().topic(topic, OLD_TOPIC).config(topic, "cleanup.policy", "compact").partition(OLD_TOPIC, BROKERS, BROKERS, 1, 4)
        for broker in BROKERS:
            held = Partition("t-0", data, bases_of(data), epochs_of(data), TOPIC)
            kept = Partition(f"{topic}-0", list(batches), bases_of(batches), epochs_of(batches), OLD_TOPIC)
            write_broker(folder / f"b{broker}", broker, [held, kept], log.encode())

    return made


def _type_of(kind: int) -> str:
    """The type of a group with records of a kind (CoordinatorRecordType): a group has one."""
    return "classic" if kind == 2 else "share" if 9 <= kind <= 15 else "streams" if kind >= 17 else "consumer"


def _group_records() -> list[Batch]:
    """Classic, consumer, share and streams groups: offsets, some of them committed in transactions, and the groups' other records."""

    def offset(group: str, at: int) -> tuple[bytes, bytes]:
        key = struct.pack(">h", 1) + text(group) + text("t") + struct.pack(">i", 0)
        return key, struct.pack(">hqi", 3, at, -1) + text("") + struct.pack(">q", 1_700_000_000_000)

    held = [(kind, f"{_type_of(kind)}-{number}", "m", 0) for kind in OF_HOLDERS for number in range(5)]
    held += [(kind, f"{name}-{kind}", member, 9) for kind in OF_HOLDERS for name in ("one", "other") for member in "abc"]
    begin = [
        row for kind, group, member, epoch in held
        for row in living([(struct.pack(">h", kind) + text(group) + text(member), None)], epoch)
    ]  # fmt: skip
    found = [Batch(0, [(delta, *row) for delta, row in enumerate(dict(begin).items())])]
    for number in range(36):
        kind, at = 2 + number % 22, found[-1].last + 1
        group = f"{_type_of(kind)}-{number % 5}"
        rows = [offset(f"g{number % 5}", number), group_record(kind, group, number)]
        if kind in AHEAD:  # of the group's epoch no record is ahead
            rows.insert(1, group_record(AHEAD[kind], group, number))
        is_in_transaction = number % 6 == 3
        attributes, producer = (TRANSACTIONAL, 7) if is_in_transaction else (0, -1)
        sequence = 0 if is_in_transaction else -1  # a coordinator numbers nothing
        records = [(delta, *row) for delta, row in enumerate(rows[: 1 if is_in_transaction else 3])]
        found.append(Batch(at, records, 0, 1_700_000_000_000 + number, producer, sequence, sequence, attributes))
        if is_in_transaction:
            found.append(marker(at + 1, ABORT if number % 4 == 1 else COMMIT, 7))
    return found


def _transaction_records() -> list[Batch]:
    """Transactional ids: one ends its transactions, another has just begun."""

    def state(name: str, producer: int, kind: int, at: int) -> tuple[bytes, bytes]:
        key = struct.pack(">hh", 0, len(name)) + name.encode()
        return key, struct.pack(">hqhibiqq", 0, producer, 0, 60_000, kind, 0, at, at)

    rows = [state(f"id{number % 3}", number % 3, (1, 2, 4)[number // 3 % 3], 1_700_000_000_000 + number) for number in range(36)]
    return [Batch(at, [(0, key, value)], 0, 1_700_000_000_000 + at) for at, (key, value) in enumerate(rows)]


def _share_records() -> list[Batch]:
    """Snapshots and updates of share partitions (ShareSnapshotKey, ShareUpdateKey)."""
    found = []
    for at in range(36):
        name, kind, snapshot = f"g{at % 4}", at // 4 % 3 > 0, at // 12
        key = struct.pack(">hh", kind, len(name)) + name.encode() + TOPIC + struct.pack(">i", 0)
        value = struct.pack(">hiiq", 0, snapshot, 0, at) if kind else struct.pack(">hiiiqqq", 0, snapshot, 0, 0, at, at, at)
        batches = unsigned(2) + struct.pack(">qqbh", at, at + 3, 2, 1) + b"\0"
        found.append(Batch(at, [(0, key, value + batches + b"\0")], 0, 1_700_000_000_000 + at))
    return found


def _reassigned(folder: Path) -> None:
    """Broker 1 was replaced by broker 3, and stopped before it deleted its log."""
    batches = two_epochs()
    log = controller(isr=(1, 2)).change(TOPIC, replicas=(1, 2, 3), adding=(3,), removing=(1,), isr=BROKERS)
    log.change(TOPIC, replicas=(2, 3), adding=(), removing=(), isr=(2, 3), leader=2)

    def partition(broker: int) -> Partition:
        held = batches[:33] if broker == 1 else batches
        bases = tuple(base for base in bases_of(batches) if base <= held[-1].base)
        return Partition("t-0", held, bases, epochs_of(held), TOPIC)

    write(folder, partition, log)


def _being_reassigned(folder: Path) -> None:
    """Broker 3 is to replace broker 1 and has copied a third so far."""
    batches = two_epochs()

    def partition(broker: int) -> Partition:
        held = batches[:13] if broker == 3 else batches
        bases = tuple(base for base in bases_of(batches) if base <= held[-1].base)
        return Partition("t-0", held, bases, epochs_of(held), TOPIC, held[-3].last + 1 if broker == 3 else None)

    write(folder, partition, controller(isr=(1, 2)).change(TOPIC, adding=(3,), removing=(1,)))


def _reassignment_not_ended(folder: Path) -> None:
    """Broker 3 is in sync already; the controller stopped before it ended the reassignment."""
    batches = two_epochs()
    log = controller(isr=(1, 2)).change(TOPIC, adding=(3,), removing=(1,)).change(TOPIC, isr=BROKERS)
    write(folder, lambda broker: Partition("t-0", batches, bases_of(batches), epochs_of(batches), TOPIC), log)


def _many_batches(folder: Path) -> None:
    """More batches than any page or queue of the audit holds."""
    batches = [plain(at, epoch=at // 150_000, time_ms=1_700_000_000_000 + at) for at in range(201_000)]
    write(
        folder,
        lambda broker: Partition("t-0", batches, (0, 100_000), epochs_of(batches), TOPIC, index_every=50),
        controller(),
    )


_USUAL = Role(BROKERS, BROKERS, BROKERS)
_COMPACTED = Role(BROKERS, BROKERS, BROKERS, cleaned_to=40, is_compacted=True)
_KEPT = Role(BROKERS, BROKERS, BROKERS, is_compacted=True)
BASES = {
    base.name: base
    for base in (
        Base("plain", _plain, _USUAL),
        Base("small batches", _many, _USUAL),
        Base("no controller", _without_controller, Role(BROKERS, (), ())),
        Base("lagging", _lagging, Role(BROKERS, (1, 2), BROKERS)),
        Base("eligible", _eligible, Role(BROKERS, (3,), BROKERS)),
        Base("pending", _pending, Role(BROKERS, (1, 2), BROKERS)),
        Base("transactions", _transactions, _USUAL),
        Base("compacted", _compacted, _COMPACTED),
        Base("compacted transactions", _compacted_transactions, _COMPACTED),
        Base("cleaned epochs of a producer", _cleaned_epochs, replace(_COMPACTED, cleaned_to=47)),
        Base("compacted and deleted", _compacted_and_deleted, replace(_KEPT, is_retained=True)),
        Base("group offsets with transactions", _coordinator("__consumer_offsets", _group_records()),
             replace(_KEPT, is_in_sequence=False), "__consumer_offsets-0"),
        Base("transaction states", _coordinator("__transaction_state", _transaction_records()), _KEPT, "__transaction_state-0"),
        Base("share group states", _coordinator("__share_group_state", _share_records()), _KEPT, "__share_group_state-0"),
        Base("metadata snapshots", _snapshots, _USUAL),
        Base(OWN_SNAPSHOTS, _with_own_snapshots, _USUAL),
        Base(LOG_ENDS, _with_log_ends, _USUAL),
        Base("voters added, the first killed", added_voters, Role(BROKERS, (2, 3), BROKERS)),
        Base("voters removed, one elected again", removed_voters, Role(BROKERS, (1, 2), BROKERS), voters=(1,)),
        Base("a leader's uncopied tail", uncopied_tail, _USUAL),
        Base("metadata that begins with a snapshot", late_observers, _USUAL, voters=(1,)),
        Base("unequal segments", _unequal_segments, _USUAL),
        Base("many batches", _many_batches, _USUAL),
        Base("recreated", _recreated, _USUAL),
        Base("made again", _made_again, Role(BROKERS, BROKERS, BROKERS, made_again=True)),
        Base("retained", _retained, _USUAL),
        Base("unclean election", _unclean, _USUAL),
        Base("crashed", _crashed, _USUAL),
        Base("killed in an append", _in_an_append, _USUAL),
        Base("killed before a log was made", _new_partition, _USUAL),
        Base("two log directories", _jbod, _USUAL),
        *(Base(f"Apache Kafka's {one.name}", partial(write_mixed, one), _USUAL, one.name) for one in MIXED),
        Base("reassigned", _reassigned, Role((2, 3), (2, 3), (2, 3))),
        Base("being reassigned", _being_reassigned, Role(BROKERS, (1, 2), (1, 2))),
        Base("reassignment not ended", _reassignment_not_ended, _USUAL),
    )
}
#: Bases on which a case takes seconds.
RARE = {"many batches"}
