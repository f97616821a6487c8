"""Apache Kafka's own test classes against minikafka's processes, a class a test: `pytest -m kafka_suite tests/kafka_suite -k Fetch`."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_suite import harness, results

CLASS_S = 1800
pytestmark = [pytest.mark.kafka_suite, pytest.mark.java, pytest.mark.timeout(CLASS_S + 100)]


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    assert harness.missing() is None


@pytest.mark.parametrize("name", harness.classes())
def test_class(name: str, tmp_path: Path) -> None:
    lines = tmp_path / "results.tsv"
    assert harness.run_classes([name], lines, tmp_path / "work", harness.Options(class_timeout_s=CLASS_S)) == 0
    found = results.read(lines).values()
    assert any(result.state == "pass" for result in found) or not any(result.state == "fail" for result in found)
    assert [f"{result.test}: {result.note}" for result in results.unexplained(found, results.reasons())] == []
