"""Guards of very much: others have turns of the loop while it is looked up what a principal may see."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.security.authorization.groups import are_visible
from minikafka.broker.security.authorization.guard import guarded
from minikafka.broker.security.authorization.topics import STEP_NAMES, describe_topic_partitions
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import LazyList
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse

NAMES = [f"t{number:05}" for number in range(10 * STEP_NAMES)]


class FakeAuthority:
    """Lets through what `hidden` does not name; topics have two partitions."""

    def __init__(self, hidden: frozenset[str] = frozenset()) -> None:
        self.image = SimpleNamespace(topics_by_name={name: SimpleNamespace(partitions={0: None, 1: None}) for name in NAMES})
        self.hidden = hidden
        self.asked = 0

    def allows(self, *arguments: Any, log: bool = True) -> bool:
        self.asked += 1
        return arguments[-1] not in self.hidden

    def allowed_among(self, context: Any, operation: Any, kind: Any, names: Any, *, log: bool = True) -> set[str]:
        return {name for name in names if self.allows(name)}

    def operations(self, *_: Any) -> int:
        return 7


class FakeContext:
    api_version = 0

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def respond(self, response: Any) -> None:
        self.answers.append(response)


def taken(steps: Generator[None, None, Any]) -> tuple[int, Any]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return count, over.value
        count += 1


def asked_for(authority: FakeAuthority, limit: int, topic: str = "", partition: int = 0) -> tuple[int, list[str]]:
    request = DescribeTopicPartitionsRequest(response_partition_limit=limit)
    if topic:
        request.cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=topic, partition_index=partition)
    steps, _ = taken(describe_topic_partitions(authority, FakeContext(), request))  # type: ignore[arg-type]
    return steps, [topic.name for topic in request.topics]


def test_no_more_topics_are_looked_up_than_an_answer_holds_and_the_one_after() -> None:
    authority = FakeAuthority()
    assert asked_for(authority, 5) == (0, NAMES[:4])
    assert authority.asked == 4
    assert asked_for(authority, 4, NAMES[7], 1)[1] == NAMES[7:11], "of the first one partition is to come, perhaps none"
    assert asked_for(authority, 5000)[1] == NAMES[:1001], "Kafka's bound of an answer"


def test_all_that_may_not_be_seen_is_looked_up_in_steps() -> None:
    authority = FakeAuthority(frozenset(NAMES))
    steps, names = asked_for(authority, 5)
    assert names == [] and authority.asked == len(NAMES) and steps == len(NAMES) // STEP_NAMES


def test_the_topics_of_a_group_are_looked_up_once_and_in_steps() -> None:
    authority = FakeAuthority(frozenset(["hidden"]))
    assert taken(are_visible(authority, None, NAMES * 3)) == (30, True)  # type: ignore[arg-type]
    assert authority.asked == len(NAMES)
    assert taken(are_visible(authority, None, [*NAMES, "hidden"])) == (10, False)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_answers_are_completed_in_lazy_lists_too() -> None:
    kind = DescribeTopicPartitionsResponse

    def described(_: Any, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        make = kind.DescribeTopicPartitionsResponseTopic
        topics: Any = LazyList([topic.name for topic in request.topics], lambda name: make(name=name))
        return kind(topics=topics)

    serve = guarded(FakeAuthority(frozenset([NAMES[0]])), describe_topic_partitions, described)
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in NAMES[:3]])
    answer = await serve(FakeContext(), request)
    reported = [(topic.name, topic.error_code, topic.topic_authorized_operations) for topic in answer.topics]
    denied = (NAMES[0], ErrorCode.TOPIC_AUTHORIZATION_FAILED, -(2**31))
    assert reported == [(NAMES[1], 0, 7), (NAMES[2], 0, 7), denied]


@pytest.mark.asyncio
async def test_others_have_turns_between_the_steps_of_a_guard() -> None:
    turns = [0]

    def guard(authority: Any, context: Any, request: Any) -> Generator[None, None, Any]:
        seen = turns[0]
        yield
        assert turns[0] > seen

        def merge(response: Any) -> Generator[None, None, Any]:
            seen = turns[0]
            yield
            assert turns[0] > seen or request == "later"
            return [*response, authority]

        return merge

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def slowly(context: Any, request: Any) -> list[str]:
        return [request]

    counting = asyncio.create_task(count())
    context = FakeContext()
    assert await guarded("a", guard, lambda _, request: [request])(context, "now") == ["now", "a"]
    assert await guarded("a", guard, slowly)(context, "slowly") == ["slowly", "a"]
    assert await guarded("a", guard, lambda own, request: own.respond([request]))(context, "later") is None
    assert context.answers == [["later", "a"]]
    counting.cancel()


@pytest.mark.asyncio
async def test_a_guard_in_steps_may_refuse_everything() -> None:
    def guard(authority: Any, context: Any, request: Any) -> Generator[None, None, Any]:
        yield
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    asked = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")])
    refused = await guarded("a", guard, lambda context, request: None)(FakeContext(), asked)
    assert refused.topics[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
