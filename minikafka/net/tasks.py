"""Where background work begins: the only place in `minikafka.net` and `minikafka.broker` that makes tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class UnaskedCancellation(Exception):
    """A task ended as if it had been cancelled, but nobody had asked it to: what it waited for was."""


def start(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], name: str, on_error: Callable[[BaseException], object]
) -> asyncio.Task[T]:
    """Run `work` in the background. `on_error` is called once with what ends it before its end; that somebody cancels the task is no error.
    What ends the process (SystemExit, KeyboardInterrupt) goes on to whoever runs the loop."""

    def ended(task: asyncio.Task[T]) -> None:
        error: BaseException | None
        if task.cancelled():
            error = None if task.cancelling() else UnaskedCancellation(f"what {name} waited for was cancelled")
        else:
            error = task.exception()
        if error is not None and not isinstance(error, (SystemExit, KeyboardInterrupt)):
            on_error(error)

    task = loop.create_task(work, name=name)
    task.add_done_callback(ended)
    return task
