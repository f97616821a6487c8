"""The same requests to Apache Kafka and to minikafka: `pytest -m long tests/differential`."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential.run import LENGTH, both

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(1800)]
SEEDS = range(40)


def test_both_answer_alike(tmp_path: Path) -> None:
    with both(tmp_path) as lanes:
        assert list(lanes.play(SEEDS, LENGTH)) == []
