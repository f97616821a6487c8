"""A broker's life over the real controller in memory: registration, heartbeats, controlled shutdown; the channel to it over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.control_plane import CLUSTER_ID, ControlPlane

from minikafka.broker.environment import Environment
from minikafka.broker.front.controller_channel import ControllerChannel
from minikafka.broker.front.forwarding import Forwarder, forwarded_of, principal_bytes, principal_of, seen_topics
from minikafka.broker.quorum.broker_lifecycle import BrokerLifecycleHost, OwnFacts, RegistrationFailed
from minikafka.broker.quorum.raft_peers import RaftPeers
from minikafka.core.controller.forwarded import Forwarded, SeenTopic
from minikafka.net.channel import ConnectionLost, RequestTimeout, UnreadableResponse, UnsupportedVersion
from minikafka.net.clock import SystemClock
from minikafka.net.network import ConnectionLimits
from minikafka.net.server import SocketNetwork
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.frame import encode_response
from minikafka.wire.header import decode_request_header
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.messages.vote import VoteRequest

DIRECTORY = b"D" * 16


@dataclass(frozen=True)
class Peer:
    """A connection, of which only the address matters."""

    peer_host: str


def lifecycle_on(plane: ControlPlane, channel: Any = None, **changes: Any) -> BrokerLifecycleHost:
    facts = OwnFacts(
        cluster_id=CLUSTER_ID, listeners={"PLAINTEXT": ("127.0.0.1", 21521, 0)}, log_dirs=lambda: [DIRECTORY], offline_log_dirs=list
    )
    facts = replace(facts, **changes)
    return BrokerLifecycleHost(plane.config, plane.environment, plane.metadata, channel or plane.channel, facts)


async def test_a_broker_is_in_service_without_waiting_for_a_heartbeat_interval() -> None:
    plane = ControlPlane(clock=SystemClock())
    lifecycle = lifecycle_on(plane)
    started = asyncio.get_running_loop().time()
    await lifecycle.start()
    await lifecycle.ready.wait()
    assert asyncio.get_running_loop().time() - started < 1
    assert not lifecycle.fenced
    assert plane.metadata.image.brokers[1].epoch == lifecycle.broker_epoch
    assert plane.metadata.image.brokers[1].incarnation_id == lifecycle.incarnation_id
    await lifecycle.stop()


async def test_controlled_shutdown_is_quick_and_moves_leaderships() -> None:
    plane = ControlPlane(clock=SystemClock())
    lifecycle = lifecycle_on(plane)
    await lifecycle.start()
    await lifecycle.ready.wait()
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
    plane = ControlPlane(clock=SystemClock())
    lifecycle = lifecycle_on(plane, cluster_id="another")
    await lifecycle.start()
    with pytest.raises(RegistrationFailed, match="INCONSISTENT_CLUSTER_ID"):
        await lifecycle.failed
    await lifecycle.stop()


async def test_a_broker_that_was_unregistered_registers_again() -> None:
    plane = ControlPlane(properties={"broker.heartbeat.interval.ms": "10"}, clock=SystemClock())
    lifecycle = lifecycle_on(plane)
    await lifecycle.start()
    await lifecycle.ready.wait()
    epoch = lifecycle.broker_epoch
    await plane.to_controller(UnregisterBrokerRequest(broker_id=1))
    assert await plane.metadata.wait_until(lambda image: 1 in image.brokers and image.brokers[1].epoch != epoch, 5_000)
    await lifecycle.ready.wait()
    assert lifecycle.broker_epoch == plane.metadata.image.brokers[1].epoch
    await lifecycle.stop()


async def test_a_second_broker_with_the_same_id_waits_outside() -> None:
    plane = ControlPlane(clock=SystemClock())
    first, second = lifecycle_on(plane), lifecycle_on(plane)
    await first.start()
    await first.ready.wait()
    await second.start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(second.ready.wait(), 0.2)
    assert plane.metadata.image.brokers[1].incarnation_id == first.incarnation_id
    await second.stop()
    await first.stop()


class Faulty:
    """A channel whose requests fail in their turn: `failures` by the number of the request."""

    def __init__(self, plane: ControlPlane, failures: dict[int, Exception]) -> None:
        self._inner = plane.channel
        self._failures = failures
        self.requests = 0

    def subscribe_disturbances(self, on_change: Any, on_loss: Any) -> None:
        self._inner.subscribe_disturbances(on_change, on_loss)

    async def request(self, request: Any, timeout_ms: int = 30_000) -> Any:
        self.requests += 1
        if self.requests in self._failures:
            raise self._failures[self.requests]
        return await self._inner.request(request, timeout_ms)


@pytest.mark.parametrize(
    "failure",
    [
        WireError("a heartbeat that cannot be encoded"),
        UnreadableResponse("a response that cannot be read"),
        UnsupportedVersion("the new controller does not serve BrokerHeartbeat"),
        ConnectionLost("the connection is closed"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_heartbeats_go_on_after_whatever_keeps_the_controller_from_answering(failure: Exception) -> None:
    plane = ControlPlane(properties={"broker.heartbeat.interval.ms": "10"}, clock=SystemClock())
    channel = Faulty(plane, {3: failure, 5: failure})
    lifecycle = lifecycle_on(plane, channel)
    await lifecycle.start()
    while channel.requests < 9:
        await asyncio.sleep(0.001)
    assert lifecycle.unanswered == 2 and lifecycle.trouble is None
    assert not plane.environment.supervisor.failed.done()
    await lifecycle.stop()


async def test_an_error_of_ours_in_the_heartbeats_ends_the_node() -> None:
    """A broker that has stopped to heartbeat is fenced for ever: it must not look alive."""
    plane = ControlPlane(properties={"broker.heartbeat.interval.ms": "10"}, clock=SystemClock())
    lifecycle = lifecycle_on(plane, cordoned_log_dirs=lambda: dict[str, list[bytes]]()["lost"])
    plane.metadata.image.features["metadata.version"] = 30
    await lifecycle.start()
    reason = await asyncio.shield(plane.environment.supervisor.failed)
    assert "heartbeats to the controller failed unexpectedly: KeyError" in str(reason)
    await lifecycle.stop()


async def test_a_broker_that_may_not_register_again_does_not_look_alive() -> None:
    plane = ControlPlane(properties={"broker.heartbeat.interval.ms": "10"}, clock=SystemClock())
    lifecycle = lifecycle_on(plane)
    await lifecycle.start()
    await lifecycle.ready.wait()
    lifecycle._facts = replace(lifecycle._facts, cluster_id="another")
    await plane.to_controller(UnregisterBrokerRequest(broker_id=1))
    reason = await asyncio.shield(plane.environment.supervisor.failed)
    assert isinstance(reason, RegistrationFailed)
    with pytest.raises(RegistrationFailed):
        await lifecycle.failed
    await lifecycle.stop()


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

    def subscribe_doubt(self, callback: Any) -> None:
        self.tell_doubt = callback

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
    assert (await asked).error_code == ErrorCode.STALE_BROKER_EPOCH
    await channel.close()
    first.close()
    second.close()


async def test_a_connection_that_is_made_when_another_controller_is_active_is_not_used() -> None:
    """It was kept: whatever was asked over it came to a node that had been replaced, for ever. Seed 7030474."""
    quorum, network, channel = await channel_on()
    server = await Silent().open()
    listener = await open_controller(ControlPlane(), network)
    quorum.lead(server.sockets[0].getsockname()[:2])
    asked = asyncio.ensure_future(channel.request(BrokerHeartbeatRequest(broker_id=1, broker_epoch=5)))
    while channel._connecting is None:
        await asyncio.sleep(0)
    assert not channel._connecting.done()
    quorum.lead(("127.0.0.1", listener.port))
    assert (await asyncio.wait_for(asked, 10)).error_code == ErrorCode.STALE_BROKER_EPOCH
    await channel.close()
    server.close()
    listener.close()


async def test_a_topic_that_a_replaced_controller_refuses_is_asked_for_again() -> None:
    quorum, network, channel = await channel_on()
    standby, active = ControlPlane(lead=False), ControlPlane()
    first, second = await open_controller(standby, network), await open_controller(active, network)
    topics = [CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    quorum.lead(("127.0.0.1", first.port))
    asked = asyncio.ensure_future(channel.request(CreateTopicsRequest(topics=topics, timeout_ms=1000)))
    done, _ = await asyncio.wait([asked], timeout=0.1)
    assert not done
    quorum.lead(("127.0.0.1", second.port))
    assert (await asked).topics[0].error_code not in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER)
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
    assert (await asked).error_code == ErrorCode.STALE_BROKER_EPOCH
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
        await asked


class Silent:
    """A peer that says which APIs it serves and answers nothing else, as one behind a dead connection does."""

    def __init__(self) -> None:
        self.connections = 0
        self.asked: list[int] = []

    async def open(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                key, version, correlation_id = struct.unpack_from(">hhi", frame)
                self.asked.append(key)
                if key == ApiVersionsRequest.API_KEY:
                    keys = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=0, max_version=v) for k, v in ((18, 4), (52, 2), (63, 1))]
                    writer.write(b"".join(map(bytes, encode_response(ApiVersionsResponse(api_keys=keys), version, correlation_id))))
        writer.close()


async def test_a_request_without_an_answer_makes_the_channel_connect_anew() -> None:
    loop = asyncio.get_running_loop()
    silent = Silent()
    server = await silent.open()
    quorum = Quorum()
    environment = Environment(SocketNetwork(loop), None, SystemClock(), random.Random(1), loop, None)  # type: ignore[arg-type]
    channel = ControllerChannel(quorum, environment, "test", request_timeout_ms=50)
    quorum.lead(server.sockets[0].getsockname()[:2])
    with pytest.raises(TimeoutError):
        await channel.request(BrokerHeartbeatRequest(), 400)
    assert silent.connections >= 3, "each half-open connection was given up after 50 ms"
    await channel.close()
    server.close()


async def test_a_request_that_waits_for_a_connection_fails_when_the_node_stops() -> None:
    """It was cancelled, which nobody had asked for: a node that was told to stop ended with a failure. Seed 7011452."""
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    quorum = Quorum()
    environment = Environment(
        SocketNetwork(loop), None, SystemClock(), random.Random(1), loop, None  # type: ignore[arg-type]
    )
    channel = ControllerChannel(quorum, environment, "test")
    quorum.lead(server.sockets[0].getsockname()[:2])
    waiting = [asyncio.ensure_future(channel.request(BrokerHeartbeatRequest())) for _ in range(2)]
    while not server._active_count:  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    await channel.close()
    for request in waiting:
        with pytest.raises(ConnectionError):
            await request
    server.close()


async def test_a_callers_timeout_does_not_close_the_connection() -> None:
    """A client's CreateTopics with a timeout of 1 ms is forwarded: its end must not end what others wait for."""
    loop = asyncio.get_running_loop()
    silent = Silent()
    server = await silent.open()
    quorum = Quorum()
    environment = Environment(SocketNetwork(loop), None, SystemClock(), random.Random(1), loop, None)  # type: ignore[arg-type]
    channel = ControllerChannel(quorum, environment, "test", request_timeout_ms=60_000)
    quorum.lead(server.sockets[0].getsockname()[:2])
    patient = asyncio.ensure_future(channel.request(BrokerHeartbeatRequest(), 60_000))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await channel.request(BrokerHeartbeatRequest(), 20)
    assert silent.connections == 1 and not patient.done()
    await channel.close()
    with pytest.raises(ConnectionError):
        await patient
    server.close()


async def test_a_vote_without_an_answer_makes_the_peers_connect_anew() -> None:
    loop = asyncio.get_running_loop()
    silent = Silent()
    server = await silent.open()
    environment = Environment(SocketNetwork(loop), None, SystemClock(), random.Random(1), loop, None)  # type: ignore[arg-type]
    peers = RaftPeers(environment, "raft", 50)
    host, port = server.sockets[0].getsockname()[:2]
    for _ in range(3):
        outcome: asyncio.Future[Any] = loop.create_future()
        peers.send(host, port, VoteRequest(), lambda _, error, outcome=outcome: outcome.set_result(error))  # type: ignore[misc]
        assert isinstance(await outcome, RequestTimeout)
    assert silent.connections == 3
    peers.close()
    server.close()


async def test_a_clients_request_goes_to_one_controller_more_and_not_to_all() -> None:
    """One that ends whichever controller serves it must not be taken to each of them in turn."""
    loop = asyncio.get_running_loop()
    asked = 0
    frames: list[bytes] = []

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                key, version, correlation_id = struct.unpack_from(">hhi", frame)
                if key != ApiVersionsRequest.API_KEY:
                    asked += 1
                    frames.append(frame)
                    break
                keys = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=0, max_version=v) for k, v in ((18, 4), (58, 0), (63, 1))]
                writer.write(b"".join(map(bytes, encode_response(ApiVersionsResponse(api_keys=keys), version, correlation_id))))
        writer.close()

    server = await asyncio.start_server(die, "127.0.0.1", 0)
    quorum = Quorum()
    environment = Environment(SocketNetwork(loop), None, SystemClock(), random.Random(1), loop, None)  # type: ignore[arg-type]
    channel = ControllerChannel(quorum, environment, "test")
    quorum.lead(server.sockets[0].getsockname()[:2])
    with pytest.raises(ConnectionError):
        await channel.request(BrokerHeartbeatRequest(), 20_000, resends_max=1)
    assert asked == 2
    forwarder = Forwarder(channel, None, random.Random(1), environment.supervisor, channel)  # type: ignore[arg-type]
    context = SimpleNamespace(api_version=7, correlation_id=1, client_id="c", principal="User:a", connection=Peer("127.0.0.1"))
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")], timeout_ms=20_000)
    answer = await forwarder.forward(context, request)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.REQUEST_TIMED_OUT] and asked == 4
    envelopes = [EnvelopeRequest.decode(0, frame, decode_request_header(frame)[1]) for frame in frames[2:]]
    first, second = (forwarded_of(envelope.request_principal) for envelope in envelopes)
    assert first is not None and first.tries == 0
    assert second == first._replace(tries=1), "the controller is told that it may have had it before"
    assert {principal_of(envelope.request_principal) for envelope in envelopes} == {"User:a"}
    await channel.close()
    server.close()


def test_the_answer_to_a_forwarded_request() -> None:
    """A tagged field next to the principal: Apache Kafka's brokers do not send it, and its controllers ignore ours."""
    plain = principal_bytes("User:a")
    assert forwarded_of(plain) is None and forwarded_of(None) is None
    forwarded = Forwarded(bytes(range(16)), 3)
    data = principal_bytes("User:a", forwarded)
    assert forwarded_of(data) == forwarded and principal_of(data) == principal_of(plain) == "User:a"
    assert data.startswith(plain[:-1])
    seen = (SeenTopic("orders", bytes(range(16, 32)), 300), SeenTopic("größe", bytes(16), 1))
    knows = principal_bytes("User:a", forwarded._replace(seen=seen))
    assert forwarded_of(knows) == forwarded._replace(seen=seen) and principal_of(knows) == "User:a"
    for whole in (data, knows):
        for end in range(len(whole)):
            assert forwarded_of(whole[:end]) is None


def test_cached_topics_are_dropped_when_they_are_deleted_or_enlarged() -> None:
    partition_counts = (("a", 2), ("b", 5))
    topics = {name: SimpleNamespace(name=name, topic_id=name.encode() * 16, partitions=range(count)) for name, count in partition_counts}
    image = SimpleNamespace(topics_by_name=topics, topics_by_id={topic.topic_id: topic for topic in topics.values()})
    metadata: Any = SimpleNamespace(image=image)
    a, b = SeenTopic("a", b"a" * 16, 2), SeenTopic("b", b"b" * 16, 5)
    state = DeleteTopicsRequest.DeleteTopicState
    by_id = DeleteTopicsRequest(topics=[state(name=None, topic_id=b"b" * 16), state(name="a"), state(name="new")])
    assert set(seen_topics(metadata, by_id)) == {a, b}
    assert seen_topics(metadata, DeleteTopicsRequest(topic_names=["b", "new"])) == (b,)
    growing = CreatePartitionsRequest(topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=9)])
    assert seen_topics(metadata, growing) == (a,)
    assert seen_topics(metadata, CreateTopicsRequest()) == ()


async def test_a_request_that_its_caller_has_given_up_ends_the_connection_when_its_time_is_up() -> None:
    """Clients' deadlines may be shorter than the connection's: it must not stay silent for one after the other."""
    loop = asyncio.get_running_loop()
    silent = Silent()
    server = await silent.open()
    quorum = Quorum()
    environment = Environment(SocketNetwork(loop), None, SystemClock(), random.Random(1), loop, None)  # type: ignore[arg-type]
    channel = ControllerChannel(quorum, environment, "test", request_timeout_ms=100)
    quorum.lead(server.sockets[0].getsockname()[:2])
    began_s = loop.time()
    while silent.connections < 2:
        with pytest.raises(TimeoutError):
            await channel.request(BrokerHeartbeatRequest(), 20)
    assert loop.time() - began_s > 0.1
    await channel.close()
    server.close()
