"""Topic configurations from the local copy of the metadata log, for opening logs before the quorum answers.

This is a best effort: if configurations are damaged or missing here, the topic has the broker's defaults until the metadata arrive.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from minikafka.broker.quorum.snapshots import decoding_snapshot, parse_name
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from minikafka.steps import at_once
from minikafka.storage.errors import CorruptFile
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import WireError
from minikafka.wire.records.frame import decode_metadata_record, metadata_record_type
from minikafka.wire.records.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minikafka.storage.filesystem import FileSystem

logger = logging.getLogger("minikafka.config")
METADATA_DIRECTORY = "__cluster_metadata-0"
#: All other records, above all partition changes, are skipped.
RECORD_TYPES = frozenset({ConfigRecord.RECORD_TYPE, RemoveTopicRecord.RECORD_TYPE, TopicRecord.RECORD_TYPE})


class LocalConfigs:
    """`topic(name)` and `cluster(node_id)`: property name -> overridden value."""

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        """`directory` is the log directory that holds `__cluster_metadata-0`."""
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._names: dict[bytes, str] = {}
        path = f"{directory}/{METADATA_DIRECTORY}"
        try:
            for record in _records(filesystem, path):
                self._take(record)
        except (OSError, WireError, CorruptFile, ValueError) as error:
            logger.info("the local metadata log cannot be read to its end (%s); logs are opened with what is known", error)

    def _take(self, record: Any) -> None:
        if isinstance(record, TopicRecord):
            self._names[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            self._configs.pop((RESOURCE_TOPIC, self._names.pop(record.topic_id, "")), None)
        elif isinstance(record, ConfigRecord):
            values = self._configs.setdefault((record.resource_type, record.resource_name), {})
            if record.value is None:
                values.pop(record.name, None)
            else:
                values[record.name] = record.value

    def topic(self, name: str) -> dict[str, str]:
        """The overrides of a topic."""
        return self._configs.get((RESOURCE_TOPIC, name), {})

    def cluster(self, node_id: int) -> dict[str, str]:
        """The dynamic configuration of brokers: the cluster-wide values, overridden by this broker's own."""
        return {**self._configs.get((RESOURCE_BROKER, ""), {}), **self._configs.get((RESOURCE_BROKER, str(node_id)), {})}


def _records(filesystem: FileSystem, path: str) -> Iterator[Any]:
    if not filesystem.is_dir(path):
        return
    names = filesystem.list(path)
    snapshots = sorted((found, name) for name in names if (found := parse_name(name)) is not None)
    start = 0
    if snapshots:
        (start, _), name = snapshots[-1]
        yield from at_once(decoding_snapshot(filesystem.read(f"{path}/{name}"), types=RECORD_TYPES)).records
    for name in names:
        if not name.endswith(".log") or not name[:-4].isdigit():
            continue
        for batch in iterate_batches(filesystem.read(f"{path}/{name}")):
            batch.check()
            if batch.is_control or batch.last_offset < start:
                continue
            for record in batch.records():
                value = record.value or b""
                if record.offset >= start and metadata_record_type(value) in RECORD_TYPES:
                    yield decode_metadata_record(value)
