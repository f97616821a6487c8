"""In which version a record is written, so that every node of the cluster's metadata.version can read it (Kafka's MetadataVersion.java)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from minikafka.wire.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

#: The newest metadata.version: 4.3-IV0.
NEWEST = 30
#: 3.7-IV0, the first metadata.version in which controllers register (KIP-919).
REGISTERED_CONTROLLERS = 15

#: (metadata.version, record version from there on), newest first; every other record has one version only.
_PARTITIONS = ((23, 2), (17, 1), (0, 0))
_VERSIONS: Mapping[type, tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (0, 1)),
    PartitionRecord: _PARTITIONS,
    PartitionChangeRecord: _PARTITIONS,
    BrokerRegistrationChangeRecord: ((30, 3), (17, 2), (0, 1)),
}
#: Fields that a lower version leaves away, with the first version that has them and the value that says nothing.
_LOST: Mapping[type, tuple[tuple[str, int, Any], ...]] = {
    RegisterBrokerRecord: (("log_dirs", 3, ()), ("cordoned_log_dirs", 4, None)),
    PartitionRecord: (("directories", 1, ()), ("eligible_leader_replicas", 2, None), ("last_known_elr", 2, None)),
    PartitionChangeRecord: (("directories", 1, None), ("eligible_leader_replicas", 2, None), ("last_known_elr", 2, None)),
    BrokerRegistrationChangeRecord: (("log_dirs", 2, ()), ("cordoned_log_dirs", 3, None)),
}


def versioned(record: Any, metadata_version: int) -> tuple[Any, int]:
    """(record, version) to encode; without what the version cannot say. A broker's change has the lowest version that says it."""
    kind = type(record)
    versions = _VERSIONS.get(kind)
    if versions is None:
        return record, record.MAX_VERSION
    version = next(number for level, number in versions if metadata_version >= level)
    fitting = record
    for name, first, nothing in _LOST[kind]:
        if version < first and getattr(record, name):
            fitting = copy(record) if fitting is record else fitting
            setattr(fitting, name, nothing if nothing is None else list(nothing))
    return fitting, min(version, _needed(fitting)) if kind is BrokerRegistrationChangeRecord else version


def _needed(record: BrokerRegistrationChangeRecord) -> int:
    if record.cordoned_log_dirs is not None:
        return 3
    return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
