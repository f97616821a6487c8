"""Everything of the outside world that a broker touches, so that the simulator can hand it another world."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from minikafka.broker.supervise import Supervisor
from minikafka.net.loop_watch import LoopWatch
from minikafka.net.network import Clock, Network
from minikafka.storage.filesystem import FileSystem


@dataclass(slots=True)
class Environment:
    """Network, disk, time, randomness, and a place for work that blocks."""

    network: Network
    filesystem: FileSystem
    clock: Clock
    random: random.Random
    loop: asyncio.AbstractEventLoop
    #: Runs a blocking function elsewhere: `await run_blocking(function, *arguments)`.
    run_blocking: Callable[..., Awaitable[Any]]
    #: A monotonic clock fine enough to measure requests by, in seconds; None: they are not measured.
    monotonic_s: Callable[[], float] | None = None
    #: Knows how long the loop's turns take; None: nobody watches.
    loop_watch: LoopWatch | None = None
    #: How many connections leave enough file descriptors for files.
    connections_max: int = (1 << 31) - 1
    #: Owns the tasks and timers of the node.
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(self.loop)
