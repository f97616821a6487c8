"""A broker's whole interface to the outside world. The simulator passes its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Any

from minikafka.broker.cold_reads import ColdReads
from minikafka.broker.supervise import Supervisor
from minikafka.late_dataclass import dataclass
from minikafka.net.loop_watch import LoopWatch
from minikafka.net.network import Clock, Network
from minikafka.net.turn_share import TurnShares
from minikafka.storage.filesystem import FileSystem


@dataclass(slots=True)
class Environment:
    """Network, disk, time, randomness, and threads for blocking work."""

    network: Network
    filesystem: FileSystem
    clock: Clock
    random: random.Random
    loop: asyncio.AbstractEventLoop
    #: Runs a blocking function in a thread: `await run_blocking(function, *arguments)`.
    run_blocking: Callable[..., Awaitable[Any]]
    #: A monotonic clock, in seconds, with a fine enough resolution to time requests; None: requests are not timed.
    monotonic_s: Callable[[], float] | None = None
    #: Measures how long turns of the event loop take; None: they are not measured.
    loop_watch: LoopWatch | None = None
    #: The number of connections that still leaves enough file descriptors for files.
    connections_max: int = (1 << 31) - 1
    #: The clock by which work is divided among turns of the loop, in seconds; None: the monotonic clock, or that in milliseconds.
    turn_clock_s: Callable[[], float] | None = None
    #: Owns the tasks and timers of the node.
    supervisor: Supervisor = field(init=False)
    #: Reads through what look-ups in logs do not find in memory.
    cold_reads: ColdReads = field(init=False)
    #: How long a piece of work may go on in a turn of the loop.
    shares: TurnShares = field(init=False)

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(self.loop)
        self.cold_reads = ColdReads(self.run_blocking, self.supervisor)
        self.shares = TurnShares(self.turn_clock_s or self.monotonic_s or (lambda: self.clock.now_ms() / 1000))
