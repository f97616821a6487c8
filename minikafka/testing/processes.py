"""Nodes as processes of this machine: kill -9 is kill -9, and they use more than one core."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import minikafka
from minikafka.testing.errors import ClusterError
from minikafka.testing.layout import NodeLayout

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0


class ProcessHost:
    """The nursery (see there) and the way to it. Commands are sent one after the other."""

    mode = "process"

    def __init__(self, log_level: str = "INFO") -> None:
        self.log_level = log_level
        self._lock = threading.Lock()
        # The processes run the code that is imported here, whatever the current directory of the test is.
        root = str(Path(minikafka.__path__[0]).parent)
        path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "minikafka.testing.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
            start_new_session=True,
        )
        self._is_ready = False

    @property
    def pid(self) -> int:
        """Process id of the nursery."""
        return self._process.pid

    def call(self, do: str, **arguments: Any) -> Any:
        """One command. Raises ClusterError with what the nursery says."""
        with self._lock:
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None and stdout is not None
            try:
                if not self._is_ready:
                    self._read(stdout.readline())
                    self._is_ready = True
                stdin.write(json.dumps({"do": do, **arguments}) + "\n")
                stdin.flush()
                return self._read(stdout.readline())
            except (OSError, ValueError) as error:
                raise ClusterError(f"the process that the brokers come from is gone ({error})") from error

    @staticmethod
    def _read(line: str) -> Any:
        if not line:
            raise ClusterError("the process that the brokers come from has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ClusterError(answer["error"])
        return answer["ok"]

    def node(self, layout: NodeLayout) -> ProcessNode:
        """A node that is not started yet."""
        return ProcessNode(self, layout)

    def own(self, directory: Path) -> None:
        """Have the directory removed at the end, even when this process is killed."""
        self.call("own", path=str(directory))

    def close(self) -> None:
        """End the nursery; it kills what still lives."""
        with self._lock, contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._process.wait(STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


class ProcessNode:
    """One node in a process of its own."""

    def __init__(self, host: ProcessHost, layout: NodeLayout) -> None:
        self._host = host
        self._layout = layout
        self.pid = -1
        self.paused = False
        self.failure: BaseException | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self.pid > 0 and self._host.call("poll", number=self._layout.node_id) is None

    def start(self) -> Future[None]:
        """Begin to start; the future ends when the node is in service, or with why it is not."""
        number = self._layout.node_id
        self.paused = False
        output = str(self._layout.directory / "broker.log")
        self.pid = self._host.call("spawn", number=number, properties=self._layout.properties, output=output, level=self._host.log_level)
        return _Started(self._host, number)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self._signal("SIGKILL")
        self._wait(STOP_TIMEOUT_S)

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM; returns when the node has ended."""
        self.begin_stop()
        self._wait(timeout_s)

    def begin_stop(self) -> None:
        """SIGTERM."""
        if self.paused:
            self.resume()
        self._signal("SIGTERM")

    def pause(self) -> None:
        """SIGSTOP: the node hangs with its connections open."""
        self._signal("SIGSTOP")
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._signal("SIGCONT")
        self.paused = False

    def _signal(self, name: str) -> None:
        self._host.call("signal", number=self._layout.node_id, name=name)

    def _wait(self, timeout_s: float) -> None:
        self.paused = False
        if self.pid > 0 and self._host.call("wait", number=self._layout.node_id, timeout_s=timeout_s) is None:
            raise ClusterError(f"broker {self._layout.node_id} did not end within {timeout_s:g} s")

    def ask(self, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Run a command in the node. Raises ClusterError when it does not answer."""
        if self.paused:
            raise ClusterError(f"broker {self._layout.node_id} does not answer (paused)")
        try:
            return self._host.call("ask", number=self._layout.node_id, command=command, arguments=arguments, timeout_s=timeout_s)
        except ClusterError as error:
            raise ClusterError(f"broker {self._layout.node_id}: {error}") from error


class _Started(Future[None]):
    """Asks the nursery when somebody wants to know."""

    def __init__(self, host: ProcessHost, number: int) -> None:
        super().__init__()
        self._host, self._number = host, number

    def result(self, timeout: float | None = None) -> None:
        """Until the node is in service."""
        if not self.done():
            try:
                self._host.call("started", number=self._number, timeout_s=START_TIMEOUT_S if timeout is None else timeout)
                self.set_result(None)
            except ClusterError as error:
                self.set_exception(error)
        return super().result()
