"""A log that was cut behind a consumer's back (an unclean election): the consumer goes back to where the logs part (KIP-320)."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.live_node import broker_port, free_port, live_node

from minikafka.client.admin import Admin
from minikafka.client.consumer import ConsumedRecord, Consumer
from minikafka.client.errors import ClientError
from minikafka.client.producer import Producer
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.recovery import load_log


async def produce(bootstrap: str, first: int, count: int) -> None:
    async with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(first, first + count):
            await (await producer.send("t", b"%d" % number, partition=0))


async def read(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    found: list[ConsumedRecord] = []
    for _ in range(100):
        found += await consumer.poll(100)
        if len(found) >= count:
            break
    return found


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
async def test_no_record_is_skipped_when_the_log_was_cut_and_has_grown_again(tmp_path: Path, reset: str) -> None:
    port, controller = free_port(), free_port()
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    async with live_node(tmp_path, properties) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        await produce(bootstrap, 0, 20)
        consumer = Consumer(bootstrap, auto_offset_reset=reset)
        await consumer.start()
        await consumer.assign([("t", 0)], {("t", 0): 0})
        assert [record.offset for record in await read(consumer, 20)] == list(range(20))
    log = load_log(OsFileSystem(), f"{tmp_path}/data-0/t-0", "t", 0, LogConfig(), wall_ms=0)
    log.truncate_to(15)
    log.close()
    async with live_node(tmp_path, properties):
        await produce(bootstrap, 100, 10)
        if reset == "none":
            with pytest.raises(ClientError, match=r"t-0 was truncated.*offset 15"):
                await read(consumer, 1)
        else:
            found = await read(consumer, 10)
            assert [(record.offset, record.value) for record in found] == [(15 + n, b"%d" % (100 + n)) for n in range(10)]
        await consumer.close()
