"""A controller that ends between two batches of a decision about very many partitions: its successor finishes it.

Records that are not atomic are appended in batches (`RECORDS_PER_BATCH`), so any prefix of them may be all that is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers.controller_core import ControllerDriver, directory_of

from minikafka.core.controller import brokers
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

PARTITIONS = 6
SOON_MS = 1000


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decisions do not fit into a batch."""
    monkeypatch.setattr(brokers, "TOGETHER_MAX", 1)


def interrupted(prepare: Callable[[ControllerDriver], None], decide: Callable[[ControllerDriver], None]) -> Iterator[ControllerDriver]:
    """The successor's driver, for each number of records of the decision that the log kept."""
    length = 1
    kept = 0
    while kept < length:
        driver = ControllerDriver()
        prepare(driver)
        before = len(driver.log)
        decide(driver)
        length = len(driver.log) - before
        del driver.log[before + kept :]
        driver.fail_over()
        yield driver
        kept += 1
    assert length > PARTITIONS, "the decision has a record for each partition"


def replicated(driver: ControllerDriver) -> None:
    driver.start(1, 2, 3)
    driver.create("t", [(1, 2, 3)] * PARTITIONS)


def leaders(driver: ControllerDriver) -> set[int]:
    return {driver.partition("t", index).leader for index in range(PARTITIONS)}


def members(driver: ControllerDriver) -> set[int]:
    return {member for index in range(PARTITIONS) for member in driver.partition("t", index).isr}


def test_a_dead_broker_is_replaced_everywhere() -> None:
    for driver in interrupted(replicated, lambda driver: driver.fence(1)):
        driver.stay_alive(10_000, 2, 3)
        assert driver.image.brokers[1].fenced and leaders(driver) == {2} and members(driver) == {2, 3}


def test_a_broker_that_returns_leads_everything_that_waited_for_it() -> None:
    """What was left waited for the interval of unclean elections: five minutes."""

    def prepare(driver: ControllerDriver) -> None:
        driver.start(1)
        driver.create("t", [(1,)] * PARTITIONS)
        driver.advance(60_000)
        assert leaders(driver) == {-1}
        driver.register(1)

    for driver in interrupted(prepare, lambda driver: driver.heartbeat(1)):
        driver.heartbeat(1)
        driver.advance(SOON_MS)
        assert leaders(driver) == {1}


def test_a_directory_that_failed_is_left_by_everything() -> None:
    """Its broker's registration no longer had the directory, so that it was no news when the broker reported it again."""


    def prepare(driver: ControllerDriver) -> None:
        driver.register(1, log_dirs=[directory_of(1), directory_of(77)])
        driver.heartbeat(1)
        driver.start(2, 3)
        driver.create("t", [(1, 2, 3)] * PARTITIONS)
        partitions = [AssignReplicasToDirsRequest.PartitionData(partition_index=index) for index in range(PARTITIONS)]
        topics = [AssignReplicasToDirsRequest.TopicData(topic_id=driver.image.topics_by_name["t"].topic_id, partitions=partitions)]
        directories = [AssignReplicasToDirsRequest.DirectoryData(id=directory_of(77), topics=topics)]
        driver.do(AssignReplicasToDirsRequest(broker_id=1, broker_epoch=driver.image.brokers[1].epoch, directories=directories))

    def decide(driver: ControllerDriver) -> None:
        driver.heartbeat(1, offline_log_dirs=[directory_of(77)])

    for driver in interrupted(prepare, decide):
        decide(driver)
        assert leaders(driver) == {2} and members(driver) == {2, 3}
        assert driver.image.brokers[1].log_dirs == (directory_of(1),)


def test_a_broker_that_shuts_down_leads_nothing() -> None:
    for driver in interrupted(replicated, lambda driver: driver.heartbeat(1, want_shut_down=True)):
        driver.heartbeat(1, want_shut_down=True)
        assert leaders(driver) == {2} and members(driver) == {2, 3}


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_new_incarnation_leads_nothing_of_the_one_before(is_clean: bool) -> None:
    def decide(driver: ControllerDriver) -> None:
        epoch = driver.image.brokers[1].epoch
        driver.core.broker_disconnected(1, epoch, driver.now_ms)
        driver.register(1, incarnation=2, previous_epoch=epoch if is_clean else -1)

    for driver in interrupted(replicated, decide):
        if driver.image.brokers[1].incarnation_id[0] == 1:
            driver.stay_alive(10_000, 2, 3)
            decide(driver)
        assert leaders(driver) == {2} and members(driver) == {2, 3}
