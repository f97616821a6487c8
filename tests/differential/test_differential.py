"""The same requests to Apache Kafka and to minikafka: a slice in the default run, more by `pytest -m long tests/differential`."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential.run import brokers, differing
from helpers import apache_kafka

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(200, 2000), marks=[pytest.mark.long, pytest.mark.timeout(1800)])], ids=str
)
def test_both_answer_alike(seeds: range, tmp_path: Path) -> None:
    with brokers(tmp_path, apache_kafka.NEXT) as addresses:
        assert [told for told, is_certain in differing(addresses, seeds) if is_certain] == []
