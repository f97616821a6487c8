"""What a connection had is freed when it ends, not by a garbage collection: the next one may come after 100,000 connections."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.front.dispatch import Session
from minikafka.broker.partitions.fast_path import TemplateFastPath
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer


def kept() -> int:
    """How many sessions and fast paths there are, garbage included."""
    return sum(isinstance(one, (Session, TemplateFastPath)) for one in gc.get_objects())


async def use(bootstrap: str) -> None:
    """A producer and a consumer, each with some requests of its kind."""
    async with Producer(bootstrap, linger_ms=0) as producer:
        for _ in range(3):
            await (await producer.send("t", b"value", partition=0))
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([("t", 0)])
        while not await consumer.poll(1_000):
            pass


@pytest.mark.parametrize("intercepted", [False, True])
async def test_an_ended_session_and_its_fast_paths_need_no_garbage_collection(tmp_path: Path, intercepted: bool) -> None:
    async with live_node(tmp_path, {"auto.create.topics.enable": "true"}) as node:
        await use(f"127.0.0.1:{broker_port(node)}")
        dispatcher = node.broker.dispatcher  # type: ignore[union-attr]
        if intercepted:
            dispatcher.intercept(lambda handler: handler)
        clients = len(dispatcher.software)
        gc.collect()
        before = kept()
        gc.disable()
        try:
            for _ in range(3):
                await use(f"127.0.0.1:{broker_port(node)}")
            while len(dispatcher.software) > clients or kept() > before:
                await asyncio.sleep(0.05)
        finally:
            gc.enable()
