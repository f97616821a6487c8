"""Connections to brokers that restart."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from minikafka.broker.quorum.raft_peers import RaftPeers
from minikafka.broker.supervise import Supervisor
from minikafka.wire.messages.api_versions import ApiVersionsRequest


class Network:
    """Connections are opened when the test says so."""

    def __init__(self) -> None:
        self.attempts: list[asyncio.Future[Any]] = []

    def connect(self, host: str, port: int, protocol: Any) -> asyncio.Future[Any]:
        self.attempts.append(asyncio.get_running_loop().create_future())
        return self.attempts[-1]


def environment_of(network: Any) -> Any:
    loop = asyncio.get_running_loop()
    return SimpleNamespace(network=network, loop=loop, supervisor=Supervisor(loop))


def registered(epoch: int) -> Any:
    return SimpleNamespace(epoch=epoch, listeners={"INTERNAL": ("host2", 9092)})


def delta(before: Any, now: Any) -> Any:
    return SimpleNamespace(base=SimpleNamespace(brokers={2: before}), changed_brokers={2: now})


async def test_requests_to_a_machine_that_lost_power_are_sent_to_its_next_incarnation() -> None:
    """It waited for the request's timeout, 30 s, although the broker had registered again (found by the simulator, seed 10513112)."""
    network = Network()
    environment: Any = environment_of(network)
    peers = RaftPeers(environment, "test", 30_000)
    errors: list[Exception | None] = []
    peers.send("host2", 9092, ApiVersionsRequest(), lambda _, error: errors.append(error))
    await _turns()
    assert len(network.attempts) == 1
    peers.renew_brokers("INTERNAL", delta(registered(7), registered(7)))
    peers.renew_brokers("EXTERNAL", delta(registered(7), registered(9)))
    peers.renew_brokers("INTERNAL", delta(registered(7), None))
    await _turns()
    assert len(network.attempts) == 1, "it is the same life, or nobody's"
    peers.renew_brokers("INTERNAL", delta(registered(7), registered(9)))
    await _turns()
    assert network.attempts[0].cancelled() and len(network.attempts) == 2 and not errors
    network.attempts[1].set_exception(ConnectionRefusedError("nobody"))
    await _turns()
    assert len(errors) == 1 and isinstance(errors[0], ConnectionRefusedError)
    peers.close()


async def test_requests_to_the_former_incarnation_fail() -> None:
    environment: Any = environment_of(Network())
    peers = RaftPeers(environment, "test", 30_000)
    reasons: list[str] = []
    peer = peers._peer("host2", 9092)
    peer.channel = SimpleNamespace(closed=False, carried=(0, 0), close=lambda reason="closed": reasons.append(reason))  # type: ignore[assignment]
    peers.renew_brokers("INTERNAL", delta(registered(7), registered(9)))
    assert reasons == ["the broker has registered anew"], "its requests end with ConnectionLost"
    peers.close()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
