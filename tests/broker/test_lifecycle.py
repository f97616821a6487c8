"""A broker's life over the real controller in memory: registration, heartbeats, controlled shutdown; the channel to it over sockets."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from helpers.control_plane import CLUSTER_ID, ControlPlane

from minikafka.broker.controller_channel import ControllerChannel
from minikafka.broker.environment import Environment
from minikafka.broker.hosts.lifecycle import BrokerLifecycle, RegistrationFailed
from minikafka.net.clock import SystemClock
from minikafka.net.network import ConnectionLimits
from minikafka.net.server import SocketNetwork
from wire.errors import ErrorCode
from wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from wire.messages.create_topics import CreateTopicsRequest
from wire.messages.unregister_broker import UnregisterBrokerRequest

DIRECTORY = b"D" * 16


def lifecycle_on(plane: ControlPlane, **changes: Any) -> BrokerLifecycle:
    options: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "listeners": {"PLAINTEXT": ("127.0.0.1", 21521, 0)},
        "log_dirs": lambda: [DIRECTORY],
        "offline_log_dirs": list,
    }
    return BrokerLifecycle(plane.config, plane.environment, plane.metadata, plane.channel, **(options | changes))  # type: ignore[arg-type]


async def test_a_broker_is_in_service_without_waiting_for_a_heartbeat_interval() -> None:
    plane = ControlPlane()
    lifecycle = lifecycle_on(plane)
    started = asyncio.get_running_loop().time()
    await lifecycle.start()
    await asyncio.wait_for(lifecycle.ready.wait(), 5)
    assert asyncio.get_running_loop().time() - started < 1
    assert not lifecycle.fenced
    assert plane.metadata.image.brokers[1].epoch == lifecycle.broker_epoch
    assert plane.metadata.image.brokers[1].incarnation_id == lifecycle.incarnation_id
    await lifecycle.stop()


async def test_controlled_shutdown_is_quick_and_moves_leaderships() -> None:
    plane = ControlPlane()
    lifecycle = lifecycle_on(plane)
    await lifecycle.start()
    await asyncio.wait_for(lifecycle.ready.wait(), 5)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await plane.request(CreateTopicsRequest(topics=[topic]))
    started = asyncio.get_running_loop().time()
    assert await lifecycle.controlled_shutdown(5_000)
    assert asyncio.get_running_loop().time() - started < 1
    partition = plane.metadata.image.topics_by_name["t"].partitions[0]
    assert (partition.leader, partition.elr) == (-1, (1,))
    assert plane.metadata.image.brokers[1].fenced
    await lifecycle.stop()


async def test_a_refused_registration_ends_the_broker() -> None:
    plane = ControlPlane()
    lifecycle = lifecycle_on(plane, cluster_id="another")
    await lifecycle.start()
    with pytest.raises(RegistrationFailed, match="INCONSISTENT_CLUSTER_ID"):
        await asyncio.wait_for(lifecycle.failed, 5)
    await lifecycle.stop()


async def test_a_broker_that_was_unregistered_registers_again() -> None:
    plane = ControlPlane(properties={"broker.heartbeat.interval.ms": "10"})
    lifecycle = lifecycle_on(plane)
    await lifecycle.start()
    await asyncio.wait_for(lifecycle.ready.wait(), 5)
    epoch = lifecycle.broker_epoch
    await plane.to_controller(UnregisterBrokerRequest(broker_id=1))
    assert await plane.metadata.wait_until(lambda image: 1 in image.brokers and image.brokers[1].epoch != epoch, 5_000)
    await asyncio.wait_for(lifecycle.ready.wait(), 5)
    assert lifecycle.broker_epoch == plane.metadata.image.brokers[1].epoch
    await lifecycle.stop()


async def test_a_second_broker_with_the_same_id_waits_outside() -> None:
    plane = ControlPlane()
    first, second = lifecycle_on(plane), lifecycle_on(plane)
    await first.start()
    await asyncio.wait_for(first.ready.wait(), 5)
    await second.start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(second.ready.wait(), 0.2)
    assert plane.metadata.image.brokers[1].incarnation_id == first.incarnation_id
    await second.stop()
    await first.stop()


# -- the channel ---------------------------------------------------------------------------------------------------


class Quorum:
    """What the channel sees of the raft host."""

    def __init__(self) -> None:
        self.endpoint: tuple[str, int] | None = None
        self.listener: Any = None

    def leader_endpoint(self) -> tuple[str, int] | None:
        return self.endpoint

    def subscribe(self, listener: Any) -> None:
        self.listener = listener

    def lead(self, endpoint: tuple[str, int] | None) -> None:
        self.endpoint = endpoint
        self.listener.on_leader_change(1, 1, False)


async def open_controller(plane: ControlPlane, network: SocketNetwork) -> Any:
    listener = await network.listen(
        "127.0.0.1", 0, lambda connection: plane.controller_dispatcher.session("CONTROLLER"), ConnectionLimits()
    )
    listener.accept()
    return listener


async def channel_on() -> tuple[Quorum, SocketNetwork, ControllerChannel]:
    loop = asyncio.get_running_loop()
    network = SocketNetwork(loop)
    quorum = Quorum()
    environment = Environment(network, None, SystemClock(), random.Random(1), loop, None)  # type: ignore[arg-type]
    return quorum, network, ControllerChannel(quorum, environment, "test")  # type: ignore[arg-type]


async def test_the_channel_waits_for_a_leader_and_follows_it() -> None:
    quorum, network, channel = await channel_on()
    standby, active = ControlPlane(lead=False), ControlPlane()
    first, second = await open_controller(standby, network), await open_controller(active, network)
    asked = asyncio.ensure_future(channel.request(BrokerHeartbeatRequest(broker_id=1, broker_epoch=5)))
    quorum.lead(("127.0.0.1", first.port))
    done, _ = await asyncio.wait([asked], timeout=0.1)
    assert not done
    quorum.lead(("127.0.0.1", second.port))
    assert (await asyncio.wait_for(asked, 5)).error_code == ErrorCode.STALE_BROKER_EPOCH
    await channel.close()
    first.close()
    second.close()


async def test_the_channel_connects_again_after_the_controller_went_away() -> None:
    quorum, network, channel = await channel_on()
    plane = ControlPlane()
    listener = await open_controller(plane, network)
    quorum.lead(("127.0.0.1", listener.port))
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=5)
    assert (await channel.request(request)).error_code == ErrorCode.STALE_BROKER_EPOCH
    listener.close()
    asked = asyncio.ensure_future(channel.request(request))
    done, _ = await asyncio.wait([asked], timeout=0.1)
    assert not done
    again = await open_controller(plane, network)
    quorum.lead(("127.0.0.1", again.port))
    assert (await asyncio.wait_for(asked, 5)).error_code == ErrorCode.STALE_BROKER_EPOCH
    await channel.close()
    again.close()


async def test_the_channel_gives_up_at_its_timeout_and_when_closed() -> None:
    _, _, channel = await channel_on()
    with pytest.raises(TimeoutError, match="no active controller answered"):
        await channel.request(BrokerHeartbeatRequest(), 30)
    asked = asyncio.ensure_future(channel.request(BrokerHeartbeatRequest()))
    await asyncio.sleep(0)
    await channel.close()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(asked, 5)
