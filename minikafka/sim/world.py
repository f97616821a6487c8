"""The world of one seed: nodes, network, disks, clients and faults in one thread, and the invariants.

A run has three parts. The cluster starts; the load runs while faults happen; all faults are undone, and then the cluster has to work again
and every acknowledged record has to be there.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
import time
import traceback
import zlib
from asyncio import events
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from minikafka.addresses import host_port
from minikafka.sim.chaos import Chaos
from minikafka.sim.invariants import Invariants
from minikafka.sim.loop import ProcessLoop, Scheduler
from minikafka.sim.network import Fabric
from minikafka.sim.node import SimNode
from minikafka.sim.swarm import SHAPES, Fault, Options
from minikafka.sim.workload import Workload
from minikafka.wire.uuid import uuid_to_text

START_TIMEOUT_S = 30.0
HEAL_TIMEOUT_S = 60.0
IDLE_SETTLE_S = 0.6
IDLE_S = 1.0
QUORUM_REQUESTS_A_SECOND = 5
#: Work that is divided takes a step for each part.
STEPS_OF_A_FRAME = 8
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
LINES_KEPT = 4000
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
LOGGERS = ("minikafka", "asyncio")


class Violation(AssertionError):
    """An invariant does not hold, or the cluster does not work after healing. `rule`: S1..S29, L1..L9."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self._text = text

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        # Outcomes are sent from process to process (--jobs).
        return Violation, (self.rule, self._text)


@dataclass(slots=True)
class Outcome:
    """The result of a run. `violation` is None if all invariants held."""

    seed: int
    options: Options
    faults: list[Fault]
    violation: Violation | None = None
    digest: str = ""
    simulated_s: float = 0.0
    real_s: float = 0.0
    steps: int = 0
    frames: int = 0
    acknowledged: int = 0
    consumed: int = 0
    #: Batches of clients that were appended together with others.
    appended_together: int = 0
    #: Outcome -> transactions, as seen by their clients.
    transactions: Counter[str] = field(default_factory=Counter)
    #: Outcome -> acknowledgements of members of the share group.
    shared: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    #: Rule -> how often something was compared with what it demands.
    checked: Counter[str] = field(default_factory=Counter)
    states: set[int] = field(default_factory=set)
    story: str = ""


class _Lines(logging.Handler):
    """Passes log lines of the simulated processes to the world."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Record the line; an exception in a living node is a violation."""
        loop = events._get_running_loop()
        if not isinstance(loop, ProcessLoop) or loop.is_dead:
            return
        self._world.record_event(loop.name, record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            self._world.on_error(loop.name, {"message": record.getMessage(), "exception": record.exc_info[1]})


@contextmanager
def _plain_logging() -> Iterator[None]:
    """Leave the source line, thread and process out of log records: they are not used here, and take most of the time of logging."""
    names = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")
    kept = [getattr(logging, name) for name in names]
    for name in names:
        setattr(logging, name, None)
    try:
        yield
    finally:
        for name, value in zip(names, kept, strict=True):
            setattr(logging, name, value)


class World:
    """A cluster and everything around it."""

    def __init__(self, options: Options, faults: list[Fault]) -> None:
        self.options = options
        self.faults = faults
        self.seed = options.seed
        self.scheduler = Scheduler()
        self.fabric = Fabric(self.scheduler, random.Random(f"{self.seed}/network"))
        self.fabric.set_all(delay_min=options.delay_min_s, delay_mean=options.delay_mean_s)
        self.fabric.wake_s = options.wake_s
        self.fabric.pending_answers_max = options.pending_answers_max
        self.loop = ProcessLoop(self.scheduler, "world", on_error=self.on_error)
        self.cluster_id = uuid_to_text(random.Random(f"{self.seed}/cluster").randbytes(16))
        self.lines: deque[tuple[float, str, str]] = deque(maxlen=LINES_KEPT)
        self.line_digest = 0
        self.violation: Violation | None = None
        self.nodes: dict[int, SimNode] = self._make_nodes()
        self.invariants = Invariants(self)
        self.workload = Workload(self)
        self.chaos = Chaos(self, faults)
        self.is_healed = False
        self.load_began_s = 0.0

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.scheduler.now

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers for clients."""
        return ",".join(host_port(node.host, BROKER_PORT) for node in self.nodes.values() if node.config.is_broker)

    @property
    def brokers(self) -> list[SimNode]:
        """Nodes with the broker's role."""
        return [node for node in self.nodes.values() if node.config.is_broker]

    @property
    def controllers(self) -> list[SimNode]:
        """Nodes with the controller's role."""
        return [node for node in self.nodes.values() if node.config.is_controller]

    def voter_directory_id(self, node_id: int) -> bytes:
        """The directory id of a controller's metadata log, with dynamic voters."""
        return random.Random(f"{self.seed}/voter/{node_id}").randbytes(16)

    def _make_nodes(self) -> dict[int, SimNode]:
        options = self.options
        apart, brokers = SHAPES[options.shape]
        controller_ids = list(range(101, 101 + apart)) if apart else list(range(1, min(brokers, 3) + 1))
        if options.is_dynamic:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(f"n{i}:{CONTROLLER_PORT}" for i in controller_ids)}
        else:
            quorum = {"controller.quorum.voters": ",".join(f"{i}@n{i}:{CONTROLLER_PORT}" for i in controller_ids)}
        common = {
            **quorum,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": str(options.replication_factor),
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": str(options.replication_factor),
            "share.coordinator.state.topic.replication.factor": str(options.replication_factor),
            "share.coordinator.state.topic.min.isr": str(min(options.min_isr, options.replication_factor)),
            "default.replication.factor": str(options.replication_factor),
            "min.insync.replicas": str(min(options.min_isr, options.replication_factor)),
            "group.initial.rebalance.delay.ms": "100",
            "group.min.session.timeout.ms": "1000",
            "auto.create.topics.enable": "false",
            **options.properties,
        }
        rates = random.Random(f"{self.seed}/clocks")
        nodes = {}
        for node_id in [*controller_ids, *(i for i in range(1, brokers + 1) if i not in controller_ids)]:
            is_broker, is_controller = node_id <= brokers, node_id in controller_ids
            listeners = [f"PLAINTEXT://n{node_id}:{BROKER_PORT}"] if is_broker else []
            listeners += [f"CONTROLLER://n{node_id}:{CONTROLLER_PORT}"] if is_controller else []
            roles = [name for name, has in (("broker", is_broker), ("controller", is_controller)) if has]
            properties = {**common, "node.id": str(node_id), "process.roles": ",".join(roles), "listeners": ",".join(listeners)}
            node = nodes[node_id] = SimNode(self, node_id, properties)
            if options.clock_spread:
                node.rate = 1.0 + rates.uniform(-options.clock_spread, options.clock_spread)
            node.blocking_s, node.sync_s = options.blocking_s, options.sync_s
        return nodes

    # -- events ----------------------------------------------------------------------------------------------------

    def record_event(self, source: str, text: str) -> None:
        """Record an event for the story, without the addresses of objects, which differ from run to run."""
        text = ADDRESS.sub("", text)
        self.lines.append((self.now, source, text))
        self.line_digest = zlib.crc32(f"{self.now:.6f}{source}{text}".encode(), self.line_digest)

    def violate(self, rule: str, text: str) -> None:
        """The run has failed; the first violation counts."""
        if self.violation is None:
            self.record_event("world", f"VIOLATION {rule}: {text}")
            self.violation = Violation(rule, text)
            self.scheduler.stop()

    def on_error(self, name: str, context: dict[str, Any]) -> None:
        """Report an unhandled exception (S24)."""
        error = context.get("exception")
        if isinstance(error, Violation):
            self.violate(error.rule, str(error))
            return
        trace = "" if error is None else "".join(traceback.format_exception(error)[-6:])
        self.violate("S24", f"{name}: {context.get('message')}\n{trace}")

    def started(self, node: SimNode) -> None:
        """A process came into service."""
        self.record_event(node.host, "in service")

    def ending(self, node: SimNode) -> None:
        """A process is about to end."""
        self.invariants.ending(node)

    def died(self, node: SimNode) -> None:
        """A process ended by itself: restart it, as an init system would."""
        self.fabric.later(1.0, lambda: node.boot() if node.should_restart else None)

    # -- a run -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Play the seed. Errors of the brokers become violations and are not raised."""
        began = time.process_time()
        handler = _Lines(self)
        kept = []
        for name in LOGGERS:
            logger = logging.getLogger(name)
            kept.append((logger, logger.level, logger.propagate, logger.handlers[:]))
            logger.handlers[:], logger.propagate = [handler], False
            logger.setLevel(logging.INFO)
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            with _plain_logging(), self.invariants.installed():
                self._play()
        finally:
            for logger, level, propagate, handlers in kept:
                logger.handlers[:], logger.propagate = handlers, propagate
                logger.setLevel(level)
            if was_collecting:
                gc.enable()
        outcome = Outcome(self.seed, self.options, self.faults, self.violation)
        outcome.digest = self._digest()
        outcome.simulated_s = self.now
        outcome.real_s = time.process_time() - began
        outcome.steps, outcome.frames = self.scheduler.steps, self.fabric.frames
        outcome.acknowledged, outcome.consumed = self.workload.acknowledged, self.workload.consumed
        outcome.appended_together = self.invariants.appended_together
        outcome.transactions = self.workload.transactors.outcomes
        outcome.shared = self.invariants.shares.outcomes
        outcome.injected = self.chaos.injected
        outcome.states = self.invariants.states
        outcome.checked = self.invariants.checked
        if self.violation is not None:
            from minikafka.sim.story import describe_run

            outcome.story = describe_run(self)
        self._end()
        return outcome

    def _play(self) -> None:
        for node in self.nodes.values():
            node.format()
            node.boot()
        if not self._until(self._is_up, START_TIMEOUT_S):
            self.violate("L1", "the cluster does not start")
        self._await(self.workload.prepare(), START_TIMEOUT_S, "the topics cannot be created")
        if self.violation is None:
            self.fabric.set_all(break_probability=self.options.break_probability)
            self.load_began_s = self.now
            self.workload.start()
            self.invariants.watch()
            self.chaos.begin()
            self._run(self.now + self.options.duration_s)
        if self.violation is None:
            self._heal()

    def _heal(self) -> None:
        self.record_event("world", "everything heals")
        self.is_healed = True
        self.chaos.heal()
        self.fabric.set_all(break_probability=0.0, delay_min=0.0002, delay_mean=0.001)
        if not self._until(self.invariants.is_quiet, HEAL_TIMEOUT_S):
            self.violate(*self.invariants.why_not_quiet())
            return
        self._await(self.workload.finish(), HEAL_TIMEOUT_S, "the clients do not finish")
        if self.violation is None and not self._until(self.invariants.is_quiet, HEAL_TIMEOUT_S):
            self.violate(*self.invariants.why_not_quiet())
        if self.violation is None:
            self.workload.judge()
        if self.violation is None:
            self.invariants.at_rest()
        if self.violation is None:
            self._idle()
        if self.violation is None:
            self.invariants.checked.update(("S24", "L1", "L2", "L3", "L4", "L5", "L6", "L7"))

    def _idle(self) -> None:
        """L6: a cluster without clients comes to rest: the configured intervals bound the remaining traffic."""
        for client in self.workload.everybody():
            client.kill()
        self._run(self.now + IDLE_SETTLE_S)
        frames, steps = self.fabric.frames, self.scheduler.steps
        self._run(self.now + IDLE_S)
        frames, steps = self.fabric.frames - frames, self.scheduler.steps - steps
        properties, brokers = self.options.properties, len(self.brokers)
        # A request and its response: of every fetcher to every leader, of heartbeats, and of the quorum's members and observers.
        fetchers = brokers * (brokers - 1) * int(properties.get("num.replica.fetchers", "1"))
        fetches = 1000 * fetchers / int(properties.get("replica.fetch.wait.max.ms", "500"))
        beats = 1000 * brokers / int(properties.get("broker.heartbeat.interval.ms", "2000"))
        # Twice that, because the sessions of the dead clients end meanwhile. A busy loop would cause a hundred times as much.
        frames_max = 2 * IDLE_S * 2 * (fetches + beats + QUORUM_REQUESTS_A_SECOND * len(self.nodes))
        if frames > frames_max or steps > STEPS_OF_A_FRAME * frames_max:
            self.violate("L6", f"no rest: {frames} frames (at most {frames_max:.0f}) and {steps} steps in {IDLE_S} s without clients")

    def _is_up(self) -> bool:
        return all(node.is_running for node in self.nodes.values())

    def _run(self, until: float) -> None:
        if self.violation is None:
            self.scheduler.run(until)

    def _until(self, condition: Any, timeout_s: float) -> bool:
        deadline = self.now + timeout_s
        while self.violation is None and self.now < deadline:
            if condition():
                return True
            self._run(min(self.now + 0.1, deadline))
        return self.violation is not None or condition()

    def _await(self, work: Any, timeout_s: float, complaint: str) -> None:
        if self.violation is not None:
            work.close()
            return
        done: list[BaseException | None] = []

        async def main() -> None:
            try:
                await work
                done.append(None)
            except Violation as error:
                self.violate(error.rule, str(error))
            except Exception as error:
                done.append(error)

        self.loop.call_soon(lambda: setattr(self, "_main", self.loop.create_task(main())))
        if not self._until(lambda: bool(done), timeout_s):
            self.violate("L5", complaint)
        elif done and done[0] is not None and self.violation is None:
            self.violate("L7", f"{complaint}: {type(done[0]).__name__}: {done[0]}")

    def _digest(self) -> str:
        digest = self.fabric.digest
        for node in self.nodes.values():
            for directory in sorted(node.disk.files):
                for name, inode in sorted(node.disk.files[directory].items()):
                    digest = zlib.crc32(bytes(inode.data), zlib.crc32(name.encode(), digest))
        return f"{digest:08x}{self.line_digest:08x}{self.scheduler.steps:08x}"

    def _end(self) -> None:
        """Kill all processes without further checks."""
        for loop in (self.loop, *(node.loop for node in self.nodes.values()), *self.workload.loops()):
            if loop is not None:
                loop.kill()
        for node in self.nodes.values():
            if node.view is not None:
                node.view.kill()
            node.node = None


async def sleep(seconds: float) -> None:
    """Sleep in virtual time."""
    await asyncio.sleep(seconds)
