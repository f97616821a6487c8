"""Directories of replicas are reported to the controller if the metadata differ, until the metadata agree."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.partitions import directory_assignments
from minikafka.broker.partitions.directory_assignments import DirectoryAssignments
from minikafka.broker.supervise import BrokenInvariant, Supervisor
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16
TOPIC = b"t" * 16


class FakeController:
    """Takes everything, after as many failures as `failures` holds."""

    def __init__(self, *failures: Any) -> None:
        self.failures = list(failures)
        self.requests: list[AssignReplicasToDirsRequest] = []

    async def request(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return AssignReplicasToDirsResponse(error_code=failure)
        kind = AssignReplicasToDirsResponse
        answers = []
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                taken = [kind.PartitionData(partition_index=p.partition_index) for p in topic.partitions]
                topics.append(kind.TopicData(topic_id=topic.topic_id, partitions=taken))
            answers.append(kind.DirectoryData(id=directory.id, topics=topics))
        return kind(directories=answers)

    def reported(self, number: int = -1) -> dict[bytes, list[int]]:
        return {d.id: sorted(p.partition_index for topic in d.topics for p in topic.partitions) for d in self.requests[number].directories}


def metadata_of(*, has_directories: bool = True) -> Any:
    return SimpleNamespace(image=SimpleNamespace(has_directories=has_directories))


async def settled(assignments: DirectoryAssignments) -> None:
    task = assignments._task
    if task is not None:
        await task


async def test_assignments_already_in_the_metadata_are_not_sent() -> None:
    controller = FakeController()
    assignments = DirectoryAssignments(1, lambda: 9, controller, Supervisor(asyncio.get_running_loop()), metadata_of())  # type: ignore[arg-type]
    assignments.observe((TOPIC, 0), NEW, NEW)
    await settled(assignments)
    assert controller.requests == []


async def test_replicas_go_together_by_directory() -> None:
    controller = FakeController()
    assignments = DirectoryAssignments(1, lambda: 9, controller, Supervisor(asyncio.get_running_loop()), metadata_of())  # type: ignore[arg-type]
    for index in range(4):
        assignments.observe((TOPIC, index), OLD, NEW if index % 2 else OTHER)
    await settled(assignments)
    assert controller.reported() == {OTHER: [0, 2], NEW: [1, 3]} and len(controller.requests) == 1
    assert (controller.requests[0].broker_id, controller.requests[0].broker_epoch) == (1, 9)


async def test_an_assignment_is_sent_until_it_is_accepted(monkeypatch: Any) -> None:
    monkeypatch.setattr(directory_assignments, "RETRY_DELAY_S", 0)
    controller = FakeController(ConnectionError("gone"), ErrorCode.STALE_BROKER_EPOCH, TimeoutError())
    assignments = DirectoryAssignments(1, lambda: 9, controller, Supervisor(asyncio.get_running_loop()), metadata_of())  # type: ignore[arg-type]
    assignments.observe((TOPIC, 0), OLD, NEW)
    await settled(assignments)
    assert [controller.reported(number) for number in range(4)] == [{NEW: [0]}] * 4 and len(controller.requests) == 4


async def test_a_move_during_a_request_is_sent_too() -> None:
    controller = FakeController()
    assignments = DirectoryAssignments(1, lambda: 9, controller, Supervisor(asyncio.get_running_loop()), metadata_of())  # type: ignore[arg-type]
    assignments.observe((TOPIC, 0), OLD, NEW)
    await asyncio.sleep(0)
    assignments.observe((TOPIC, 0), NEW, OTHER)
    await settled(assignments)
    assert [controller.reported(number) for number in range(2)] == [{NEW: [0]}, {OTHER: [0]}]


async def test_metadata_that_agree_end_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(directory_assignments, "RETRY_DELAY_S", 0)
    controller = FakeController(*[ErrorCode.STALE_BROKER_EPOCH] * 1000)
    assignments = DirectoryAssignments(1, lambda: 9, controller, Supervisor(asyncio.get_running_loop()), metadata_of())  # type: ignore[arg-type]
    assignments.observe((TOPIC, 0), OLD, NEW)
    assignments.observe((TOPIC, 1), OLD, NEW)
    await asyncio.sleep(0)
    assignments.observe((TOPIC, 0), NEW, NEW)
    assignments.forget((TOPIC, 1))
    await settled(assignments)
    assert len(controller.requests) < 5


async def test_nothing_is_sent_while_metadata_version_has_no_directories() -> None:
    controller, metadata = FakeController(), metadata_of(has_directories=False)
    assignments = DirectoryAssignments(1, lambda: 9, controller, Supervisor(asyncio.get_running_loop()), metadata)  # type: ignore[arg-type]
    assignments.observe((TOPIC, 0), OLD, NEW)
    assignments.send()
    assert assignments._task is None and controller.requests == []
    metadata.image.has_directories = True
    assignments.send()
    await settled(assignments)
    assert controller.reported() == {NEW: [0]}


@pytest.mark.parametrize("error", [WireError("a request that cannot be encoded"), KeyError("an error of ours")], ids=repr)
async def test_an_error_of_ours_ends_the_node(error: Exception) -> None:
    """Otherwise the controller would never learn of these replicas, and never elect them."""
    supervisor = Supervisor(asyncio.get_running_loop())
    assignments = DirectoryAssignments(1, lambda: 9, FakeController(error), supervisor, metadata_of())  # type: ignore[arg-type]
    assignments.observe((TOPIC, 0), OLD, NEW)
    reason = await asyncio.shield(supervisor.failed)
    assert isinstance(reason, BrokenInvariant)
    assert f"assignments of replicas to directories failed unexpectedly: {type(error).__name__}" in str(reason)
