"""Records that all controllers hold alike: such as every controller loads, and such at which it ends."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers.log_clusters import CONTROL, Batch, MetadataLog, directory_id, unsigned
from helpers.log_fault_verbs import Place, places
from helpers.log_oracle import parse, records

METADATA, UNKNOWN = "__cluster_metadata-0", bytes(range(60, 76))


def _text(value: str) -> bytes:
    return unsigned(len(value) + 1) + value.encode()


def _feature(name: str, level: int) -> bytes:
    return MetadataLog().other(12, _text(name) + struct.pack(">h", level) + b"\0").values[0]


def _rule(operation: int, more: bytes = b"\0") -> bytes:
    body = UNKNOWN + b"\2" + _text("t") + b"\3" + _text("User:u") + _text("*") + bytes([operation, 3])
    return MetadataLog().other(18, body + more).values[0]


def _credential(more: bytes = b"\0") -> bytes:
    return MetadataLog().other(11, _text("u") + b"\1" + _text("s") + _text("k" * 32) * 2 + struct.pack(">i", 4096) + more).values[0]


def _broker(node: int, directory: bytes, epoch: int = 5) -> bytes:
    body = struct.pack(">i?", node, False) + UNKNOWN + struct.pack(">q", epoch) + b"\1\1\0\0\0\1\0\x11\2" + directory
    return MetadataLog().other(0, body, version=3).values[0]


def _quota(value: float) -> bytes:
    body = b"\2" + _text("user") + _text("x") + b"\0" + _text("producer_byte_rate") + struct.pack(">d", value) + bytes(2)
    return MetadataLog().other(14, body).values[0]


def _token(expires: int) -> bytes:
    body = _text("User:u") * 2 + b"\1" + struct.pack(">qqq", 5, 9, expires) + _text("i") + b"\0"
    return MetadataLog().other(10, body).values[0]


def _listener(protocol: int) -> bytes:
    listener = b"\2" + _text("L") + _text("h") + struct.pack(">Hh", 9, protocol) + b"\0"
    body = struct.pack(">i?", 7, False) + UNKNOWN + struct.pack(">q", 5) + listener + b"\1" + bytes(4)
    return MetadataLog().other(0, body, version=3).values[0]


def _setting(kind: int, name: str, option: str, value: str) -> bytes:
    return MetadataLog().other(4, bytes([kind]) + _text(name) + _text(option) + _text(value) + b"\0").values[0]


SOUND: dict[str, bytes] = {
    "level": _feature("metadata.version", 25), "feature away": _feature("group.version", 0), "rule": _rule(3), "credential": _credential(),
    "setting": MetadataLog().config("t", "retention.ms", "5").values[0], "broker": _broker(7, UNKNOWN),
    "quota": _quota(5.0), "token": _token(8), "listener": _listener(3), "own setting": _setting(2, "t", "own", "x"),
    "group's setting": _setting(32, "g", "share.auto.offset.reset", "latest"),
}  # fmt: skip
UNSOUND: dict[str, bytes] = {
    "level 0": _feature("metadata.version", 0), "level -1": _feature("group.version", -1), "cut rule": _rule(3, b""),
    "long rule": _rule(3, b"\0x"), "rule for anything": _rule(1), "cut credential": _credential(b""),
    "long credential": _credential(b"\0x"),
    "setting of nothing": MetadataLog().config("u", "retention.ms", "5").values[0],
    "policy": MetadataLog().config("t", "cleanup.policy", "compacted").values[0], "another's directory": _broker(7, directory_id(1)),
    "quota of nothing": _quota(0.0), "fraction of a byte": _quota(1.5), "token beyond its end": _token(10), "no protocol": _listener(-1),
    "no number": _setting(2, "t", "retention.ms", "x"), "no broker": _setting(4, "x", "log.cleaner.threads", "2"),
    "nobody's setting": _setting(32, "", "consumer.session.timeout.ms", "5"),
    "a later record's epoch": _broker(7, UNKNOWN, 1 << 40), "reserved directory": _broker(7, bytes(15) + b"\2"),
    "reserved place": MetadataLog().other(5, bytes(4) + bytes(range(16)) + b"\1\x08\x31\4" + (bytes(15) + b"\3") * 3, version=2).values[0],
    "the log itself": MetadataLog().topic("__cluster_metadata", UNKNOWN).values[0],
}  # fmt: skip


def metadata_value(place: Place, what: str) -> None:
    """One record more behind a controller's others."""
    for path in (file for root in places(place.root.parent, place.broker) for file in sorted((root / METADATA).glob("*.log"))[-1:]):
        held = parse(path.read_bytes())[0]
        if held:
            more = Batch(held[-1].last + 1, [(0, None, {**SOUND, **UNSOUND}[what])], held[-1].epoch, held[-1].max_time)
            path.write_bytes(path.read_bytes() + more.encode())


VALUES: dict[str, Callable[..., None]] = {"metadata_value": metadata_value}


def arguments_of_values(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for the verb above."""
    return (chance.choice([*SOUND, *UNSOUND]),) if verb in VALUES else ()


def by_values(directories: dict[int, list[Path]], voters: tuple[int, ...]) -> Iterator[str]:
    """A controller ends at such a record, or has written none, since it refuses the request for it."""
    wrong = {value: what for what, value in UNSOUND.items()}
    for broker, paths in directories.items() if voters else ():
        for file in (file for path in paths for file in (path / METADATA).glob("*.log")):
            batches = [batch for batch in parse(file.read_bytes())[0] if not batch.attributes & CONTROL]
            for what in (wrong[value] for batch in batches for _, _, value in records(batch) if value in wrong):
                yield f"controller {broker} has a record that none writes: {what}"
