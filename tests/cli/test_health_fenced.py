"""A broker that takes connections and that the controller has fenced: `health` and `/readyz` say so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from helpers.live_node import broker_port, live_node

from minikafka.broker.observe.http import HttpServer
from minikafka.cli.health import examine
from minikafka.client.maintenance import Maintenance

QUICK = {"broker.session.timeout.ms": "500", "broker.heartbeat.interval.ms": "100"}


async def readiness(port: int) -> tuple[int, dict[str, object]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def test_a_broker_that_answers_and_is_fenced_is_not_well(tmp_path: Path) -> None:
    async with live_node(tmp_path, QUICK) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        assert (await readiness(server.port))[0] == 200
        assert node.broker is not None
        await node.broker.lifecycle.stop()
        assert await node.metadata.wait_until(lambda image: image.brokers[1].fenced, 10_000)
        admin = Maintenance(f"127.0.0.1:{broker_port(node)}", timeout_ms=5_000)
        report = await examine(admin)
        await admin.close()
        assert report["brokers_fenced"] == [1] and not report["healthy"]
        assert any(reason.startswith("brokers fenced although they answer: 1") for reason in report["reasons"])
        while (answer := await readiness(server.port))[0] == 200:
            await asyncio.sleep(0.05)
        assert answer[0] == 503 and "no controller has answered a heartbeat" in str(answer[1]["reason"])
        await server.stop()


async def test_a_broker_whose_heartbeats_say_that_it_is_fenced_is_not_ready(tmp_path: Path) -> None:
    """The controller's word counts before the metadata have come."""
    async with live_node(tmp_path, QUICK) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        assert node.broker is not None
        core = node.broker.lifecycle._core
        core.fenced = True
        assert await readiness(server.port) == (503, {"ready": False, "reason": "fenced by the controller"})
        while (await readiness(server.port))[0] != 200:
            await asyncio.sleep(0.02)
        await server.stop()
