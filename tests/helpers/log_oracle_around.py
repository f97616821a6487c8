"""What brokers make of directories of somebody else, and what controllers see of each other's metadata logs."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

from helpers.log_oracle import CONTROL, Stored, parse, records


def properties_of(directory: Path) -> dict[str, str]:
    """What Java reads in meta.properties: a line may go on in the next, and key and value have escapes. Nothing if one of them is
    malformed: Java refuses the file (Properties.loadConvert)."""
    path = directory / "meta.properties"
    text = re.sub(r"\\\n[ \t]*", "", path.read_text() if path.exists() else "")
    found = {}
    for line in (line.lstrip() for line in text.split("\n")):
        if line and line[0] not in "#!":
            key, value = re.match(r"((?:\\.|[^=: ])*) *[=:]? *(.*)", line).groups()  # type: ignore[union-attr]
            try:
                key, value = (codecs.decode(re.sub(r"\\([^u])", r"\1", part), "unicode_escape") for part in (key, value))
            except UnicodeDecodeError:
                return {}
            found[key] = value
    return found


def by_owners(directories: dict[int, list[Path]]) -> Iterator[str]:
    """A directory of another cluster, or of nobody, is not started with (MetaPropertiesEnsemble.verify). Two brokers with one directory id
    are not registered (ClusterControlManager.registerBroker)."""
    clusters = set()
    owned: dict[str, int] = {}
    for broker, paths in directories.items():
        for path in paths:
            properties = properties_of(path)
            clusters |= {properties["cluster.id"]} if "cluster.id" in properties else set()
            if not properties:
                yield f"broker {broker}: nobody owns {path.name}"
                continue
            lacking = {"cluster.id", "node.id"} - properties.keys()
            is_number = re.fullmatch("[0-9]{1,10}", properties.get("node.id", "")) and int(properties["node.id"]) < 1 << 31
            if properties.get("version") != "1" or lacking or not is_number:
                yield f"broker {broker}: does not start with {properties}"
            directory_id = properties.get("directory.id")
            if directory_id is not None and not _is_directory_id(directory_id):
                yield f"broker {broker}: does not start with directory id {directory_id}"
            if directory_id is not None and owned.setdefault(directory_id, broker) != broker:
                yield f"brokers {owned[directory_id]} and {broker} have one directory id"
    if len(clusters) > 1:
        yield "the directories are of several clusters"


def _is_directory_id(text: str) -> bool:
    """Whether it is a UUID in base64, and none of the first hundred, which are reserved (DirectoryId.reserved)."""
    try:
        value = base64.b64decode(text + "==", b"-_", validate=True)
    except ValueError:
        return False
    return len(value) == 16 and int.from_bytes(value, "big") >= 100


def by_metadata(directories: dict[int, list[Path]]) -> Iterator[str]:
    """What two controllers hold at one offset is the same; each copy is whole; snapshots of one name hold the same records."""
    logs: dict[int, list[Stored]] = {}
    snapshots: dict[str, dict[frozenset[bytes], int]] = {}
    voters: dict[tuple[int, str], bytes] = {}
    for broker, paths in directories.items():
        for path in (path / "__cluster_metadata-0" for path in paths):
            for file in sorted(path.glob("*.log")):
                batches, rest = parse(file.read_bytes())
                logs[broker] = batches
                is_clean = (path.parent / ".kafka_cleanshutdown").exists()  # after a kill its start cuts what is no batch
                yield from _whole(broker, batches, rest if is_clean else b"")
            for file in sorted(path.glob("*.checkpoint")):
                held, rest = parse(file.read_bytes())
                yield from _whole(broker, held, rest)
                content = frozenset(key + value for batch in held if not batch.attributes & CONTROL for _, key, value in records(batch))
                snapshots.setdefault(file.name, {})[content] = broker
                voters[broker, file.name] = _voters(held)
    for one, other in combinations(sorted(logs), 2):
        if not _are_of_one_history(logs[one], logs[other]):
            yield f"controllers {one} and {other} hold different metadata"
    for name, contents in snapshots.items():
        if len(contents) > 1:
            yield f"{name} is not the same on controllers {sorted(contents.values())}"
    for (broker, name), held_voters in voters.items():
        end = int(name[:20])
        for other, batches in logs.items():
            below = [batch for batch in batches if batch.base < end]
            says = _voters(below)
            if below and batches[-1].last >= end - 1 and below[-1].epoch == int(name[21:31]) and says and says != held_voters:
                yield f"{name} of controller {broker} has other voters than the log of {other}"


def _voters(batches: list[Stored]) -> bytes:
    """The last voters among these records."""
    controls = [batch for batch in batches if batch.attributes & CONTROL]
    return next((value for batch in reversed(controls) for _, key, value in reversed(list(records(batch))) if key[2:4] == b"\0\6"), b"")


def _are_of_one_history(one: list[Stored], other: list[Stored]) -> bool:
    """Two logs differ only from where one has records of a newer epoch: the other's, which nobody needed, are of older ones."""
    theirs = {batch.base: batch for batch in other}
    apart = next(((batch, theirs[batch.base]) for batch in one if theirs.get(batch.base, batch).raw != batch.raw), None)
    if apart is None:
        return True
    newer = max(batch.epoch for batch in apart)
    rest = one if apart[0].epoch < newer else other
    return apart[0].epoch != apart[1].epoch and all(batch.epoch < newer for batch in rest if batch.base >= apart[0].base)


def _whole(broker: int, batches: list[Stored], rest: bytes) -> Iterator[str]:
    follows = all(after.base == before.last + 1 and after.epoch >= before.epoch for before, after in pairwise(batches))
    if rest or not follows or not all(batch.is_sound for batch in batches):
        yield f"controller {broker}: its metadata cannot be read"
