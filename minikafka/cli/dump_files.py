"""Log files as text lines, field for field as Apache Kafka's DumpLogSegments prints them, or as JSON values.

It uses the audit's parser (minikafka.spark.logformat), so the dump shows what the audit sees.
"""

from __future__ import annotations

import base64
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minikafka.spark import logformat
from minikafka.spark.logformat import (
    CODEC_MASK,
    CODECS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Batches,
    FormatError,
    SegmentReader,
)
from minikafka.spark.records import decode_records

_SNAPSHOT_NAME = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
SEQUENCES = 1 << 31


@dataclass(slots=True)
class DumpOptions:
    """`decoder`: "" or one of dump_records.DECODERS."""

    deep: bool = False
    print_data: bool = False
    record_metadata: bool = True
    decoder: str = ""
    bytes_max: int = 1 << 62
    index_sanity_check: bool = False
    verify_index_only: bool = False


@dataclass(slots=True)
class Problems:
    """Problems found in the files. They are printed after the files and determine the exit status."""

    lines: list[str] = field(default_factory=list)


def dump_file(path: str, options: DumpOptions, problems: Problems) -> Iterator[str]:
    """The lines of one file, chosen by its name. Raises OSError, and FormatError for an unknown kind of file."""
    name = os.path.basename(path)
    yield f"Dumping {path}"
    extension = name.rsplit(".", 1)[-1]
    if extension == "log" or (extension == "checkpoint" and (_SNAPSHOT_NAME.match(name) or name == "bootstrap.checkpoint")):
        yield from _log_lines(path, name, options, problems)
    elif extension in _SMALL:
        with open(path, "rb") as file:
            data = file.read()
        yield from _SMALL[extension](path, data, options, problems)
    elif name.endswith("-checkpoint"):
        with open(path, "rb") as file:
            yield from _checkpoint_lines(path, file.read(), problems)
    elif not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    else:
        raise FormatError(f"{path}: not a .log, .index, .timeindex, .txnindex, .snapshot or checkpoint file")


# ---- segments ---------------------------------------------------------------------------------------------------------------


def _log_lines(path: str, name: str, options: DumpOptions, problems: Problems) -> Iterator[str]:
    snapshot = _SNAPSHOT_NAME.match(name)
    if name == "bootstrap.checkpoint":
        yield "KRaft bootstrap snapshot"
    elif snapshot:
        yield f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
    else:
        yield f"Log starting offset: {int(name[:20]) if name[:20].isdigit() else 0}"
    last_offset = -1
    gaps: dict[int, int] = {}
    for item in read_log(path, options):
        if "error" in item:
            problems.lines.append(f"{path}: {item['error']}")
            yield item["line"]
            continue
        yield batch_line(item)
        if not item["isvalid"]:
            problems.lines.append(f"{path}: the batch at position {item['position']} has a wrong CRC")
        if options.deep and "records_wrong" in item:
            problems.lines.append(f"{path}: the batch at position {item['position']}: {item['records_wrong']}")
            yield f"| records: {item['records_wrong']}"
        for record in item.get("records", ()) if options.deep else ():
            if last_offset >= 0 and record["offset"] != last_offset + 1:
                gaps[last_offset] = record["offset"]
            last_offset = record["offset"]
            yield record_line(record, options)
    if gaps:
        problems.lines += [
            f"Non-consecutive offsets in {path}",
            *(f"  {last} is followed by {offset}" for last, offset in sorted(gaps.items())),
        ]


def read_log(path: str, options: DumpOptions) -> Iterator[dict[str, Any]]:
    """The batches of a segment as dictionaries. If the file ends with bytes that are not a batch, the last item is {"error", "line"}."""
    with open(path, "rb") as file:
        size = min(os.fstat(file.fileno()).st_size, options.bytes_max)
        reader = SegmentReader(file.fileno(), size)
        for batches in reader:
            for index in range(len(batches)):
                item = _batch(batches, index)
                if options.deep:
                    _add_records(item, batches, index)
                yield item
        rest = size - reader.position
        if rest > 0 and options.bytes_max >= size:
            if reader.stopped == "length":
                length = int.from_bytes(os.pread(file.fileno(), 4, reader.position + 8), "big", signed=True)
                line = f"Found batch length {length} at position {reader.position}, smaller than a batch header: "
                line += f"the remaining {rest} bytes are not read"
            else:
                line = f"Found {rest} invalid bytes at the end of {os.path.basename(path)}"
            yield {"error": f"{rest} bytes after position {reader.position} are not a batch", "line": line}


def _batch(batches: Batches, index: int) -> dict[str, Any]:
    header = batches.header[index]
    base, delta, sequence = int(header["base_offset"]), int(header["last_delta"]), int(header["base_sequence"])
    attributes = int(header["attributes"])
    codec = attributes & CODEC_MASK
    return {
        "baseOffset": base,
        "lastOffset": base + delta,
        "count": int(header["count"]),
        "baseSequence": sequence,
        "lastSequence": _sequence(sequence, delta),
        "producerId": int(header["producer_id"]),
        "producerEpoch": int(header["producer_epoch"]),
        "partitionLeaderEpoch": int(header["epoch"]),
        "isTransactional": bool(attributes & TRANSACTIONAL_BIT),
        "isControl": bool(attributes & CONTROL_BIT),
        "deleteHorizonMs": int(header["base_timestamp"]) if attributes & DELETE_HORIZON_BIT else None,
        "position": int(batches.position[index]),
        "timestampType": "LogAppendTime" if attributes & TIMESTAMP_TYPE_BIT else "CreateTime",
        "timestamp": int(header["max_timestamp"]),
        "size": int(batches.size[index]),
        "magic": int(header["magic"]),
        "compresscodec": CODECS[codec] if codec < len(CODECS) else f"unknown({codec})",
        "crc": int(header["crc"]),
        "isvalid": int(header["crc"]) == int(batches.crc[index]) and int(header["magic"]) == logformat.MAGIC,
    }


def _sequence(base: int, delta: int) -> int:
    return -1 if base == -1 else (base + delta) % SEQUENCES


def _add_records(item: dict[str, Any], batches: Batches, index: int) -> None:
    records, wrong = decode_records(batches, np.array([index]))
    item["records"] = []
    if wrong:
        item["records_wrong"] = wrong[index]
    append_time = item["timestampType"] == "LogAppendTime"
    for row in range(len(records)):
        offset = int(records.offset[row])
        item["records"].append(
            {
                "offset": offset,
                "timestampType": item["timestampType"],
                "timestamp": item["timestamp"] if append_time else int(records.timestamp[row]),
                "sequence": _sequence(item["baseSequence"], offset - item["baseOffset"]),
                "key": records.key(row),
                "value": records.value(row),
                "headers": records.headers(row),
                "control": item["isControl"],
            }
        )


def batch_line(item: dict[str, Any]) -> str:
    horizon = "OptionalLong.empty" if item["deleteHorizonMs"] is None else f"OptionalLong[{item['deleteHorizonMs']}]"
    shown = {**item, "deleteHorizonMs": horizon, item["timestampType"]: item["timestamp"]}
    order = (
        "baseOffset",
        "lastOffset",
        "count",
        "baseSequence",
        "lastSequence",
        "producerId",
        "producerEpoch",
        "partitionLeaderEpoch",
        "isTransactional",
        "isControl",
        "deleteHorizonMs",
        "position",
        item["timestampType"],
        "size",
        "magic",
        "compresscodec",
        "crc",
        "isvalid",
    )
    return " ".join(f"{name}: {str(shown[name]).lower() if isinstance(shown[name], bool) else shown[name]}" for name in order)


def record_line(record: dict[str, Any], options: DumpOptions) -> str:
    from minikafka.cli import dump_records

    key, value = record["key"], record["value"]
    parts = []
    if options.record_metadata:
        sizes = [-1 if content is None else len(content) for content in (key, value)]
        names = ",".join(dump_records.text(name) for name, _ in record["headers"])
        parts.append(
            f"offset: {record['offset']} {record['timestampType']}: {record['timestamp']} keySize: {sizes[0]} valueSize: {sizes[1]} "
            f"sequence: {record['sequence']} headerKeys: [{names}]"
        )
    if record["control"]:
        parts.append(dump_records.control_record(key, value))
    elif options.print_data:
        shown_key, shown_value = shown(record, options.decoder)
        parts += [f"key: {shown_key}"] if shown_key is not None else []
        parts += [f"payload: {shown_value}"] if shown_value is not None else []
    return "| " + " ".join(parts)


def shown(record: dict[str, Any], decoder: str) -> tuple[str | None, str | None]:
    """Key and value as text."""
    from minikafka.cli import dump_records

    if decoder:
        return dump_records.decode(decoder, record["key"], record["value"])
    key, value = (None if content is None else dump_records.text(content) for content in (record["key"], record["value"]))
    return key, value


def json_item(item: dict[str, Any], options: DumpOptions) -> dict[str, Any]:
    """A batch for JSON output. Keys and values are strings if they are text, else {"base64": ...}."""
    result = {name: value for name, value in item.items() if name != "records"}
    if not options.deep or "records" not in item:
        return result
    result["records"] = rows = []
    for record in item["records"]:
        row = {name: record[name] for name in ("offset", "timestampType", "timestamp", "sequence")}
        row["headers"] = [[_json_bytes(name), _json_bytes(value)] for name, value in record["headers"]]
        if record["control"]:
            from minikafka.cli import dump_records

            row["control"] = dump_records.control_record(record["key"], record["value"])
        elif options.decoder:
            row["key"], row["value"] = shown(record, options.decoder)
        else:
            row["key"], row["value"] = _json_bytes(record["key"]), _json_bytes(record["value"])
        rows.append(row)
    return result


def _json_bytes(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


# ---- indexes, snapshots, checkpoints ------------------------------------------------------------------------------------------


def _base_offset(path: str) -> int:
    name = os.path.basename(path)[:20]
    return int(name) if name.isdigit() else 0


def _index_lines(path: str, data: bytes, options: DumpOptions, problems: Problems) -> Iterator[str]:
    entries = _parsed(path, data, logformat.parse_offset_index, problems)
    if entries is None:
        return
    if options.index_sanity_check:
        yield from _sane(path, entries, "offset", problems)
        return
    base = _base_offset(path)
    if not options.verify_index_only:
        for entry in entries.tolist():
            yield f"offset: {entry[0] + base} position: {entry[1]}"
    log = _batches_of(path, problems)
    if log is None:
        return
    starts, bases, lasts = log
    wrong = []
    for offset, position in entries.tolist():
        row = int(np.searchsorted(starts, position))
        if row >= len(starts) or starts[row] != position:
            wrong.append(f"  Index offset: {offset + base}, but no batch begins at position {position}")
        elif not bases[row] <= offset + base or offset + base not in lasts[row:]:
            wrong.append(f"  Index offset: {offset + base}, log offset: {int(lasts[row])}")
    if wrong:
        problems.lines += [f"Mismatches in :{path}", *wrong]


def _time_index_lines(path: str, data: bytes, options: DumpOptions, problems: Problems) -> Iterator[str]:
    entries = _parsed(path, data, logformat.parse_time_index, problems)
    if entries is None:
        return
    if options.index_sanity_check:
        yield from _sane(path, entries, "timestamp", problems)
        return
    if not options.verify_index_only:
        for timestamp, offset in entries.tolist():
            yield f"timestamp: {timestamp} offset: {offset + _base_offset(path)}"
    from minikafka.spark.checks import TimeIndexCheck

    segment = path.removesuffix(".timeindex") + ".log"
    if not os.path.exists(segment):
        return
    check = TimeIndexCheck(entries, _base_offset(path), cleaned_to=1 << 62)
    found = []
    with open(segment, "rb") as file:
        for batches in SegmentReader(file.fileno(), os.fstat(file.fileno()).st_size):
            found += [finding.message for finding in check.feed(batches)]
    if found:
        problems.lines += [f"Found timestamp mismatch in :{path}", *(f"  {message}" for message in found)]


def _parsed(path: str, data: bytes, parse: Any, problems: Problems) -> Any:
    try:
        return parse(data)
    except FormatError as error:
        problems.lines.append(f"{path}: {error}")
        return None


def _sane(path: str, entries: Any, key: str, problems: Problems) -> Iterator[str]:
    if (np.diff(entries[key].astype(np.int64)) <= 0).any():
        problems.lines.append(f"{path}: entries are not in order of {key}")
    else:
        yield f"{path} passed sanity check."


def _batches_of(path: str, problems: Problems) -> tuple[Any, Any, Any] | None:
    """Start positions, base and last offsets of the segment that an index belongs to."""
    segment = path.removesuffix(".index") + ".log"
    if not os.path.exists(segment):
        problems.lines.append(f"{path}: {segment} is missing, so entries are not verified")
        return None
    starts, bases, lasts = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    with open(segment, "rb") as file:
        for batches in SegmentReader(file.fileno(), os.fstat(file.fileno()).st_size):
            starts.append(batches.position)
            bases.append(batches.base_offset)
            lasts.append(batches.last_offset)
    return np.concatenate(starts), np.concatenate(bases), np.concatenate(lasts)


def _txn_index_lines(path: str, data: bytes, options: DumpOptions, problems: Problems) -> Iterator[str]:
    entries = _parsed(path, data, logformat.parse_txn_index, problems)
    for version, producer, first, last, stable in () if entries is None else entries.tolist():
        yield f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} lastStableOffset: {stable}"


def _snapshot_lines(path: str, data: bytes, options: DumpOptions, problems: Problems) -> Iterator[str]:
    try:
        states = logformat.parse_snapshot(data)
    except FormatError as error:
        problems.lines.append(f"{path}: {error}")
        if "CRC" in str(error):
            from crc32c import crc32c

            stored = int.from_bytes(data[2:6], "big")
            yield f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {crc32c(data[6:])}"
        return
    for producer, epoch, sequence, last, delta, timestamp, coordinator, first in states.tolist():
        line = f"producerId: {producer} producerEpoch: {epoch} coordinatorEpoch: {coordinator} currentTxnFirstOffset: "
        line += (f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty") + f" lastTimestamp: {timestamp}"
        if last >= 0:
            line += f" firstSequence: {(sequence - delta) % SEQUENCES} lastSequence: {sequence} lastOffset: {last}"
            line += f" offsetDelta: {delta} timestamp: {timestamp}"
        yield line


def _checkpoint_lines(path: str, data: bytes, problems: Problems) -> Iterator[str]:
    """The entries of a text checkpoint, with named fields."""
    epochs = os.path.basename(path) == "leader-epoch-checkpoint"
    try:
        entries = logformat.parse_checkpoint(data, 2 if epochs else 3)
    except FormatError as error:
        problems.lines.append(f"{path}: {error}")
        return
    names = ("epoch", "startOffset") if epochs else ("topic", "partition", "offset")
    for entry in entries:
        yield " ".join(f"{name}: {value}" for name, value in zip(names, entry, strict=True))


_SMALL = {"index": _index_lines, "timeindex": _time_index_lines, "txnindex": _txn_index_lines, "snapshot": _snapshot_lines}
