"""What snapshots of the metadata hold counts whole: each bit of a record, and every field that a later record changes."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import empty_image
from minikafka.core.metadata.records import image_records
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_log import ClusterImage, apply_record
from minikafka.spark.metadata_snapshots import differences
from minikafka.spark.metadata_trail import sum_of
from minikafka.wire.records.frame import encode_metadata_record
from minikafka.wire.records.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

TOPIC, INCARNATION = bytes(range(16)), bytes(range(20, 36))
DIRECTORIES = [bytes([9, number, *range(14)]) for number in range(3)]


def directories(node: int) -> list[bytes]:
    """Those of a broker."""
    return [bytes([9, node, number, *range(13)]) for number in range(3)]


def broker(node: int, **fields: object) -> RegisterBrokerRecord:
    """A registration with everything that one may have."""
    kind = RegisterBrokerRecord
    endpoints = [kind.BrokerEndpoint(name=name, host="h", port=9000 + node, security_protocol=0) for name in ("PLAIN", "OTHER")]
    features = [kind.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)]
    return kind(
        broker_id=node, incarnation_id=INCARNATION, broker_epoch=node, end_points=endpoints, features=features, rack="r1", fenced=True,
        log_dirs=directories(node)[:2], cordoned_log_dirs=directories(node)[:1], **fields,
    )  # fmt: skip


def controller(node: int) -> RegisterControllerRecord:
    kind = RegisterControllerRecord
    endpoints = [kind.ControllerEndpoint(name="CONTROLLER", host="h", port=9093, security_protocol=0)]
    features = [kind.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)]
    return kind(controller_id=node, incarnation_id=INCARNATION, zk_migration_ready=False, end_points=endpoints, features=features)


def partition(number: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number, topic_id=TOPIC, replicas=[1, 2, 3], isr=[1], leader=1, leader_epoch=4, partition_epoch=6,
        directories=DIRECTORIES, eligible_leader_replicas=[2], last_known_elr=[3],
    )  # fmt: skip


def image_of(values: Iterable[bytes]) -> ClusterImage:
    image = ClusterImage()
    for at, value in enumerate(values, 10):
        apply_record(image, value, at)
    return image


def test_every_bit_of_a_snapshots_record_counts() -> None:
    records = [
        broker(1), controller(1), TopicRecord(name="t", topic_id=TOPIC), partition(),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        FeatureLevelRecord(name="kraft.version", feature_level=1),
        UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"k" * 32, server_key=b"v" * 32, iterations=4096),
        AccessControlEntryRecord(id=TOPIC, resource_type=2, resource_name="t", pattern_type=3, principal="User:u", host="*", operation=2,
                                 permission_type=3),
    ]  # fmt: skip
    values = [encode_metadata_record(record) for record in records]
    true = sum_of(image_of(values))
    for number, value in enumerate(values):
        for bit in range(8 * len(value)):
            other = bytearray(value)
            other[bit // 8] ^= 1 << bit % 8
            try:
                found = sum_of(image_of([*values[:number], bytes(other), *values[number + 1 :]]))
            except FormatError:
                continue
            is_true_as_well = value[bit // 8] == 1 and other[bit // 8] > 1 and bit // 8 == _fenced_at(value)
            assert (found == true) == is_true_as_well, (number, bit)


def _fenced_at(value: bytes) -> int:
    """Where a registration says that its broker is fenced: any byte but 0 says so."""
    at = value.find(b"\x03r1")
    return at + 3 if at >= 0 else -1


CHANGES = [
    PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2),
    PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1, 3], eligible_leader_replicas=[]),
    PartitionChangeRecord(partition_id=0, topic_id=TOPIC, last_known_elr=[1]),
    PartitionChangeRecord(partition_id=1, topic_id=TOPIC, directories=DIRECTORIES[::-1]),
    ClearElrRecord(topic_name="t"),
    ClearElrRecord(topic_name=""),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1),
    BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, in_controlled_shutdown=1),
    BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, log_dirs=directories(2)[1:]),
    BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, cordoned_log_dirs=directories(2)[1:2]),
    UnfenceBrokerRecord(id=1, epoch=1),
    FenceBrokerRecord(id=1, epoch=1),
    broker(1),
    controller(1),
]


@pytest.mark.parametrize("seed", range(40))
def test_a_snapshot_equals_the_log_before_it_after_any_changes(seed: int) -> None:
    chance = random.Random(seed)
    begin = [broker(1), broker(2), broker(3), TopicRecord(name="t", topic_id=TOPIC), partition(), partition(1)]
    records = begin + [chance.choice(CHANGES) for _ in range(12)] + [UnregisterBrokerRecord(broker_id=3, broker_epoch=3)]
    delta = MetadataDelta(empty_image())
    delta.apply_all(records, 0)
    log = image_of(encode_metadata_record(record) for record in records)
    snapshot = image_of(encode_metadata_record(record) for record in image_records(delta.image()))
    snapshot.end_offset = len(records)
    assert differences(snapshot, log) == []
    assert sum_of(snapshot) == sum_of(log)


@pytest.mark.parametrize(("change", "words"), [
    ({"fenced": False}, "fenced"), ({"in_controlled_shutdown": True}, "shutting down"), ({"broker_epoch": 5}, "epoch 5"),
    ({"rack": "r2"}, "rack r2"), ({"incarnation_id": TOPIC}, "incarnation AAEC"), ({"end_points": []}, "listeners -"),
])  # fmt: skip
def test_how_registrations_differ_is_said(change: dict[str, object], words: str) -> None:
    other = broker(1)
    for name, value in change.items():
        setattr(other, name, value)
    said = differences(image_of([encode_metadata_record(other)]), image_of([encode_metadata_record(broker(1))]))
    assert len(said) == 1
    assert words in said[0]


@pytest.mark.parametrize(("record", "version"), [(partition(), 1), (broker(1), 3), (CHANGES[1], 1), (CHANGES[10], 2)])
def test_a_tag_of_a_later_version_is_refused_as_by_kafka(record: object, version: int) -> None:
    values = [encode_metadata_record(one) for one in (broker(1), broker(2), TopicRecord(name="t", topic_id=TOPIC), partition())]
    value = bytearray(encode_metadata_record(record))
    value[2] = version
    with pytest.raises(FormatError, match="has the tag"):
        image_of([*values, bytes(value)])
