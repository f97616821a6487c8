"""A broker has few requests of each client at the controller at a time, which answers those of a connection in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from minikafka.broker.front.forwarding import FORWARDED_AT_ONCE, Forwarder, host_of, principal_of
from minikafka.core.metadata.image import MetadataImage
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


class HeldChannel:
    """Answers nothing before it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, asyncio.Future[Any]]] = []

    async def request(self, envelope: EnvelopeRequest, timeout_ms: int, *, resends_max: int, again: Callable[[int], Any]) -> Any:
        future = asyncio.get_running_loop().create_future()
        client = f"{principal_of(envelope.request_principal)} {host_of(envelope.client_host_address)}"
        self.asked.append((client, future))
        return await future

    def clients(self) -> list[str]:
        return [client for client, _ in self.asked]

    def refuse(self, number: int) -> None:
        self.asked[number][1].set_result(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))


class Broker:
    def __init__(self) -> None:
        self.channel = HeldChannel()
        self.forwarder = Forwarder(self.channel, SimpleNamespace(image=MetadataImage()), random.Random(1))  # type: ignore[arg-type]
        self.running: list[asyncio.Task[Any]] = []

    async def forward(self, principal: str, host: str, timeout_ms: int = 30_000) -> asyncio.Task[Any]:
        context = SimpleNamespace(
            api_version=7, correlation_id=1, client_id="c", principal=principal, connection=SimpleNamespace(peer_host=host)
        )
        request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")], timeout_ms=timeout_ms)
        task = asyncio.ensure_future(self.forwarder.forward(context, request))
        self.running.append(task)
        await turns()
        return task


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_asks_much_does_not_hold_up_others() -> None:
    broker = Broker()
    for _ in range(5):
        await broker.forward("User:a", "10.0.0.1")
    assert broker.channel.clients() == ["User:a 10.0.0.1"] * FORWARDED_AT_ONCE
    await broker.forward("User:b", "10.0.0.1")
    await broker.forward("User:a", "10.0.0.2")
    assert broker.channel.clients()[FORWARDED_AT_ONCE:] == ["User:b 10.0.0.1", "User:a 10.0.0.2"]
    for number in range(7):
        broker.channel.refuse(number)
        await turns()
    assert broker.channel.clients()[-3:] == ["User:a 10.0.0.1"] * 3
    answers = await asyncio.gather(*broker.running)
    assert {answer.topics[0].error_code for answer in answers} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert not broker.forwarder._turns._clients, "nothing is kept of who has asked"


async def test_a_request_waits_for_its_turn_as_long_as_for_its_answer() -> None:
    broker = Broker()
    for _ in range(FORWARDED_AT_ONCE):
        await broker.forward("User:a", "10.0.0.1")
    late = await broker.forward("User:a", "10.0.0.1", timeout_ms=1)
    assert (await late).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    next_one = await broker.forward("User:a", "10.0.0.1")
    broker.channel.refuse(0)
    await turns()
    assert len(broker.channel.asked) == FORWARDED_AT_ONCE + 1, "the late one has no place"
    next_one.cancel()
    await turns()
    await broker.forward("User:a", "10.0.0.1")
    assert len(broker.channel.asked) == FORWARDED_AT_ONCE + 2, "nor one that has ended"
    for task in broker.running:
        task.cancel()
    await asyncio.gather(*broker.running, return_exceptions=True)
    assert not broker.forwarder._turns._clients
