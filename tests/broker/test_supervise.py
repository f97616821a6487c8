"""Background work: an unexpected exception ends the node, or exactly the part that it concerns, and never goes unnoticed."""

from __future__ import annotations

import ast
import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import minikafka
from minikafka.broker.supervise import BrokenInvariant, Ends, Supervisor

ROOT = Path(minikafka.__file__).parent
STARTERS = {"ensure_future", "create_task"}
#: The one place that starts tasks.
ALLOWED = {"net/tasks.py"}


def starters_of(source: str) -> list[int]:
    """Lines that start a task."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute | ast.Name) and _name(node) in STARTERS]


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def test_nothing_but_the_supervisor_starts_tasks() -> None:
    assert starters_of("import asyncio\nasyncio.ensure_future(work())\nloop.create_task(work())") == [2, 3]
    files = [*(path for package in ("broker", "net") for path in (ROOT / package).rglob("*.py")), ROOT / "cli" / "start.py"]
    found = {str(path.relative_to(ROOT)): starters_of(path.read_text()) for path in files}
    assert len(found) > 100
    assert {name for name, lines in found.items() if lines} == ALLOWED


async def fails() -> None:
    raise KeyError("lost")


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_task_that_fails_ends_the_node(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(asyncio.get_running_loop())
    with caplog.at_level(logging.CRITICAL, "minikafka.node"):
        supervisor.start(fails(), "heartbeats to the controller")
        await turns()
    reason = supervisor.failed.result()
    assert isinstance(reason, BrokenInvariant) and isinstance(reason.__cause__, KeyError)
    assert str(reason) == "heartbeats to the controller failed unexpectedly: KeyError: 'lost'"
    assert supervisor.is_broken and supervisor.unexpected == {"node": 1}
    assert caplog.records[0].exc_info is not None, "the traceback is in the log"


async def test_a_task_that_ends_because_what_it_awaits_was_cancelled_ends_the_node() -> None:
    """Nobody asked the task itself to end: heartbeats would have stopped for good, without a word."""
    supervisor = Supervisor(asyncio.get_running_loop())
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def heartbeats() -> None:
        await answer

    supervisor.start(heartbeats(), "heartbeats to the controller")
    await turns()
    answer.cancel()
    await turns()
    assert "heartbeats to the controller failed unexpectedly: UnexpectedCancellation" in str(supervisor.failed.result())


async def test_a_cancelled_task_does_not_stop_the_node() -> None:
    supervisor = Supervisor(asyncio.get_running_loop())
    early = supervisor.start(asyncio.sleep(60), "retention")
    early.cancel()
    late = supervisor.start(asyncio.sleep(60), "cleaning")
    await turns()
    late.cancel()
    await turns()
    assert early.cancelled() and late.cancelled()
    assert not supervisor.failed.done()


async def test_a_base_exception_does_not_end_a_task_silently() -> None:
    class Exit(BaseException):
        pass

    async def exits() -> None:
        raise Exit("now")

    supervisor = Supervisor(asyncio.get_running_loop())
    task = supervisor.start(exits(), "loading")
    await turns()
    assert isinstance(task.exception(), Exit)
    assert str(supervisor.failed.result()) == "loading failed unexpectedly: Exit: now"


async def test_a_timer_that_fails_ends_the_node() -> None:
    supervisor = Supervisor(asyncio.get_running_loop())

    def due(what: str) -> None:
        raise ValueError(what)

    supervisor.call_later(0.0, "retention", due, "sizes")
    supervisor.call_soon("loading", due, "groups")
    await asyncio.shield(supervisor.failed)
    while supervisor.unexpected["node"] < 2:
        await asyncio.sleep(0)
    assert str(supervisor.failed.result()) == "loading failed unexpectedly: ValueError: groups", "the first reason counts"


async def test_less_than_the_node_ends_where_that_is_the_rule() -> None:
    supervisor = Supervisor(asyncio.get_running_loop())
    closed: list[str] = []
    supervisor.start(fails(), "Metadata v12", ends=Ends("connection", closed.append))
    await turns()
    assert closed == ["Metadata v12 failed unexpectedly: KeyError: 'lost'"]
    assert not supervisor.failed.done() and supervisor.unexpected == {"connection": 1}


async def test_a_task_that_cannot_be_stopped_ends_the_node() -> None:
    supervisor = Supervisor(asyncio.get_running_loop())

    def end(reason: str) -> None:
        raise RuntimeError("no")

    with supervisor.watching("a decision", ends=Ends("term", end)):
        raise KeyError("lost")
    assert supervisor.is_broken and "the term cannot be ended" in str(supervisor.failed.result())


async def test_a_failed_disk_is_no_broken_invariant() -> None:
    supervisor = Supervisor(asyncio.get_running_loop())
    supervisor.fail(OSError("input/output error"))
    supervisor.fail(OSError("another"))
    assert str(supervisor.failed.result()) == "input/output error" and not supervisor.is_broken


async def test_cancelled_tasks_and_those_of_a_stopped_node_say_nothing() -> None:
    supervisor = Supervisor(asyncio.get_running_loop())
    forever = supervisor.start(asyncio.Event().wait(), "waiting")
    supervisor.close()
    await turns()
    assert forever.cancelled()
    supervisor.start(fails(), "late")
    await turns()
    assert not supervisor.failed.done() and not supervisor.unexpected


@pytest.mark.parametrize(
    ("context", "ended"),
    [
        ({"handle": object()}, "node"),
        ({"transport": object(), "handle": object()}, "connection"),
        ({"protocol": object()}, "connection"),
        ({"future": object()}, "task"),
    ],
)
async def test_the_loop_s_exception_handler(context: dict[str, Any], ended: str) -> None:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(loop)
    supervisor.on_loop_error(loop, {"message": "Exception in callback", "exception": KeyError("lost"), **context})
    assert supervisor.unexpected == {ended: 1}
    assert supervisor.failed.done() is (ended == "node")


async def test_an_exception_in_an_unwatched_callback_stops_the_node() -> None:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(loop)
    before = loop.get_exception_handler()
    loop.set_exception_handler(supervisor.on_loop_error)
    try:
        loop.call_soon({}.__getitem__, "lost")
        await asyncio.shield(supervisor.failed)
    finally:
        loop.set_exception_handler(before)
    assert supervisor.is_broken


async def test_words_of_asyncio_without_an_exception_end_nothing() -> None:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(loop)
    supervisor.on_loop_error(loop, {"message": "socket.send() raised exception."})
    assert not supervisor.unexpected
