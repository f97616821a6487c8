"""Where background work begins: the only place in `minikafka.net` and `minikafka.broker` that makes tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], name: str, on_error: Callable[[Exception], object]
) -> asyncio.Task[T]:
    """Run `work` in the background. `on_error` is called once with the exception that ends it; a cancellation is none."""

    def ended(task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            on_error(error)

    task = loop.create_task(work, name=name)
    task.add_done_callback(ended)
    return task
