"""Proposals of in-sync sets on their way to the controller: what gathers, what is tried again, and what ends the node."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.partitions import alter_partition
from minikafka.broker.partitions.alter_partition import AlterPartitionManager
from minikafka.broker.supervise import BrokenInvariant, Supervisor
from minikafka.core.partition.isr import IsrProposal
from minikafka.net.channel import ConnectionLost, RequestTimeout, UnreadableResponse, UnsupportedVersion
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

TOPIC = b"t" * 16


class Controller:
    """Takes every proposal, after as many failures as `failures` holds."""

    def __init__(self, *failures: Any) -> None:
        self.failures = list(failures)
        self.requests: list[AlterPartitionRequest] = []
        self.leaves_out: set[int] = set()

    async def request(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return AlterPartitionResponse(error_code=failure)
        kind = AlterPartitionResponse
        topics = [
            kind.TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    kind.PartitionData(
                        partition_index=p.partition_index,
                        isr=[member.broker_id for member in p.new_isr_with_epochs],
                        partition_epoch=p.partition_epoch + 1,
                    )
                    for p in topic.partitions
                    if p.partition_index not in self.leaves_out
                ],
            )
            for topic in request.topics
        ]
        return kind(topics=topics)

    def asked(self) -> list[list[int]]:
        return [sorted(p.partition_index for topic in request.topics for p in topic.partitions) for request in self.requests]


class Story:
    def __init__(self, *failures: Any) -> None:
        self.controller = Controller(*failures)
        self.supervisor = Supervisor(asyncio.get_running_loop())
        self.answers: list[tuple[int, ErrorCode, tuple[int, ...]]] = []
        self.manager = AlterPartitionManager(1, lambda: 9, self.controller, self.altered, self.supervisor)  # type: ignore[arg-type]

    def altered(self, partition: Any, proposal: IsrProposal, code: ErrorCode, isr: tuple[int, ...], epoch: int) -> None:
        self.answers.append((partition.index, code, isr))

    def submit(self, *indexes: int) -> None:
        for index in indexes:
            proposal = IsrProposal(isr=(1, 2), broker_epochs=(-1, 5), leader_epoch=3, partition_epoch=7, is_expansion=True)
            self.manager.submit(SimpleNamespace(topic_id=TOPIC, index=index), proposal)  # type: ignore[arg-type]

    async def settled(self) -> None:
        assert self.manager._task is not None
        await self.manager._task


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition, "RETRY_DELAY_S", 0)


async def test_very_many_changes_are_sent_in_several_requests() -> None:
    """When a broker of 9,000 partitions came back, its request took a turn of 29 ms, and its answer another."""
    story = Story(ErrorCode.NOT_CONTROLLER)
    most, count = alter_partition.PROPOSALS_AT_ONCE, 2 * alter_partition.PROPOSALS_AT_ONCE + 500
    story.submit(*range(count))
    await story.settled()
    asked = story.controller.asked()
    assert [len(indexes) for indexes in asked] == [most, most, most, 500] and asked[0][0] == 0 and asked[1][0] == most
    assert sorted(index for index, code, _ in story.answers if code is ErrorCode.NONE) == list(range(count))


async def test_changes_that_arrive_during_a_request_are_sent_together() -> None:
    story = Story()
    story.submit(0)
    await asyncio.sleep(0)
    story.submit(1, 2)
    await story.settled()
    assert story.controller.asked() == [[0], [1, 2]]
    assert story.answers == [(index, ErrorCode.NONE, (1, 2)) for index in (0, 1, 2)]
    members = story.controller.requests[0].topics[0].partitions[0].new_isr_with_epochs
    assert [(m.broker_id, m.broker_epoch) for m in members] == [(1, 9), (2, 5)], "its own epoch is that of now"


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionLost("gone"),
        RequestTimeout("late"),
        UnreadableResponse("nonsense"),
        UnsupportedVersion("older"),
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
    ],
    ids=lambda failure: failure.name if isinstance(failure, ErrorCode) else type(failure).__name__,
)
async def test_a_batch_without_an_answer_is_asked_for_again_with_what_came_meanwhile(failure: Any) -> None:
    story = Story(failure, failure)
    story.submit(0)
    await asyncio.sleep(0)
    story.submit(1)
    await story.settled()
    assert story.controller.asked() == [[0], [0, 1], [0, 1]]
    assert [index for index, *_ in story.answers] == [1, 0] or [index for index, *_ in story.answers] == [0, 1]
    assert not story.supervisor.failed.done()


async def test_a_partition_missing_from_the_answer_is_reported() -> None:
    story = Story()
    story.controller.leaves_out = {0}
    story.submit(0, 1)
    await story.settled()
    assert story.answers == [(0, ErrorCode.UNKNOWN_SERVER_ERROR, ()), (1, ErrorCode.NONE, (1, 2))]


@pytest.mark.parametrize("error", [WireError("a request that cannot be encoded"), KeyError("an error of ours")], ids=repr)
async def test_an_error_of_ours_ends_the_node(error: Exception) -> None:
    """The batch was lost without a word, and its partitions' in-sync sets could not change until they had another leader."""
    story = Story(error)
    story.submit(0)
    reason = await asyncio.shield(story.supervisor.failed)
    assert isinstance(reason, BrokenInvariant) and f"changes of in-sync replicas failed unexpectedly: {type(error).__name__}" in str(reason)


async def test_an_answer_that_cannot_be_taken_ends_the_node() -> None:
    story = Story()

    def fails(*arguments: Any) -> None:
        raise KeyError("an error of ours")

    story.manager._on_altered = fails
    story.submit(0)
    assert isinstance(await asyncio.shield(story.supervisor.failed), BrokenInvariant)
