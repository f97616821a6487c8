"""Records are written in the version that the cluster's metadata.version has, as Apache Kafka 4.3 does (its versions in tests/interop)."""

from __future__ import annotations

import pytest

from minikafka.core.metadata.versions import NEWEST, versioned
from minikafka.wire.records.frame import decode_metadata_record_versioned, encode_metadata_record
from minikafka.wire.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

DIRECTORY = bytes(range(16))


@pytest.mark.parametrize(
    ("level", "broker", "partition"), [(7, 1, 0), (8, 2, 0), (16, 2, 0), (17, 3, 1), (22, 3, 1), (23, 3, 2), (29, 3, 2), (30, 4, 2)]
)
def test_the_version_follows_the_metadata_version(level: int, broker: int, partition: int) -> None:
    registration = RegisterBrokerRecord(broker_id=1, incarnation_id=DIRECTORY, log_dirs=[DIRECTORY], rack=None)
    records = [
        (registration, broker),
        (PartitionRecord(partition_id=0, replicas=[1], directories=[DIRECTORY]), partition),
        (PartitionChangeRecord(partition_id=0, directories=[DIRECTORY], eligible_leader_replicas=[1]), partition),
        (TopicRecord(name="t"), 0),
    ]
    for record, expected in records:
        fitting, version = versioned(record, level)
        assert version == expected
        again, found = decode_metadata_record_versioned(encode_metadata_record(fitting, version))
        assert (again, found) == (fitting, version)
        assert getattr(record, "directories", [DIRECTORY]) == [DIRECTORY], "the caller's record is not changed"


def test_fields_that_a_version_lacks_are_left_out() -> None:
    record, version = versioned(PartitionRecord(replicas=[1], directories=[DIRECTORY], eligible_leader_replicas=[2]), 16)
    assert (version, record.directories, record.eligible_leader_replicas) == (0, [], None)
    record, version = versioned(PartitionRecord(replicas=[1], directories=[DIRECTORY], eligible_leader_replicas=[2]), 17)
    assert (version, record.directories, record.eligible_leader_replicas) == (1, [DIRECTORY], None)


def test_a_brokers_change_has_the_lowest_version_that_says_it() -> None:
    assert versioned(BrokerRegistrationChangeRecord(fenced=1), NEWEST)[1] == 0
    assert versioned(BrokerRegistrationChangeRecord(in_controlled_shutdown=1), NEWEST)[1] == 1
    assert versioned(BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY]), NEWEST)[1] == 2
    assert versioned(BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), NEWEST)[1] == 3
