"""Requests drawn from the schemas, and damaged ones, against a cluster of three brokers with an authorizer.

`PYTHONPATH=.:tests python -m bench.fuzz --frames N`; a bounded slice runs with the tests (tests/broker/test_fuzz_slice.py).
Every API and version that brokers and controllers serve, produced batches of all codecs included (`fuzz_requests`); a part of the frames
has bytes changed, cut or put in, and a part comes from `fuzz_corpus.txt` (listener, what it is, the frame in base64), damaged or not. With
`--wild` the APIs come, too, that may rightly change the cluster so that it serves nobody: then only exceptions, memory and descriptors
are looked at. What is looked at all the while and afterwards: no unexpected exception of the brokers, none of them fenced, another client
is answered within its time, its records are all there, memory and descriptors do not grow with the frames, and the replicas agree (audit).

Frames are sent some at a time on each of several connections, and one is counted when the broker has read it: it, or a later one of its
connection, was answered, or it ended the connection. The machine's load is in the time of another client's slowest request; so the turns
of the brokers' loops are held to the bound, each by its processor time (`exact_turns`).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import confluent_kafka
from bench.fuzz_requests import WITNESS, Drawn, Learned, Requests
from helpers.work_unit import unit_s, usual_unit_s

from minikafka.client.errors import BrokerError
from minikafka.testing import ClusterError, EmbeddedCluster
from minikafka.testing.processes import Zygote
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.api_versions import ApiVersionsRequest

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "group.min.session.timeout.ms": "20",
    "group.initial.rebalance.delay.ms": "0",
}
TARGETS = ["target", "compacted"]
#: Frames that are sent before their answers are read. A damaged one is sent alone, because most of them end the connection.
FRAMES_AT_ONCE_MAX = 12
CONNECTIONS_PER_LISTENER = 4
#: How long answers are waited for at least and at most: some requests are rightly not answered, or much later; and so often as long as
#: the last answers took, for a busy machine.
ANSWER_S_MIN, ANSWER_S_FIRST, ANSWER_S_MAX, ANSWER_TIMES = 0.05, 0.3, 5.0, 4
#: Connections with unanswered requests that stay open.
UNANSWERED_MAX = 4
#: Of every so many answers one is decoded, for its ids and epochs.
LEARNED_OF = 4
#: The longest turn of a broker's loop in processor time, in units of work that take half a millisecond on a quiet machine.
LONGEST_TURN_UNITS = 100
#: Correlation ids of the requests that end what is sent at once; those of requests are smaller.
_LAST = itertools.count(0x7E000000)


@dataclass
class Report:
    """What was seen; `problems` is empty when all is well."""

    frames: int = 0
    answers: int = 0
    closed: int = 0
    cpu_s: float = 0.0
    thrower_cpu_s: float = 0.0
    by_api: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    longest_turns: dict[str, float] = field(default_factory=dict)
    memory_mib: dict[int, tuple[float, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Count what another one has counted."""
        self.frames += other.frames
        self.answers += other.answers
        self.closed += other.closed
        self.cpu_s += other.cpu_s
        self.thrower_cpu_s += other.thrower_cpu_s
        self.by_api += other.by_api
        self.problems += other.problems


class Thrower:
    """Sends requests to one listener, over one connection after the other."""

    def __init__(self, address: tuple[str, int], requests: Requests) -> None:
        self._address = address
        self._requests = requests
        self._unanswered: deque[socket.socket] = deque()
        self._kept: Drawn | None = None
        self._peer: socket.socket | None = None
        self._buffer = bytearray()
        self._patience_s = ANSWER_S_FIRST
        self.report = Report()

    def throw(self, count: int) -> Report:
        """Send until `count` frames were read."""
        while self.report.frames < count and not self.report.problems:
            if self._peer is None:
                self._connect()
            else:
                self._exchange(self._peer)
        for peer in (*self._unanswered, *filter(None, [self._peer])):
            peer.close()
        return self.report

    def _connect(self) -> None:
        try:
            self._peer = socket.create_connection(self._address, 30)
        except OSError as error:
            self.report.problems.append(f"{self._address[1]} takes no connections: {error}")
            return
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer.clear()

    def _batch(self) -> list[Drawn]:
        """Whole requests, or one that is damaged."""
        drawn: list[Drawn] = []
        while len(drawn) < FRAMES_AT_ONCE_MAX:
            one, self._kept = self._kept or next(self._requests), None
            if one.is_damaged and drawn:
                self._kept = one
                break
            drawn.append(one)
            if one.is_damaged:
                break
        return drawn

    def _exchange(self, peer: socket.socket) -> None:
        batch, last = self._batch(), next(_LAST)
        frames = bytearray()
        for number, drawn in enumerate(batch):
            frames += drawn.frame
            if not drawn.is_damaged:
                struct.pack_into(">i", frames, len(frames) - len(drawn.frame) + 8, number)
        frames += b"".join(bytes(piece) for piece in encode_request(ApiVersionsRequest(), 0, last, "last"))  # type: ignore[arg-type]
        answered, end = self._answers(peer, frames, batch, last)
        self.report.answers += answered
        if end == "answered":
            read = batch
        else:
            self._peer = None
            read = batch[: answered + 1]
            if end == "closed":
                self.report.closed += 1
                peer.close()
            else:
                self._unanswered.append(peer)
                if len(self._unanswered) > UNANSWERED_MAX:
                    self._unanswered.popleft().close()
        self.report.frames += len(read)
        self.report.by_api.update(drawn.name for drawn in read)

    def _answers(self, peer: socket.socket, frames: bytearray, batch: list[Drawn], last: int) -> tuple[int, str]:
        """How many came, and why no more did: the last was answered, the connection is closed, or time is up."""
        count, buffer, began_s = 0, self._buffer, time.monotonic()
        deadline_s = began_s + self._patience_s
        try:
            peer.settimeout(30)
            peer.sendall(frames)
            while True:
                while len(buffer) >= 8 and len(buffer) >= (size := 4 + int.from_bytes(buffer[:4])):
                    answer = bytes(buffer[4:size])
                    del buffer[:size]
                    correlation_id = int.from_bytes(answer[:4])
                    if correlation_id == last:
                        took_s = time.monotonic() - began_s
                        self._patience_s = max(ANSWER_S_MIN, ANSWER_TIMES * took_s, 0.9 * self._patience_s)
                        return count, "answered"
                    count += 1
                    if correlation_id < len(batch) and count % LEARNED_OF == 0:
                        self._requests.learn(batch[correlation_id], answer)
                peer.settimeout(max(deadline_s - time.monotonic(), 0.001))
                data = peer.recv(1 << 18)
                if not data:
                    return count, "closed"
                buffer += data
        except TimeoutError:
            self._patience_s = min(1.5 * self._patience_s, ANSWER_S_MAX)
            return count, "late"
        except OSError:
            return count, "closed"


def throw_all(listeners: list[tuple[str, str, int]], frames: int, *, wild: bool) -> Report:
    """Throw so many frames at each of some listeners: a seed, the kind, the port."""
    learned: Learned = {}
    began_s = time.process_time()
    total = Report()
    with ThreadPoolExecutor(len(listeners) * CONNECTIONS_PER_LISTENER) as threads:
        running = [
            threads.submit(
                Thrower(("127.0.0.1", port), Requests(f"{seed}-{number}", kind, TARGETS, learned, wild=wild)).throw,
                frames // CONNECTIONS_PER_LISTENER,
            )
            for seed, kind, port in listeners
            for number in range(CONNECTIONS_PER_LISTENER)
        ]
        for future in running:
            total.add(future.result())
    total.cpu_s = total.thrower_cpu_s = time.process_time() - began_s
    return total


def watching(report: Report, watcher: Callable[..., None], *arguments: Any) -> None:
    """Run a watcher. One that ends early would see nothing of the rest of the round."""
    try:
        watcher(*arguments)
    except Exception as error:
        report.problems.append(f"{watcher.__name__} has ended: {type(error).__name__}: {error}")


def watch(address: tuple[str, int], stop: threading.Event, report: Report) -> None:
    """Another client: how long its slowest request takes."""
    asked = b"".join(bytes(piece) for piece in encode_request(ApiVersionsRequest(), 0, 1, "witness"))  # type: ignore[arg-type]
    with socket.create_connection(address) as peer:
        peer.settimeout(30)
        while not stop.wait(0.02):
            began_s = time.perf_counter()
            peer.sendall(asked)
            if not peer.recv(1 << 16):
                report.problems.append("the witness was disconnected")
                return
            report.slowest_ms = max(report.slowest_ms, 1000 * (time.perf_counter() - began_s))


class TurnWatch:
    """The longest turns of the brokers' loops over the whole run: a broker remembers those of its last minute."""

    def __init__(self, cluster: EmbeddedCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report

    def look(self) -> None:
        """Look at what the brokers remember now."""
        for broker in self._cluster.brokers:
            for name, value in self._metrics(broker.node_id).items():
                if name.startswith("minikafka_loop_longest_turn"):
                    key = f"{broker.node_id}: {name.removeprefix('minikafka_loop_longest_turn_')}"
                    self._report.longest_turns[key] = max(value, self._report.longest_turns.get(key, 0))

    def _metrics(self, node_id: int) -> dict[str, float]:
        """Asked twice: on a machine without a processor left, an answer may take longer than the cluster waits."""
        try:
            return self._cluster.metrics(node_id)
        except ClusterError:
            return self._cluster.metrics(node_id)

    def run(self, stop: threading.Event) -> None:
        """Look again and again."""
        while not stop.wait(30):
            self.look()


def keep_topics(cluster: EmbeddedCluster, stop: threading.Event) -> None:
    """Make topics anew that requests have deleted."""
    while not stop.wait(1):
        for name in TARGETS:
            with contextlib.suppress(ClusterError, BrokerError, TimeoutError):
                if name not in cluster.topics():
                    cluster.create_topic(name, partitions=2)


@contextlib.contextmanager
def exact_turns() -> Iterator[None]:
    """Brokers that start meanwhile measure each turn of their loops (`exact_turns/sitecustomize.py`)."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent / 'exact_turns'}{os.pathsep}{before}"
    Zygote.end()
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before
        Zygote.end()


def run(frames: int, seed: int = 1, *, wild: bool = False) -> Report:
    """Throw so many frames at each listener of three brokers."""
    with exact_turns():
        return thrown(frames, seed, wild=wild)


def thrown(frames: int, seed: int, *, wild: bool) -> Report:
    """See `run`."""
    report = Report()
    topics = {WITNESS: 2, "target": 2, "compacted": {"partitions": 2, "configs": {"cleanup.policy": "compact"}}}
    with EmbeddedCluster(3, topics=topics, config=CONFIG, mode="process") as cluster:
        produced = write_witness(cluster)
        before = {broker.node_id: cluster.metrics(broker.node_id) for broker in cluster.brokers}
        stop, turns = threading.Event(), TurnWatch(cluster, report)
        watchers: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(turns.run, (stop,)), (keep_topics, (cluster, stop))]
        watchers += [(watch, (("127.0.0.1", broker.port), stop, report)) for broker in cluster.brokers]
        threads = [threading.Thread(target=watching, args=(report, target, *arguments)) for target, arguments in watchers]
        for thread in threads:
            thread.start()
        listeners = [
            (f"{seed}-{number}-{kind}", kind, port)
            for number, broker in enumerate(cluster.brokers)
            for kind, port in zip(("broker", "controller"), broker.ports, strict=False)
        ]
        # The throwers have a process of their own, so that the other client's time has none of theirs in it.
        try:
            with ProcessPoolExecutor(1, get_context("spawn")) as executor:
                report.add(executor.submit(throw_all, listeners, frames, wild=wild).result())
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        turns.look()
        judge_machine(cluster, before, report)
        if not wild:
            judge(cluster, produced, report)
    return report


def write_witness(cluster: EmbeddedCluster) -> int:
    """Records that must be there at the end."""
    producer = confluent_kafka.Producer(cluster.client_config(acks="all"))
    for number in range(200):
        producer.produce(WITNESS, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    return 200


def failures(log: str, lines_each: int = 60) -> str:
    """What a log says of exceptions that nobody expected, each with its stack; the last lines when it says nothing."""
    lines = log.splitlines()
    found = [number for number, line in enumerate(lines) if " failed unexpectedly" in line]
    return "\n".join(line for number in found[:5] for line in lines[number : number + lines_each]) or "\n".join(lines[-lines_each:])


def judge_machine(cluster: EmbeddedCluster, before: dict[int, dict[str, float]], report: Report) -> None:
    """Exceptions, the loops' turns, memory and descriptors."""
    for broker in cluster.brokers:
        found, was = cluster.metrics(broker.node_id), before[broker.node_id]
        for name, value in found.items():
            if name.startswith("minikafka_unexpected_exceptions_total") and value > was.get(name, 0):
                report.problems.append(f"broker {broker.node_id}: {value:.0f} of {name}\n{failures(cluster.logs(1 << 20))}")
        report.cpu_s += found["process_cpu_seconds_total"] - was["process_cpu_seconds_total"]
        memory = [metrics["process_resident_memory_bytes"] / (1 << 20) for metrics in (was, found)]
        report.memory_mib[broker.node_id] = (memory[0], memory[1])
        if memory[1] > memory[0] + 256:
            report.problems.append(f"broker {broker.node_id} grew from {memory[0]:.0f} to {memory[1]:.0f} MiB")
        if found["process_open_fds"] > was["process_open_fds"] + 200:
            report.problems.append(f"broker {broker.node_id} has {found['process_open_fds']:.0f} descriptors")
    most_s = LONGEST_TURN_UNITS * max(usual_unit_s(), unit_s())
    for name, value in report.longest_turns.items():
        if "cpu_seconds" in name and value > most_s:
            report.problems.append(f"broker {name}: {value:.3f} s")


def judge(cluster: EmbeddedCluster, produced: int, report: Report) -> None:
    """Hold the cluster against what must be true."""
    topics = [WITNESS, *(name for name in TARGETS if name in cluster.topics())]
    cluster.wait_healthy(topics, timeout_s=30)
    consumer = confluent_kafka.Consumer(cluster.client_config(**{"group.id": "judge", "auto.offset.reset": "earliest"}))
    consumer.assign([confluent_kafka.TopicPartition(WITNESS, index, 0) for index in range(2)])
    seen: set[bytes] = set()
    deadline_s = time.monotonic() + 30
    while len(seen) < produced and time.monotonic() < deadline_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value())
    consumer.close()
    if len(seen) != produced:
        report.problems.append(f"{produced - len(seen)} records of the witness are gone")
    try:
        cluster.audit(topics=topics)
    except Exception as error:  # whatever it finds is a problem
        report.problems.append(f"audit: {error}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000, help="for each listener of three brokers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wild", action="store_true", help="those APIs, too, that may end the cluster's service")
    options = parser.parse_args()
    result = run(options.frames, options.seed, wild=options.wild)
    print(f"{result.frames} frames, {result.answers} answered, {result.closed} connections closed, {len(result.by_api)} APIs")
    print(f"{result.cpu_s:.0f} CPU s ({result.thrower_cpu_s:.0f} of the throwers), {result.frames / result.cpu_s:.0f} frames a CPU second")
    print(f"another client's slowest request {result.slowest_ms:.0f} ms; longest turns {result.longest_turns}; MiB {result.memory_mib}")
    print("\n".join(result.problems) or "nothing wrong")
    raise SystemExit(bool(result.problems))
