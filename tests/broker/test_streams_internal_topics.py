"""Internal topics of streams groups: permissions, one creation at a time, reported failures."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from minikafka.broker.streams.internal_topics import InternalTopics
from minikafka.core.group.effects import Creation
from minikafka.core.group.streams.model import InternalTopic, Status
from minikafka.wire.messages.create_topics import CreateTopicsResponse
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse


class Place:
    """A broker around it, whose controller refuses what is in `refused`, and whose clock stands still."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.refused: dict[str, str] = {}
        self.forbidden: list[str] = []
        self.asked: list[Any] = []
        self.tasks: list[asyncio.Task[None]] = []
        config: Any = SimpleNamespace(request_timeout_ms=1000)
        start = SimpleNamespace(start=lambda work, name: self.tasks.append(asyncio.ensure_future(work)))
        environment: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: self.now_ms), supervisor=start)
        forwarder: Any = SimpleNamespace(forward=self.forward)
        self.topics = InternalTopics(config, environment, forwarder, lambda context, names: self.forbidden)

    async def forward(self, context: Any, request: Any, version: int) -> CreateTopicsResponse:
        self.asked.append(request)
        kind = CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(
            topics=[
                kind(name=one.name, error_code=38 if one.name in self.refused else 0, error_message=self.refused.get(one.name))
                for one in request.topics
            ]
        )

    async def beat(self, *names: str) -> str:
        """What a heartbeat's answer says when these are missing."""
        status = StreamsGroupHeartbeatResponse.Status(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail="missing")
        answer = StreamsGroupHeartbeatResponse(heartbeat_interval_ms=100, status=[status])
        self.topics.create(Creation(None, answer, {name: InternalTopic(name, 3, 0, {"a": "b"}) for name in names}))
        return status.status_detail

    async def done(self) -> None:
        await asyncio.gather(*self.tasks)


async def test_a_topic_is_asked_for_once_at_a_time() -> None:
    place = Place()
    assert [await place.beat("x"), await place.beat("x", "y")] == ["missing", "missing"]
    await place.done()
    assert [[topic.name for topic in request.topics] for request in place.asked] == [["x"], ["y"]]
    topic = place.asked[0].topics[0]
    assert (topic.num_partitions, topic.replication_factor, [(c.name, c.value) for c in topic.configs]) == (3, -1, [("a", "b")])
    await place.beat("x")
    await place.done()
    assert len(place.asked) == 3, "it is gone again"


async def test_a_failure_is_reported_for_two_heartbeats_and_retried() -> None:
    place = Place()
    place.refused = {name: f"no {name}" for name in "abcde"}
    await place.beat(*"abcde")
    await place.done()
    assert await place.beat(*"abcde") == "missing; Creation failed: a (no a), b (no b), c (no c) and 2 more."
    assert len(place.asked) == 1
    place.now_ms, place.refused = 200, {}
    assert await place.beat(*"abcde") == "missing"
    await place.done()
    assert len(place.asked) == 2


async def test_a_client_without_create_permission_gets_an_error() -> None:
    place = Place()
    place.forbidden = ["x", "y"]
    assert await place.beat("x", "y") == "missing; Unauthorized to CREATE on topics x, y."
    assert not place.asked
