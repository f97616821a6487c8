"""Requests drawn from the schemas, and damaged ones, against a cluster of three brokers with an authorizer.

`PYTHONPATH=.:tests python -m bench.fuzz --frames N`; a bounded slice runs with the tests (tests/broker/test_fuzz_slice.py).
Every API and version that brokers and controllers serve, produced batches of all codecs included; a part of the frames has bytes changed,
cut or put in, and a part comes from `fuzz_corpus.txt` (listener, what it is, the frame in base64), damaged or not. With `--wild` the APIs
come, too, that may rightly change the cluster so that it serves nobody: then only exceptions, memory and descriptors are looked at.
What is looked at all the while and afterwards: no unexpected exception of the brokers, none of them fenced, another client is answered, its
records are all there, memory and descriptors do not grow with the frames, and the replicas agree (audit).
"""

from __future__ import annotations

import argparse
import base64
import random
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
from helpers.wire_values import random_value

from minikafka.testing import EmbeddedCluster
from minikafka.wire.batch import build_batch
from minikafka.wire.compression import CompressionType
from minikafka.wire.frame import encode_request
from minikafka.wire.grammar import grammar
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.registry import apis

#: What would rightly change the cluster so that the rest is no test any more: registrations, dynamic configuration, ACLs, quotas, voters.
LEFT_OUT = frozenset({30, 31, 33, 44, 45, 49, 57, 64, 80, 81, 82})
#: On controllers, beside those: elections, heartbeats and registrations in another's name, and changes of replication.
LEFT_OUT_ON_CONTROLLERS = LEFT_OUT | {52, 53, 54, 56, 58, 62, 63, 70, 73}
CORPUS = Path(__file__).parent / "fuzz_corpus.txt"
CORPUS_SHARE = 0.05
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
}
WITNESS = "witness"
DAMAGED_SHARE = 0.4
ANSWER_S = 0.05


@dataclass
class Report:
    """What was seen; `problems` is empty when all is well."""

    frames: int = 0
    answers: int = 0
    closed: int = 0
    by_api: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    longest_turns: dict[str, float] = field(default_factory=dict)
    memory_mib: dict[int, tuple[float, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def records(draw: random.Random) -> bytes:
    """A batch, more or less as a producer writes it."""
    rows = [(n, draw.choice([0, -1, 1 << 62, 1_700_000_000_000]), b"k", draw.randbytes(draw.choice([0, 9, 900])), ()) for n in range(3)]
    batch = build_batch(rows, compression=draw.choice(list(CompressionType)), producer_id=draw.choice([-1, -1, 7]))
    if draw.random() < 0.3:
        struct.pack_into(">b", batch, draw.randrange(len(batch)), draw.randrange(-128, 128))
    return bytes(batch)


def aim(value: Any, draw: random.Random, names: list[str]) -> None:
    """Let a request speak of things that are there, now and then."""
    for declared in value.FIELDS:
        held = getattr(value, declared.name)
        if declared.name in ("topic", "name") and isinstance(held, str) and draw.random() < 0.7:
            setattr(value, declared.name, draw.choice(names))
        elif declared.name == "records" and draw.random() < 0.9:
            setattr(value, declared.name, records(draw))
        elif declared.name in ("index", "partition", "partition_index") and draw.random() < 0.8:
            setattr(value, declared.name, draw.randrange(2))
        elif declared.name in ("timeout_ms", "max_wait_ms") and isinstance(held, int):
            setattr(value, declared.name, draw.randrange(20))
        for item in held if isinstance(held, list) else [held]:
            if hasattr(item, "FIELDS"):
                aim(item, draw, names)


@cache
def corpus(listener: str) -> list[tuple[str, bytes]]:
    """Frames that have once done harm, or came near it."""
    rows = [line.split() for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    return [(what, zlib.decompress(base64.b64decode(text))) for kind, what, text in rows if kind == listener]


def request(draw: random.Random, names: list[str], listener: str = "broker", *, wild: bool = False) -> tuple[str, bytes]:
    """A request's name and its frame."""
    if draw.random() < CORPUS_SHARE and corpus(listener):
        name, kept = draw.choice(corpus(listener))
        frame = bytearray(kept)
        if draw.random() < DAMAGED_SHARE:
            damage(frame, draw)
        return name, bytes(frame)
    left_out = frozenset() if wild else LEFT_OUT if listener == "broker" else LEFT_OUT_ON_CONTROLLERS
    api = draw.choice([api for api in apis() if listener in api.listeners and api.key not in left_out])
    version = draw.randint(api.min_version, api.max_version)
    value = random_value(grammar(api.request, version), draw)
    aim(value, draw, names)
    frame = bytearray(b"".join(bytes(piece) for piece in encode_request(value, version, draw.randrange(1 << 31), "fuzz")))
    if draw.random() < DAMAGED_SHARE:
        damage(frame, draw)
    return api.name, bytes(frame)


def damage(frame: bytearray, draw: random.Random) -> None:
    """Change, cut or put in bytes behind the size, which stays right now and then only."""
    for _ in range(draw.choice([1, 1, 3])):
        at = draw.randrange(4, len(frame))
        kind = draw.randrange(3)
        if kind == 0:
            frame[at] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])
        elif kind == 1 and len(frame) > 16:
            del frame[max(at, 12) :]
        else:
            frame[at:at] = draw.randbytes(draw.choice([1, 4, 200]))
    if draw.random() < 0.95:
        struct.pack_into(">i", frame, 0, len(frame) - 4)


def throw(
    address: tuple[str, int], count: int, draw: random.Random, names: list[str], report: Report, listener: str, *, wild: bool
) -> None:
    """Send frames, on a new connection when the broker has closed one."""
    peer: socket.socket | None = None
    for _ in range(count):
        if peer is None:
            try:
                peer = socket.create_connection(address, 30)
            except OSError as error:
                report.problems.append(f"{listener} {address[1]} takes no connections: {error}")
                return
            peer.settimeout(ANSWER_S)
        name, frame = request(draw, names, listener, wild=wild)
        report.frames += 1
        report.by_api[name] += 1
        try:
            peer.sendall(frame)
            answer = peer.recv(1 << 20)
        except TimeoutError:
            continue
        except OSError:
            answer = b""
        if answer:
            report.answers += 1
        else:
            report.closed += 1
            peer.close()
            peer = None
    if peer is not None:
        peer.close()


def watch(address: tuple[str, int], stop: threading.Event, report: Report) -> None:
    """Another client: how long its slowest request takes."""
    asked = b"".join(bytes(piece) for piece in encode_request(ApiVersionsRequest(), 0, 1, "witness"))
    with socket.create_connection(address) as peer:
        peer.settimeout(30)
        while not stop.wait(0.02):
            began_s = time.perf_counter()
            peer.sendall(asked)
            if not peer.recv(1 << 16):
                report.problems.append("the witness was disconnected")
                return
            report.slowest_ms = max(report.slowest_ms, 1000 * (time.perf_counter() - began_s))


def run(frames: int, seed: int = 1, *, mode: Any = "process", wild: bool = False) -> Report:
    """Throw so many frames at each listener of three brokers."""
    report = Report()
    with EmbeddedCluster(3, topics={WITNESS: 2, "target": 2, "compacted": {"partitions": 2, "configs": {"cleanup.policy": "compact"}}},
                         config=CONFIG, mode=mode) as cluster:  # fmt: skip
        produced = write_witness(cluster)
        before = {broker.node_id: cluster.metrics(broker.node_id) for broker in cluster.brokers}
        stop, threads = threading.Event(), []
        for broker in cluster.brokers:
            address = ("127.0.0.1", broker.port)
            threads.append(threading.Thread(target=watch, args=(address, stop, report)))
        throwers = []
        for number, broker in enumerate(cluster.brokers):
            for listener, port in zip(("broker", "controller"), broker.ports, strict=False):
                draw = random.Random(f"{seed}-{number}-{listener}")
                arguments = (("127.0.0.1", port), frames, draw, ["target", "compacted"], report, listener)
                throwers.append(threading.Thread(target=throw, args=arguments, kwargs={"wild": wild}))
        for thread in (*threads, *throwers):
            thread.start()
        for thread in throwers:
            thread.join()
        stop.set()
        for thread in threads:
            thread.join()
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
    """Exceptions, memory and descriptors."""
    for broker in cluster.brokers:
        found, was = cluster.metrics(broker.node_id), before[broker.node_id]
        for name, value in found.items():
            if name.startswith("minikafka_unexpected_exceptions_total") and value > was.get(name, 0):
                report.problems.append(f"broker {broker.node_id}: {value:.0f} of {name}\n{failures(cluster.logs(1 << 20))}")
            if name.startswith("minikafka_loop_longest_turn_seconds"):
                report.longest_turns[f"{broker.node_id}: {name}"] = value
        memory = [metrics["process_resident_memory_bytes"] / (1 << 20) for metrics in (was, found)]
        report.memory_mib[broker.node_id] = (memory[0], memory[1])
        if memory[1] > memory[0] + 256:
            report.problems.append(f"broker {broker.node_id} grew from {memory[0]:.0f} to {memory[1]:.0f} MiB")
        if found["process_open_fds"] > was["process_open_fds"] + 200:
            report.problems.append(f"broker {broker.node_id} has {found['process_open_fds']:.0f} descriptors")


def judge(cluster: EmbeddedCluster, produced: int, report: Report) -> None:
    """Hold the cluster against what must be true."""
    cluster.wait_healthy([WITNESS, "target", "compacted"], timeout_s=30)
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
        cluster.audit(topics=[WITNESS, "target", "compacted"])
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
    print(f"another client's slowest request {result.slowest_ms:.0f} ms; longest turns {result.longest_turns}; MiB {result.memory_mib}")
    print("\n".join(result.problems) or "nothing wrong")
    raise SystemExit(bool(result.problems))
