"""The active controller's lines about what it decided."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

from minikafka.broker.quorum.change_lines import change_lines, reason_of
from minikafka.core.metadata.image import RECOVERING, PartitionRegistration
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest

TOPIC_ID = bytes(16)


def partition(leader: int, isr: tuple[int, ...], epoch: int) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, leader, epoch)


def lines(old: Any, now: Any, why: str, brokers: Any = None, before: Any = None, why_fenced: Any = None) -> list[str]:
    delta: Any = SimpleNamespace(
        base=SimpleNamespace(topics_by_id={TOPIC_ID: SimpleNamespace(partitions={0: old})}, brokers=before or {}),
        changed_topics={TOPIC_ID: SimpleNamespace(name="t", changed={0: now})},
        changed_brokers=brokers or {},
        changed_acls={},
    )
    return [f"{logging.getLevelName(level)} {text}" for level, text in change_lines(delta, why, why_fenced, 1)]


def test_partitions() -> None:
    asked = reason_of(AlterPartitionRequest(broker_id=1))
    assert lines(partition(1, (1, 2, 3), 4), partition(1, (1, 3), 4), asked) == [
        "INFO t-0: in epoch 4 in sync 1, 3, without 2, because leader broker 1 requested it"
    ]
    assert lines(partition(1, (1, 3), 4), partition(3, (3,), 5), reason_of(BrokerHeartbeatRequest(broker_id=1, want_shut_down=True))) == [
        "INFO t-0: in epoch 5 broker 3 leads after broker 1, in sync 3, because broker 1 shuts down"
    ]
    assert lines(partition(1, (1,), 4), partition(-1, (1,), 5), "broker 1 is fenced") == [
        "WARNING t-0: in epoch 5 there is no leader after broker 1, in sync 1, because broker 1 is fenced"
    ]
    recovering = PartitionRegistration((1, 2, 3), (2,), 2, 6, leader_recovery_state=RECOVERING)
    assert lines(partition(-1, (1,), 5), recovering, reason_of(ElectLeadersRequest(election_type=1))) == [
        "WARNING t-0: in epoch 6 broker 2 leads, elected uncleanly: records may be lost; in sync 2, "
        "because an unclean election was requested"
    ]
    assert lines(partition(1, (1,), 4), partition(1, (1,), 4), "") == []


def test_a_replica_that_joins_and_leads_at_once_is_in_sync() -> None:
    """The record that ends a reassignment: the old leader has let broker 2 into the in-sync set, which is the new leader."""
    moving = PartitionRegistration((3, 1, 2), (3, 1), 3, 0, adding_replicas=(2,), removing_replicas=(3,))
    assert lines(moving, PartitionRegistration((2, 1), (1, 2), 2, 1), reason_of(AlterPartitionRequest(broker_id=3))) == [
        "INFO t-0: in epoch 1 broker 2 leads after broker 3, in sync 1, 2, because leader broker 3 requested it"
    ]


def test_brokers() -> None:
    serving = SimpleNamespace(epoch=7, fenced=False, in_controlled_shutdown=False)
    fenced = SimpleNamespace(epoch=7, fenced=True, in_controlled_shutdown=False)
    same = partition(1, (1,), 4)
    silent = lines(same, partition(2, (2, 1), 5), "", {1: fenced}, {1: serving}, lambda broker_id: f"{broker_id} was silent")
    assert silent[0] == "WARNING broker 1 is fenced, because 1 was silent; 1 partition changes"
    assert silent[1].endswith("because broker 1 is fenced")
    assert lines(same, same, "", {1: fenced}, {1: serving}) == ["WARNING broker 1 is fenced, because it asks to be; 1 partition changes"]
    assert lines(same, same, "", {1: None}) == ["INFO broker 1 is no longer registered"]
    back = lines(same, same, "", {1: serving}, {1: fenced})
    assert back == ["INFO broker 1 is unfenced, because it has caught up with the metadata; 1 partition changes"]
