"""Everything of the outside world that a broker touches, so that the simulator can hand it another world."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from minikafka.net.network import Clock, Network
from storage.filesystem import FileSystem


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
