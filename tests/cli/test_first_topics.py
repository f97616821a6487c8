"""Topics that a node creates at its start."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.broker.config.properties import ConfigurationError
from minikafka.cli.first_topics import FirstTopic, create_topics, parse_topics, requested_topics
from minikafka.testing import EmbeddedBroker


def test_the_variable_is_read_as_other_images_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CREATE_TOPICS", "a:6:3, b:1:1:compact,c")
    assert requested_topics(["d:2"]) == [
        FirstTopic("a", 6, 3), FirstTopic("b", 1, 1, {"cleanup.policy": "compact"}), FirstTopic("c"), FirstTopic("d", 2)
    ]  # fmt: skip
    monkeypatch.setenv("KAFKA_CREATE_TOPICS", "a:1:1;b:1:1")
    monkeypatch.setenv("KAFKA_CREATE_TOPICS_SEPARATOR", ";")
    assert [topic.name for topic in requested_topics([])] == ["a", "b"]
    with pytest.raises(ConfigurationError) as caught:
        parse_topics([":1:1", "x:0:1", "y:1:1:shrink"])
    assert len(caught.value.problems) == 3


def test_topics_are_created_once() -> None:
    topics = [FirstTopic("wide", 4, 1), FirstTopic("small", -1, -1, {"cleanup.policy": "compact"})]
    with EmbeddedBroker() as broker:
        for _ in range(2):
            asyncio.run(create_topics(broker.bootstrap_servers, topics))
        assert broker.topics() == ["small", "wide"]
        broker.wait_healthy(["small", "wide"])
        assert broker.leader("wide", 3) == 1
