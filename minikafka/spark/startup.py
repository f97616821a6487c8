"""The effect of a broker's next start on a partition directory, before it reads a record.

An interrupted cleaner leaves `.cleaned` files, which are deleted, or `.swap` files, which replace the segments that they were made from
(LogLoader.load). So the broker will serve the content of the `.swap` files. Apache Kafka and minikafka behave alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from minikafka.spark.metadata_log import METADATA_TOPIC

_NAME = re.compile(r"^([0-9]{20})\.(log|index|timeindex|txnindex)(\.swap|\.cleaned)?\Z")
_CLEANED = re.compile(r"^([0-9]{20})\..*\.cleaned\Z")
_SNAPSHOT = re.compile(r"^([0-9]{20}).([0-9]{10})")
_ENDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".swap", ".cleaned")
Files = dict[tuple[int, str], str]
NOWHERE = (1 << 63) - 1


def at_start(names: Iterable[str], end_of: Callable[[int], int]) -> Files:
    """{(base offset, part): the extension that it has now, such as "log.swap"}. `end_of(base offset)`: the offset behind the last batch
    of that `.log.swap` file."""
    plain: Files = {}
    swapped: Files = {}
    cleaned: list[int] = []
    for name in names:
        if found := _NAME.match(name):
            base, part, suffix = int(found[1]), found[2], found[3] or ""
            if suffix != ".cleaned":
                (swapped if suffix else plain)[base, part] = part + suffix
        if found := _CLEANED.match(name):
            cleaned.append(int(found[1]))
    # Replacements at or after a `.cleaned` file belong to an unfinished split.
    first_cleaned = min(cleaned, default=1 << 63)
    valid = {key: name for key, name in swapped.items() if key[0] < first_cleaned}
    return _installed(plain, valid, {base: end_of(base) for base, part in valid if part == "log"})


def mistaken_files(names: Iterable[str]) -> list[tuple[str, str]]:
    """(name, what a start makes of it) of files whose names Apache Kafka takes for those of segments: it looks at the end of a name, and
    reads a number before the first dot (LogFileUtils.offsetFromFile). `names`: the files of a partition directory, without directories."""
    known, found = set(names), []
    for name in sorted(known):
        number = name.partition(".")[0]
        if not name.endswith(_ENDS):
            continue
        if not re.fullmatch(r"[+-]?\d+", number) or not -(1 << 63) <= int(number) < 1 << 63:
            found.append((name, "it expects the name to begin with an offset, and does not start"))
        elif name.endswith((".log", ".log.swap")) and f"{int(number):020d}{name[name.rindex('.log'):]}" not in known:
            found.append((name, f"it opens an empty segment at offset {int(number)}"))
        elif name.endswith(".snapshot") and name != f"{int(number):020d}.snapshot":
            found.append((name, f"it takes it for a snapshot of producers at offset {int(number)}"))
    return found


def mistaken_snapshots(names: Iterable[str]) -> list[tuple[str, str]]:
    """The same for the directory of the metadata log, where names end like those of snapshots: a start reads two numbers from such a name
    (Snapshots.parse). `names`: all that is in the directory."""
    found = []
    for name in sorted(names):
        number = _SNAPSHOT.match(name)
        is_sound = number is not None and int(number[1]) < 1 << 63 and int(number[2]) < 1 << 31
        if name.endswith((".checkpoint", ".checkpoint.part", ".checkpoint.deleted")) and not is_sound:
            found.append((name, "it expects the name to begin with an offset and an epoch, and does not start"))
    return found


def _installed(plain: Files, swapped: Files, ends: dict[int, int]) -> Files:
    """The files after the start, which removes the segments between the first replacement and the end of the last one."""
    low, high = min(ends, default=0), max(ends.values(), default=0)
    return {key: name for key, name in plain.items() if not low <= key[0] < high and key[0] not in ends} | swapped


def recovered_from(topic: str, clean: bool | None, recovery_point: int | None) -> int:
    """Snapshots of producers from here on may not have been written whole: also that of a segment that begins at the recovery point. Each
    start recovers the metadata log (KafkaRaftLog), which closes behind the broker's logs and has no part in their clean stop."""
    return (recovery_point or 0) if clean is False or topic == METADATA_TOPIC else NOWHERE
