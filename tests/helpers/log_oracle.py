"""An oracle for planted faults: could a reader or a follower of Kafka ever see a difference? Shares no code with the audit.

It reads the directories as a broker would: finds segments by name and places in them by the offset index, answers where an epoch ends
from the checkpoint (LeaderEpochFileCache.endOffsetFor), collects aborted transactions from the index (TransactionIndex), starts producers
from the newest snapshot (ProducerStateManager), and holds the answers against the records themselves and against the other replicas.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c
from helpers.log_oracle_beside import (
    by_committed_reader,
    by_high_watermarks,
    by_identity,
    by_names,
    by_orderly_stop,
    by_time,
    latest,
    listed_aborts,
)
from helpers.log_oracle_groups import by_groups
from helpers.log_oracle_records import by_records

TRANSACTIONAL, CONTROL = 0x10, 0x20


#: offset, length, epoch, magic, crc, attributes, last delta, first time, last time, producer, producer epoch, sequence, count
HEADER = struct.Struct(">qiibIhiqqqhii")


class Stored(NamedTuple):
    """A batch in a file."""

    base: int
    last: int
    epoch: int
    raw: bytes
    position: int
    attributes: int
    max_time: int
    producer: int
    producer_epoch: int
    sequence: int
    count: int

    @property
    def is_sound(self) -> bool:
        return self.raw[16] == 2 and struct.unpack_from(">I", self.raw, 17)[0] == crc32c(self.raw[21:])

    @property
    def control_type(self) -> int:
        """0 abort, 1 commit, of a marker written by these tests: length, attributes, time, offset, key length, version, type."""
        return int.from_bytes(self.raw[61 + 7 : 61 + 9], "big")


@dataclass(slots=True)
class Role:
    """What the test knows of the cluster: who is in sync or eligible, who once was; whether the topic is compacted, up to where
    cleaners came, and whether retention deletes its records, too; whether producers number what they write."""

    replicas: tuple[int, ...]
    complete: tuple[int, ...]
    was_in_sync: tuple[int, ...]
    cleaned_to: int = 0
    is_compacted: bool = False
    is_retained: bool = False
    is_in_sequence: bool = True
    #: The topic was made again just before the brokers were killed: their checkpoints are of the earlier one.
    made_again: bool = False


@dataclass(slots=True)
class Log:
    """One replica's files."""

    broker: int
    segments: list[tuple[int, list[Stored], bytes]] = field(default_factory=list)
    path: Path | None = None
    high_watermark: int | None = None
    log_start: int = 0
    #: Whether its broker was stopped in order.
    clean: bool = True
    #: A broker that was killed makes the indexes of segments that reach beyond it anew; None where it was stopped in order.
    recovery_point: int | None = None
    indexes: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def is_rebuilt(self, number: int) -> bool:
        """Whether the next start makes the indexes of the segment of this number anew."""
        closed = number + 1 < len(self.segments)
        return closed and self.recovery_point is not None and self.segments[number + 1][0] > self.recovery_point

    def is_made_anew(self, number: int) -> bool:
        """Whether the next start makes its index of aborted transactions anew: of a broker that was killed the last segment's, too."""
        return self.is_rebuilt(number) or (number + 1 == len(self.segments) and not self.clean)

    @property
    def batches(self) -> list[Stored]:
        return [batch for _, batches, _ in self.segments for batch in batches]

    @property
    def start(self) -> int:
        return max(self.log_start, self.segments[0][0])

    @property
    def end(self) -> int:
        base, batches, _ = self.segments[-1]
        return batches[-1].last + 1 if batches else base


def parse(data: bytes) -> tuple[list[Stored], bytes]:
    """(whole batches, what is left)."""
    found, position = [], 0
    while position + 61 <= len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if size < 61 or position + size > len(data):
            break
        base, _, epoch, _, _, attributes, delta, _, newest, producer, producer_epoch, sequence, count = HEADER.unpack_from(data, position)
        raw = data[position : position + size]
        found.append(
            Stored(base, base + delta, epoch, raw, position, attributes, newest, producer, producer_epoch, sequence, count)
        )
        position += size
    return found, data[position:]


def read_log(directory: Path, broker: int, name: str) -> Log | None:
    """None when there is no segment. Raises OSError."""
    path = directory / name
    log = Log(broker, path=path)
    for file in sorted(path.glob("*.log")):
        if len(file.stem) == 20 and file.stem.isdigit():
            log.segments.append((int(file.stem), *parse(file.read_bytes())))
    if not log.segments:
        return None
    log.high_watermark = checkpoint(directory / "replication-offset-checkpoint", name)
    log.log_start = checkpoint(directory / "log-start-offset-checkpoint", name) or 0
    log.clean = (directory / ".kafka_cleanshutdown").exists()
    return log


def checkpoint(path: Path, name: str) -> int | None:
    """The line of a partition. Raises ValueError for a file that no broker would read."""
    if not path.exists():
        return None
    lines = path.read_text().splitlines()
    if not lines:
        return None
    if lines[0] != "0" or int(lines[1]) != len(lines) - 2:
        raise ValueError(f"{path.name} cannot be read")
    found = [int(line.split()[2]) for line in lines[2:] if line.split()[:2] == name.rsplit("-", 1)]
    return found[-1] if found else None


def visible(directories: dict[int, list[Path]], name: str, role: Role) -> Iterator[str]:
    """What a reader or a follower could see, in words; nothing for a harmless state. `directories`: those given, by broker."""
    logs: list[Log] = []
    for broker in role.replicas:
        try:
            held = [log for path in directories.get(broker, []) if (log := read_log(path, broker, name)) is not None]
            high_watermarks, points = (
                [checkpoint(path / f"{kind}-offset-checkpoint", name) for path in directories.get(broker, [])]
                for kind in ("replication", "recovery-point")
            )
        except (ValueError, IndexError, OSError) as error:
            yield f"broker {broker} does not start: {error}"
            continue
        if len(held) > 1:
            yield f"broker {broker} has it twice"
        if not held:
            if broker in role.complete + role.was_in_sync or any(high_watermarks):
                yield f"broker {broker} has lost it"
            continue
        if not held[0].clean:
            held[0].recovery_point = 0 if role.made_again else max((point for point in points if point is not None), default=0)
        if role.made_again:
            held[0].high_watermark, held[0].log_start = None, 0
        logs.append(held[0])
    written = max([0, *(log.log_start for log in logs)])
    if role.is_compacted:  # the checkpoint of a killed broker's cleaner may be behind its work
        role = replace(role, cleaned_to=max([role.cleaned_to, *(log.segments[-1][0] for log in logs if not log.clean)]))
    for log in logs:
        yield from alone(log, role)
        if role.is_compacted and not role.is_retained and log.segments[0][0] > written:
            yield f"broker {log.broker}: nobody deleted what lies below {log.segments[0][0]}"
    if logs:
        yield from together(logs, role)


def is_comparable(directories: dict[int, list[Path]], name: str) -> bool:
    """Whether every log that holds anything shares an offset with another one."""
    logs = [log for broker, paths in directories.items() for path in paths if (log := read_log(path, broker, name)) is not None]
    ranges = [(log.start, log.end) for log in logs if log.start < log.end]
    return all(
        any(max(one[0], other[0]) < min(one[1], other[1]) for other in ranges[:at] + ranges[at + 1 :]) for at, one in enumerate(ranges)
    )


def alone(log: Log, role: Role) -> Iterator[str]:
    """The visible differences within one replica."""
    who = f"broker {log.broker}"
    batches = [batch for batch in log.batches if batch.last >= log.start]
    for number, (base, inside, rest) in enumerate(log.segments):
        torn = number == len(log.segments) - 1 and not log.clean and (inside[-1].last + 1 if inside else base) >= (log.high_watermark or 0)
        if rest and not torn:
            yield f"{who}: nothing can be appended or read behind the last batch of segment {base}"
    for batch in batches:
        if not batch.is_sound:
            yield f"{who}: a reader refuses the batch at {batch.base}"
        if batch.count < 0 or batch.last < batch.base or batch.epoch < 0:
            yield f"{who}: the header at {batch.base} is impossible"
        if batch.attributes & CONTROL and batch.producer < 0:
            yield f"{who}: consumers pass over the records at {batch.base}"
    for before, after in pairwise(batches):
        if after.base <= before.last or after.base > max(before.last + 1, role.cleaned_to):
            yield f"{who}: {after.base} follows {before.last}"
        if after.epoch < before.epoch:
            yield f"{who}: epoch {after.epoch} follows {before.epoch}"
    if batches and batches[0].base > max(log.start, role.cleaned_to):
        yield f"{who}: nothing at its log start {log.start}"
    for (base, inside, _), following in zip(log.segments, [base for base, _, _ in log.segments[1:]], strict=False):
        if (inside[-1].last + 1 if inside else base) != following and following > role.cleaned_to:
            yield f"{who}: the segment behind {base} begins elsewhere"
    if log.high_watermark is not None and log.high_watermark > log.end:
        yield f"{who}: committed up to {log.high_watermark}, ends at {log.end}"
    if log.start > log.end:
        yield f"{who}: begins at {log.start}, ends at {log.end}"
    yield from by_records(log, batches, role)
    yield from by_index(log, batches)
    yield from by_epochs(log, batches, role)
    yield from by_transactions(log, batches, role)
    yield from by_committed_reader(log, batches)
    yield from by_sequences(log, batches, role)
    yield from by_snapshot(log, batches, role)
    yield from by_time(log)
    yield from by_orderly_stop(log, role)
    yield from by_identity(log)
    yield from by_names(log)


def fetch(log: Log, offset: int) -> Stored | None:
    """The batch that a fetch at this offset begins with (LogSegment.translateOffset)."""
    number = max((at for at, (base, _, _) in enumerate(log.segments) if base <= offset), default=None)
    if number is None:
        return None
    for at in range(number, len(log.segments)):
        base, inside, _ = log.segments[at]
        start = 0
        if at == number and not log.is_made_anew(at):
            entries = _index(log, base)
            low, high = -1, len(entries) - 1
            while low < high:  # the largest entry at or below the offset, by halving, sorted or not
                middle = (low + high + 1) // 2
                low, high = (middle, high) if base + entries[middle][0] <= offset else (low, middle - 1)
            start = entries[low][1] if low >= 0 else 0
        if start and not any(batch.position == start for batch in inside):
            return None
        for batch in inside:
            if batch.position >= start and batch.last >= offset:
                return batch
    return None


def _index(log: Log, base: int) -> list[tuple[int, int]]:
    """(relative offset, position) of a segment's entries; [] where there is no index."""
    if base not in log.indexes:
        index = (log.path or Path()) / f"{base:020d}.index"
        data = index.read_bytes() if index.exists() else b""
        entries = [struct.unpack_from(">ii", data, place) for place in range(0, len(data) // 8 * 8, 8)]
        while entries and entries[-1] == (0, 0):
            entries.pop()
        log.indexes[base] = entries
    return log.indexes[base]


def by_index(log: Log, batches: list[Stored]) -> Iterator[str]:
    """Every offset is found through the index."""
    for batch in batches[:: max(1, len(batches) // 60)]:
        for offset in {max(batch.base, log.start), batch.last}:
            found = fetch(log, offset)
            if found is None or (found.base, found.last) != (batch.base, batch.last):
                yield f"broker {log.broker}: a fetch at {offset} finds {found.base if found else 'nothing'}"
                return


def by_epochs(log: Log, batches: list[Stored], role: Role) -> Iterator[str]:
    """A follower that asks where an epoch ends must get the offset where its batches end.

    A broker that raises its log start cuts its epochs at once, and deletes and writes the log start down later: what a killed one holds
    below its first epoch was deleted, if another replica knows of it (by_starts).
    """
    try:
        entries = epochs_of(log)
    except (ValueError, IndexError):
        yield f"broker {log.broker}: its epochs cannot be read"
        return
    if any(after <= before for before, after in pairwise(entries)):
        yield f"broker {log.broker}: its epochs do not rise"
    if not log.clean:  # what a power failure left beyond the end is cut at the start (LeaderEpochFileCache.truncateFromEnd)
        entries = [entry for entry in entries if entry[1] <= log.end]
    if entries and not log.clean:
        batches = [batch for batch in batches if batch.last >= entries[0][1]]
    if log.clean and entries and entries[0][1] < log.start:
        yield f"broker {log.broker}: its log begins at {log.start}, and no broker moved it there from {entries[0][1]}"
    newest = entries[-1][0] if entries else -1
    for epoch in sorted({batch.epoch for batch in batches}):
        ends = log.end if epoch == newest else next((start for entry_epoch, start in entries if entry_epoch > epoch), None)
        if epoch not in dict(entries):
            yield f"broker {log.broker}: epoch {epoch} is unknown to it"
        elif ends is None or not max(b.last for b in batches if b.epoch == epoch) < ends <= min(
            [b.base for b in batches if b.epoch > epoch] or [log.end]
        ):
            yield f"broker {log.broker}: epoch {epoch} ends at {ends} by its checkpoint"


def epochs_of(log: Log) -> list[tuple[int, int]]:
    """(leader epoch, where it starts). Raises ValueError, IndexError."""
    path = (log.path or Path()) / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    if lines and (lines[0] != "0" or int(lines[1]) != len(lines) - 2):
        raise ValueError(lines)
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines[2:]]


def by_starts(logs: list[Log]) -> Iterator[str]:
    """A killed broker that lacks its first epochs may have raised its log start, or have lost them. A log start is moved on all
    replicas, so another one tells."""
    for log in logs if len(logs) > 1 else ():
        with contextlib.suppress(ValueError, IndexError):
            first = next((start for _, start in epochs_of(log) if start <= log.end), None)
            if log.clean or first is None or not any(batch.base < first and batch.last >= log.start for batch in log.batches):
                continue
            if not any(start >= first for other in logs if other is not log for start in [other.start, *_first_epoch(other)]):
                yield f"broker {log.broker}: whether anybody deleted what lies below {first} is unknown"


def _first_epoch(log: Log) -> list[int]:
    with contextlib.suppress(ValueError, IndexError):
        return [start for _, start in epochs_of(log)[:1]]
    return []


def by_transactions(log: Log, batches: list[Stored], role: Role) -> Iterator[str]:
    """For every stretch that a read_committed consumer may fetch the index names the aborted transactions in it, and no other; of those
    that began where cleaners were, or below the log start, not all is known."""
    floor = max(role.cleaned_to, log.start)
    opened: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for batch in batches:
        if batch.attributes & CONTROL and batch.producer >= 0:
            first = opened.pop(batch.producer, None)
            if batch.control_type == 0 and first is not None:
                aborted.append((batch.producer, first, batch.base))
        elif batch.attributes & TRANSACTIONAL:
            opened.setdefault(batch.producer, batch.base)
    listed = listed_aborts(log, batches)
    if listed is None:
        yield f"broker {log.broker}: an index of aborted transactions is cut"
        return
    older = {(producer, last) for _, producer, first, last, _ in listed if first < floor}  # they began where nothing is left
    aborted = [one for one in aborted if (one[0], one[2]) not in older]
    bounds = sorted({batch.base for batch in batches if batch.base >= role.cleaned_to} | {log.end})
    for low, high in combinations(bounds[:: max(1, len(bounds) // 12)], 2):
        reported = set()
        for _, producer, first, last, stable in listed:
            if last >= low and floor <= first < high:
                reported.add((producer, first, last))
            if stable >= high:
                break
        wanted = {one for one in aborted if one[2] >= low and floor <= one[1] < high}
        if {one for one in reported if one[2] < log.end} != wanted:
            yield f"broker {log.broker}: read_committed in {low}..{high} sees {sorted(reported ^ wanted)[:2]} wrongly"
            return


def by_sequences(log: Log, batches: list[Stored], role: Role) -> Iterator[str]:
    """No batch of a producer is duplicated or missing."""
    last: dict[int, tuple[int, int]] = {}
    for batch in batches:
        if batch.base < role.cleaned_to or batch.producer < 0 or batch.attributes & CONTROL or not role.is_in_sequence:
            continue
        epoch, sequence = last.get(batch.producer, (batch.producer_epoch, -1))
        if batch.producer_epoch < epoch:
            yield f"broker {log.broker}: producer {batch.producer} goes back to epoch {batch.producer_epoch}"
        if batch.producer_epoch == epoch and batch.producer in last and batch.sequence != sequence + 1:
            yield f"broker {log.broker}: producer {batch.producer} goes from {sequence} to {batch.sequence}"
        last[batch.producer] = batch.producer_epoch, batch.sequence + batch.last - batch.base


def by_snapshot(log: Log, batches: list[Stored], role: Role) -> Iterator[str]:
    """The newest valid snapshot, with which a broker starts, agrees with the log about its producers. It passes over snapshots at or below
    the log start (ProducerStateManager.truncateAndReload); a later one may name producers of which only deleted records spoke."""
    for file in sorted((log.path or Path()).glob("*.snapshot"), reverse=True):
        data = file.read_bytes()
        if len(data) < 10 or crc32c(data[6:]) != struct.unpack_from(">I", data, 2)[0] or (len(data) - 10) % 46 or int(file.stem) > log.end:
            continue
        if struct.unpack_from(">h", data)[0] not in {1, 2} or struct.unpack_from(">i", data, 6)[0] != (len(data) - 10) // 46:
            continue
        if int(file.stem) <= log.start:
            return
        for at in range(10, len(data), 46):
            producer, epoch, sequence, offset, delta, time, _, first = struct.unpack_from(">qhiqiqiq", data, at)
            mine = [batch for batch in batches if batch.producer == producer and batch.last < int(file.stem)]
            written = [batch for batch in mine if not batch.attributes & CONTROL]
            if max(offset, written[-1].last if written else -1) < role.cleaned_to:
                continue
            if not written:
                is_whole = not (mine or log.start or role.cleaned_to)
                if offset >= log.start or is_whole:
                    yield f"broker {log.broker}: starts with producer {producer}, of which the log knows nothing"
                continue
            newest = written[-1]
            since = -1
            for batch in mine:
                since = -1 if batch.attributes & CONTROL else batch.base if since < 0 and batch.attributes & TRANSACTIONAL else since
            span = newest.last - newest.base
            said = epoch, sequence, offset, delta, time
            true = mine[-1].producer_epoch, newest.sequence + span, newest.last, span, latest(mine[-1])
            if mine[-1].producer_epoch > newest.producer_epoch:  # a marker of a new epoch forgets the batches (KIP-890)
                true = mine[-1].producer_epoch, -1, -1, 0, latest(mine[-1])
            if said != true or first != since:
                yield f"broker {log.broker}: starts with producer {producer} at {said}, by the log {true}"
        return


def together(logs: list[Log], role: Role) -> Iterator[str]:
    """The visible differences between replicas."""
    yield from by_high_watermarks(logs, role)
    yield from by_starts(logs)
    committed = max((log.high_watermark for log in logs if log.high_watermark is not None), default=0)
    duty = {log.broker: committed if log.broker in role.complete else min(log.high_watermark or 0, log.end) for log in logs}
    for log in logs:
        if log.broker in role.complete and log.end < committed:
            yield f"broker {log.broker} may lead and ends at {log.end}, before {committed}"
        yield from by_groups(log, duty[log.broker])
    for one, other in combinations(logs, 2):
        low, high = max(one.start, other.start), min(duty[one.broker], duty[other.broker])
        left, right = ([batch for batch in log.batches if batch.last >= low] for log in (one, other))
        if role.cleaned_to:
            cleaned = max(high, min(role.cleaned_to, one.end, other.end))  # cleaners come no further than what is committed
            yield from by_key(one, other, low, cleaned, role.cleaned_to)
            left, right = ([batch for batch in held if batch.base >= role.cleaned_to] for held in (left, right))
        for mine, theirs in zip(left, right, strict=False):
            committed_here = mine.base < high or theirs.base < high
            stays = mine.epoch == theirs.epoch and mine.is_sound and theirs.is_sound
            if mine.raw != theirs.raw and (committed_here or stays):
                yield f"brokers {one.broker} and {other.broker} differ at {mine.base}"
                break
            if mine.raw != theirs.raw:
                break


def by_key(one: Log, other: Log, low: int, high: int, cleaned_to: int) -> Iterator[str]:
    """Compacted logs: at the same offset the same record, and for each key the same newest value, at the end as well as where cleaners
    came to, for they know of nothing behind it; where they were, what is left of a batch on both has the same epoch, attributes,
    producer, sequence and last offset."""
    found: list[dict[int, tuple[bytes, bytes]]] = []
    yield from by_survivors(one, other, low, high, cleaned_to, found)
    for until in (high, cleaned_to) if cleaned_to <= min(high, one.end, other.end) else (high,):
        newest = [{key: value for offset, (key, value) in sorted(side.items()) if offset < until} for side in found]
        for key in newest[0].keys() | newest[1].keys() if newest else ():
            if newest[0].get(key) != newest[1].get(key):
                yield f"brokers {one.broker} and {other.broker} have different values of key {key!r}"
                return


def by_survivors(
    one: Log, other: Log, low: int, high: int, cleaned_to: int, found: list[dict[int, tuple[bytes, bytes]]]
) -> Iterator[str]:
    """What both still have at an offset is the same. `found` gets the records of both, if it is."""
    kept = [{batch.base: batch for batch in log.batches if low <= batch.base < min(high, cleaned_to)} for log in (one, other)]
    for base in sorted(kept[0].keys() & kept[1].keys()):
        mine, theirs = (batch.raw[12:17] + batch.raw[21:27] + batch.raw[43:57] for batch in (kept[0][base], kept[1][base]))
        if mine != theirs:
            yield f"brokers {one.broker} and {other.broker} kept different batches at {base}"
            return
    held = []
    for log in (one, other):
        sound = [batch for batch in log.batches if batch.last >= low and batch.base < high and batch.is_sound]
        held.append({batch.base + delta: (key, value) for batch in sound for delta, key, value in records(batch)})
    for offset in sorted(held[0].keys() & held[1].keys()):
        if held[0][offset] != held[1][offset]:
            yield f"brokers {one.broker} and {other.broker} kept different records at {offset}"
            return
    found += held


def records(batch: Stored) -> Iterator[tuple[int, bytes, bytes]]:
    """(offset delta, key, value) of uncompressed records; stops where they make no sense."""
    data, position = batch.raw, 61
    try:
        while position < len(data):
            length, position = _varint(data, position)
            end = position + length
            _, position = _varint(data, position + 1)
            delta, position = _varint(data, position)
            size, position = _varint(data, position)
            key, position = data[position : position + max(size, 0)], position + max(size, 0)
            size, position = _varint(data, position)
            yield delta, key, data[position : position + max(size, 0)] if size >= 0 else b"(null)"
            position = end
    except IndexError:
        return


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
