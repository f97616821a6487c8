"""Starts background work: the only place in `minikafka.net` and `minikafka.broker` that creates tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class UnexpectedCancellation(Exception):
    """A task ended as cancelled although its own `cancel` was not called: something that it awaited was cancelled."""


async def outcome_of(task: asyncio.Task[T]) -> T | None:
    """Wait for a task that others wait for, too. Returns None if it was cancelled: who waits for it was not. Cancelling this wait does not
    cancel the task. Raises what it raises."""
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


async def to_its_end(work: Awaitable[T]) -> T:
    """The result of `work`, which runs on a thread. That cannot be cancelled, so a cancellation waits for its end: until then the thread
    uses what is released then. Raises what `work` raises."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait([working])
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # nobody else asks for it
        raise
    return working.result()


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """The result of `work`. Raises TimeoutError when it is not there in time; `work` is then cancelled. None: there is no limit.

    Takes the place of `asyncio.wait_for`. Before Python 3.12 that loses a cancellation which arrives as `work` ends: the task that was to
    end goes on, and who waits for its end waits for ever (bpo-37658)."""
    async with asyncio.timeout(seconds):
        return await work


async def done_before(stop_requested: asyncio.Future[Any], work: Coroutine[Any, Any, Any]) -> bool:
    """Wait for `work`, unless `stop_requested` is done first: then `work` is cancelled, and the result is False. Raises what `work`
    raises."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait([working, stop_requested], return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_done = working.done()
        working.cancel()
    if not is_done:
        await asyncio.gather(working, return_exceptions=True)
        return False
    await working
    return True


def start(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], name: str, on_error: Callable[[BaseException], object]
) -> asyncio.Task[T]:
    """Run `work` in the background. If it raises, `on_error` is called once with the exception; cancelling the task is not an error.
    SystemExit and KeyboardInterrupt are not passed to `on_error`: they propagate to the code that runs the loop."""

    def ended(task: asyncio.Task[T]) -> None:
        error: BaseException | None
        if task.cancelled():
            error = None if task.cancelling() else UnexpectedCancellation(f"{name}: something that it awaited was cancelled")
        else:
            error = task.exception()
        if error is not None and not isinstance(error, (SystemExit, KeyboardInterrupt)):
            on_error(error)

    task = loop.create_task(work, name=name)
    task.add_done_callback(ended)
    return task
