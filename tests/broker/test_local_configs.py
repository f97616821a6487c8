"""Configurations from the local copy of the metadata log, with which logs are opened before the quorum answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.broker.quorum.local_configs import METADATA_DIRECTORY, LocalConfigs
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from minikafka.storage.filesystem import OsFileSystem
from minikafka.wire.batch import build_batch
from minikafka.wire.records.frame import encode_metadata_record
from minikafka.wire.records.metadata_records import ConfigRecord


def log_of(*records: ConfigRecord) -> list[bytearray]:
    """One batch for each record."""
    values = [(encode_metadata_record(record), offset) for offset, record in enumerate(records)]
    return [bytearray(build_batch([(offset, 1, None, value, ())], base_offset=offset)) for value, offset in values]


def read(directory: Path, batches: list[bytearray]) -> LocalConfigs:
    (directory / METADATA_DIRECTORY).mkdir()
    (directory / METADATA_DIRECTORY / "00000000000000000000.log").write_bytes(b"".join(batches))
    return LocalConfigs(OsFileSystem(), str(directory))


def of_brokers(name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=name, name="min.insync.replicas", value=value)


def test_a_brokers_own_value_overrides_the_clusters(tmp_path: Path) -> None:
    topic = ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name="t", name="retention.ms", value="7")
    found = read(tmp_path, log_of(of_brokers("", "2"), of_brokers("1", "3"), topic))
    assert found.cluster(1) == {"min.insync.replicas": "3"} and found.cluster(2) == {"min.insync.replicas": "2"}
    assert found.topic("t") == {"retention.ms": "7"} and found.topic("u") == {}


@pytest.mark.parametrize("bit", range(8))
def test_a_value_with_flipped_bits_is_not_used(tmp_path: Path, bit: int) -> None:
    """Seed 7020349: the broker could not start with the value that it had read."""
    batches = log_of(of_brokers("", "2"), of_brokers("", "3"))
    at = batches[1].rindex(b"3")
    batches[1][at] ^= 1 << bit
    assert read(tmp_path, batches).cluster(1) == {"min.insync.replicas": "2"}
