"""AlterPartition: validation in Kafka's order (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.metadata.image import RECOVERED, RECOVERING
from minikafka.wire.errors import ErrorCode


@pytest.fixture
def driver() -> ControllerDriver:
    driver = ControllerDriver()
    driver.start(1, 2, 3)
    driver.create("t", [[1, 2, 3]])
    return driver


def test_a_good_change_is_answered_with_the_new_state(driver: ControllerDriver) -> None:
    answer = driver.alter_isr("t", [1, 2])
    assert (answer.error_code, answer.leader_id, answer.leader_epoch, answer.isr, answer.partition_epoch) == (0, 1, 0, [1, 2], 1)
    again = driver.alter_isr("t", [1, 2])
    assert (again.error_code, again.partition_epoch) == (0, 1)
    assert driver.last_records == []


@pytest.mark.parametrize(
    ("isr", "changes", "expected"),
    [
        ([1, 2], {"topic_id": b"?" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1, "partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1, "broker_id": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"broker_id": 2, "partition_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([1, 9], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ([1], {"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ([1], {"recovery": 7}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"epochs": {2: 0}}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 2], {"epochs": {2: -1}}, ErrorCode.NONE),
        ([1, 2], {"recovery": RECOVERED}, ErrorCode.NONE),
    ],
)
def test_validation_order(driver: ControllerDriver, isr: list[int], changes: dict, expected: ErrorCode) -> None:
    assert ErrorCode(driver.alter_isr("t", isr, **changes).error_code) is expected
    if expected is not ErrorCode.NONE:
        assert driver.last_records == []


def test_fenced_and_leaving_brokers_may_not_join(driver: ControllerDriver) -> None:
    """H-06, KIP-841."""
    driver.create("u", [[2, 1, 3]])
    driver.heartbeat(3)
    driver.heartbeat(2, want_shut_down=True)
    assert driver.image.brokers[2].in_controlled_shutdown
    assert driver.alter_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    driver.fence(3)
    assert driver.alter_isr("t", [1, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_that_was_replaced_meanwhile_may_not_join(driver: ControllerDriver) -> None:
    """H-04, KAFKA-14139: the follower's disk is replaced while the request is delayed."""
    stale = driver.image.brokers[2].epoch
    driver.fence(2)
    driver.register(2, incarnation=2)
    driver.heartbeat(2)
    assert driver.alter_isr("t", [1, 2, 3], epochs={2: stale}).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert driver.alter_isr("t", [1, 2, 3]).error_code == ErrorCode.NONE


def test_a_request_that_comes_twice_or_late(driver: ControllerDriver) -> None:
    """H-08: the second delivery and one from before an election are recognised."""
    before = driver.partition("t")
    driver.alter_isr("t", [1, 2])
    assert driver.alter_isr("t", [1, 2], partition_epoch=before.partition_epoch).error_code == ErrorCode.INVALID_UPDATE_VERSION
    driver.fence(1)
    late = driver.alter_isr("t", [1, 2, 3], broker_id=2, leader_epoch=before.leader_epoch)
    assert late.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_completing_a_reassignment_may_elect_another_leader(driver: ControllerDriver) -> None:
    from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest as Request
    from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

    driver.start(4)
    target = Request.ReassignablePartition(partition_index=0, replicas=[4, 2])
    answer = driver.do(Request(topics=[Request.ReassignableTopic(name="t", partitions=[target])]))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    partition = driver.partition("t")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((4, 2, 1, 3), (4,), (1, 3))
    going_on = driver.do(ListPartitionReassignmentsRequest()).topics
    assert [(topic.name, topic.partitions[0].adding_replicas) for topic in going_on] == [("t", [4])]

    answer = driver.alter_isr("t", [1, 2, 3, 4])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = driver.partition("t")
    assert (partition.replicas, sorted(partition.isr), partition.is_reassigning) == ((4, 2), [2, 4], False)
    assert partition.leader in {2, 4}
    assert partition.leader_epoch == 1
    assert driver.do(ListPartitionReassignmentsRequest()).topics == []


def test_a_reassignment_can_be_cancelled(driver: ControllerDriver) -> None:
    from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest as Request

    def reassign(replicas: list[int] | None) -> ErrorCode:
        target = Request.ReassignablePartition(partition_index=0, replicas=replicas)
        answer = driver.do(Request(topics=[Request.ReassignableTopic(name="t", partitions=[target])]))
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    driver.start(4)
    assert reassign(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign([9]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign([1, 2, 4]) is ErrorCode.NONE
    assert reassign(None) is ErrorCode.NONE
    partition = driver.partition("t")
    assert (sorted(partition.replicas), partition.is_reassigning, partition.isr) == ([1, 2, 3], False, (1, 2, 3))
