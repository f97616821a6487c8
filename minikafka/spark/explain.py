"""Explains one finding of a report in detail: its meaning, both sides' batches and records, the first differing bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minikafka.counted import counted
from minikafka.spark.logformat import CODEC_MASK, CODECS, SegmentReader
from minikafka.spark.records import decode_records
from minikafka.spark.source_files import opened, segment_bases, segment_path

AROUND = 2
RECORDS_SHOWN = 5


def find(report: dict[str, Any], finding_id: str) -> dict[str, Any] | None:
    """The finding with this id, ignoring letter case; None if there is none."""
    return next((finding for finding in report["findings"] if finding["id"].lower() == finding_id.lower()), None)


def explain(report: dict[str, Any], finding: dict[str, Any]) -> Iterator[str]:
    """The explanation, line by line."""
    place = f"{finding['topic']}-{finding['partition']}" if finding["topic"] else "log directory"
    yield f"{finding['id']} {finding['level'].upper()} {finding['check']}: {place}"
    yield f"  {finding['message']}"
    yield f"  meaning: {finding['meaning']}"
    for name, label in (("cause", "likely"), ("remedy", "to do")):
        if finding.get(name):
            yield f"  {label}: {finding[name]}"
    if finding["file"]:
        yield f"  file: {finding['file']}"
    key = finding["topic"], finding["partition"]
    partition = next((one for one in report["partitions"] if (one["topic"], one["partition"]) == key), None)
    if partition is None:
        return
    if partition.get("assigned"):
        said = partition["assigned"]
        replicas, in_sync = ", ".join(said["replicas"]), ", ".join(said["isr"]) or "none"
        leader = said["leader"] if int(said["leader"]) >= 0 else "none"
        yield f"  controller: replicas {replicas}; in sync {in_sync}; leader {leader} in epoch {said['leader_epoch']}"
    for row in partition["replicas"]:
        epochs = " ".join(f"{epoch}@{start}" for epoch, start in row["epochs"]) or "none"
        high_watermark = "unknown" if row["high_watermark"] is None else row["high_watermark"]
        odd = " <- named" if row["broker"] in finding["brokers"] else ""
        yield f"  broker {row['broker']}: log {row['log_start']}..{row['log_end']}, high watermark {high_watermark}, epochs {epochs}{odd}"
    if finding["offset"] >= 0:
        for row in partition["replicas"]:
            yield ""
            yield f"broker {row['broker']} around offset {finding['offset']} ({row['path']})"
            yield from around(row["path"], finding["offset"])
    for dump in finding["details"].get("hex") or []:
        yield ""
        yield f"broker {dump['broker']}, bytes of the batch from {dump['start']}"
        data = bytes.fromhex(dump["bytes"])
        for start in range(0, len(data), 16):
            piece = data[start : start + 16]
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
            yield f"  {dump['start'] + start:6d}  {piece.hex(' '):47s}  {text}"


def around(path: str, offset: int) -> Iterator[str]:
    """The batches around an offset in a partition directory, and the first records of the batch that holds it."""
    try:
        bases = segment_bases(path)
        base = max((base for base in bases if base <= offset), default=bases[0] if bases else None)
        if base is None:
            yield "  there is no segment"
            return
        with opened(segment_path(path, base)) as (descriptor, size):
            yield from _around(descriptor, size, offset)
    except OSError as error:
        yield f"  cannot be read now: {error.strerror}"


def _around(descriptor: int, size: int, offset: int) -> Iterator[str]:
    for batches in SegmentReader(descriptor, size):
        at = int(np.searchsorted(batches.last_offset, offset))
        if at >= len(batches) and int(batches.last_offset[-1]) < offset:
            last = len(batches) - 1
            if batches.position[-1] + batches.size[-1] >= size:
                yield f"  the log ends with {_line(batches, last)}"
            continue
        for row in range(max(0, at - AROUND), min(len(batches), at + AROUND + 1)):
            yield f"{'->' if row == at else '  '}{_line(batches, row)}"
            if row == at:
                yield from _records(batches, row)
        return


def _line(batches: Any, row: int) -> str:
    header = batches.header[row]
    codec = int(header["attributes"]) & CODEC_MASK
    stored, computed = int(header["crc"]), int(batches.crc[row])
    crc = "" if stored == computed else f" CRC WRONG (stored {stored:#010x}, bytes {computed:#010x})"
    producer = f" producer {int(header['producer_id'])}/{int(header['producer_epoch'])} sequence {int(header['base_sequence'])}"
    return (
        f"{int(header['base_offset'])}..{int(batches.last_offset[row])} epoch {int(header['epoch'])} {int(batches.size[row])} bytes at "
        f"{int(batches.position[row])} {CODECS[codec] if codec < len(CODECS) else codec}"
        f"{producer if header['producer_id'] >= 0 else ''}{crc}"
    )


def _records(batches: Any, row: int) -> Iterator[str]:
    records, wrong = decode_records(batches, np.array([row]))
    for text in wrong.values():
        yield f"      records: {text}"
    for index in range(min(len(records), RECORDS_SHOWN)):
        key, value = _short(records.key(index)), _short(records.value(index))
        yield f"      {int(records.offset[index])} @{int(records.timestamp[index])} key {key} value {value}"
    if len(records) > RECORDS_SHOWN:
        yield f"      and {counted(len(records) - RECORDS_SHOWN, 'more record')}"


def _short(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(data[:48])[1:]
    return text if len(data) <= 48 else f"{text}... ({len(data)} bytes)"
