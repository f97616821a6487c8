"""A record that the broker refuses for good costs nobody else anything: what is sent after it is numbered anew, without a gap."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client.admin import Admin
from minikafka.client.errors import DeliveryFailed
from minikafka.client.producer import Producer
from minikafka.wire.errors import ErrorCode

TWO_HOURS_MS = 2 * 3600 * 1000


@pytest.mark.parametrize("before", [0, 3], ids=["the broker does not know the producer", "the broker knows the producer"])
async def test_records_after_a_refused_one_are_stored(tmp_path: Path, before: int) -> None:
    async with live_node(tmp_path) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        producer = Producer(bootstrap, linger_ms=0)
        await producer.start()
        for number in range(before):
            assert (await (await producer.send("t", b"v", partition=0))).offset == number
        late = int(time.time() * 1000) + TWO_HOURS_MS
        with pytest.raises(DeliveryFailed) as refused:
            await (await producer.send("t", b"of tomorrow", partition=0, timestamp_ms=late))
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
        for number in range(before, before + 3):
            assert (await (await producer.send("t", b"v", partition=0))).offset == number
        assert node.broker is not None
        partition = node.broker.replicas.partition("t", 0)
        assert partition is not None
        stored = partition.log.read(before, 1, end_offset=before + 3).slice
        assert int.from_bytes(stored.read()[53:57], "big") == 0, "the first number of the new producer id"
        stored.release()
        await producer.close()


async def test_who_gives_up_says_how_long_it_tried(tmp_path: Path) -> None:
    """After two minutes it said "gave up after 0.557 s", which was the last attempt."""
    async with live_node(tmp_path) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        producer = Producer(bootstrap, linger_ms=0, delivery_timeout_ms=700)
        await producer.start()
        await (await producer.send("t", b"v", partition=0))
    with pytest.raises(DeliveryFailed, match=r"not acknowledged: tried for 0\.7 s(, the last error was: .*)? \(\w+\)$") as lost:
        await (await producer.send("t", b"v", partition=0))
    assert "gave up after" not in str(lost.value)
    await producer.close(0)
