"""Encodes the audit's values as JSON for summary files, and decodes them. Only the classes listed here are created: a file runs no code.

Paths are relative to a prefix. Encoding on a broker's machine keeps that machine's paths; decoding elsewhere puts the machine's name in
front of them.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from minikafka.spark import (
    claims,
    coordination,
    coordinator_log,
    coordinator_places,
    directories,
    findings,
    logical,
    metadata_epochs,
    metadata_log,
    metadata_registrations,
    metadata_trail,
    producers,
    quorum,
    replay,
    rereading,
    scan,
    sources,
    views,
)

_CLASSES: tuple[type, ...] = (
    directories.LogDirectory, findings.Finding, claims.MetadataCopy, metadata_log.ClusterImage, metadata_log.PartitionClaim,
    metadata_log.UncleanElection, metadata_epochs.EpochHistory, metadata_trail.Trail, quorum.Node, sources.Entry, sources.Replica,
    sources.Segment, sources.SegmentTask, scan.SegmentSummary, scan.Cell, scan.Detail, producers.ProducerFacts, producers.ProducerPart,
    replay.Replay, coordination.Source, coordination.CoordinatorFacts, coordinator_places.Named, coordinator_log.CommittedOffset,
    coordinator_log.TransactionState, logical.Surviving, metadata_registrations.Registration,
)  # fmt: skip
_BY_NAME = {one.__name__: one for one in _CLASSES}
_FIELDS = {one: tuple(field.name for field in dataclasses.fields(one)) for one in _CLASSES}
_PATHS = {"path", "file"}
#: What a comparison asks of the machines that have the files: {kind of question: what answers it}.
ANSWERS: dict[str, Callable[..., Any]] = {
    "scan": scan.scan_segment, "replay": views.replay_apart, "detail": rereading.Disk().detail, "surviving": rereading.Disk().surviving,
    "latest": rereading.Disk().latest, "coordinator": coordination.read_coordinator,
}  # fmt: skip


def shape_of(classes: Iterable[type], answers: Mapping[str, Callable[..., Any]]) -> str:
    """Identifies the encoded classes with their fields, and the questions with their arguments."""
    encoded = [(one.__name__, [field.name for field in dataclasses.fields(one)]) for one in classes]
    asked = [(kind, str(inspect.signature(function))) for kind, function in answers.items()]
    return hashlib.blake2b(repr((encoded, asked)).encode(), digest_size=8).hexdigest()


#: Differs between versions of this package that do not understand each other.
FORMAT_DIGEST = shape_of(_CLASSES, ANSWERS)


class CodecError(ValueError):
    """The data were not written by this version."""


def dumps(value: Any, prefix: str = "") -> bytes:
    """Encode a value. `prefix` is removed from all paths."""
    return json.dumps(_plain(value, prefix), separators=(",", ":")).encode()


def loads(data: bytes, prefix: str = "") -> Any:
    """Decode a value. `prefix` is put before all paths. Raises CodecError."""
    try:
        return _value(json.loads(data), prefix)
    except CodecError:
        raise
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise CodecError(f"{type(error).__name__}: {error}") from error


def _plain(value: Any, prefix: str) -> Any:
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, list):
        return [_plain(one, prefix) for one in value]
    kind = type(value)
    if kind in _FIELDS:
        return {kind.__name__: [_field(name, getattr(value, name), prefix) for name in _FIELDS[kind]]}
    if isinstance(value, tuple):
        return {"t": [_plain(one, prefix) for one in value]}
    if isinstance(value, dict):
        return {"d": [[_plain(key, prefix), _plain(one, prefix)] for key, one in value.items()]}
    if isinstance(value, set | frozenset):
        return {"s" if isinstance(value, set) else "z": sorted(_plain(one, prefix) for one in value)}
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        dtype = [list(entry) for entry in value.dtype.descr] if value.dtype.names else value.dtype.str
        return {"a": [dtype, base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()]}
    if isinstance(value, findings.FindingList):
        return {"f": [value.each_max, _plain(value.kept, prefix), [[*key, count] for key, count in value.counts.items()]]}
    raise TypeError(f"{kind.__name__} cannot be stored in a summary")


def _field(name: str, value: Any, prefix: str) -> Any:
    if name in _PATHS and isinstance(value, str):
        return value.removeprefix(prefix)
    return _plain(value, prefix)


def _value(plain: Any, prefix: str) -> Any:
    if isinstance(plain, list):
        return [_value(one, prefix) for one in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, held),) = plain.items()
    made = _BY_NAME.get(kind)
    if made is not None:
        names = _FIELDS[made]
        if len(names) != len(held):
            raise CodecError(f"{kind} has {len(held)} values, not {len(names)}")
        pairs = zip(names, (_value(one, prefix) for one in held), strict=True)
        return made(**{name: prefix + one if name in _PATHS and isinstance(one, str) and one else one for name, one in pairs})
    return _builtin(kind, held, prefix)


def _builtin(kind: str, held: Any, prefix: str) -> Any:
    if kind == "t":
        return tuple(_value(one, prefix) for one in held)
    if kind == "d":
        return {_value(key, prefix): _value(one, prefix) for key, one in held}
    if kind in {"s", "z"}:
        return (set if kind == "s" else frozenset)(_value(one, prefix) for one in held)
    if kind == "b":
        return base64.b64decode(held)
    if kind == "a":
        dtype = np.dtype([(name, text) for name, text in held[0]] if isinstance(held[0], list) else held[0])
        if dtype.hasobject:
            raise CodecError("an array of objects")
        return np.frombuffer(base64.b64decode(held[1]), dtype).copy()
    if kind == "f":
        found = findings.FindingList(held[0])
        found.kept = _value(held[1], prefix)
        found.counts = {(check, level): count for check, level, count in held[2]}
        return found
    raise CodecError(f"unknown kind {kind}")


def digest_of(value: Any, prefix: str) -> str:
    """The digest that identifies a question."""
    return hashlib.blake2b(dumps(value, prefix), digest_size=16).hexdigest()
