"""A broker or controller of the simulated world: one disk, one host name, and a series of processes.

Each process is what `minikafka start` runs: a `minikafka.broker.node.Node` with an `Environment`, started, watched for failure, stopped.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import minikafka.core.group.coordinator  # noqa: F401 - what brokers import late is there from the beginning, in every run
from minikafka.addresses import host_port
from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.environment import Environment
from minikafka.broker.node import Node
from minikafka.broker.quorum.format import format_storage
from minikafka.sim.disk import Disk, DiskView
from minikafka.sim.loop import ProcessLoop
from minikafka.sim.stage import Stage
from minikafka.wire.uuid import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

WALL_MS = 1_700_000_000_000
LOG_DIR = "/data"
#: A call in another thread that takes longer waits for a slow disk.
LONG_CALL_S = 1.0
#: Share groups have dead-letter queues from this metadata.version on.
RELEASE_WITH_DEAD_LETTERS = "4.4-IV2"


class SimClock:
    """Monotonic milliseconds of the process, and a wall clock that can be set."""

    __slots__ = ("_loop", "_rate_ms", "_scheduler", "offset_ms")

    def __init__(self, loop: ProcessLoop, offset_ms: int = 0) -> None:
        self._loop = loop
        self._scheduler = loop.scheduler
        self._rate_ms = 1000 * loop.rate
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        """See Clock."""
        return int(self._scheduler.now * self._rate_ms + 1e-6)

    def wall_ms(self) -> int:
        """See Clock."""
        return WALL_MS + int(self._loop.scheduler.now * 1000) + self.offset_ms


class StepClock:
    """A clock by which every step of divided work takes some time: it advances whenever it is read. `mean_s`: seconds between readings."""

    __slots__ = ("_mean_s", "_now_s", "_random")

    def __init__(self, mean_s: float, generator: random.Random) -> None:
        self._mean_s = mean_s
        self._random = generator
        self._now_s = 0.0

    def __call__(self) -> float:
        """Seconds since an arbitrary moment."""
        self._now_s += self._random.expovariate(1.0) * self._mean_s
        return self._now_s


class Surroundings(Stage, Protocol):
    """The part of the world that a node uses."""

    @property
    def controllers(self) -> Sequence[SimNode]:
        """Nodes with the controller's role."""

    def voter_directory_id(self, node_id: int) -> bytes:
        """The directory id of a controller's metadata log, with dynamic voters."""

    def started(self, node: SimNode) -> None:
        """A process came into service."""

    def ending(self, node: SimNode) -> None:
        """A process is about to end."""

    def died(self, node: SimNode) -> None:
        """A process ended by itself."""


class SimNode:
    """One node through all its lives.

    `state`: down, starting, running, stopping. `should_restart`: the world restarts it if it ends by itself. `has_lost_power`: it lost
    unsynced bytes, and the process that recovered the rest is not yet registered in the metadata.
    """

    def __init__(self, world: Surroundings, node_id: int, properties: Mapping[str, str]) -> None:
        self.world = world
        self.node_id = node_id
        self.host = f"n{node_id}"
        self.config = BrokerConfig.from_properties(properties)
        self.disk = Disk(lambda: WALL_MS + int(world.now * 1000))
        self.disk.misses_every = world.options.misses_every
        self.rate = 1.0
        self.wall_offset_ms = 0
        #: Mean seconds of a blocking call, and of each sync that the event loop itself waits for.
        self.blocking_s = 0.0005
        self.sync_s = 0.0
        #: When the last call in another thread ends that takes over `LONG_CALL_S`, in the world's seconds.
        self.long_call_ends_s = 0.0
        self.state = "down"
        self.should_restart = True
        self.lives = 0
        self.node: Node | None = None
        self.loop: ProcessLoop | None = None
        self.view: DiskView | None = None
        self.clock: SimClock | None = None
        self.has_lost_power = False
        #: Incarnation ids of ended processes.
        self.old_incarnations: set[bytes] = set()
        self.exit_reason = ""
        self._stop_requested: asyncio.Event | None = None
        self._random = random.Random(f"{world.seed}/disk/{node_id}")

    def __repr__(self) -> str:
        return self.host

    @property
    def is_running(self) -> bool:
        """Whether the process has started completely."""
        return self.state == "running"

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self.state != "down"

    @property
    def is_paused(self) -> bool:
        """Whether the process is paused."""
        return self.loop is not None and self.loop.paused_until > self.world.now

    def format(self) -> None:
        """Give the node a new, formatted disk."""
        self.disk.wipe()
        world = self.world
        generator = random.Random(f"{world.seed}/format/{self.node_id}/{self.lives}")
        voters = None
        if world.options.is_dynamic and self.config.is_controller:
            voters = ",".join(
                f"{node.node_id}@{host_port(node.host, node.config.advertised['CONTROLLER'].port)}:"
                + uuid_to_text(world.voter_directory_id(node.node_id))
                for node in world.controllers
            )
        format_storage(
            DiskView(self.disk),
            self.config,
            cluster_id=world.cluster_id,
            initial_controllers=voters,
            release_version=RELEASE_WITH_DEAD_LETTERS if world.options.has_dead_letters else None,
            wall_ms=WALL_MS,
            random_bytes=generator.randbytes,
        )

    # -- life ------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start a process."""
        if self.state != "down":
            return
        world = self.world
        self.lives += 1
        self.state = "starting"
        self._being_written: frozenset[str] = frozenset()
        self.should_restart = True
        self.exit_reason = ""
        world.fabric.silent_hosts.discard(self.host)
        loop = self.loop = ProcessLoop(world.scheduler, self.host, rate=self.rate, on_error=world.on_error)
        loop.turn_s = world.options.turn_s
        self.view = DiskView(self.disk)
        self.clock = SimClock(loop, self.wall_offset_ms)
        environment = Environment(
            network=world.fabric.network(self.host, loop),
            filesystem=self.view,
            clock=self.clock,
            random=random.Random(f"{world.seed}/node/{self.node_id}/{self.lives}"),
            loop=loop,
            run_blocking=self._run_blocking,
            turn_clock_s=self._turn_clock(),
        )
        self._slow_disk()
        loop.call_soon(self._begin, environment)

    def _turn_clock(self) -> StepClock | None:
        step_s = self.world.options.step_s
        return StepClock(step_s, random.Random(f"{self.world.seed}/steps/{self.node_id}/{self.lives}")) if step_s else None

    def _begin(self, environment: Environment) -> None:
        assert self.loop is not None
        self._stop_requested = asyncio.Event()
        self.node = Node(self.config, environment)
        self.loop.create_task(self._main(self.node, self.loop))

    async def _main(self, node: Node, loop: ProcessLoop) -> None:
        """Run a node as minikafka.cli.start does."""
        assert self._stop_requested is not None
        try:
            await node.start()
        except Exception as error:  # whatever keeps a node from starting ends its process
            self._ended(loop, f"cannot run: {type(error).__name__}: {error}")
            return
        self.state = "running"
        self.world.started(self)
        stop_requested = loop.create_task(self._stop_requested.wait())
        await asyncio.wait([stop_requested, node.failed], return_when=asyncio.FIRST_COMPLETED)
        reason = f"failed: {node.failed.result()}" if node.failed.done() else "stopped"
        self.state = "stopping"
        try:
            await node.stop()
        except Exception as error:  # the process ends all the same, with another status
            reason = f"{reason}; cannot stop cleanly: {type(error).__name__}: {error}"
        if reason == "stopped" and node.failed.done():
            reason = f"failed while it stopped: {node.failed.result()}"
        self._ended(loop, reason)

    def _ended(self, loop: ProcessLoop, reason: str) -> None:
        if self.loop is not loop or loop.is_dead:
            return
        self.world.record_event(self.host, f"process ends: {reason}")
        self.exit_reason = reason
        self._gone(silently=False)
        if self.should_restart:
            self.world.died(self)

    def stop(self) -> None:
        """SIGTERM."""
        self.should_restart = False
        if self._stop_requested is not None and self.state in ("running", "starting"):
            self._stop_requested.set()

    def kill(self) -> None:
        """SIGKILL. Written bytes are in the page cache and survive."""
        self.should_restart = False
        if self.state != "down":
            self._gone(silently=False)

    def power_cut(self, generator: random.Random, in_order: Collection[str] = ()) -> int:
        """The machine loses power. Returns the number of files that lost data. See `Disk.power_cut`."""
        self.should_restart = False
        if self.state != "down":
            self._gone(silently=True)
        self.has_lost_power = self.config.is_broker
        return self.disk.power_cut(generator, in_order)

    def _gone(self, *, silently: bool) -> None:
        assert self.loop is not None and self.view is not None
        self.world.ending(self)
        if self.node is not None and self.node.broker is not None:
            self.old_incarnations.add(self.node.broker.lifecycle.incarnation_id)
        self.loop.kill()
        self.view.kill()
        self.state = "down"
        self.node = None
        self.world.fabric.kill(self.host, silently=silently)

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if self.loop is not None:
            self.loop.pause(self.world.now + seconds)

    # -- disk and clock --------------------------------------------------------------------------------------------

    def set_disk_speed(self, blocking_s: float, sync_s: float) -> None:
        """Set the mean duration of calls in other threads, and of syncs that the event loop waits for."""
        self.blocking_s, self.sync_s = blocking_s, sync_s
        self._slow_disk()

    def _slow_disk(self) -> None:
        def stall(operation: str) -> None:
            if operation == "fsync" and self.loop is not None:
                self.loop.pause(self.world.now + self._random.expovariate(1.0) * self.sync_s)

        self.disk.stall = stall if self.sync_s > 0 else None

    async def _run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking call; its effect happens at a random moment of its duration."""
        written = frozenset(getattr(getattr(function, "__self__", None), "paths", ()))
        # Threads would share the temporary file.
        assert not written & self._being_written, f"two threads write {written & self._being_written}"
        self._being_written |= written
        try:
            return await self._run_at_random(function, *arguments)
        finally:
            self._being_written -= written

    async def _run_at_random(self, function: Callable[..., Any], *arguments: Any) -> Any:
        seconds = self._random.expovariate(1.0) * self.blocking_s
        share = self._random.random()
        if seconds > LONG_CALL_S:
            self.long_call_ends_s = max(self.long_call_ends_s, self.world.now + seconds)
        await asyncio.sleep(seconds * share)
        # A thread of the pool does not block the event loop.
        stall, self.disk.stall = self.disk.stall, None
        try:
            result = function(*arguments)
        finally:
            self.disk.stall = stall
        await asyncio.sleep(seconds * (1 - share))
        return result

    def jump_clock(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""
        self.wall_offset_ms += milliseconds
        if self.clock is not None:
            self.clock.offset_ms = self.wall_offset_ms

    # -- facts -----------------------------------------------------------------------------------------------------

    def broker_epoch(self) -> int:
        """The broker epoch of the process, or -1."""
        broker = None if self.node is None else self.node.broker
        return -1 if broker is None else broker.lifecycle.broker_epoch

    def partitions(self) -> list[Any]:
        """The process's replicas."""
        broker = None if self.node is None else self.node.broker
        return [] if broker is None else list(broker.replicas.partitions.values())

    def partition(self, topic: str, index: int) -> Any:
        """The process's replica, or None."""
        broker = None if self.node is None else self.node.broker
        return None if broker is None else broker.replicas.partition(topic, index)
