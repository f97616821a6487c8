"""Audits over the wire of real brokers: what a broker does not show there is not held against it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from helpers.log_clusters import plain
from helpers.own_clock import replace_sleep
from helpers.wire_replicas import WireReplicas

from minikafka.client import TransactionalProducer
from minikafka.spark import audit as auditing
from minikafka.spark import live
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.fetch_client import ClusterState, Fetched, PartitionState
from minikafka.spark.findings import FindingList
from minikafka.spark.logformat import FormatError, parse_checkpoint, parse_partition_metadata
from minikafka.spark.security import Security
from minikafka.spark.sources import Plan
from minikafka.testing import EmbeddedCluster


async def write(bootstrap: str) -> None:
    async with TransactionalProducer(bootstrap, "t") as producer:
        await producer.init_transactions()
        for number in range(4):
            producer.begin()
            await producer.send("tx", b"%d" % number, partition=0)
            await producer.flush()
            await (producer.abort() if number % 2 else producer.commit())


def test_aborted_transactions_are_no_damage(tmp_path: Path) -> None:
    """The index of aborted transactions is not on the wire: every audit there of a topic with one said that it was damaged."""
    with EmbeddedCluster(3, topics={"tx": 1}, directory=tmp_path) as cluster:
        asyncio.run(write(cluster.bootstrap_servers))
        cluster.wait_healthy()
        by_wire = run_audit([], LocalEngine(1), AuditOptions(bootstrap=cluster.bootstrap_servers))
        by_disk = cluster.audit()
    assert by_disk.outcome == by_wire.outcome == "PASS", [one.findings for one in by_wire.partitions]
    index = next(tmp_path.glob("broker-1/data/tx-0/*.txnindex"))
    assert index.stat().st_size == 2 * 34


@pytest.mark.parametrize("line", [
    "t 0 --5", "t 0 ²", "t 0 5-", "t 0 " + "9" * 30, "t 0 9223372036854775808", "t 2147483648 0", " t 0 1", "a b 0 1", "",
    "q 0 1\u2028t 0 60", "t 0", "t 0 1 2",
])  # fmt: skip
def test_a_number_that_is_none_is_a_bad_line(line: str) -> None:
    with pytest.raises(FormatError, match="bad line"):
        parse_checkpoint(f"0\n1\n{line}\n".encode(), 3)
    with pytest.raises(FormatError, match="count"):
        parse_checkpoint("0\n²\n".encode(), 3)
    with pytest.raises(FormatError, match="there are 2"):
        parse_checkpoint(b"0\n1\nt 0 1\n\n", 3)
    assert parse_checkpoint(b"0\r\n1\r\nt\t0  -1 \r\n", 3) == [("t", "0", "-1")]


@pytest.mark.parametrize("text", [
    "version: 0\ntopic_id: {short}\ntopic_id: {good}", "version: 0\n\ntopic_id: {good}", "topic_id: {good}\nversion: 0",
    "version:0\ntopic_id:{good}",
    "version: 0\ntopic_id: !{short}!", "version: 0\ntopic_id: " + 22 * "A",
])  # fmt: skip
def test_whose_log_it_is_stands_in_the_second_line(text: str) -> None:
    good = "EREiIjMzREQAAAAAAAAAAQ"
    assert parse_partition_metadata(f"version: 0\ntopic_id: {good}\n".encode()) == good
    with pytest.raises(FormatError):
        parse_partition_metadata(text.format(good=good, short=good[2:]).encode())


class Answers:
    """A broker, as the audit sees it: what each knows as committed, which grows by `step` at each question."""

    high_watermarks: ClassVar[dict[int, int]] = {}
    step: ClassVar[dict[int, int]] = {}

    def __init__(self, host: str, port: int, security: object = None) -> None:
        self.port = port

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compacted(self, topics: list[str]) -> set[str]:
        return set()

    def earliest(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        return dict.fromkeys(keys, (0, 0))

    def sizes(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {}

    def latest(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        return dict.fromkeys(keys, (0, self.high_watermarks[self.port]))

    def fetch(self, wanted: dict[tuple[str, int], int], *_: object, **__: object) -> dict[tuple[str, int], Fetched]:
        high_watermark = self.high_watermarks[self.port]
        self.high_watermarks[self.port] = high_watermark + self.step.get(self.port, 0)
        return {key: Fetched(0, high_watermark, 0, memoryview(b"")) for key in wanted}


@pytest.mark.parametrize(("high_watermarks", "step", "isr", "expected"), [
    ({1: 60, 2: 60, 3: 0}, {}, [[1, 2, 3]], [("3", 0)]),
    ({1: 60, 2: 60, 3: 30}, {}, [[1, 2, 3]], [("3", 30)]),
    ({1: 60, 2: 60, 3: 30}, {3: 10}, [[1, 2, 3]], []),
    ({1: 60, 2: 60, 3: 30}, {}, [[1, 2]], []),
    ({1: 60, 2: 60, 3: 30}, {}, [[1, 2, 3], [1, 2]], []),
])  # fmt: skip
def test_a_follower_in_sync_that_never_knows_what_is_committed_was_not_compared(
    monkeypatch: pytest.MonkeyPatch,
    high_watermarks: dict[int, int],
    step: dict[int, int],
    isr: list[list[int]],
    expected: list[tuple[str, int]],
) -> None:
    """It may hold nothing: on the wire a log shows itself up to its own high watermark only. Who leaves the replicas in sync meanwhile is a
    follower that lags."""
    brokers = {node: ("h", node) for node in (1, 2, 3)}
    states = [ClusterState("c", brokers, {("t", 0): PartitionState(1, 0, [1, 2, 3], one)}, []) for one in isr]
    monkeypatch.setattr(live, "first_answer", lambda *_: states.pop(0) if len(states) > 1 else states[0])
    monkeypatch.setattr(live, "Connection", Answers)
    passed_s: list[float] = []
    clock = SimpleNamespace(time_ns=lambda: 0, monotonic=lambda: sum(passed_s), sleep=passed_s.append)
    monkeypatch.setattr(live, "time", clock)
    monkeypatch.setattr(Answers, "high_watermarks", dict(high_watermarks))
    monkeypatch.setattr(Answers, "step", step)
    plan = Plan({}, [], FindingList(20), 0)
    live.add_live_replicas(plan, "h:1", Security(), [], [], 20)
    found = [(one.broker, finding.offset) for one in plan.replicas["t", 0] for finding in one.findings.kept]
    assert found == expected


@pytest.mark.parametrize("looks", [1, 3, auditing.ATTEMPTS_MAX, 99])
def test_a_follower_that_lagged_is_looked_at_again(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """It learns at look `looks` + 1 what is committed; whoever never does is said to lag, after a bounded number of looks."""
    batches = [plain(offset) for offset in range(4)]

    def begun(broker: int, offset: int) -> None:
        if (broker, offset) == (1, 0):
            world.high_watermarks[3] = 0 if len([one for one in world.fetched if one == (1, 0)]) + 1 < looks else 4

    world = WireReplicas({broker: batches for broker in (1, 2, 3)}, high_watermarks={3: 0}, on_fetch=begun, answer_bytes=1 << 20)
    world.install(monkeypatch)
    replace_sleep(monkeypatch, auditing, lambda _: None)
    result = world.audit(confirm=True)
    seen = [one.message for one in result.findings.kept]
    assert result.outcome == ("PASS" if looks <= auditing.ATTEMPTS_MAX else "INCOMPLETE"), seen
    assert world.fetched.count((1, 0)) == min(looks, auditing.ATTEMPTS_MAX) + 1
    assert not any("replaced or cut" in text for text in seen)
    assert any("broker 3 is in sync, but considers offsets committed only up to 0" in text for text in seen) == (looks == 99)


@pytest.mark.parametrize(("ignorant", "expected"), [(0, "PASS"), (3, "PASS"), (1 << 30, "INCOMPLETE")])
def test_a_leader_that_does_not_know_what_is_committed_since_its_election(
    monkeypatch: pytest.MonkeyPatch, ignorant: int, expected: str
) -> None:
    """The audit asks until it does, and only then for high watermarks: all were too small, and what lies beyond was not compared."""
    world = WireReplicas({broker: [plain(offset) for offset in range(9)] for broker in (1, 2, 3)}, ignorant=ignorant)
    world.install(monkeypatch)
    passed_s: list[float] = []
    monkeypatch.setattr(live, "time", SimpleNamespace(time_ns=lambda: 0, monotonic=lambda: sum(passed_s), sleep=passed_s.append))
    monkeypatch.setattr(live, "FOLLOWERS_WAIT_S", 1.0)
    world.high_watermarks = dict.fromkeys((1, 2, 3), 5) if ignorant > 3 else {}
    result = world.audit()
    assert result.outcome == expected
    said = [one.message for one in result.findings.kept if one.check == "not-compared"]
    assert said == ([] if expected == "PASS" else ["its leader, broker 1, has not learned since its election what is committed, beyond 5"])
