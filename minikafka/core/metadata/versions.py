"""The version in which to write a record, so that every node of the cluster's metadata.version can read it (MetadataVersion.java)."""

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

#: The metadata.version of a new cluster, and of one whose log has none: 4.3-IV0, which Apache Kafka 4.3 and 4.4 support.
NEWEST = 30
#: 3.6-IV2, the first metadata.version with delegation tokens.
DELEGATION_TOKENS = 14
#: 3.7-IV0, the first metadata.version in which controllers register (KIP-919).
REGISTERED_CONTROLLERS = 15
#: 3.7-IV2, the first one with the log directories of brokers and replicas (KIP-858).
DIRECTORIES = 17
#: 4.3-IV0, the first one with cordoned directories (KIP-1066).
CORDONS = 30
#: 4.4-IV1, the first one with address ranges (CIDR) in ACLs, and 4.4-IV2, the first one with unregistered controllers (KIP-1312).
RANGES_IN_ACLS = 32
UNREGISTERED_CONTROLLERS = 33

#: Metadata versions that added records or fields that lower ones do not have (MetadataVersion.didMetadataChange of 4.4).
_NEW_METADATA = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})

#: (metadata.version, record version from there on), newest first; every other record has one version only.
_PARTITIONS = ((23, 2), (DIRECTORIES, 1), (0, 0))
_VERSIONS: Mapping[type, tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((30, 4), (DIRECTORIES, 3), (8, 2), (0, 1)),
    PartitionRecord: _PARTITIONS,
    PartitionChangeRecord: _PARTITIONS,
    BrokerRegistrationChangeRecord: ((30, 3), (DIRECTORIES, 2), (0, 1)),
}
#: Fields that lower versions omit: (field, first version that has it, default value).
_LOST: Mapping[type, tuple[tuple[str, int, Any], ...]] = {
    RegisterBrokerRecord: (("log_dirs", 3, ()), ("cordoned_log_dirs", 4, None)),
    PartitionRecord: (("directories", 1, ()), ("eligible_leader_replicas", 2, None), ("last_known_elr", 2, None)),
    PartitionChangeRecord: (("directories", 1, None), ("eligible_leader_replicas", 2, None), ("last_known_elr", 2, None)),
    BrokerRegistrationChangeRecord: (("log_dirs", 2, ()), ("cordoned_log_dirs", 3, None)),
}


def loses_metadata(level: int, lower: int) -> bool:
    """Whether a downgrade of metadata.version from `level` to `lower` may lose metadata."""
    return any(lower < changed <= level for changed in _NEW_METADATA)


def versioned(record: Any, metadata_version: int) -> tuple[Any, int]:
    """(record, version) to encode, without fields that the version does not have. A broker's change is written in the lowest version that
    holds it."""
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
