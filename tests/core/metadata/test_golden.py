"""Metadata logs of Apache Kafka 4.3: replaying the log and loading the snapshot make the same image."""

from __future__ import annotations

import pytest
from helpers import metadata_logs

from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import MetadataImage, empty_image
from minikafka.core.metadata.records import image_records
from minikafka.core.metadata.versions import NEWEST, versioned
from minikafka.wire.records.frame import encode_metadata_record

SNAPSHOTS = [
    (quorum, path.name)
    for quorum in metadata_logs.QUORUMS
    for path in sorted(metadata_logs.directory(quorum).glob("*.checkpoint"))
    if not path.name.startswith("00000000000000000000-")
]


def replayed(quorum: str, end_offset: int | None = None) -> MetadataImage:
    delta = MetadataDelta(empty_image())
    for path in sorted(metadata_logs.directory(quorum).glob("*.log")):
        for offset, _, record, _ in metadata_logs.records(path):
            if end_offset is None or offset < end_offset:
                delta.apply(record, offset)
    return delta.image()


def comparable(image: MetadataImage) -> dict[str, object]:
    names = ("features", "brokers", "controllers", "topics_by_id", "configs", "client_quotas", "next_producer_id", "scram")
    return {name: getattr(image, name) for name in names}


@pytest.mark.parametrize(("quorum", "name"), SNAPSHOTS)
def test_a_snapshot_holds_what_its_log_comes_to(quorum: str, name: str) -> None:
    path = metadata_logs.directory(quorum) / name
    end_offset, epoch = (int(part) for part in path.stem.split("-"))
    loaded = MetadataDelta.from_snapshot(empty_image(), (r for _, _, r, _ in metadata_logs.records(path)), end_offset - 1, epoch)

    assert comparable(loaded.image()) == comparable(replayed(quorum, end_offset))
    assert loaded.image().offset == end_offset - 1


@pytest.mark.parametrize(("quorum", "name"), SNAPSHOTS)
def test_our_snapshot_says_the_same_as_kafkas(quorum: str, name: str) -> None:
    path = metadata_logs.directory(quorum) / name
    kafkas = [value for _, value, _, _ in metadata_logs.records(path)]
    image = MetadataDelta.from_snapshot(empty_image(), (r for _, _, r, _ in metadata_logs.records(path)), 0, 0).image()
    ours = [encode_metadata_record(*versioned(record, NEWEST)) for record in image_records(image)]

    assert sorted(ours) == sorted(kafkas)


@pytest.mark.parametrize("quorum", metadata_logs.QUORUMS)
def test_records_are_written_in_kafkas_versions(quorum: str) -> None:
    for path in sorted(metadata_logs.directory(quorum).glob("*.log")):
        for offset, value, record, version in metadata_logs.records(path):
            assert (offset, versioned(record, NEWEST)[1]) == (offset, version)
            assert encode_metadata_record(record, version) == value


def test_facts_of_a_killed_and_restarted_cluster() -> None:
    image = replayed("kraft-static/stopped")

    assert list(image.brokers) == [1]
    assert image.brokers[1].epoch == 163
    assert image.brokers[1].unfence_offset == 276, "it was fenced there after its registration at 192"
    assert image.features["metadata.version"] == 30
    assert image.is_elr_enabled
    assert image.config(4, "") == {"min.insync.replicas": "1", "log.cleaner.threads": "1"}
    assert ("client-id", "slow") in {part for entity in image.client_quotas for part in entity}
    partition = image.topics_by_name["plain"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.isr, partition.elr, partition.last_known_elr) == (-1, 3, (), (1,), (1,))


def test_elections_of_three_brokers() -> None:
    image = replayed("kraft-dynamic/voter-2")

    assert not any(partition.has_leader for topic in image.topics_by_id.values() for partition in topic.partitions.values())
    assert all(partition.elr == (3,) and partition.isr == () for t in image.topics_by_id.values() for partition in t.partitions.values())
    assert {broker_id: broker.fenced for broker_id, broker in image.brokers.items()}[3]
