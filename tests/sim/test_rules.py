"""Rules of a partition on its broker that a simulated cluster breaks too rarely to be relied on: epochs of requests and of answers."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.replica_world import SilentEvents

from minikafka.broker.partitions.fetcher import Fetcher
from minikafka.broker.partitions.fetcher_manager import FetcherManager
from minikafka.broker.partitions.partition import LeaderRules, Partition
from minikafka.broker.partitions.produce_fast_path import _ParkedAppend
from minikafka.broker.partitions.throttles import ReplicationThrottles
from minikafka.broker.supervise import Supervisor
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.core.partition.follower import FollowedPartition, Follower
from minikafka.core.replication_quota import ReplicationQuota
from minikafka.net.turn_share import TurnShares
from minikafka.sim import probes
from minikafka.sim.disk import Disk, DiskView
from minikafka.sim.loop import ProcessLoop, Scheduler
from minikafka.sim.node import SimClock
from minikafka.storage.config import LogConfig
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.record import Record


def registration(epoch: int, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, leader, epoch, epoch)


@pytest.fixture
def partition() -> Partition:
    """Of broker 1, which leads in epoch 4."""
    disk = DiskView(Disk())
    disk.mkdir("/data/t-0")
    rules = LeaderRules(broker_id=1, lag_ms_max=1000, is_eligible=lambda *_: True)
    made = Partition(SilentEvents(), rules, "t", bytes(16), 0, load_log(disk, "/data/t-0", "t", 0, LogConfig(), wall_ms=0))
    made.make_leader(registration(4), 1, 0)
    return made


def batch(value: bytes = b"x") -> memoryview:
    return memoryview(build_batch([Record(0, 1, None, value)]))


def test_kip_320_requests_of_another_epoch_are_refused(partition: Partition) -> None:
    partition.check_epoch(4)
    partition.check_epoch(-1)
    for epoch, code in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(ApiError) as refused:
            partition.check_epoch(epoch)
        assert refused.value.code is code


def test_a_leader_notes_the_start_of_its_epoch_before_any_record(partition: Partition) -> None:
    """KIP-279: who comes later must learn where the epochs without records began."""
    partition.append(batch(), -1, 0, 0)
    partition.make_follower(registration(5, leader=2))
    partition.make_leader(registration(7), 1, 0)
    assert partition.log.epochs.entries == [(4, 0), (7, 1)]


def test_an_append_of_an_earlier_epoch_is_not_acknowledged_by_a_later_one(partition: Partition) -> None:
    """Its record may have been cut meanwhile, and another may stand in its place."""
    answers: list[Any] = []
    connection: Any = SimpleNamespace(begin=lambda: 0, finish=lambda ticket, pieces: answers.append(pieces[0]))
    layout: Any = SimpleNamespace(
        size=0, head=0, tail=0, failed=lambda correlation_id, code: ErrorCode(code).name
    )
    info = partition.append(batch(), -1, 0, 0)
    parked = _ParkedAppend(connection, 0, b"acknowledged", 1, layout, partition, partition.leading(), info.last_offset + 1)
    assert parked.try_complete() is False and answers == []
    partition.make_follower(registration(5, leader=2))
    partition.make_leader(registration(6, isr=(1,)), 1, 0)
    assert partition.leading().high_watermark > info.last_offset
    assert parked.try_complete() is True
    assert answers == ["NOT_LEADER_OR_FOLLOWER"]


class _AskedLeader:
    """A fetcher of one partition from broker 2, and what it sends; the answers are given by hand."""

    def __init__(self, partition: Partition) -> None:
        self.scheduler = Scheduler()
        self.quota = ReplicationQuota()
        loop = ProcessLoop(self.scheduler, "n1", on_error=lambda name, context: None)
        config = SimpleNamespace(
            replica_fetch_max_bytes=1 << 20, replica_fetch_wait_max_ms=500, replica_fetch_min_bytes=1,
            replica_fetch_response_max_bytes=1 << 20, replica_socket_timeout_ms=1000, replica_fetch_backoff_ms=200,
        )  # fmt: skip
        self.replication: Any = SimpleNamespace(
            environment=SimpleNamespace(
                clock=SimClock(loop), loop=loop, supervisor=Supervisor(loop), shares=TurnShares(lambda: 0.0)
            ), config=config,
            broker_epoch=lambda: 7, broker_id=1, throttles=SimpleNamespace(follower=self.quota),
        )  # fmt: skip
        self.partition = partition
        self.fetcher = Fetcher(self.replication, SilentEvents(), lambda *_: None, 2, 0)
        self.sent: list[tuple[FetchRequest, Any]] = []
        self.fetcher._channel = SimpleNamespace(  # type: ignore[assignment]
            closed=False, send=lambda request, version, answered, timeout_ms: self.sent.append((request, answered))
        )
        self.fetcher.add(partition)

    def answer(self, code: ErrorCode | None, records: bytes = b"", *, number: int = -1, session_id: int = 9) -> None:
        """Answer a fetch, the last one by default, with one partition, or with none for `code` None."""
        data = FetchResponse.PartitionData(partition_index=0, error_code=code or 0, high_watermark=0, records=memoryview(records))
        topic = FetchResponse.FetchableTopicResponse(topic_id=self.partition.topic_id, partitions=[data])
        self.sent[number][1](FetchResponse(session_id=session_id, responses=[topic] if code is not None else []), None)

    def asked(self) -> tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]]:
        """What the last fetch put into the session, and what it took out."""
        request = self.sent[-1][0]
        wanted = [(topic.topic_id, entry.partition) for topic in request.topics for entry in topic.partitions]
        return wanted, [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]


def test_a_partition_in_back_off_leaves_the_leaders_fetch_session(partition: Partition) -> None:
    """The session would answer for it at once, and each answer would make it wait anew (simulator, seed 30283)."""
    partition.make_follower(registration(5, leader=2))
    leader = _AskedLeader(partition)
    key = (partition.topic_id, 0)
    leader.fetcher.wake()
    assert leader.asked() == ([key], [])
    leader.answer(ErrorCode.NONE)
    assert leader.asked() == ([], [])
    leader.answer(ErrorCode.FENCED_LEADER_EPOCH)
    assert leader.asked() == ([], [key])
    leader.answer(None)
    assert len(leader.sent) == 3, "nothing is in the session, so there is nothing to ask for"
    leader.scheduler.run(0.3)
    assert len(leader.sent) == 4 and leader.asked() == ([key], [])


def test_the_fetch_that_asks_for_a_session_is_not_parked(partition: Partition) -> None:
    """What joins meanwhile can be told to a session only: it waited for replica.fetch.wait.max.ms, and its first acks=all write too."""
    partition.make_follower(registration(5, leader=2))
    leader = _AskedLeader(partition)
    leader.fetcher.wake()
    assert [request.max_wait_ms for request, _ in leader.sent] == [0]
    leader.answer(ErrorCode.NONE)
    assert [request.max_wait_ms for request, _ in leader.sent] == [0, 500]
    leader.fetcher.remove(partition)
    leader.fetcher.add(partition)
    leader.fetcher.wake()
    assert leader.asked() == ([(partition.topic_id, 0)], []), "the parked one is not waited for"


def test_a_leader_that_makes_no_session_is_not_asked_without_a_pause(partition: Partition) -> None:
    """Its cache is full, or it keeps none (KIP-227)."""
    partition.make_follower(registration(5, leader=2))
    leader = _AskedLeader(partition)
    leader.fetcher.wake()
    for _ in range(3):
        leader.answer(ErrorCode.NONE, session_id=0)
        assert leader.sent[-1][0].max_wait_ms == 500 and leader.asked() == ([(partition.topic_id, 0)], [])
    assert len(leader.sent) == 4


def test_an_answer_to_a_fetch_of_an_earlier_epoch_of_the_same_leader_is_dropped(partition: Partition) -> None:
    """Broker 2 led, then this one in an epoch of its own, then broker 2 again: what the first fetch brings late would be appended behind
    the start of an epoch that the log has noted meanwhile, and the epochs of the log would no longer be those of its batches
    (simulator, seed 10501860)."""
    partition.make_follower(registration(5, leader=2))
    leader = _AskedLeader(partition)
    leader.fetcher.wake()
    leader.answer(ErrorCode.NONE)
    records = bytearray(batch())
    records[12:16] = (5).to_bytes(4, "big")
    leader.fetcher.remove(partition)
    partition.make_leader(registration(6, isr=(1, 2)), 1, 0)
    partition.make_follower(registration(7, leader=2))
    leader.fetcher.add(partition)
    leader.answer(ErrorCode.NONE, bytes(records))
    assert partition.log.log_end_offset == 0
    assert leader.sent[-1][0].forgotten_topics_data, "the leader's session forgets the partition before it joins again"
    leader.answer(ErrorCode.NONE)
    wanted = leader.sent[-1][0].topics[0].partitions[0]
    assert (wanted.current_leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch) == (7, 0, 6)


def test_a_follower_that_fails_over_an_answer_begins_anew(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fetch no more, and its broker would look alive."""
    partition.make_follower(registration(5, leader=2))
    leader = _AskedLeader(partition)
    closed: list[str] = []
    other: Any = leader.fetcher._channel
    other.close = closed.append
    failures = [KeyError("an error of ours")]
    appended = Follower.appended

    def fails_once(self: Follower, followed: FollowedPartition) -> None:
        if failures:
            raise failures.pop()
        appended(self, followed)

    def connect(self: Fetcher) -> None:
        self._channel = other
        self._fetch()

    monkeypatch.setattr(Follower, "appended", fails_once)
    monkeypatch.setattr(Fetcher, "_connect", connect)
    leader.fetcher.wake()
    leader.answer(ErrorCode.NONE)
    assert closed == ["following broker 2 failed unexpectedly: KeyError: 'an error of ours'"] and len(leader.sent) == 1
    assert leader.replication.environment.supervisor.unexpected == {"connection": 1}
    leader.scheduler.run(0.3)
    assert leader.asked() == ([(partition.topic_id, 0)], []) and leader.sent[-1][0].session_epoch == 0, "in a session of its own"
    leader.answer(ErrorCode.NONE)
    assert len(leader.sent) == 3


def test_a_raised_rate_wakes_the_fetchers(partition: Partition) -> None:
    """Apache Kafka's ReassignPartitionsCommandTest: a reassignment at 1 byte a second ends when its throttle is raised."""
    partition.make_follower(registration(5, leader=2, isr=(2, 3)))
    leader = _AskedLeader(partition)
    published: list[Any] = []
    rates = SimpleNamespace(leader_replication_throttled_rate=1, follower_replication_throttled_rate=1)
    metadata: Any = SimpleNamespace(subscribe=published.append)
    throttles = ReplicationThrottles(rates, metadata, 1)  # type: ignore[arg-type]
    leader.replication.throttles = throttles
    leader.replication.config.num_replica_fetchers = 1
    manager = FetcherManager(leader.replication, SilentEvents())
    manager.follow([partition])
    [fetcher] = manager.fetchers
    fetcher._channel = leader.fetcher._channel
    manager._started = True
    changed: Any = SimpleNamespace(changed_configs={(2, "t")})
    image: Any = SimpleNamespace(configs={(2, "t"): {"follower.replication.throttled.replicas": "*"}})
    published[0](changed, image)
    throttles.follower.record(1_000_000, leader.scheduler.steps)
    fetcher.follower.disconnected()
    leader.sent.clear()
    fetcher.wake()
    assert not leader.sent
    rates.follower_replication_throttled_rate = 10_000_000
    published[0](changed, image)
    assert leader.asked() == ([(partition.topic_id, 0)], [])


def test_the_table_of_invariants_is_what_the_simulator_can_break() -> None:
    """README.md has a line for each rule that a run can violate, and no other."""
    package = Path(probes.__file__).parent
    code = "".join(path.read_text() for path in package.glob("*.py") if not path.name.endswith("mutations.py"))
    counted = re.compile(r"checked(?:\.update\(\(.*?\)\)|\[.*?\])|self\._count\(.*?\)")
    counts = {rule for found in counted.findall(code) for rule in re.findall(r"[SL]\d+", found)}
    code = counted.sub("", code)
    broken = set(re.findall(r'"([SL]\d+)"', code))
    table = (Path(__file__).parents[2] / "minikafka" / "sim" / "README.md").read_text().split("## What is checked")[1].split("## ")[0]
    reported = {rule for line in table.splitlines() if line.startswith("| ") for rule in re.findall(r"[SL]\d+", line.split("|")[1])}
    # Where two rules have one check, it tells one of them.
    assert broken <= reported
    assert reported == {f"S{number}" for number in range(1, 30)} | {f"L{number}" for number in range(1, 10)}
    assert reported - broken == {"S7", "S10"}
    assert counts == reported, "`minikafka sim` tells of each rule how often it was compared with something"
