"""Streams groups (KIP-1071) on a broker: what it answers and writes is what Apache Kafka 4.4.0 answered and wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.asked import written
from helpers.streams_story import STORY_PROPERTIES, Streams, chapters

from minikafka.testing.cluster import ProcessCluster

GOLDEN = Path(__file__).parents[1] / "golden" / "streams-groups.txt"


@pytest.mark.timeout(120)
def test_answers_and_records_are_those_of_apache_kafka(tmp_path: Path) -> None:
    properties = {"offsets.topic.replication.factor": "1", "min.insync.replicas": "1", "default.replication.factor": "1"}
    with ProcessCluster(1, directory=tmp_path, properties={**properties, **STORY_PROPERTIES}) as cluster:
        asked = Streams(cluster.bootstrap)
        chapters(asked)
        found = [*asked.heard, "-- records", *written(asked, next(tmp_path.rglob("__consumer_offsets-0")))]
    assert found == GOLDEN.read_text().splitlines()
