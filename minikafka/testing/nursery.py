"""The parent process of one embedded cluster's brokers. It is forked from the zygote (`zygote.py`) and forks the brokers.

It reads commands from its connection, one JSON line each, and answers each with a JSON line. When the connection ends, for whatever reason,
it kills the brokers and removes the directories that it owns, so that nothing stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from minikafka.net.garbage import GarbagePauses
from minikafka.net.tasks import done_before
from minikafka.testing.control import NodeRunner

LOG_FORMAT = "%(asctime)s %(levelname)-5s %(name)s: %(message)s"
LINE_BYTES_MAX = 64 << 20


@dataclass(slots=True)
class _Child:
    pid: int
    channel: socket.socket
    #: The file of its log.
    output: str
    status: int | None = None
    received: bytes = b""
    #: Commands sent. Each answer names its command, because one may come after its time. The report that the node is in service names 0.
    asked: int = 0
    start: dict[str, Any] | None = None


class Nursery:
    """Carries out the commands of `processes.ProcessHost`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r")
        self._children: dict[int, _Child] = {}
        self._owned: list[str] = []

    def serve(self) -> None:
        """Carry out commands until the connection ends."""
        try:
            for line in self._lines:
                try:
                    command = json.loads(line)
                except ValueError:
                    # Nobody waits for the answer: it is empty, or was cut off by a signal.
                    continue
                number = command.pop("to")
                try:
                    answer: dict[str, Any] = {"ok": getattr(self, "do_" + command.pop("do"))(**command)}
                except Exception as error:
                    answer = {"error": f"{error or type(error).__name__}"}
                self._send_answer({"to": number, **answer})
        finally:
            self._end()

    def _send_answer(self, answer: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(answer).encode() + b"\n")

    def _end(self) -> None:
        for child in self._children.values():
            if self._poll(child) is None:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
        for path in self._owned:
            shutil.rmtree(path, ignore_errors=True)

    # -- commands --------------------------------------------------------------------------------------------------

    def do_take_environment(self, directory: str | None, environment: dict[str, str]) -> None:
        """Take over the test process's current directory and environment, which may have changed since the zygote started."""
        os.environ.clear()
        os.environ.update(environment)
        if directory is not None:
            with contextlib.suppress(OSError):
                os.chdir(directory)

    def do_own(self, path: str) -> None:
        """Take ownership of a directory: remove it at the end."""
        self._owned.append(path)

    def do_spawn(self, number: int, properties: dict[str, str], output: str, level: str) -> int:
        """Fork a node. Returns its process id. The node reports on its channel when it is in service."""
        ours, theirs = socket.socketpair()
        # The nursery ignores SIGTERM (`zygote.py`). One that comes before the node has a handler waits, and is not lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            raise
        if pid == 0:
            ours.close()
            self._lines.close()
            self._connection.close()
            for child in self._children.values():
                child.channel.close()
            _run_child(properties, output, level, theirs)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        theirs.close()
        old = self._children.get(number)
        if old is not None:
            old.channel.close()
        self._children[number] = _Child(pid, ours, output)
        return pid

    def do_signal(self, number: int, name: str) -> None:
        """Send a signal to a node, if it is alive."""
        child = self._children[number]
        if self._poll(child) is None:
            os.kill(child.pid, signal.Signals[name])

    def do_poll(self, number: int) -> int | None:
        """The exit status of a node (negative: the signal; 0 if it was never started), or None while it is alive."""
        child = self._children.get(number)
        return 0 if child is None else self._poll(child)

    def do_wait(self, number: int, timeout_s: float) -> int | None:
        """Wait for the end of a node. Returns its exit status, or None if the time is up first."""
        child = self._children[number]
        # The node's end of the channel closes when it dies.
        poller = select.poll()
        poller.register(child.channel, select.POLLHUP | select.POLLRDHUP)
        if self._poll(child) is None:
            poller.poll(timeout_s * 1000)
            self._reap(child)
        return child.status

    def do_ask(self, number: int, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Send a command to a node and return its answer. Raises TimeoutError, ConnectionError, ValueError with the node's error."""
        child = self._children[number]
        child.channel.settimeout(timeout_s)
        try:
            child.asked += 1
            child.channel.sendall(json.dumps([child.asked, command, arguments]).encode() + b"\n")
            return self._answer(child, child.asked)
        except TimeoutError:
            raise TimeoutError("it does not answer") from None
        except OSError as error:
            raise ConnectionError("it is not running") from error

    def do_started(self, number: int, timeout_s: float) -> bool:
        """Wait until a node is in service; False if it is not after `timeout_s`. Raises ConnectionError, or ValueError with the node's
        error, if it cannot start."""
        child = self._children[number]
        child.channel.settimeout(timeout_s)
        try:
            self._answer(child, 0)
        except TimeoutError:
            return False
        return True

    def _answer(self, child: _Child, number: int) -> Any:
        answer = child.start if number == 0 else None
        while answer is None:
            while b"\n" not in child.received:
                chunk = child.channel.recv(1 << 16)
                if not chunk:
                    raise ConnectionError(self._how_it_ended(child))
                child.received += chunk
            line, _, child.received = child.received.partition(b"\n")
            found = json.loads(line)
            if found["to"] == 0:
                child.start = found
            if found["to"] == number:
                answer = found
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["ok"]

    def _how_it_ended(self, child: _Child) -> str:
        status = self._reap(child)
        if status is None:
            return "it has ended"
        how = f"with exit status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        return f"it has ended {how}; its log is {child.output}"

    def _reap(self, child: _Child) -> int | None:
        """The exit status of a node whose channel has ended; None if it is still alive after a second."""
        with contextlib.suppress(ChildProcessError):
            for _ in range(100):
                if self._poll(child) is not None:
                    break
                select.select([], [], [], 0.01)
        return child.status

    @staticmethod
    def _poll(child: _Child) -> int | None:
        if child.status is None:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                child.status = os.waitstatus_to_exitcode(status)
        return child.status


def _run_child(properties: dict[str, str], output: str, level: str, channel: socket.socket) -> NoReturn:
    status = 1
    try:
        # Until the event loop handles it, SIGTERM ends the process: the node has not opened anything.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        # Ctrl-C in the terminal is meant for the test, not for the broker.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        out = _opened(output, channel)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - lives as long as the process
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        logging.basicConfig(level=level, format=LOG_FORMAT, stream=sys.stdout, force=True)
        status = _loop(properties, channel)
    except BaseException as error:
        logging.getLogger("minikafka.node").error("the node cannot run: %s", error or type(error).__name__, exc_info=True)
    finally:
        sys.stdout.flush()
        os._exit(status)


def _opened(log: str, channel: socket.socket) -> int:
    try:
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        channel.setblocking(True)
        channel.sendall(json.dumps({"to": 0, "error": f"its log {log} cannot be written: {error.strerror}"}).encode() + b"\n")
        os._exit(1)


def _loop(properties: dict[str, str], channel: socket.socket) -> int:
    factory = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    # The runner is never closed: that would wait for threads, and a name look-up may hang in one.
    return asyncio.Runner(loop_factory=factory).run(_life(properties, channel))


async def _life(properties: dict[str, str], channel: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    try:
        runner = NodeRunner(properties, loop)
        loop.set_exception_handler(runner.node.supervisor.on_loop_error)
        commands = _Commands(channel, runner, loop)
        stop_requested = asyncio.ensure_future(stopping.wait())
        if not await done_before(stop_requested, runner.start()):
            return 0
    except BaseException as error:
        channel.setblocking(True)
        channel.sendall(json.dumps({"to": 0, "error": f"{error or type(error).__name__}"}).encode() + b"\n")
        raise
    commands.say(0, {"ok": None})
    GarbagePauses().start()
    ends: list[asyncio.Future[Any]] = [stop_requested, runner.node.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if runner.node.failed.done():
        logging.getLogger("minikafka.node").error("the node cannot continue: %s", runner.node.failed.result())
    await runner.stop()
    return int(runner.node.failed.done())


class _Commands:
    """Reads and carries out the nursery's commands in a node's process; ends the process when the nursery is gone."""

    def __init__(self, channel: socket.socket, runner: NodeRunner, loop: asyncio.AbstractEventLoop) -> None:
        self._channel = channel
        self._runner = runner
        self._received = b""
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        loop.add_reader(channel.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            chunk = self._channel.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        if not chunk:
            os._exit(1)
        self._received += chunk
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            number, command, arguments = json.loads(line)
            task = self._loop.create_task(self._carry_out(number, command, arguments))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, number: int, command: str, arguments: dict[str, Any]) -> None:
        try:
            self.say(number, {"ok": await self._runner.handle(command, arguments)})
        except Exception as error:
            self.say(number, {"error": f"{error or type(error).__name__}"})

    def say(self, number: int, answer: dict[str, Any]) -> None:
        """Answer a command of the nursery. Blocking is fine, because the nursery is waiting for it."""
        self._channel.setblocking(True)
        try:
            self._channel.sendall(json.dumps({"to": number, **answer}).encode() + b"\n")
        finally:
            self._channel.setblocking(False)


def serve(connection: socket.socket) -> NoReturn:
    """Run a nursery in the process just forked from the zygote, and exit."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The test process may end before it has read an answer.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            Nursery(connection).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
