"""What readers and brokers see of the files beside a log: look-ups by timestamp, and the producer state at a broker's start."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.log_clusters import directory_id, uuid_text

if TYPE_CHECKING:
    from helpers.log_oracle import Log, Role, Stored

NOW_MS = 1 << 62
SEGMENT_ENDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".swap", ".cleaned")


def latest(batch: Stored) -> int:
    """The latest timestamp of a batch."""
    return batch.max_time


def by_time(log: Log) -> Iterator[str]:
    """A look-up by time finds the first batch that is as late (UnifiedLog.fetchOffsetByTimestamp)."""
    batches = log.batches
    indexes = [_times(log, number) for number in range(len(log.segments))]
    for wanted in sorted({latest(batch) for batch in batches})[:: max(1, len(batches) // 40)]:
        true = next(batch for batch in batches if latest(batch) >= wanted)
        found = _look_up(log, indexes, wanted)
        if found is None or found.base != true.base:
            yield f"broker {log.broker}: the first record at {wanted} is sought at {found.base if found else 'no offset'}, not {true.base}"
            return


def _look_up(log: Log, indexes: list[list[tuple[int, int]]], wanted: int) -> Stored | None:
    """Searches only the first segment whose largest timestamp is late enough."""
    for (base, inside, _), entries in zip(log.segments, indexes, strict=True):
        if not inside or (entries[-1][0] if entries else NOW_MS) < wanted:
            continue
        start = max([base, *(offset for time, offset in entries if time <= wanted)])
        return next((batch for batch in inside if batch.last >= start and latest(batch) >= wanted), None)
    return None


def _times(log: Log, number: int) -> list[tuple[int, int]]:
    """A segment's (time, offset) as its broker has them after a start."""
    base, inside, _ = log.segments[number]
    entries = _entries(log, base)
    is_open = number == len(log.segments) - 1 and not log.clean
    if entries is not None and not is_open and not log.is_rebuilt(number):
        return entries
    found: list[tuple[int, int]] = []
    for batch in inside:
        if latest(batch) > (found[-1][0] if found else -1):
            found.append((latest(batch), batch.last))
    return found


def _entries(log: Log, base: int) -> list[tuple[int, int]] | None:
    """The time index of a segment; None where the broker makes it again, as it does for want of an offset index only."""
    assert log.path is not None
    index, times = log.path / f"{base:020d}.index", log.path / f"{base:020d}.timeindex"
    if not index.exists():
        return None
    data = times.read_bytes() if times.exists() else b""
    entries = [struct.unpack_from(">qi", data, at) for at in range(0, len(data) // 12 * 12, 12)]
    return [(time, base + offset) for time, offset in entries]


def listed_aborts(log: Log, batches: list[Stored]) -> list[tuple[int, ...]] | None:
    """The entries of the indexes of aborted transactions as the next start has them; None if one is cut."""
    anew = [(log.segments[number][0], log.segments[number][1]) for number in range(len(log.segments)) if log.is_made_anew(number)]
    listed: list[tuple[int, ...]] = []
    for file in sorted((log.path or Path()).glob("*.txnindex")):
        if file.stem not in {f"{base:020d}" for base, _ in anew}:
            data = file.read_bytes()
            if len(data) % 34:
                return None
            listed += [struct.unpack_from(">hqqqq", data, at) for at in range(0, len(data), 34)]
    places = {batch.base for _, held in anew for batch in held}
    opened: dict[int, int] = {}
    for batch in batches:
        if batch.attributes & 0x20 and batch.producer >= 0:
            first = opened.pop(batch.producer, None)
            if batch.control_type == 0 and first is not None and batch.base in places:
                listed.append((0, batch.producer, first, batch.base, min([*opened.values(), batch.base + 1])))
        elif batch.attributes & 0x10:
            opened.setdefault(batch.producer, batch.base)
    return listed


def by_committed_reader(log: Log, batches: list[Stored]) -> Iterator[str]:
    """A read_committed consumer skips aborted records and nothing else: it reads the index's entries in order, up to the
    first whose stable offset is far enough, and treats a producer as aborted from an entry's first offset to the next abort marker."""
    listed = listed_aborts(log, batches)
    if listed is None:
        return
    markers = [(batch.producer, batch.base, batch.control_type) for batch in batches if batch.attributes & 0x20 and batch.producer >= 0]
    if not markers and not listed:
        return
    ends = [next((kind for producer, base, kind in markers if producer == one.producer and base > one.base), None) for one in batches]
    for batch in batches[:: max(1, len(batches) // 12)]:
        passed = set(_passed_over(listed, [one for one in batches if one.base >= batch.base], log.end))
        for one, kind in zip(batches, ends, strict=True):
            if one.base >= batch.base and one.attributes & 0x30 == 0x10 and kind is not None and (kind == 0) != (one.base in passed):
                yield f"broker {log.broker}: a reader from {batch.base} on {'misses' if kind else 'sees'} the records at {one.base}"
                return


def _passed_over(listed: list[tuple[int, ...]], batches: list[Stored], end: int) -> Iterator[int]:
    reported = []
    for _, producer, first, last, stable in listed:
        if last >= batches[0].base and first < end:
            reported.append((first, producer))
        if stable >= end:
            break
    reported.sort()
    aborted: set[int] = set()
    for batch in batches:
        while reported and reported[0][0] <= batch.last:
            aborted.add(reported.pop(0)[1])
        if batch.attributes & 0x20:
            if batch.control_type == 0:
                aborted.discard(batch.producer)
        elif batch.producer in aborted and batch.attributes & 0x10:
            yield batch.base


def by_orderly_stop(log: Log, role: Role) -> Iterator[str]:
    """Without any snapshot after a clean shutdown, a broker starts without producers (UnifiedLog.rebuildProducerState)."""
    assert log.path is not None
    has_producers = any(batch.producer >= 0 for batch in log.batches)
    if log.clean and has_producers and log.end > log.start and not list(log.path.glob("*.snapshot")):
        yield f"broker {log.broker}: starts without its producers"


def by_identity(log: Log) -> Iterator[str]:
    """A log without an id is a stray one (BrokerMetadataPublisher.initializeManagers)."""
    assert log.path is not None
    if log.batches and not (log.path / "partition.metadata").exists():
        yield f"broker {log.broker}: sets the log aside"


def by_names(log: Log) -> Iterator[str]:
    """A broker goes by the end of a file's name, and reads the number before the first dot (LogFileUtils.offsetFromFile): where there is
    none it does not start; a log's number makes a segment, whatever its file is called (LogLoader.loadSegmentFiles)."""
    assert log.path is not None
    for file in log.path.iterdir():
        number = file.name.partition(".")[0]
        if not file.name.endswith(SEGMENT_ENDS) or file.is_dir():
            continue
        if not re.fullmatch("[+-]?[0-9]+", number) or int(number) >= 1 << 63:
            yield f"broker {log.broker}: does not start over {file.name}"
        elif file.suffix == ".log" and not (log.path / f"{int(number):020d}.log").exists():
            yield f"broker {log.broker}: makes a segment of {file.name}"


def by_high_watermarks(logs: list[Log], role: Role) -> Iterator[str]:
    """If no replica has a high watermark, the longest electable replica has all committed records; a shorter one may have lost some."""
    ends = {log.end for log in logs if log.broker in (role.complete or role.replicas)}
    if len(ends) > 1 and all(log.high_watermark is None for log in logs):
        yield f"logs end at {sorted(ends)}, and nobody knows what is committed"


def _is_voters(paths: list[Path], broker: int) -> bool:
    """Whether one of the directories may be the one with which the node became a voter. With another one it is another voter (KIP-853)."""
    texts = [(path / "meta.properties").read_text() if (path / "meta.properties").exists() else "" for path in paths]
    mine = f"directory.id={uuid_text(directory_id(broker))}"
    return any(mine in text or "directory.id=" not in text for text in texts)


def by_votes(directories: dict[int, list[Path]], voters: tuple[int, ...]) -> Iterator[str]:
    """A voter that forgets its epoch or its vote may vote twice; two nodes do not know two leaders of one epoch. An observer without a
    metadata log fetches it again."""
    leaders: dict[int, set[int]] = {}
    copies = {broker: [path / "__cluster_metadata-0" for path in paths] for broker, paths in directories.items()}
    held = {broker: next((path for path in paths if path.is_dir()), None) for broker, paths in copies.items()}
    for broker, path in held.items() if any(held.values()) else ():
        if path is None:
            if broker in voters and _is_voters(directories[broker], broker):
                yield f"node {broker} has no metadata log, and is a voter"
            continue
        try:
            state = json.loads((path / "quorum-state").read_text())
        except (OSError, ValueError):
            yield f"node {broker} does not know its votes"
            continue
        epochs = [int(line.split()[0]) for line in (path / "leader-epoch-checkpoint").read_text().splitlines()[2:]]
        if state["leaderEpoch"] < max(epochs) or state["votedId"] not in {-1, *directories}:
            yield f"node {broker} remembers {state}"
        leaders.setdefault(state["leaderEpoch"], set()).add(state["leaderId"])
    if any(len(reported) > 1 for reported in leaders.values()):
        yield f"one epoch has leaders {leaders}"
