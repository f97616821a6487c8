"""Connections over real sockets: order, pipelining, back-pressure, limits, endings."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.darwin import darwin_calls

from minikafka.broker.front.dispatch import Dispatcher, RequestContext
from minikafka.broker.supervise import Supervisor
from minikafka.net.channel import Channel, ConnectionLost, UnreadableResponse, UnsupportedVersion
from minikafka.net.clock import SystemClock
from minikafka.net.flush_queue import FlushQueue
from minikafka.net.network import ConnectionLimits
from minikafka.net.pieces import KEEPALIVE_IDLE_S, USER_TIMEOUT_MS
from minikafka.net.server import SocketListener, SocketNetwork
from minikafka.net.slots import ConnectionSlots
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.heartbeat import HeartbeatRequest
from minikafka.wire.messages.metadata import MetadataRequest, MetadataResponse


class Server:
    """A listener whose Metadata answers come when the test says so."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.network = SocketNetwork(asyncio.get_running_loop())
        self.dispatcher = Dispatcher("broker", SystemClock(), Supervisor(asyncio.get_running_loop()))
        self.dispatcher.register(MetadataRequest, self.metadata)
        self.dispatcher.register(FetchRequest, self.fetch)
        self.parked: list[RequestContext] = []
        self.regions: list[Any] = []
        self.limits = limits or ConnectionLimits()
        self.listener: SocketListener

    async def open(self) -> None:
        listener = await self.network.listen("127.0.0.1", 0, lambda connection: self.dispatcher.session("PLAINTEXT"), self.limits)
        assert isinstance(listener, SocketListener)
        self.listener = listener
        listener.accept()

    def metadata(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse | None:
        if request.topics == []:
            return MetadataResponse(cluster_id="now")
        self.parked.append(context)
        return None

    def fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        partitions = [FetchResponse.PartitionData(partition_index=n, records=region) for n, region in enumerate(self.regions)]
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)])

    async def channel(self) -> Channel:
        return await Channel.open(self.network, "127.0.0.1", self.listener.port, client_id="test")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.open()
    yield made
    made.listener.close()


async def until(condition: Any, timeout_s: float = 5) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0)


async def test_answers_leave_in_the_order_of_their_requests(server: Server) -> None:
    channel = await server.channel()
    first = asyncio.ensure_future(channel.request(MetadataRequest(topics=None)))
    second = asyncio.ensure_future(channel.request(MetadataRequest(topics=None)))
    third = asyncio.ensure_future(channel.request(MetadataRequest(topics=[])))
    await until(lambda: len(server.parked) == 2)
    server.parked[1].respond(MetadataResponse(cluster_id="second"))
    assert not (first.done() or second.done() or third.done())
    server.parked[0].respond(MetadataResponse(cluster_id="first"))
    answers: list[Any] = await asyncio.gather(first, second, third)
    assert [answer.cluster_id for answer in answers] == ["first", "second", "now"]
    channel.close()


async def test_a_second_answer_is_dropped(server: Server) -> None:
    channel = await server.channel()
    asked = asyncio.ensure_future(channel.request(MetadataRequest(topics=None)))
    await until(lambda: server.parked)
    server.parked[0].respond(MetadataResponse(cluster_id="one"))
    server.parked[0].respond(MetadataResponse(cluster_id="two"))
    answer: Any = await asked
    assert answer.cluster_id == "one"
    following: Any = await channel.request(MetadataRequest(topics=[]))
    assert following.cluster_id == "now"
    channel.close()


async def test_many_pipelined_requests_pause_reading_and_all_get_their_answer() -> None:
    server = Server(ConnectionLimits(pending_answers_max=8))
    await server.open()
    channel = await server.channel()
    asked = [asyncio.ensure_future(channel.request(MetadataRequest(topics=None))) for _ in range(50)]
    await until(lambda: len(server.parked) >= 8)
    connection = next(iter(server.listener.connections.values()))
    answered = 0
    while answered < 50:
        await until(lambda: len(server.parked) > answered)  # noqa: B023 - waited for here
        assert len(server.parked) - answered <= 50
        server.parked[answered].respond(MetadataResponse(cluster_id=str(answered)))
        answered += 1
    answers: list[Any] = await asyncio.gather(*asked)
    assert [answer.cluster_id for answer in answers] == [str(number) for number in range(50)]
    assert not connection.paused
    channel.close()
    server.listener.close()


class Region:
    """A piece of a file, as storage hands it out."""

    def __init__(self, file: Any, position: int, size: int) -> None:
        self.file, self.position, self.size = file, position, size
        self.released = 0
        self.errors: list[OSError] = []

    def failed(self, error: OSError) -> None:
        self.errors.append(error)

    def fileno(self) -> int:
        return int(self.file.fileno())

    def pread(self, count: int, offset: int) -> bytes:
        return os.pread(self.fileno(), count, self.position + offset)

    def release(self) -> None:
        self.released += 1


def _counted(calls: list[int]) -> Any:
    def sendfile(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        calls.append(darwin_calls.sendfile(out_fd, in_fd, offset, count))
        return calls[-1]

    return sendfile


@pytest.mark.parametrize("system", ["this one", "darwin"])
async def test_file_regions_arrive_whole_and_are_released_once(server: Server, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(3_000_000)
    calls: list[int] = []
    if system == "darwin":
        monkeypatch.setattr("minikafka.net.pieces.os.sendfile", _counted(calls))
        monkeypatch.setattr("minikafka.net.socket_writer.MSG_MORE", 0)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        spans = [(0, 100), (100, 5000), (5100, 9000), (20_000, 2_900_000), (10, 1)]
        server.regions = [Region(file, position, size) for position, size in spans]
        channel = await server.channel()
        await until(lambda: server.listener.connections)
        (accepted,) = server.listener.connections.values()
        accepted._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
        response: Any = await channel.request(FetchRequest(), 12)
        received = [bytes(partition.records) for partition in response.responses[0].partitions]
        assert received == [content[position : position + size] for position, size in spans]
        assert [region.released for region in server.regions] == [1] * len(spans)
        # The largest does not fit into the socket, so Darwin's took it in pieces.
        assert system != "darwin" or (len(calls) > 1 and sum(calls) == 2_900_000)
        channel.close()


async def test_regions_of_a_client_that_went_away_are_released(server: Server) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(64 << 20)
        server.regions = [Region(file, 0, 64 << 20)]
        channel = await server.channel()
        asked = asyncio.ensure_future(channel.request(FetchRequest(), 12))
        await until(lambda: any(c.sent_bytes > 100_000 for c in server.listener.connections.values()))
        channel.close()
        with pytest.raises(ConnectionLost):
            await asked
        await until(lambda: server.regions[0].released == 1)


async def test_frames_of_any_size_arrive_however_they_are_cut(server: Server) -> None:
    channel = await server.channel()
    for size in (1, 16_000, 40_000, 300_000, 2_000_000):
        topics = [MetadataRequest.MetadataRequestTopic(name="x" * 200) for _ in range(max(size // 200, 1))]
        asked = asyncio.ensure_future(channel.request(MetadataRequest(topics=topics)))
        while not asked.done():
            # A long request is served in parts, one after the other.
            await until(lambda asked=asked: server.parked or asked.done())  # type: ignore[misc]
            for part in server.parked:
                part.respond(MetadataResponse(cluster_id=str(size)))
            server.parked.clear()
        answer: Any = await asked
        assert answer.cluster_id == str(size)
    channel.close()


async def test_a_lost_connection_fails_what_waits(server: Server) -> None:
    channel = await server.channel()
    asked = asyncio.ensure_future(channel.request(MetadataRequest(topics=None)))
    await until(lambda: server.parked)
    server.parked[0].close("on purpose")
    with pytest.raises(ConnectionLost):
        await asked
    assert channel.closed
    with pytest.raises(ConnectionLost):
        await channel.request(MetadataRequest(topics=[]))


async def test_a_request_that_times_out_ends_the_connection(server: Server) -> None:
    """As Kafka's NetworkClient: the way to the peer may be dead, and who asks again must find another."""
    channel = await server.channel()
    reported: list[tuple[str, str, bool]] = []

    def answered(name: str) -> Any:
        return lambda response, error: reported.append((name, type(error).__name__, channel.closed))

    channel.send(MetadataRequest(topics=None), None, answered("patient"), 60_000)
    channel.send(MetadataRequest(topics=None), None, answered("late"), 30)
    await until(lambda: len(reported) == 2)
    assert reported == [("patient", "ConnectionLost", True), ("late", "RequestTimeout", True)]
    with pytest.raises(ConnectionLost):
        await channel.request(MetadataRequest(topics=[]))
    await until(lambda: not server.listener.connections)


async def test_a_request_that_is_answered_leaves_the_others_their_time(server: Server) -> None:
    channel = await server.channel()
    first = asyncio.ensure_future(channel.request(MetadataRequest(topics=None), timeout_ms=400))
    second = asyncio.ensure_future(channel.request(MetadataRequest(topics=None), timeout_ms=60_000))
    await until(lambda: len(server.parked) == 2)
    server.parked[0].respond(MetadataResponse(cluster_id="first"))
    await first
    await asyncio.sleep(0.5)  # the deadline of the first passes
    assert not channel.closed and not second.done()
    server.parked[1].respond(MetadataResponse(cluster_id="second"))
    await second
    channel.close()


def test_timers_that_are_due_at_once_under_uvloop() -> None:
    """uvloop's call_at gives a Handle without `when` for what is due in less than half a millisecond. The heartbeats of a broker ended by
    that, whenever a client's CreateTopics with a timeout of 1 to 3 ms was forwarded beside them."""
    uvloop = pytest.importorskip("uvloop")
    kinds: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        kinds.append(type(loop.call_at(loop.time() + 0.0001, int)).__name__)
        made = Server()
        await made.open()
        channel = await made.channel()
        reported: list[str] = []
        for timeout_ms in (0.1, 0.3, 1, 5_000):
            channel.send(MetadataRequest(topics=None), None, lambda _, error: reported.append(type(error).__name__), timeout_ms)  # type: ignore[arg-type]
        await until(lambda: len(reported) == 4)
        assert "RequestTimeout" in reported and channel.closed
        made.listener.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert kinds == ["Handle"], "or this test shows nothing"


async def test_a_callback_that_raises_keeps_nothing_from_the_others(server: Server) -> None:
    loop = asyncio.get_running_loop()
    before, problems = loop.get_exception_handler(), []
    loop.set_exception_handler(lambda _, context: problems.append(repr(context["exception"])))
    channel = await server.channel()
    reported: list[str] = []

    def fails(response: Any, error: Exception | None) -> None:
        raise KeyError("lost")

    try:
        channel.send(MetadataRequest(topics=[]), None, fails)
        channel.send(MetadataRequest(topics=None), None, lambda _, error: reported.append(type(error).__name__))
        await until(lambda: reported)
    finally:
        loop.set_exception_handler(before)
    assert problems == ["KeyError('lost')"] and reported == ["ConnectionLost"] and channel.closed


async def test_a_response_that_cannot_be_read_is_a_lost_connection(server: Server) -> None:
    channel = await server.channel()
    asked = asyncio.ensure_future(channel.request(MetadataRequest(topics=None)))
    await until(lambda: server.parked)
    server.parked[0].respond_pieces([b"\0\0\0\5" + server.parked[0].correlation_id.to_bytes(4, "big") + b"\0"])
    with pytest.raises(UnreadableResponse, match="cannot be read"):
        await asked
    assert channel.closed


async def test_the_kernel_is_asked_to_notice_dead_peers(server: Server) -> None:
    channel = await server.channel()
    sock = channel._connection._socket  # type: ignore[union-attr]
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    # macOS knows no time-out for unacknowledged bytes, and has a name of its own for the idle time.
    expected = {"TCP_USER_TIMEOUT": USER_TIMEOUT_MS, "TCP_KEEPIDLE": KEEPALIVE_IDLE_S, "TCP_KEEPALIVE": KEEPALIVE_IDLE_S}
    options = {name: getattr(socket, name) for name in expected if hasattr(socket, name)}
    assert options
    found = {name: sock.getsockopt(socket.IPPROTO_TCP, option) for name, option in options.items()}
    assert found == {name: expected[name] for name in options}
    await until(lambda: server.listener.connections)
    (accepted,) = server.listener.connections.values()
    assert accepted._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    channel.close()


async def test_one_connection_that_cannot_be_flushed_keeps_no_other_back() -> None:
    loop = asyncio.get_running_loop()
    before, problems = loop.get_exception_handler(), []
    loop.set_exception_handler(lambda _, context: problems.append(repr(context["exception"])))
    flushed: list[str] = []

    def fails() -> None:
        raise KeyError("lost")

    queue = FlushQueue(loop)
    try:
        for flush in (fails, lambda: flushed.append("second"), lambda: flushed.append("third")):
            queue.add(SimpleNamespace(flush=flush))
        await until(lambda: len(flushed) == 2)
    finally:
        loop.set_exception_handler(before)
    assert problems == ["KeyError('lost')"]


async def test_an_api_that_the_peer_lacks_is_refused_before_it_is_sent(server: Server) -> None:
    channel = await server.channel()
    with pytest.raises(UnsupportedVersion, match="does not serve Heartbeat"):
        await channel.request(HeartbeatRequest())
    channel.close()


async def test_connections_are_limited_in_number_and_by_address() -> None:
    server = Server(ConnectionLimits(connections_per_ip_max=2))
    await server.open()
    kept = [await server.channel() for _ in range(2)]
    with pytest.raises(OSError):
        await server.channel()
    assert server.listener.refused_total == 1
    kept[0].close()
    await until(lambda: len(server.listener.connections) == 1)
    again = await server.channel()
    for channel in (kept[1], again):
        channel.close()
    server.listener.close()


async def test_single_addresses_have_limits_of_their_own() -> None:
    server = Server(ConnectionLimits(connections_per_ip_max=0))
    await server.open()
    with pytest.raises(OSError):
        await server.channel()
    server.listener.limit(10, 0, {"127.0.0.1": 1, "127.0.0.2": 5})
    kept = await server.channel()
    with pytest.raises(OSError):
        await server.channel()
    kept.close()
    server.listener.close()


async def test_an_address_is_counted_over_all_listeners_of_a_broker() -> None:
    servers = [Server(ConnectionLimits(connections_per_ip_max=2)) for _ in range(2)]
    for one in servers:
        await one.open()
    ConnectionSlots({"A": servers[0].listener, "B": servers[1].listener}, None, 100)
    first, second = [await one.channel() for one in servers]
    for one in servers:
        with pytest.raises(OSError):
            await one.channel()
    first.close()
    await until(lambda: not servers[0].listener.connections)
    third = await servers[1].channel()
    for channel in (second, third):
        channel.close()
    for one in servers:
        one.listener.close()


async def test_idle_connections_are_dropped() -> None:
    server = Server(ConnectionLimits(idle_ms=60))
    await server.open()
    channel = await server.channel()
    await until(lambda: channel.closed)
    server.listener.close()


async def test_a_taken_port_is_named(server: Server) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.listener.port}"):
        await server.network.listen(
            "127.0.0.1", server.listener.port, lambda connection: server.dispatcher.session("X"), ConnectionLimits()
        )


async def test_an_unreadable_file_is_reported_and_closes_the_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """EIO of sendfile is the disk's, not the peer's."""

    def unreadable(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("minikafka.net.pieces.os.sendfile", unreadable)
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 20)
        region = Region(file, 0, 1 << 20)
        server.regions = [region]
        channel = await server.channel()
        with pytest.raises(ConnectionLost):
            await channel.request(FetchRequest(), 12)
        assert [error.errno for error in region.errors] == [errno.EIO] and region.released == 1


@pytest.mark.parametrize("kept", [0, 100_000, (1 << 20) - 1])
async def test_a_file_that_became_shorter_is_reported_and_closes_the_connection(server: Server, kept: int) -> None:
    """It counts as a failed disk, as with a short read: the log was served on, and each of its readers lost the connection."""
    with tempfile.TemporaryFile() as file:
        file.truncate(kept)
        region = Region(file, 0, 1 << 20)
        server.regions = [region]
        channel = await server.channel()
        with pytest.raises(ConnectionLost):
            await channel.request(FetchRequest(), 12)
        assert [error.errno for error in region.errors] == [errno.EIO] and region.released == 1
