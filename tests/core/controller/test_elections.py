"""Who leads: fencing, unfencing, controlled shutdown, unclean restarts, preferred leaders, eligible leader replicas (KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.controller.change import Election, PartitionChange
from minikafka.core.controller.state import STEP_RECORDS
from minikafka.core.metadata.image import RECOVERED, RECOVERING, RESOURCE_BROKER, PartitionRegistration
from minikafka.steps import STEP_ITEMS, at_once
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest
from minikafka.wire.records.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

TOPIC = b"t" * 16


def build(partition: PartitionRegistration, *, alive: set[int], min_isr: int = 1, elr: bool = True, election: Election = Election.ONLINE):
    return PartitionChange(partition, TOPIC, 0, lambda broker: broker in alive, min_isr=min_isr, elr_enabled=elr, election=election)


# (isr, leader, elr, alive, election) -> leader, ISR (None: unchanged), unclean
TABLE = [
    ([1, 2, 3], 1, [], {1, 2, 3}, Election.ONLINE, None, None, False),
    ([1, 2, 3], 1, [], {2, 3}, Election.ONLINE, 2, None, False),
    ([1, 3], 3, [], {1, 3}, Election.ONLINE, None, None, False),
    ([1, 3], 3, [], {1, 3}, Election.PREFERRED, 1, None, False),
    ([2, 3], 2, [], {1, 2, 3}, Election.PREFERRED, None, None, False),
    ([1, 2], 2, [], {2}, Election.PREFERRED, None, None, False),
    ([3], -1, [2], {2}, Election.ONLINE, 2, [2], False),
    ([], -1, [3, 2], {2, 3}, Election.ONLINE, 2, [2], False),
    ([], -1, [3], {1, 2}, Election.ONLINE, None, None, False),
    ([], -1, [3], {1, 2}, Election.UNCLEAN, 1, [1], True),
    ([3], 3, [], {1, 2}, Election.UNCLEAN, 1, [1], True),
    ([3], 3, [], set(), Election.UNCLEAN, -1, None, False),
]


@pytest.mark.parametrize(("isr", "leader", "elr", "alive", "election", "elected", "new_isr", "unclean"), TABLE)
def test_election_table(isr, leader, elr, alive, election, elected, new_isr, unclean) -> None:
    partition = PartitionRegistration([1, 2, 3], isr, leader, 4, 7, elr=elr)
    record = build(partition, alive=alive, min_isr=2, election=election).build()
    after = partition if record is None else partition.merge(record)

    assert after.leader == (leader if elected is None else elected)
    assert after.leader_epoch == (4 if after.leader == leader else 5)
    if new_isr is not None:
        assert after.isr == tuple(new_isr)
    assert after.leader_recovery_state == (RECOVERING if unclean else RECOVERED)
    if unclean:
        assert after.elr == ()


def test_a_change_that_says_nothing_is_no_record() -> None:
    partition = PartitionRegistration([1, 2, 3], [1, 2, 3], 1)
    assert build(partition, alive={1, 2, 3}).target_isr([1, 2, 3]).build() is None


def test_isr_changes_do_not_bump_the_leader_epoch() -> None:
    partition = PartitionRegistration([1, 2, 3], [1, 2, 3], 1, 6, 8)
    shrunk = partition.merge(build(partition, alive={1, 2, 3}).target_isr([1, 2]).build())
    grown = shrunk.merge(build(shrunk, alive={1, 2, 3}).target_isr([1, 2, 3]).build())

    assert (shrunk.leader_epoch, grown.leader_epoch) == (6, 6)
    assert (shrunk.partition_epoch, grown.partition_epoch) == (9, 10)


def test_dropping_a_replica_bumps_the_leader_epoch() -> None:
    partition = PartitionRegistration([1, 2, 3], [1, 2], 1, 6, 8)
    change = build(partition, alive={1, 2, 3}).target_replicas([1, 2], [], [])
    assert partition.merge(change.build()).leader_epoch == 7


def test_a_reassignment_completes_when_what_is_added_is_in_sync() -> None:
    partition = PartitionRegistration([4, 5, 1, 2], [1, 2, 4], 1, 6, 8, adding_replicas=[4, 5], removing_replicas=[1, 2])
    alive = {1, 2, 4, 5}
    waiting = build(partition, alive=alive).target_isr([1, 2, 4]).build()
    done = build(partition, alive=alive).target_isr([1, 2, 4, 5]).build()

    assert waiting is None
    after = partition.merge(done)
    assert (after.replicas, after.isr, after.leader, after.adding_replicas, after.removing_replicas) == ((4, 5), (4, 5), 4, (), ())


def test_isr_below_minimum_keeps_leavers_eligible() -> None:
    partition = PartitionRegistration([1, 2, 3], [1, 2, 3], 1)
    one = partition.merge(build(partition, alive={1, 2}, min_isr=2).target_isr([1, 2]).build())
    two = one.merge(build(one, alive={1}, min_isr=2).target_isr([1]).build())
    back = two.merge(build(two, alive={1, 2}, min_isr=2).target_isr([1, 2]).build())

    assert one.elr == ()
    assert two.elr == (2,)
    assert back.elr == ()


def test_the_isr_keeps_its_last_member_without_elr() -> None:
    partition = PartitionRegistration([1, 2], [1], 1)
    after = partition.merge(build(partition, alive=set(), elr=False).target_isr([]).build())
    assert (after.isr, after.leader) == ((1,), -1)


# -- the whole controller ------------------------------------------------------------------------------------------


def test_a_dead_broker_is_fenced_and_its_leaderships_move() -> None:
    driver = ControllerDriver()
    driver.start(1, 2, 3)
    driver.create("t", [[1, 2, 3], [2, 3, 1]])
    driver.fence(1)

    assert driver.partition("t", 0).leader == 2
    assert driver.partition("t", 0).isr == (2, 3)
    assert driver.partition("t", 0).leader_epoch == 1
    assert driver.partition("t", 1).leader == 2
    assert driver.partition("t", 1).leader_epoch == 0
    assert driver.partition("t", 1).isr == (2, 3)


def test_the_last_replica_leaves_an_empty_isr_and_leads_again_when_it_returns_cleanly() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.create("t", [[1]])
    epoch = driver.image.brokers[1].epoch
    driver.fence(1)
    partition = driver.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (1,), (1,))

    driver.register(1, incarnation=2, previous_epoch=epoch)
    assert driver.partition("t").elr == (1,)
    driver.heartbeat(1)
    partition = driver.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (1, (1,), (), ())
    assert partition.leader_recovery_state == RECOVERED


def test_an_unclean_restart_leaves_the_eligible_replicas_and_recovers_as_the_last_known_leader() -> None:
    """As Kafka 4.3 did in golden kraft-static: offsets 133-198."""
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.create("t", [[1]])
    driver.fence(1)
    driver.register(1, incarnation=2, previous_epoch=-1)
    partition = driver.partition("t")
    assert (partition.leader, partition.elr, partition.last_known_elr) == (-1, (), (1,))

    driver.heartbeat(1)
    partition = driver.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
    assert partition.leader_recovery_state == RECOVERING
    assert driver.alter_isr("t", [1], recovery=RECOVERED).error_code == ErrorCode.NONE
    assert driver.partition("t").leader_recovery_state == RECOVERED


def test_last_replica_standing_does_not_lose_what_others_have() -> None:
    """H-13: min ISR 2; replicas 2 and 3 fall out, the lone leader loses its disk's tail: the eligible replica leads."""
    driver = ControllerDriver()
    driver.start(1, 2, 3)
    driver.create("t", [[1, 2, 3]], configs={"min.insync.replicas": "2"})
    driver.alter_isr("t", [1, 2])
    driver.alter_isr("t", [1])
    assert driver.partition("t").elr == (2,)
    driver.fence(1)
    assert driver.partition("t").leader == 2
    assert driver.partition("t").isr == (2,)
    assert driver.partition("t").leader_recovery_state == RECOVERED


def test_an_unclean_restart_within_the_session_takes_the_broker_out_of_every_isr() -> None:
    driver = ControllerDriver()
    driver.start(1, 2, 3)
    driver.create("t", [[1, 2, 3]])
    epoch = driver.image.brokers[1].epoch
    driver.core.broker_disconnected(1, epoch, driver.now_ms)
    new_epoch = driver.register(1, incarnation=2)

    assert new_epoch > epoch
    assert driver.partition("t").isr == (2, 3)
    assert driver.partition("t").leader == 2
    assert driver.image.brokers[1].fenced


def test_controlled_shutdown_moves_leaders_first_and_waits_until_others_know() -> None:
    driver = ControllerDriver()
    driver.start(1, 2, 3)
    driver.create("t", [[1, 2, 3]])
    driver.heartbeat(2)
    driver.heartbeat(3)
    answer = driver.heartbeat(1, want_shut_down=True)

    assert not answer.should_shut_down
    assert [type(record).__name__ for record in driver.last_records] == ["BrokerRegistrationChangeRecord", "PartitionChangeRecord"]
    assert driver.image.brokers[1].in_controlled_shutdown
    assert driver.partition("t").leader == 2
    assert driver.partition("t").isr == (2, 3)
    assert not driver.heartbeat(1, want_shut_down=True).should_shut_down
    driver.heartbeat(2)
    assert not driver.heartbeat(1, want_shut_down=True).should_shut_down
    driver.heartbeat(3)
    answer = driver.heartbeat(1, want_shut_down=True)
    assert answer.should_shut_down
    assert driver.image.brokers[1].fenced


def test_a_broker_without_leaderships_may_go_at_once() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.create("t", [[1, 2]])
    answer = driver.heartbeat(2, want_shut_down=True)

    assert answer.should_shut_down
    assert driver.partition("t").isr == (1,)


def test_preferred_election_by_request() -> None:
    driver = ControllerDriver()
    driver.start(1, 2, 3)
    driver.create("t", [[1, 2, 3]])
    driver.fence(1)
    driver.register(1, incarnation=2)
    driver.heartbeat(1)
    wanted = [
        ElectLeadersRequest.TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in (("t", [0, 9]), ("no", [0]))
    ]
    results = driver.do(ElectLeadersRequest(topic_partitions=wanted)).replica_election_results
    assert results[0].partition_result[0].error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert results[0].partition_result[1].error_message == "No such partition as t-9"
    assert results[1].partition_result[0].error_message == "No such topic as no"

    driver.alter_isr("t", [2, 3, 1])
    results = driver.do(ElectLeadersRequest(topic_partitions=wanted[:1])).replica_election_results
    assert results[0].partition_result[0].error_code == ErrorCode.NONE
    assert driver.partition("t").leader == 1
    results = driver.do(ElectLeadersRequest(topic_partitions=wanted[:1])).replica_election_results
    assert results[0].partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    assert driver.do(ElectLeadersRequest(topic_partitions=None)).replica_election_results[0].partition_result == []


def test_unclean_election_by_request() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.create("t", [[1, 2]])
    driver.alter_isr("t", [1])
    driver.fence(1)
    wanted = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    answer = driver.do(ElectLeadersRequest(election_type=1, topic_partitions=wanted))

    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE
    partition = driver.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.leader_recovery_state) == (2, (2,), (), RECOVERING)


def test_turning_unclean_election_on_elects_at_once() -> None:
    """H-23, KAFKA-12670: the setting is honoured, also when it is changed later."""
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.create("t", [[1, 2]])
    driver.alter_isr("t", [1])
    driver.fence(1)
    assert driver.partition("t").leader == -1
    driver.configure(2, "t", "unclean.leader.election.enable", "true")
    driver.stay_alive(2000, 2)
    assert driver.partition("t").leader == 2


def test_the_balancer_gives_leadership_back() -> None:
    driver = ControllerDriver(leader_imbalance_check_interval_ms=20_000)
    driver.start(1, 2, 3)
    driver.create("t", [[1, 2, 3], [1, 3, 2], [2, 3, 1]])
    driver.fence(1)
    driver.register(1, incarnation=2)
    driver.heartbeat(1)
    for index in range(3):
        driver.alter_isr("t", [1, 2, 3], index=index)
    assert driver.partition("t", 0).leader == 2
    driver.stay_alive(22_000, 1, 2, 3)
    assert [driver.partition("t", index).leader for index in range(3)] == [1, 1, 2]


def test_without_the_elr_feature_the_last_member_stays_in_the_isr() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)
    driver.do(UpdateFeaturesRequest(feature_updates=[update]))
    driver.create("t", [[1, 2]])
    driver.alter_isr("t", [1])
    driver.fence(1)
    assert (driver.partition("t").leader, driver.partition("t").isr) == (-1, (1,))
    driver.register(1, incarnation=2)
    driver.heartbeat(1)
    assert (driver.partition("t").leader, driver.partition("t").isr) == (1, (1,))


def test_the_elr_feature_leaves_one_min_insync_replicas_for_the_cluster() -> None:
    driver = ControllerDriver(min_insync_replicas=2)
    driver.start(1, 2)
    feature = UpdateFeaturesRequest.FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)
    driver.do(UpdateFeaturesRequest(feature_updates=[feature]))
    driver.write([
        ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name="min.insync.replicas", value=None),
        ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="1", name="min.insync.replicas", value="1"),
    ])  # fmt: skip
    assert "min.insync.replicas" not in driver.image.config(RESOURCE_BROKER, "")
    feature.max_version_level, feature.upgrade_type = 1, 1
    driver.do(UpdateFeaturesRequest(feature_updates=[feature]))
    assert driver.image.is_elr_enabled
    assert driver.image.config(RESOURCE_BROKER, "")["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in driver.image.config(RESOURCE_BROKER, "1")


@pytest.mark.parametrize("resource", [(2, "t"), (4, "")], ids=["topic", "cluster"])
def test_a_change_of_min_isr_keeps_the_only_replica_that_can_restore_a_partition(resource: tuple[int, str]) -> None:
    """Kafka forgets them, and the partition waits for an unclean election for ever (simulator, seed 10071412)."""
    driver = ControllerDriver()
    driver.start(1, 2, 3, 4)
    driver.configure(4, "", "min.insync.replicas", "2")
    driver.create("t", [[1, 4], [2, 3]])
    driver.alter_isr("t", [2], index=1)
    driver.fence(4)
    driver.fence(1)
    assert [(p.leader, p.elr) for p in (driver.partition("t", 0), driver.partition("t", 1))] == [(-1, (4, 1)), (2, (3,))]
    assert driver.configure(*resource, "min.insync.replicas", "1")[0] is ErrorCode.NONE
    waiting, led = driver.partition("t", 0), driver.partition("t", 1)
    assert waiting.elr == (4, 1) and waiting.last_known_elr
    assert (led.leader, led.leader_epoch, led.isr, led.elr, led.last_known_elr) == (2, 0, (2,), (), ()), "3 may not have all from now on"
    driver.heartbeat(1)
    waiting = driver.partition("t", 0)
    assert (waiting.leader, waiting.leader_recovery_state, waiting.elr, waiting.last_known_elr) == (1, RECOVERED, (), ()), "nor 4"


def test_many_topics_of_few_partitions_are_decided_and_replayed_in_steps() -> None:
    """Partitions were counted anew in each topic: an election of ten thousand topics of one partition was one step of 100 ms and more."""
    count = 4 * STEP_RECORDS
    driver = ControllerDriver()
    driver.start(1, 2)
    topics = [record for number in range(count) for record in _topic(number)]
    driver.write(topics)
    for wanted in (None, [ElectLeadersRequest.TopicPartitions(topic=f"t{number}", partitions=[0]) for number in range(count)]):
        request = ElectLeadersRequest(topic_partitions=wanted)
        decision = driver.core.handle(request, 2, driver.now_ms, None, None, False)
        assert sum(1 for _ in decision) >= count // STEP_ITEMS
    result = at_once(driver.core.handle(request, 2, driver.now_ms, None, None, False))
    assert [(answer.topic, answer.partition_result[0].partition_id) for answer in result.response.replica_election_results] == [
        (f"t{number}", 0) for number in range(count)
    ]
    assert len(result.records) == count
    state = driver.core.state
    for records in (result.records, [RemoveTopicRecord(topic_id=number.to_bytes(16)) for number in range(count)]):
        # Half of the steps apply the records, the others bring the indexes up to date.
        assert sum(1 for _ in state.replay(records, state.next_offset)) >= 2 * count // STEP_RECORDS


def _topic(number: int) -> list[Any]:
    partition = PartitionRecord(
        partition_id=0, topic_id=number.to_bytes(16), replicas=[1, 2], isr=[1, 2], leader=2, leader_epoch=0, partition_epoch=0,
        directories=[bytes(16)] * 2,
    )  # fmt: skip
    return [TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16)), partition]
