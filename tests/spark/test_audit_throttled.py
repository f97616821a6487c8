"""A broker that holds a client to its quota answers a Fetch without any partition (KIP-219): the audit asks again."""

from __future__ import annotations

import asyncio
import struct

import confluent_kafka
import pytest
from helpers.log_clusters import plain
from helpers.wire_replicas import WireReplicas, _Connection

from minikafka.client.quotas import QuotaAdmin
from minikafka.spark import fetch_client
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.fetch_client import BrokerError, Connection, _Reader
from minikafka.testing import EmbeddedCluster

RATE = 200_000
VALUE = b"v" * 50_000


def test_an_audit_above_its_quota_reads_everything() -> None:
    async def limit(bootstrap: str) -> None:
        async with QuotaAdmin(bootstrap) as admin:
            await admin.alter_quotas((("client-id", "minikafka-audit"),), {"consumer_byte_rate": float(RATE)})

    with EmbeddedCluster(3, topics={"t": 3}, config={"quota.window.num": "2"}) as cluster:
        producer = confluent_kafka.Producer({**cluster.client_config("confluent"), "batch.num.messages": 1})
        for number in range(12):
            producer.produce("t", VALUE, partition=number % 3)
        assert producer.flush(30) == 0
        cluster.wait_healthy()
        asyncio.run(limit(cluster.bootstrap_servers))
        result = run_audit([], LocalEngine(1), AuditOptions(bootstrap=cluster.bootstrap_servers, confirm=False))
    judged = [one for one in result.partitions if one.topic == "t"]
    assert [(one.partition, one.verdict, len(one.replicas)) for one in judged] == [(number, "MATCH", 3) for number in range(3)]
    assert (result.outcome, result.batches_compared) == ("PASS", 12)


def answer(*partitions: int, pause_ms: int = 0) -> bytes:
    """A Fetch response, version 11, with these empty partitions of topic t."""
    body = struct.pack(">ihii", pause_ms, 0, 0, 1 if partitions else 0)
    if partitions:
        body += struct.pack(">h", 1) + b"t" + struct.pack(">i", len(partitions))
    for number in partitions:
        body += struct.pack(">ihqqqiii", number, 0, 7, 7, 0, -1, -1, 0)
    return body


class Scripted(Connection):
    """A connection that gives prepared answers, the last one again and again."""

    def __init__(self, *answers: bytes) -> None:
        self.place, self.answers, self.asked = "h:1", list(answers), 0

    def ask(self, key: int, version: int, body: bytes) -> _Reader:
        self.asked += 1
        return _Reader(memoryview(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]))


def test_partitions_that_an_answer_leaves_out_are_asked_for_again() -> None:
    connection = Scripted(answer(pause_ms=1), answer(1), answer(), answer(0, 2))
    found = connection.fetch({("t", number): 7 for number in range(3)}, 1)
    assert {key: one.high_watermark for key, one in found.items()} == {("t", number): 7 for number in range(3)}
    assert connection.asked == 4


@pytest.mark.parametrize(("sent", "pause_ms", "pauses_s"), [((), 70, [0.07]), ((), 1 << 30, [10.0]), ((), 0, [0.05]), ((0, 1), 70, [])])
def test_partitions_that_are_never_answered_are_no_silent_gap(
    monkeypatch: pytest.MonkeyPatch, sent: tuple[int, ...], pause_ms: int, pauses_s: list[float]
) -> None:
    """The broker says how long to pause, within PAUSE_MS_MIN and PAUSE_MS_MAX; after FETCHES_MAX answers the audit gives up."""
    waited: list[float] = []
    monkeypatch.setattr(fetch_client.time, "sleep", waited.append)
    connection = Scripted(answer(*sent, pause_ms=pause_ms))
    with pytest.raises(BrokerError, match="fetches without t-"):
        connection.fetch({("t", number): 7 for number in range(3)}, 1)
    assert connection.asked == fetch_client.FETCHES_MAX and waited == pauses_s * fetch_client.FETCHES_MAX
    assert max(waited, default=0) <= fetch_client.PAUSE_MS_MAX / 1000


@pytest.mark.parametrize("request_name", ["earliest", "fetch"])
def test_a_replica_that_an_answer_leaves_out_was_not_compared(monkeypatch: pytest.MonkeyPatch, request_name: str) -> None:
    world = WireReplicas({broker: [plain(offset) for offset in range(9)] for broker in (1, 2, 3)})
    world.install(monkeypatch)
    ask = getattr(_Connection, request_name)
    monkeypatch.setattr(_Connection, request_name, lambda self, *what, **how: {} if self.broker == 3 else ask(self, *what, **how))
    result = world.audit()
    assert (result.exit_code, [one.verdict for one in result.partitions]) == (3, ["UNREADABLE"])
