"""What peers can make many, large or slow has a bound: memory over all connections, requests a turn, answers that wait, log lines, time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from minikafka.net import connection as connection_module
from minikafka.net import server
from minikafka.net.connection import RECEIVE_BYTES_GROWN, SocketConnection
from minikafka.net.descriptors import raise_limit
from minikafka.net.flush_queue import FlushQueue
from minikafka.net.memory_budget import BYTES_MIN, MemoryBudget, default_bytes
from minikafka.net.network import ConnectionLimits
from minikafka.net.peer_lines import LINES_A_MINUTE, PEERS_MAX, TEXT_MAX, WINDOW_S, PeerLines
from minikafka.net.pieces import SPEED_MIN
from minikafka.net.server import SocketListener, SocketNetwork
from minikafka.net.slots import ConnectionSlots
from minikafka.storage.filesystem import OsFile
from minikafka.storage.slice import FileSlice, SharedFile


class Handler:
    """Notes frames; answers when it is told to."""

    def __init__(self, answer: bytes = b"") -> None:
        self.tickets: list[int] = []
        self.sizes: list[int] = []
        self.closed = ""
        self._answer = answer

    def on_frame(self, connection: Any, frame: memoryview) -> None:
        self.sizes.append(len(frame))
        self.tickets.append(connection.begin())
        if self._answer:
            connection.finish(self.tickets[-1], [self._answer])

    def on_closed(self, connection: Any, reason: str) -> None:
        self.closed = reason


@contextlib.asynccontextmanager
async def connected(handler: Handler, **limits: Any) -> AsyncIterator[tuple[SocketConnection, socket.socket]]:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = SocketConnection(loop, ours, FlushQueue(loop), ConnectionLimits(**limits))
    connection.start(handler)  # type: ignore[arg-type]
    with theirs:
        yield connection, theirs
        connection.close("done")


def frame(size: int) -> bytes:
    """Of an API that is not Produce."""
    return size.to_bytes(4, "big") + bytes([0, 3]) + bytes(size - 2)


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_requests_being_served_count_and_reading_pauses_above_the_bound() -> None:
    loop, budget = asyncio.get_running_loop(), MemoryBudget(100_000)
    first, second = Handler(), Handler()
    async with connected(first, budget=budget) as (one, peer), connected(second, budget=budget) as (_, other):
        for number in range(12):
            await loop.sock_sendall(peer, frame(10_000))
            await until(lambda number=number: len(first.sizes) > number or budget.is_spent)
        await until(lambda: budget.used >= budget.bytes_max)
        await loop.sock_sendall(other, frame(100))
        await asyncio.sleep(0.05)
        served = len(first.sizes)
        assert served <= 11 and budget.exhausted_total
        await loop.sock_sendall(other, frame(100))
        await asyncio.sleep(0.05)
        assert len(second.sizes) <= 1
        for ticket in list(first.tickets):
            one.finish(ticket, [b"x"])
        await until(lambda: len(first.sizes) == 12 and len(second.sizes) == 2)
        for ticket in first.tickets[served:]:
            one.finish(ticket, [b"x"])
    assert budget.used == 0


async def test_one_large_request_is_finished_though_there_is_no_memory() -> None:
    loop, budget = asyncio.get_running_loop(), MemoryBudget(300_000)
    handlers = [Handler(b"x") for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        peers = [(await stack.enter_async_context(connected(handler, budget=budget)))[1] for handler in handlers]
        largest = 0
        sending = [asyncio.ensure_future(loop.sock_sendall(peer, frame(5_000_000))) for peer in peers]
        while not all(handler.sizes for handler in handlers):
            largest = max(largest, budget.used)
            await asyncio.sleep(0)
        await asyncio.gather(*sending)
        # One at a time, and what the others have begun.
        assert largest <= 2 * 5_000_000 + 300_000 + 3 * RECEIVE_BYTES_GROWN
    assert budget.used == 0


async def test_a_connection_that_uses_little_is_read_though_others_have_spent_the_budget() -> None:
    """Heartbeats and votes come in beside what clients forward."""
    loop, budget = asyncio.get_running_loop(), MemoryBudget(100_000, free_bytes=20_000)
    greedy, modest = Handler(), Handler()
    async with connected(greedy, budget=budget) as (one, peer), connected(modest, budget=budget) as (two, other):
        await loop.sock_sendall(peer, frame(120_000))
        await until(lambda: greedy.sizes and one.paused and budget.is_spent)
        while not two.paused:
            received = len(modest.sizes)
            await loop.sock_sendall(other, frame(4_000))
            await until(lambda received=received: len(modest.sizes) > received)
        assert len(modest.sizes) == 5, "until it uses more than is free"
        await loop.sock_sendall(other, frame(100))
        one.close("gone")
        await until(lambda: modest.sizes[-1] == 100)
    assert budget.used == 0


async def test_large_requests_whose_answers_take_long_do_not_pile_up() -> None:
    loop, budget = asyncio.get_running_loop(), MemoryBudget(100_000)
    handlers = [Handler() for _ in range(4)]
    async with contextlib.AsyncExitStack() as stack:
        both = [await stack.enter_async_context(connected(handler, budget=budget)) for handler in handlers]
        sending = [asyncio.ensure_future(loop.sock_sendall(peer, frame(5_000_000))) for _, peer in both]
        left = [(handler, connection) for handler, (connection, _) in zip(handlers, both, strict=True)]
        while left:
            # All others stop reading, until this one is answered. One that goes on reading gets its request sooner or later.
            await until(lambda: any(handler.sizes for handler, _ in left))
            await until(lambda: sum(bool(handler.sizes) or connection.paused for handler, connection in left) == len(left))
            assert sum(len(handler.sizes) for handler, _ in left) == 1 and budget.used < 2 * 5_000_000 + 5 * RECEIVE_BYTES_GROWN
            served = next(one for one in left if one[0].sizes)
            left.remove(served)
            served[1].finish(served[0].tickets[0], [b"x"])
        await asyncio.gather(*sending)
    assert budget.used == 0


async def test_without_memory_a_connection_that_wants_more_ends_and_one_that_wants_less_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(size: int) -> bytearray:
        raise MemoryError

    handler, other, failures = Handler(), Handler(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    async with connected(handler) as (greedy, peer), connected(other) as (modest, neighbour):
        neighbour.send(frame(RECEIVE_BYTES_GROWN)[: RECEIVE_BYTES_GROWN // 2])
        await until(lambda: modest.received_bytes == RECEIVE_BYTES_GROWN // 2)
        monkeypatch.setattr(connection_module, "bytearray", none_left, raising=False)
        peer.send(frame(4 * RECEIVE_BYTES_GROWN)[:RECEIVE_BYTES_GROWN])
        await until(lambda: greedy.closed)
        assert "no memory" in handler.closed
        neighbour.send(frame(RECEIVE_BYTES_GROWN)[RECEIVE_BYTES_GROWN // 2 :])
        await until(lambda: other.sizes or modest.closed)
        modest.trim()
        assert modest.closed == (not other.sizes), "a smaller buffer is not needed"
        assert not failures, "the loop, and so the node, has nothing to do with it"
        monkeypatch.undo()


async def test_what_waited_for_an_earlier_answer_counts_no_more_when_it_has_left() -> None:
    """Nothing more comes from the peer, and the socket takes everything at once: no other event corrects the account."""
    loop, budget, handler = asyncio.get_running_loop(), MemoryBudget(100_000), Handler()
    async with connected(handler, budget=budget) as (connection, peer):
        for sizes in ((20, 20), (1000, 20)):
            await loop.sock_sendall(peer, b"".join(frame(size) for size in sizes))
            await until(lambda: len(handler.tickets) == 2)
            first, second = handler.tickets
            connection.finish(second, [bytes(10_000)])
            assert budget.used >= 10_000
            connection.finish(first, [b"x"])
            received = 0
            while received < 10_001:
                received += len(await loop.sock_recv(peer, 20_000))
            assert budget.used == 0
            handler.tickets.clear()


async def test_answers_in_memory_count_beside_a_file_region(tmp_path: Any) -> None:
    """A peer that reads nothing has a region at the head of what waits for it."""
    size = 8 << 20
    path = tmp_path / "file"
    path.write_bytes(bytes(size))
    loop, budget, handler = asyncio.get_running_loop(), MemoryBudget(1 << 30), Handler()
    with path.open("rb") as file:
        region = SharedFile(OsFile(str(path), file.fileno()))
        async with connected(handler, budget=budget) as (connection, peer):
            await loop.sock_sendall(peer, frame(20) + frame(20))
            await until(lambda: len(handler.tickets) == 2)
            connection.finish(handler.tickets[0], [b"head", FileSlice(region, 0, size)])
            connection.finish(handler.tickets[1], [bytes(10_000)])
            await until(lambda: connection.is_sending)
            assert budget.used == 10_000
            received = 0
            while received < 4 + size + 10_000:
                received += len(await loop.sock_recv(peer, 1 << 20))
            assert budget.used == 0
    assert budget.used == 0


async def test_a_connection_that_ends_gives_its_memory_back() -> None:
    loop, budget = asyncio.get_running_loop(), MemoryBudget(100_000)
    first, second = Handler(), Handler(b"x")
    async with connected(first, budget=budget) as (one, peer), connected(second, budget=budget) as (_, other):
        await loop.sock_sendall(peer, frame(150_000))
        await until(lambda: first.sizes)
        await loop.sock_sendall(other, frame(10) + frame(10))
        one.close("gone")
        await until(lambda: len(second.sizes) == 2)
        assert budget.used == 0


def test_the_default_is_a_share_of_the_machines_memory() -> None:
    assert MemoryBudget(-1).bytes_max == default_bytes() >= BYTES_MIN


async def test_answers_that_wait_for_the_one_before_them_stop_the_reading() -> None:
    class Parking(Handler):
        def on_frame(self, connection: Any, frame: memoryview) -> None:
            super().on_frame(connection, frame)
            if len(self.tickets) > 1:
                connection.finish(self.tickets[-1], [bytes(1000)])

    loop, handler = asyncio.get_running_loop(), Parking()
    async with connected(handler, queued_bytes_max=10_000) as (connection, peer):
        await loop.sock_sendall(peer, frame(20) * 100)
        await until(lambda: connection.paused)
        assert len(handler.sizes) <= 12
        connection.finish(handler.tickets[0], [b"x"])
        await until(lambda: len(handler.sizes) == 100)


async def test_one_read_brings_no_more_requests_than_may_wait() -> None:
    loop, handler = asyncio.get_running_loop(), Handler()
    async with connected(handler, pending_answers_max=5) as (connection, peer):
        await loop.sock_sendall(peer, frame(20) * 50)
        await until(lambda: connection.paused)
        assert len(handler.sizes) == 5


async def test_a_connection_with_much_to_do_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "TURN_S_MAX", 0.0)
    loop, handler, turns = asyncio.get_running_loop(), Handler(b"x"), []

    def count() -> None:
        turns.append(len(handler.sizes))
        if len(handler.sizes) < 1000:
            loop.call_soon(count)

    async with connected(handler, pending_answers_max=10_000) as (_, peer):
        await loop.sock_sendall(peer, frame(8) * 1000)
        count()
        await until(lambda: len(handler.sizes) == 1000)
    steps = [after - before for before, after in itertools.pairwise(turns)]
    assert max(steps) <= 2 * connection_module.FRAMES_BETWEEN_CLOCK_READS


async def test_the_clock_is_looked_at_after_each_large_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "TURN_S_MAX", 0.0)
    loop, handler, turns = asyncio.get_running_loop(), Handler(b"x"), []

    def count() -> None:
        turns.append(len(handler.sizes))
        if len(handler.sizes) < 20:
            loop.call_soon(count)

    async with connected(handler, pending_answers_max=10_000) as (connection, peer):
        connection._resize(1 << 20)
        sending = asyncio.ensure_future(loop.sock_sendall(peer, frame(256 * connection_module.FRAMES_BETWEEN_CLOCK_READS) * 20))
        count()
        await until(lambda: len(handler.sizes) == 20)
        await sending
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 2


async def test_a_client_that_stalls_in_a_request_or_in_reading_is_stuck() -> None:
    loop = asyncio.get_running_loop()
    async with connected(Handler(bytes(3_000_000))) as (connection, peer):
        now_s = loop.time()
        assert connection.is_stuck(now_s + 100, 10) == ""
        await loop.sock_sendall(peer, frame(100)[:50])
        await until(lambda: connection._frame_since is not None)
        assert connection.is_stuck(now_s + 5, 10) == ""
        assert "not finished" in connection.is_stuck(now_s + 100, 10)
        connection.received_bytes += 200 * SPEED_MIN
        assert connection.is_stuck(now_s + 100, 10) == ""
        await loop.sock_sendall(peer, frame(100)[50:])
        await until(lambda: connection._writing_since is not None)
        assert "not read" in connection.is_stuck(now_s + 100, 10)


async def test_the_listener_closes_stuck_connections() -> None:
    loop, handlers = asyncio.get_running_loop(), []

    def made(_: Any) -> Handler:
        handlers.append(Handler())
        return handlers[-1]

    listener = await SocketNetwork(loop).listen("127.0.0.1", 0, made, ConnectionLimits(idle_ms=1_000))  # type: ignore[arg-type]
    listener.accept()
    with socket.create_connection(("127.0.0.1", listener.port)) as peer:
        peer.setblocking(False)
        await loop.sock_sendall(peer, b"\0\1\0\0")
        while not (handlers and handlers[0].closed):
            # Never idle, and never done.
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(peer, b"\0")
            await asyncio.sleep(0.05)
    assert handlers[0].closed == "a request was not finished within connections.max.idle.ms"
    listener.close()


@pytest.mark.parametrize("sends", [True, False])
async def test_the_time_in_which_the_process_was_suspended_makes_nobody_idle(sends: bool) -> None:
    """A client that asked while the broker was suspended for longer than connections.max.idle.ms was disconnected, unread."""
    loop, handler = asyncio.get_running_loop(), Handler(b"x")
    listener = await SocketNetwork(loop).listen("127.0.0.1", 0, lambda _: handler, ConnectionLimits(idle_ms=600_000))  # type: ignore[arg-type]
    listener.accept()
    with socket.create_connection(("127.0.0.1", listener.port)) as peer:
        peer.sendall(frame(20))
        await until(lambda: handler.sizes)
        (connection,) = listener.connections.values()
        now_s = loop.time()
        connection.last_active_s, listener._sweep_due_s = now_s - 700, now_s - 650
        if sends:
            peer.sendall(frame(20))
        listener._drop_idle()
        assert not handler.closed
        if sends:
            await until(lambda: len(handler.sizes) == 2)
        listener._sweep_due_s = loop.time()
        listener._drop_idle()
        assert handler.closed == ("" if sends else "idle longer than connections.max.idle.ms")
    listener.close()


@pytest.fixture
def few_descriptors() -> Iterator[Any]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda count: resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_without_descriptors_accepting_pauses_and_goes_on(few_descriptors: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(server, "SHORTAGE_PAUSE_S", 0.2)
    loop = asyncio.get_running_loop()
    listener = await SocketNetwork(loop).listen("127.0.0.1", 0, lambda _: Handler(), ConnectionLimits())  # type: ignore[arg-type, return-value]
    listener.accept()
    peers = [socket.socket() for _ in range(10)]
    highest = max(peer.fileno() for peer in peers)
    for peer in peers:
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", listener.port))
    few_descriptors(highest + 1)
    with caplog.at_level(logging.WARNING, "minikafka.net"):
        await asyncio.sleep(0.7)
    assert 1 <= listener.failed_accepts_total <= 5, "it must not spin"
    assert len([line for line in caplog.messages if "cannot accept" in line]) == 1
    few_descriptors(highest + 100)
    await until(lambda: listener.accepted_total == 10)
    for peer in peers:
        peer.close()
    listener.close()


async def test_a_peer_that_is_gone_already_does_not_stop_the_accepting() -> None:
    listener = await SocketNetwork(asyncio.get_running_loop()).listen("127.0.0.1", 0, lambda _: Handler(), ConnectionLimits())  # type: ignore[arg-type, return-value]
    listener.accept()
    listener._could_not_accept(OSError(errno.ECONNABORTED, "gone"))
    with socket.create_connection(("127.0.0.1", listener.port)):
        await until(lambda: listener.accepted_total == 1)
    listener.close()


def test_the_limit_of_descriptors_is_raised(few_descriptors: Any) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    few_descriptors(200)
    assert raise_limit() == hard or hard == resource.RLIM_INFINITY


async def test_connections_leave_descriptors_for_files_whatever_is_configured() -> None:
    loop = asyncio.get_running_loop()
    limits = ConnectionLimits()
    listeners: dict[str, SocketListener] = {}
    for name in ("CLIENTS", "BROKERS"):
        listeners[name] = await SocketNetwork(loop).listen("127.0.0.1", 0, lambda _: Handler(), limits)  # type: ignore[arg-type, return-value]
        listeners[name].accept()
    ConnectionSlots(listeners, "BROKERS", 1 << 31, 8)  # type: ignore[arg-type]
    clients = [socket.create_connection(("127.0.0.1", listeners["CLIENTS"].port)) for _ in range(12)]
    await until(lambda: len(listeners["CLIENTS"].connections) == 8)
    brokers = [socket.create_connection(("127.0.0.1", listeners["BROKERS"].port)) for _ in range(12)]
    await until(lambda: len(listeners["BROKERS"].connections) == 10)
    await asyncio.sleep(0.05)
    assert len(listeners["BROKERS"].connections) == 10 and not listeners["CLIENTS"].connections
    for peer in (*clients, *brokers):
        peer.close()
    for listener in listeners.values():
        listener.close()


def test_lines_about_a_peer_are_few_short_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    lines = PeerLines(logging.getLogger("minikafka.test"), lambda: now_s[0])
    with caplog.at_level(logging.WARNING, "minikafka.test"):
        for number in range(3 * LINES_A_MINUTE):
            lines.warning("closed", "1.2.3.4", "closed %d %s", number, "x" * 9000)
        assert len(caplog.messages) == LINES_A_MINUTE and max(map(len, caplog.messages)) <= TEXT_MAX + 1
        assert lines.left_out["closed"] == 2 * LINES_A_MINUTE
        lines.warning("refused", "1.2.3.4", "another kind")
        lines.warning("closed", "1.2.3.5", "another peer")
        assert len(caplog.messages) == LINES_A_MINUTE + 2
        now_s[0] = WINDOW_S
        lines.warning("closed", "1.2.3.4", "again")
        assert "20 more such lines" in caplog.messages[-2] and caplog.messages[-1] == "again"
        for number in range(2 * PEERS_MAX):
            lines.warning("closed", str(number), "one")
    assert len(lines._lines) == PEERS_MAX
