"""Which partition coordinates a group, a transactional id: a broker that starts from Apache Kafka's directories has to look there."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.core.java_hash import partition_for_key, string_hash

GOLDEN = Path(__file__).parents[1] / "golden" / "logs" / "single-stopped"
#: Texts whose String.hashCode is the smallest number, and one more than it.
SMALLEST, NEXT = "polygenelubricants", "polygenelubricantt"


@pytest.mark.parametrize(
    "group", ["grp-classic", "grp-static", "grp-gone", "grp-regex", "grp-next-gone", "grp-next"]
)  # fmt: skip
def test_groups_are_where_apache_kafka_has_put_them(group: str) -> None:
    """Its __consumer_offsets has three partitions; the hash of grp-next-gone is negative."""
    held = [number for number in range(3) if _key(group) in _log(number)]
    assert held == [partition_for_key(group, 3)]


def _key(group: str) -> bytes:
    """A key of the group alone, in front of its value."""
    return len(group).to_bytes(2, "big") + group.encode()


def _log(number: int) -> bytes:
    return (GOLDEN / f"__consumer_offsets-{number}" / f"{0:020d}.log").read_bytes()


def test_the_smallest_hash_has_no_absolute_value() -> None:
    assert (string_hash(SMALLEST), string_hash(NEXT)) == (1 << 31, (1 << 31) + 1)
    assert (partition_for_key(SMALLEST, 7), partition_for_key(NEXT, 7)) == (0, ((1 << 31) - 1) % 7)
