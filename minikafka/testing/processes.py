"""Nodes as processes of this machine: `kill` is a real SIGKILL, and they can use more than one core."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import minikafka
from minikafka.testing.errors import ClusterError
from minikafka.testing.layout import NodeLayout

#: The zygote turns garbage collections on again when it has imported everything.
RUN_ZYGOTE = "import gc; gc.disable(); from minikafka.testing.zygote import main; main()"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
CHUNK_BYTES = 1 << 16


class Zygote:
    """The process from which nurseries are forked (`zygote.py`), and the connection to it. `Zygote.begin` returns the only one."""

    _lock = threading.Lock()
    _current: Zygote | None = None

    def __init__(self) -> None:
        # The zygote must import the same minikafka as this process, whatever the current directory is.
        root = str(Path(minikafka.__path__[0]).parent)
        path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUN_ZYGOTE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @classmethod
    def begin(cls) -> Zygote:
        """This process's zygote; starts it if there is none, without waiting for its imports."""
        with cls._lock:
            if cls._current is None or cls._current._process.poll() is not None:
                if cls._current is None:
                    atexit.register(cls.end)
                else:
                    cls._current._requests.close()
                cls._current = cls()
            return cls._current

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def nursery(self) -> socket.socket:
        """A connection to a new nursery. Raises ClusterError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._requests, [b"n"], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise ClusterError(f"the process that brokers are forked from is gone ({error})") from error
        return ours

    @classmethod
    def end(cls) -> None:
        """End the zygote; the next cluster starts another one."""
        with cls._lock:
            zygote, cls._current = cls._current, None
            if zygote is not None:
                atexit.unregister(cls.end)
                zygote._requests.close()
                zygote._process.wait(STOP_TIMEOUT_S)

    @classmethod
    def _forget(cls) -> None:
        """Runs in a process forked from this one, to which the zygote does not belong."""
        cls._lock = threading.Lock()
        zygote, cls._current = cls._current, None
        if zygote is not None:
            atexit.unregister(cls.end)
            zygote._requests.close()
            zygote._process.returncode = 0


os.register_at_fork(after_in_child=Zygote._forget)


class ProcessHost:
    """A nursery (see there) and the connection to it. Commands are sent one at a time.

    A signal handler may raise in the middle of a command. So commands are numbered, an answer names its command, and no step loses part of
    what another command needs."""

    mode = "process"

    def __init__(self, log_level: str = "INFO") -> None:
        """Raises ClusterError."""
        self.log_level = log_level
        self._lock = threading.Lock()
        self._connection = Zygote.begin().nursery()
        #: What was received behind the last answer that was read.
        self._chunks: list[bytes] = []
        self._sent = 0
        #: Numbers of the commands that `post` sent and whose answers are unread.
        self._posted: set[int] = set()
        directory = None
        with contextlib.suppress(OSError):
            directory = os.getcwd()
        self.post("take_environment", directory=directory, environment=dict(os.environ))

    def post(self, do: str, **arguments: Any) -> None:
        """Send a command without waiting for the answer. The next `call` reads it, and raises its error."""
        with self._lock:
            self._posted.add(self._send(do, arguments))

    def call(self, do: str, **arguments: Any) -> Any:
        """Carry out a command and return its answer. Raises ClusterError with the nursery's error."""
        with self._lock:
            return self._exchange(do, arguments)

    def _exchange(self, do: str, arguments: dict[str, Any]) -> Any:
        number, answered = self._send(do, arguments), 0
        while answered != number:
            answer = json.loads(self._line())
            answered = answer["to"]
            # Any other answer is that of a call that was interrupted.
            if answered == number or answered in self._posted:
                self._posted.discard(answered)
                if "error" in answer:
                    raise ClusterError(answer["error"])
        return answer["ok"]

    def _send(self, do: str, arguments: dict[str, Any]) -> int:
        number = self._sent = self._sent + 1
        # The first line break ends a command that was cut off.
        line = b"\n" + json.dumps({"to": number, "do": do, **arguments}).encode() + b"\n"
        try:
            self._connection.sendall(line)
        except OSError as error:
            raise ClusterError(f"the brokers' parent process is gone ({error})") from error
        return number

    def _line(self) -> bytes:
        """The next line that the nursery sent. Raises ClusterError."""
        while b"\n" not in (received := b"".join(self._chunks)):
            before = len(self._chunks)
            try:
                # One step for the interpreter: no signal handler runs between the reception and the list.
                self._chunks.extend(map(self._connection.recv, (CHUNK_BYTES,)))
            except OSError as error:
                raise ClusterError(f"the brokers' parent process is gone ({error})") from error
            if not all(self._chunks[before:]):
                raise ClusterError("the brokers' parent process has ended")
        line, _, rest = received.partition(b"\n")
        self._chunks[:] = [rest] if rest else []
        return line

    def node(self, layout: NodeLayout) -> ProcessNode:
        """A node that is not started yet."""
        return ProcessNode(self, layout)

    def own(self, directory: Path) -> None:
        """Let the nursery remove the directory at the end, even if this process is killed."""
        self.post("own", path=str(directory))

    def close(self) -> None:
        """End the nursery, which kills its remaining brokers. Returns when it has ended."""
        with self._lock, self._connection, contextlib.suppress(OSError):
            self._connection.settimeout(STOP_TIMEOUT_S)
            self._connection.shutdown(socket.SHUT_WR)
            while self._connection.recv(CHUNK_BYTES):
                pass


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process; False where the system does not tell (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


class ProcessNode:
    """One node in its own process."""

    def __init__(self, host: ProcessHost, layout: NodeLayout) -> None:
        self._host = host
        self._layout = layout
        self.pid = -1
        #: Whether the nursery was told to start it. Its answer, the process id, is not known if it was interrupted.
        self._is_spawned = False
        self._is_paused = False
        self.failure: BaseException | None = None

    @property
    def paused(self) -> bool:
        """Whether it is paused, by `pause` or by anyone else's SIGSTOP."""
        return self._is_paused or (self.pid > 0 and is_stopped(self.pid))

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._is_spawned and self._host.call("poll", number=self._layout.node_id) is None

    def start(self) -> Future[None]:
        """Begin to start. The future ends when the node is in service, or with the error that prevents it."""
        number = self._layout.node_id
        self._is_paused = False
        self._is_spawned = True
        output = str(self._layout.directory / "broker.log")
        self.pid = self._host.call("spawn", number=number, properties=self._layout.properties, output=output, level=self._host.log_level)
        return _Started(self._host, number)

    def kill(self) -> None:
        """SIGKILL: no flush, no controlled shutdown."""
        self._signal("SIGKILL")
        self._wait(STOP_TIMEOUT_S)

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM. Returns when the node has ended."""
        self.request_stop()
        self._wait(timeout_s)

    def request_stop(self) -> None:
        """SIGTERM."""
        if self.paused:
            self.resume()
        self._signal("SIGTERM")

    def pause(self) -> None:
        """SIGSTOP: the node hangs with its connections open."""
        self._signal("SIGSTOP")
        self._is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._signal("SIGCONT")
        self._is_paused = False

    def _signal(self, name: str) -> None:
        self._host.call("signal", number=self._layout.node_id, name=name)

    def _wait(self, timeout_s: float) -> None:
        self._is_paused = False
        if self._is_spawned and self._host.call("wait", number=self._layout.node_id, timeout_s=timeout_s) is None:
            raise ClusterError(f"broker {self._layout.node_id} did not end within {timeout_s:g} s")

    def ask(self, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Run a command in the node. Raises ClusterError if it does not answer. One that someone else has stopped may go on in time."""
        if self._is_paused:
            raise ClusterError(f"broker {self._layout.node_id} does not answer (paused)")
        try:
            return self._host.call("ask", number=self._layout.node_id, command=command, arguments=arguments, timeout_s=timeout_s)
        except ClusterError as error:
            raise ClusterError(f"broker {self._layout.node_id}: {error}") from error


class _Started(Future[None]):
    """A future that asks the nursery for the outcome when `result` is called."""

    def __init__(self, host: ProcessHost, number: int) -> None:
        super().__init__()
        self._host, self._number = host, number

    def result(self, timeout: float | None = None) -> None:
        """Wait until the node is in service. Raises TimeoutError, ClusterError."""
        if not self.done():
            timeout_s = START_TIMEOUT_S if timeout is None else timeout
            try:
                if not self._host.call("started", number=self._number, timeout_s=timeout_s):
                    raise TimeoutError(f"not in service after {timeout_s:g} s")
                self.set_result(None)
            except ClusterError as error:
                self.set_exception(error)
        return super().result()
