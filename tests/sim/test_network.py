"""The simulated network: order, cuts, breaks, deaths."""

from __future__ import annotations

import random
from typing import Any

import pytest

from minikafka.net.network import ConnectionLimits
from minikafka.sim.loop import ProcessLoop, Scheduler
from minikafka.sim.network import Fabric

PORT = 9092


class End:
    """Keeps what comes, and whether it ended."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.views: list[memoryview] = []
        self.connections: list[Any] = []
        self.ends: list[str] = []

    def __call__(self, connection: Any) -> End:
        self.connections.append(connection)
        return self

    def on_frame(self, connection: Any, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.views.append(frame)

    def on_closed(self, connection: Any, reason: str) -> None:
        self.ends.append(reason)


def framed(text: bytes) -> list[bytes]:
    return [len(text).to_bytes(4, "big"), text]


class Pair:
    """A client and a server."""

    def __init__(self, **link: Any) -> None:
        self.scheduler = Scheduler()
        self.fabric = Fabric(self.scheduler, random.Random(7))
        self.fabric.set_all(**link)
        self.server, self.client = End(), End()
        self.loops = {host: ProcessLoop(self.scheduler, host, on_error=self._raise) for host in ("s", "c")}
        self.connection: Any = None
        self.refused: OSError | None = None
        self.loops["s"].call_soon(lambda: self._task("s", self._listen()))

    @staticmethod
    def _raise(name: str, context: dict) -> None:
        raise AssertionError(context)

    def _task(self, host: str, work: Any) -> None:
        self.task = self.loops[host].create_task(work)

    async def _listen(self) -> None:
        listener = await self.fabric.network("s", self.loops["s"]).listen("s", PORT, self.server, ConnectionLimits())
        listener.accept()

    async def _connect(self) -> None:
        try:
            self.connection = await self.fabric.network("c", self.loops["c"]).connect("s", PORT, self.client)
        except OSError as error:
            self.refused = error

    def connect(self) -> None:
        self.run(0.1)
        self.loops["c"].call_soon(lambda: self._task("c", self._connect()))
        self.run(0.5)

    def run(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now + seconds)

    def send(self, text: bytes) -> None:
        self.loops["c"].call_soon(self.connection.send, framed(text))
        self.run(0.0)


def test_frames_come_in_order_in_spite_of_their_delays() -> None:
    pair = Pair(delay_mean=0.05)
    pair.connect()
    for number in range(50):
        pair.send(b"%d" % number)
    pair.run(10.0)
    assert pair.server.frames == [b"%d" % number for number in range(50)]


def test_answers_leave_in_the_order_of_their_requests() -> None:
    pair = Pair()
    pair.connect()
    far = pair.server.connections[0]
    first, second, third = far.begin(), far.begin(), far.begin()
    far.finish(third, framed(b"3"))
    far.finish(second, [])
    pair.run(1.0)
    assert pair.client.frames == []
    far.finish(first, framed(b"1"))
    pair.run(1.0)
    assert pair.client.frames == [b"1", b"3"]


def test_a_received_buffer_is_gone_when_the_handler_has_returned() -> None:
    pair = Pair()
    pair.connect()
    pair.send(b"abc")
    pair.run(1.0)
    assert pair.server.frames == [b"abc"] and bytes(pair.server.views[0]) != b"abc"


def test_a_cut_holds_back_one_direction_until_it_heals() -> None:
    pair = Pair()
    pair.connect()
    pair.fabric.cut("c", "s")
    pair.send(b"held")
    pair.server.connections[0].send(framed(b"through"))
    pair.run(5.0)
    assert pair.server.frames == [] and pair.client.frames == [b"through"]
    pair.fabric.heal()
    pair.run(1.0)
    assert pair.server.frames == [b"held"]


def test_the_end_of_a_connection_is_held_back_too() -> None:
    pair = Pair()
    pair.connect()
    pair.fabric.cut("c", "s")
    pair.send(b"last words")
    pair.connection.close("enough")
    pair.run(5.0)
    assert pair.client.ends == ["enough"] and pair.server.ends == []
    pair.fabric.heal()
    pair.run(1.0)
    assert pair.server.frames == [b"last words"] and len(pair.server.ends) == 1


def test_a_break_loses_what_is_under_way_and_tells_both() -> None:
    pair = Pair(delay_min=0.1)
    pair.connect()
    pair.send(b"under way")
    pair.connection.break_off()
    pair.run(5.0)
    assert pair.server.frames == [] and len(pair.server.ends) == len(pair.client.ends) == 1


def test_a_killed_process_closes_its_connections_and_refuses_new_ones() -> None:
    pair = Pair()
    pair.connect()
    pair.loops["s"].kill()
    pair.fabric.kill("s", silently=False)
    pair.run(1.0)
    assert pair.client.ends == ["closed by the peer"]
    pair.connect()
    assert isinstance(pair.refused, ConnectionRefusedError)


def test_a_machine_without_power_says_nothing_until_its_next_life() -> None:
    pair = Pair()
    pair.connect()
    pair.loops["s"].kill()
    pair.fabric.kill("s", silently=True)
    pair.send(b"anybody there?")
    pair.run(30.0)
    assert pair.client.ends == []
    pair.fabric.silent_hosts.discard("s")
    pair.run(1.0)
    assert pair.client.ends == ["connection reset by peer"]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_generator_gives_the_same_deliveries(seed: int) -> None:
    digests = set()
    for _ in range(2):
        pair = Pair(delay_mean=0.02)
        pair.fabric._generator = random.Random(seed)
        pair.connect()
        for number in range(20):
            pair.send(b"%d" % number)
        pair.run(5.0)
        digests.add(pair.fabric.digest)
    assert len(digests) == 1


def test_a_connection_falls_silent_and_a_new_one_works() -> None:
    pair = Pair(delay_min=0.1)
    pair.connect()
    pair.send(b"under way")
    first, near = pair.server.connections[0], pair.connection
    near.fall_silent()
    pair.send(b"lost")
    first.send(framed(b"lost too"))
    pair.run(5.0)
    assert pair.server.frames == pair.client.frames == [] and not pair.client.ends
    pair.connect()
    pair.run(1.0)
    pair.send(b"heard")
    pair.run(1.0)
    assert pair.server.frames == [b"heard"]
    pair.run(20.0)
    assert pair.client.ends == ["connection timed out"] and near.closed, "the kernel of who opened it gives it up"
    assert not first.closed and not pair.server.ends, "the other side is never told"


class Together(End):
    """A server that puts off what it is given while more is there, as the fast path of Produce does."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[list[bytes]] = []
        self._put_off: list[memoryview] = []

    def on_frame(self, connection: Any, frame: memoryview) -> None:
        super().on_frame(connection, frame)
        if self.frames[-1] == b"hold":
            connection.hold()
        if connection.bytes_behind or self._put_off:
            if not self._put_off:
                connection.after_frames(self._complete)
            self._put_off.append(frame)
        else:
            self.runs.append([bytes(frame)])

    def _complete(self) -> None:
        self.runs.append([bytes(frame) for frame in self._put_off])
        self._put_off = []


@pytest.mark.parametrize("wake_s", [0.0, 0.05])
def test_a_process_that_reads_late_handles_what_has_arrived_together(wake_s: float) -> None:
    pair = Pair(delay_mean=0.0)
    pair.fabric.wake_s = wake_s
    pair.server = Together()
    pair.connect()
    sent = [b"%d" % number for number in range(200)]
    for number in range(0, 200, 5):
        for text in sent[number : number + 5]:
            pair.loops["c"].call_soon(pair.connection.send, framed(text))
        pair.run(0.01)
    pair.run(5.0)
    assert pair.server.frames == sent == [text for run in pair.server.runs for text in run]
    assert max(map(len, pair.server.runs)) >= 5
    assert all(bytes(view) != text for view, text in zip(pair.server.views, sent, strict=True))


def test_frames_that_wait_for_a_hold_come_together_and_the_end_comes_after_them() -> None:
    pair = Pair(delay_mean=0.0)
    pair.fabric.wake_s = 0.0
    pair.server = Together()
    pair.connect()
    for text in (b"hold", b"1", b"2"):
        pair.send(text)
    pair.loops["c"].call_soon(pair.connection.close)
    pair.run(1.0)
    assert pair.server.frames == [b"hold"] and not pair.server.ends
    pair.loops["s"].call_soon(pair.server.connections[0].go_on)
    pair.run(1.0)
    assert pair.server.runs[-1] == [b"1", b"2"] and pair.server.ends == ["closed by the peer"]


def test_a_paused_process_finds_all_frames_together() -> None:
    pair = Pair(delay_mean=0.001)
    pair.fabric.wake_s = 0.0
    pair.server = Together()
    pair.connect()
    pair.loops["s"].pause(pair.scheduler.now + 1.0)
    for number in range(3):
        pair.send(b"%d" % number)
        pair.run(0.1)
    pair.run(2.0)
    assert pair.server.runs == [[b"0", b"1", b"2"]]


class Answering(End):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets: list[int] = []

    def on_frame(self, connection: Any, frame: memoryview) -> None:
        super().on_frame(connection, frame)
        self.tickets.append(connection.begin())

    def answer(self, ticket: int) -> None:
        self.connections[0].finish(ticket, framed(b"answer"))


@pytest.mark.parametrize("wake_s", [None, 0.0])
def test_requests_beyond_the_bound_wait_for_an_answer(wake_s: float | None) -> None:
    pair = Pair(delay_mean=0.0)
    pair.fabric.wake_s = wake_s
    pair.fabric.pending_answers_max = 2
    server = pair.server = Answering()
    pair.connect()
    for number in range(5):
        pair.send(b"%d" % number)
    pair.run(1.0)
    assert server.frames == [b"0", b"1"]
    pair.loops["s"].call_soon(server.answer, 1)
    pair.run(1.0)
    assert server.frames == [b"0", b"1"], "the answer waits for the one before it"
    pair.loops["s"].call_soon(server.answer, 0)
    pair.run(1.0)
    assert server.frames == [b"0", b"1", b"2", b"3"]
    pair.loops["s"].call_soon(server.answer, 2)
    pair.run(1.0)
    assert server.frames == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("wake_s", [None, 0.0])
def test_a_frame_that_is_kept_is_not_overwritten(wake_s: float | None) -> None:
    pair = Pair()
    pair.fabric.wake_s = wake_s
    pair.connect()
    take = pair.server.on_frame

    def on_frame(connection: Any, frame: memoryview) -> None:
        take(connection, frame)
        if bytes(frame) == b"kept":
            connection.keep_frame()

    pair.server.on_frame = on_frame  # type: ignore[method-assign]
    for text in (b"one", b"kept", b"three"):
        pair.send(text)
    pair.run(1.0)
    assert [bytes(view) for view in pair.server.views] == [b"\xee" * 3, b"kept", b"\xee" * 5]
