"""Metadata records of the logs and snapshots that Apache Kafka wrote (tests/golden/logs)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.golden_logs import ROOT

from minikafka.wire.batch import iterate_batches
from minikafka.wire.records.frame import decode_metadata_record_versioned

QUORUMS = ("kraft-standalone/stopped", "kraft-static/stopped", "kraft-static/killed", "kraft-dynamic/voter-1", "kraft-dynamic/voter-2")


def directory(quorum: str) -> Path:
    """The directory of the metadata log."""
    return ROOT / quorum / "__cluster_metadata-0"


def records(path: Path) -> Iterator[tuple[int, bytes, Any, int]]:
    """(offset, value, decoded record, its version) of each metadata record of a `.log` or `.checkpoint`."""
    for batch in iterate_batches(path.read_bytes()):
        if batch.is_control:
            continue
        for record in batch.records():
            message, version = decode_metadata_record_versioned(record.value)
            yield record.offset, bytes(record.value), message, version
