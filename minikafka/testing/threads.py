"""Nodes as threads of this process: they start fastest and can be debugged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import Future
from typing import Any

from minikafka.testing.control import NodeRunner
from minikafka.testing.errors import ClusterError
from minikafka.testing.layout import NodeLayout

CRASH_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 20.0
CANCEL_TIMEOUT_S = 1.0


def _new_loop() -> asyncio.AbstractEventLoop:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


class ThreadNode:
    """One node with its own thread and event loop, so that it can hang or die alone."""

    def __init__(self, layout: NodeLayout, tag: str) -> None:
        """`tag` is the prefix of the node's thread names, by which its log lines are recognized."""
        self._layout = layout
        self._tag = tag
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: NodeRunner | None = None
        self._gate = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._crashed = False
        self.failure: BaseException | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.running and not self._gate.is_set()

    def start(self) -> Future[None]:
        """Begin to start. The future ends when the node is in service, or with the error that prevents it."""
        started: Future[None] = Future()
        self._crashed, self.failure = False, None
        self._gate.set()
        self._thread = threading.Thread(target=self._main, args=(started,), name=f"{self._tag}-{self._layout.node_id}-loop", daemon=True)
        self._thread.start()
        return started

    def _main(self, started: Future[None]) -> None:
        loop = self._loop = _new_loop()
        loop.set_exception_handler(self._on_loop_error)
        try:
            loop.run_until_complete(self._life(started))
        except RuntimeError:
            if not self._crashed:
                raise
        finally:
            if self._crashed:
                self._sweep(loop)
            loop.close()
            if not started.done():
                started.set_exception(ClusterError(f"broker {self._layout.node_id} was killed while it started"))

    async def _life(self, started: Future[None]) -> None:
        try:
            runner = self._runner = NodeRunner(self._layout.properties, asyncio.get_running_loop(), f"{self._tag}-{self._layout.node_id}")
            self._stopping = asyncio.Event()
            await runner.start()
        except BaseException as error:
            self.failure = error
            started.set_exception(error)
            return
        started.set_result(None)
        waiting = asyncio.ensure_future(self._stopping.wait())
        ends: list[asyncio.Future[Any]] = [waiting, runner.node.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await runner.stop()
        if runner.node.failed.done():
            self.failure = runner.node.failed.result()
        waiting.cancel()
        leftover = asyncio.all_tasks() - {asyncio.current_task()}
        for task in leftover:
            task.cancel()
        if leftover:
            await asyncio.wait(leftover, timeout=CANCEL_TIMEOUT_S)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the tasks that a crash interrupted. They can do no harm, because files and sockets are closed."""
        logging.getLogger("asyncio").addFilter(_drop_everything)
        try:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S))
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        finally:
            logging.getLogger("asyncio").removeFilter(_drop_everything)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._crashed:
            return
        if self._runner is None:
            loop.default_exception_handler(context)
        else:
            self._runner.node.supervisor.on_loop_error(loop, context)

    # -- ends and pauses -------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Like SIGKILL: drop connections and files without a flush."""
        loop, runner = self._loop, self._runner
        if not self.running or loop is None or runner is None:
            return

        def crash() -> None:
            self._crashed = True
            try:
                runner.crash()
            finally:
                loop.stop()

        self._gate.set()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(crash)
        self._join(CRASH_TIMEOUT_S)

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Like SIGTERM. Returns when the node has ended."""
        self.request_stop()
        self._join(timeout_s)

    def request_stop(self) -> None:
        """Ask the node to stop."""
        self._gate.set()
        if self.running and self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    def _join(self, timeout_s: float) -> None:
        assert self._thread is not None
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise ClusterError(f"broker {self._layout.node_id} did not end within {timeout_s:g} s")

    def pause(self) -> None:
        """Like SIGSTOP: block the event loop with its connections open."""
        held = threading.Event()

        def hold() -> None:
            held.set()
            self._gate.wait()

        self._gate.clear()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(hold)
        held.wait(STOP_TIMEOUT_S)

    def resume(self) -> None:
        """Like SIGCONT."""
        self._gate.set()

    # -- commands --------------------------------------------------------------------------------------------------

    def ask(self, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Run a command in the node's event loop. Raises ClusterError if it does not answer."""
        runner, loop = self._runner, self._loop
        if not self.running or runner is None or loop is None:
            raise ClusterError(f"broker {self._layout.node_id} is not running")
        if self.paused:
            raise ClusterError(f"broker {self._layout.node_id} does not answer (paused)")
        answer = asyncio.run_coroutine_threadsafe(runner.handle(command, arguments), loop)
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            raise ClusterError(f"broker {self._layout.node_id} does not answer within {timeout_s:g} s") from None


def _drop_everything(record: logging.LogRecord) -> bool:
    return False


class ThreadHost:
    """Makes nodes that run as threads."""

    mode = "thread"

    def node(self, layout: NodeLayout, tag: str) -> ThreadNode:
        """A node that is not started yet."""
        return ThreadNode(layout, tag)

    def close(self) -> None:
        """Do nothing: threads need no clean-up."""
