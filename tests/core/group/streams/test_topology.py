"""Partition counts of internal topics, and problems of topologies, compared with Apache Kafka's answers to the same requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.streams_cases import TOPOLOGIES, Case, Cluster, topology_of

from minikafka.core.group.streams.model import InternalTopic, Status
from minikafka.core.group.streams.topology import InvalidTopology, configure
from minikafka.wire.errors import ErrorCode

GOLDEN = Path(__file__).parents[3] / "golden" / "streams" / "cases.jsonl"
CODES = {
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "StreamsInvalidTopologyException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.UNKNOWN_SERVER_ERROR: "IllegalArgumentException",
}


def test_topologies_are_configured_as_by_apache_kafka() -> None:
    asked = [case for line in GOLDEN.read_text().splitlines() if "topology" in (case := json.loads(line))]
    assert len(asked) == TOPOLOGIES
    for case in asked:
        assert _configured(case) == case["result"], case["topology"]


def _configured(case: Case) -> dict[str, Any]:
    try:
        found = configure(topology_of(case), Cluster(case["topics"]), 7)
    except InvalidTopology as refused:
        return {"refused": [CODES[refused.code], str(refused)]}
    assert (found.epoch, found.metadata_hash) == (0, 7)
    result: dict[str, Any] = {} if found.problem is None else {"problem": [found.problem[0].value, found.problem[1]]}
    if found.subtopologies is not None:
        result["subtopologies"] = {
            name: [
                subtopology.task_count,
                {f"r {topic}": _info(info) for topic, info in subtopology.repartition_source_topics.items()}
                | {f"c {topic}": _info(info) for topic, info in subtopology.state_changelog_topics.items()},
            ]
            for name, subtopology in found.subtopologies.items()
        }
    return {**result, "missing": sorted(found.missing_topics)}


def _info(topic: InternalTopic) -> list[Any]:
    return [topic.partition_count, topic.replication_factor, dict(topic.configs)]


def _case(subtopologies: list[Case], topics: dict[str, int]) -> Case:
    made = [
        {
            "subtopologyId": str(place), "sourceTopics": [], "stateChangelogTopics": [], "repartitionSinkTopics": [],
            "repartitionSourceTopics": [], "copartitionGroups": [], **one,
        }
        for place, one in enumerate(subtopologies)
    ]  # fmt: skip
    return {"topology": {"epoch": 0, "subtopologies": made}, "topics": topics}


def test_a_long_chain_of_subtopologies_in_the_worst_order() -> None:
    """As many rounds as subtopologies: each is looked at when what it reads is decided, and not in every round."""
    chain: list[Case] = [{"sourceTopics": ["in"], "repartitionSinkTopics": ["r-0"]}]
    for place in range(3000):
        info = {"name": f"r-{place}", "partitions": 0, "replicationFactor": 0, "topicConfigs": []}
        chain.append({"repartitionSourceTopics": [info], "repartitionSinkTopics": [f"r-{place + 1}"]})
    case = _case(chain[::-1], {"in": 5})
    found = configure(topology_of(case), Cluster(case["topics"]), 1)
    assert len(found.missing_topics) == 3000
    assert {topic.partition_count for topic in found.missing_topics.values()} == {5}
    assert found.problem is not None
    assert found.problem[0] is Status.MISSING_INTERNAL_TOPICS
    assert found.problem[1].endswith(" and 2997 additional topics")


@pytest.mark.parametrize(
    ("present", "problem"), [({"a": 1, "b": 1}, None), ({"a": 1}, "Source topics b are missing."), ({}, "Source topics a, b are missing.")]
)
def test_source_topics(present: dict[str, int], problem: str | None) -> None:
    case = _case([{"sourceTopics": ["a", "b"]}], present)
    found = configure(topology_of(case), Cluster(case["topics"]), 1)
    assert found.is_ready is (problem is None)
    assert found.problem == (None if problem is None else (Status.MISSING_SOURCE_TOPICS, problem))
