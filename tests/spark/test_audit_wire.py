"""Audits over the wire of real brokers: what a broker does not show there is not held against it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minikafka.client import TransactionalProducer
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.logformat import FormatError, parse_checkpoint
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


@pytest.mark.parametrize("line", ["t 0 --5", "t 0 ²", "t 0 5-", "t 0 " + "9" * 30])
def test_a_number_that_is_none_is_a_bad_line(line: str) -> None:
    with pytest.raises(FormatError, match="bad line"):
        parse_checkpoint(f"0\n1\n{line}\n".encode(), 3)
    with pytest.raises(FormatError, match="count"):
        parse_checkpoint("0\n²\n".encode(), 3)
