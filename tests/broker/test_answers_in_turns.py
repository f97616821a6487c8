"""A follower that gets records of very many partitions at once: each append may begin a segment, and the others of the broker wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.replica_world import SilentEvents

from minikafka.broker.partitions.fetcher import ANSWERED_AT_ONCE, Fetcher
from minikafka.broker.partitions.partition import LeaderRules, Partition
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.core.partition.follower import JOINING_MAX
from minikafka.core.replication_quota import ReplicationQuota
from minikafka.net.turn_share import SHARE_S, TurnShares
from minikafka.sim.disk import Disk, DiskView
from minikafka.storage.config import LogConfig
from minikafka.storage.recovery import load_log
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse

PARTITIONS = 40
TOPIC_ID = bytes(15) + b"\x01"
#: What an append takes by this test's clock.
APPEND_S = 0.002
IN_A_TURN = round(SHARE_S / APPEND_S) + 1


class World:
    """A fetcher from broker 2. The receive buffer is filled with rubbish when an answer's callback is over, unless it is kept."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.soon: list[Any] = []
        self.is_kept = False
        disk, rules = DiskView(Disk()), LeaderRules(broker_id=1, lag_ms_max=1000, is_eligible=lambda *_: True)
        self.partitions = []
        for index in range(PARTITIONS):
            disk.mkdir(f"/data/t-{index}")
            log = load_log(disk, f"/data/t-{index}", "t", index, LogConfig(), wall_ms=T0)
            partition = Partition(SilentEvents(), rules, "t", TOPIC_ID, index, log)
            partition.make_follower(PartitionRegistration((1, 2), (1, 2), 2, 0, 0))
            self.partitions.append(partition)
        config = SimpleNamespace(
            replica_fetch_max_bytes=1, replica_fetch_wait_max_ms=1, replica_fetch_min_bytes=1, replica_fetch_response_max_bytes=1,
            replica_socket_timeout_ms=1, replica_fetch_backoff_ms=1,
        )  # fmt: skip
        supervisor = SimpleNamespace(call_soon=lambda name, work: self.soon.append(work))
        clock = SimpleNamespace(now_ms=lambda: 0, wall_ms=lambda: T0)
        environment = SimpleNamespace(clock=clock, supervisor=supervisor, shares=TurnShares(lambda: APPEND_S * sum(self.ends())))
        replication: Any = SimpleNamespace(
            environment=environment,
            config=config,
            broker_epoch=lambda: 7,
            broker_id=1,
            throttles=SimpleNamespace(follower=ReplicationQuota()),
        )
        self.fetcher = Fetcher(replication, SilentEvents(), lambda *_: None, 2, 0)
        self.fetcher._channel = SimpleNamespace(  # type: ignore[assignment]
            closed=False, send=lambda request, version, answered, timeout_ms: self.sent.append((request, answered)),
            keep_frame=lambda: setattr(self, "is_kept", True), close=lambda reason: None,
        )  # fmt: skip
        for partition in self.partitions:
            self.fetcher.add(partition)

    def ends(self) -> list[int]:
        return [partition.log.log_end_offset for partition in self.partitions]

    def answer(self, number: int, offset: int) -> None:
        """Answer a fetch with a record of every partition."""
        records = bytearray(batch(b"v", base_offset=offset, epoch=0))
        buffer = bytearray(records * PARTITIONS)
        parts = [
            FetchResponse.PartitionData(
                partition_index=index, high_watermark=0, records=memoryview(buffer)[index * len(records) : (index + 1) * len(records)]
            )
            for index in range(PARTITIONS)
        ]
        topics = [FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)]
        self.is_kept = False
        self.sent[number][1](FetchResponse(session_id=9, responses=topics), None)
        if not self.is_kept:
            buffer[:] = bytes(len(buffer))

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for work in soon:
            work()


def test_records_of_very_many_partitions_are_appended_in_several_turns() -> None:
    world = World()
    world.fetcher.wake()
    world.answer(0, 0)
    appended = []
    while world.soon:
        appended.append(sum(world.ends()) - sum(appended))
        world.fetcher.wake()
        assert len(world.sent) == 1, "what is not appended yet would be fetched again"
        world.turn()
    assert max(appended) <= IN_A_TURN and world.ends() == [1] * PARTITIONS
    asked = world.sent[1][0]
    assert isinstance(asked, FetchRequest) and {part.fetch_offset for part in asked.topics[0].partitions} == {1}


def test_the_rest_of_an_answer_is_dropped_with_its_connection() -> None:
    world = World()
    world.fetcher.wake()
    world.answer(0, 0)
    taken = sum(world.ends())
    world.fetcher.close("the leader is another")
    while world.soon:
        world.turn()
    assert 0 < taken == sum(world.ends()) <= IN_A_TURN


@pytest.mark.parametrize("at_once", [PARTITIONS - 1, PARTITIONS])
def test_the_fetch_after_a_long_answer_has_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """A share of appends, and a fetch of thousands of partitions: 26 ms on a busy machine."""
    assert ANSWERED_AT_ONCE <= JOINING_MAX
    monkeypatch.setattr("minikafka.broker.partitions.fetcher.ANSWERED_AT_ONCE", at_once)
    world = World()
    world.fetcher._replication.environment.shares = TurnShares(lambda: 0.0)
    world.fetcher.wake()
    world.answer(0, 0)
    assert world.ends() == [1] * PARTITIONS
    assert len(world.sent) == (1 if at_once < PARTITIONS else 2)
    while world.soon:
        world.turn()
    assert len(world.sent) == 2
    if at_once < PARTITIONS:
        world.answer(1, 1)
        world.fetcher.close("the leader is another")
        world.turn()
        assert len(world.sent) == 2, "nothing is sent over a connection that has ended"
