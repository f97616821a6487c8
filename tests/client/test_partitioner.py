"""Where records go: the hash pairs of Apache Kafka's own UtilsTest, and the sticky choice for records without a key."""

from __future__ import annotations

import random

import pytest
from kafka.partitioner.default import murmur2 as other_murmur2

from minikafka.client.partitioner import StickyPartitioner, murmur2, partition_for_key

EXPECTED_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", EXPECTED_HASHES)
def test_murmur2_gives_what_java_gives(key: bytes) -> None:
    assert murmur2(key) == EXPECTED_HASHES[key] & 0xFFFFFFFF
    assert partition_for_key(key, 7) == (EXPECTED_HASHES[key] & 0x7FFFFFFF) % 7


def test_murmur2_agrees_with_kafka_python_for_every_length() -> None:
    generator = random.Random(3)
    for number in range(300):
        key = generator.randbytes(number % 37)
        assert murmur2(key) == other_murmur2(key) & 0xFFFFFFFF, key


def test_a_key_stays_where_it_is() -> None:
    partitioner = StickyPartitioner(random.Random(1))
    assert {partitioner.partition("t", b"abc", 6) for _ in range(10)} == {partition_for_key(b"abc", 6)}


def test_records_without_a_key_stick_until_their_batch_has_left() -> None:
    partitioner = StickyPartitioner(random.Random(1))
    first = partitioner.partition("t", None, 50)
    assert {partitioner.partition("t", None, 50) for _ in range(10)} == {first}
    partitioner.batch_left("t", first + 1)
    assert partitioner.partition("t", None, 50) == first, "a batch of another partition changes nothing"
    chosen = set()
    for _ in range(20):
        partitioner.batch_left("t", partitioner.partition("t", None, 50))
        chosen.add(partitioner.partition("t", None, 50))
    assert len(chosen) > 5


def test_a_topic_that_has_shrunk_is_no_trap() -> None:
    partitioner = StickyPartitioner(random.Random(1))
    while partitioner.partition("t", None, 50) == 0:
        partitioner.batch_left("t", 0)
    assert partitioner.partition("t", None, 1) == 0
