"""A client of the simulated world, through the lives of its process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from minikafka.sim.loop import ProcessLoop
from minikafka.sim.network import SimNetwork

if TYPE_CHECKING:
    from minikafka.sim.stage import Stage


class Client:
    """A client process through its lives: `main(client)` is what each of them runs."""

    def __init__(self, world: Stage, name: str, main: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        self.world = world
        self.name = name
        self.lives = 0
        self.loop: ProcessLoop | None = None
        self.network: SimNetwork | None = None
        self.random = random.Random()
        self.task: asyncio.Task[None] | None = None
        self._main = main

    @property
    def life(self) -> str:
        """The name of the current process."""
        return f"{self.name}/{self.lives}"

    def boot(self) -> None:
        """Start a process unless one runs: two faults may both restart the client."""
        world = self.world
        if self.loop is not None and not self.loop.is_dead:
            return
        self.lives += 1
        loop = self.loop = ProcessLoop(world.scheduler, self.name, on_error=world.on_error)
        self.network = world.fabric.network(self.name, loop)
        self.random = random.Random(f"{world.seed}/{self.name}/{self.lives}")
        loop.call_soon(self._begin, loop)

    def _begin(self, loop: ProcessLoop) -> None:
        self.task = loop.create_task(self._main(self))
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.on_error(self.name, {"message": "the client ended", "exception": error})

    def kill(self) -> None:
        """SIGKILL."""
        if self.loop is not None and not self.loop.is_dead:
            self.loop.kill()
            self.world.fabric.kill(self.name, silently=False)
