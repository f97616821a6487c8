"""What requests cost the brokers, and in one version of minikafka compared with another: both run at once and are loaded in turns.

    python tests/bench/hot_path.py                                this checkout
    python tests/bench/hot_path.py --before ../before             beside another checkout, with its .venv if it has one
    python tests/bench/hot_path.py --before ../before --count system-calls
    python tests/bench/hot_path.py --before ../before --count calls --only "acks=all" --profile
    python tests/bench/hot_path.py --before ../before --count instructions --requests 2000

Without `--count`: the brokers' CPU time for a request in microseconds (all of the cluster's processes, the kernel's share included), the
medians of the rounds, and the median of the ratios of each round. Brokers are pinned to one core and clients to another. The p50 and p99
are those of the load, so at saturation.

`--count` counts what a request does, and hardly depends on the machine: `bytecode` instructions, `calls` of functions (cProfile),
`system-calls` (strace) or `instructions` in user space (callgrind). How many requests arrive together still varies a little, and what the
brokers do beside them counts, too.

Needed: gcc, two cores, confluent-kafka and psutil; strace or valgrind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory import warm_memory
from raw import HERE, fetch_frame, frame, produce_frame

from minikafka.client.admin import Admin
from minikafka.wire.batch import build_batch
from minikafka.wire.header import decode_response_header
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.registry import api

ROOT = HERE.parents[1]
BROKER_CORE, CLIENT_CORE = 0, 1
MARK = 0x5EA70FF5
FETCH_VERSION, PRODUCE_VERSION, PRODUCER_ID_VERSION = 12, 9, 4
RECORD = b"x" * 100
#: Bytes of a batch before its CRC and from it on, and where its first sequence number is.
CRC_AT, CRC_FROM, SEQUENCE_AT = 17, 21, 53
#: These rows write so much that memory which the host took back would be measured.
MUCH_BYTES = 8 << 10
SHOWN = 45


@dataclass
class Cluster:
    """The brokers of one version."""

    name: str
    host: subprocess.Popen[str]
    ports: list[int]
    pids: list[int]
    directory: Path

    @property
    def address(self) -> str:
        """bootstrap.servers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def cpu_s(self) -> float:
        """CPU time of all threads so far."""
        total = 0
        for pid in self.pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9


@dataclass
class Load:
    """What a run of a row did: `units` requests (or records), and their latency in microseconds if it is known."""

    units: float
    p50_us: float = 0.0
    p99_us: float = 0.0


@dataclass
class Row:
    """One kind of requests. `run(cluster, row, seconds, requests)` loads the cluster; 0 requests are as many as fit into the time."""

    name: str
    brokers: int
    run: Callable[[Cluster, Row, float, int], Load]
    topic: str = "produce"
    size: int = 0
    acks: int = 1
    connections: int = 1
    depth: int = 1
    partitions: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


# -- clients -----------------------------------------------------------------------------------------------------------


class Client:
    """A connection that asks and waits."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> bytes:
        """One response without its size."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = self.socket.recv(size, socket.MSG_WAITALL)
        if len(data) != size:
            raise ConnectionError("closed by the broker")
        return data

    def ask(self, request: Any, version: int) -> Any:
        """Ask, and decode the answer."""
        self.socket.sendall(frame(request, version))
        data = memoryview(self.receive())
        spec = api(request.API_KEY)
        assert spec is not None
        _, position = decode_response_header(data, request.API_KEY, version, 0)
        response: Any = spec.response
        return response.decode(version, data, position)


def raw_load(cluster: Cluster, row: Row, data: bytes, seconds: float, requests: int, steps: tuple[str, ...] = ()) -> Load:
    """Send a frame over and over."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        program = str(cluster.directory.parent / "raw_load")
        numbers = [str(row.connections), str(row.depth), str(seconds), str(requests)]
        command = ["taskset", "-c", str(CLIENT_CORE), program, "127.0.0.1", str(cluster.ports[0]), file.name, *numbers, *steps]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return Load(float(output[0]), float(output[3]), float(output[4]))


def produce(cluster: Cluster, row: Row, seconds: float, requests: int) -> Load:
    """The same batch in each request."""
    return raw_load(cluster, row, produce_frame(row.topic, row.size, row.acks, row.partitions), seconds, requests)


def produce_idempotent(cluster: Cluster, row: Row, seconds: float, requests: int) -> Load:
    """As librdkafka with enable.idempotence: a batch of several records, with ascending sequence numbers."""
    owner = Client(cluster.ports[0]).ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), PRODUCER_ID_VERSION)
    now_ms = time.time_ns() // 1_000_000
    count = max(row.size // 107, 1)
    records = [(index, now_ms, None, RECORD, ()) for index in range(count)]
    batch = bytes(build_batch(records, producer_id=owner.producer_id, producer_epoch=owner.producer_epoch, base_sequence=0))
    data = [ProduceRequest.PartitionProduceData(index=0, records=batch)]
    topics = [ProduceRequest.TopicProduceData(name=row.topic, partition_data=data)]
    sent = frame(ProduceRequest(acks=row.acks, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)
    at = sent.index(batch)
    steps = (f"{at + SEQUENCE_AT}+{count}", f"crc:{at + CRC_AT}:{at + CRC_FROM}:{at + len(batch)}")
    return raw_load(cluster, row, sent, seconds, requests, steps)


def fetch(cluster: Cluster, row: Row, seconds: float, requests: int) -> Load:
    """Full fetches without a session, as librdkafka's."""
    return raw_load(cluster, row, fetch_frame(row.topic, row.size), seconds, requests)


def fetch_in_session(cluster: Cluster, row: Row, seconds: float, requests: int) -> Load:
    """Incremental fetches, as the Java consumer's: the partition is named because its offset changed."""
    client = Client(cluster.ports[0])
    session_id = client.ask(_fetch(row, 0, 0, 0), FETCH_VERSION).session_id
    data = frame(_fetch(row, 0, session_id, MARK), FETCH_VERSION)
    at = data.index(MARK.to_bytes(4, "big"))
    first = data[:at] + (1).to_bytes(4, "big") + data[at + 4 :]
    return raw_load(cluster, row, first, seconds, requests, (f"{at}+1",))


def _fetch(row: Row, offset: int, session_id: int, session_epoch: int, wait_ms: int = 100) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=row.size)
    topics = [FetchRequest.FetchTopic(topic=row.topic, partitions=[partition])]
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=row.size, session_id=session_id, session_epoch=session_epoch, topics=topics
    )


def wake_fetch(cluster: Cluster, row: Row, seconds: float, requests: int) -> Load:
    """A record for a consumer whose fetch is parked: the produce, the fetch that it wakes, and the consumer's next fetch."""
    producer, consumer = Client(cluster.ports[0]), Client(cluster.ports[0])
    record = produce_frame(row.topic, 100, row.acks)
    producer.socket.sendall(record)
    base = _base_offset(producer.receive())
    session_id = consumer.ask(_fetch(row, base, 0, 0), FETCH_VERSION).session_id if row.settings["session"] else 0
    deadline, rounds, waited = time.monotonic() + seconds, 0, []
    data = frame(_fetch(row, MARK << 32 | MARK, session_id, MARK - 1 if row.settings["session"] else -1, 30_000), FETCH_VERSION)
    offset_at, epoch_at = data.index((MARK << 32 | MARK).to_bytes(8, "big")), data.find((MARK - 1).to_bytes(4, "big"))
    request = bytearray(data)
    while rounds < requests if requests else time.monotonic() < deadline:
        rounds += 1
        request[offset_at : offset_at + 8] = (base + rounds).to_bytes(8, "big")
        if epoch_at >= 0:
            request[epoch_at : epoch_at + 4] = rounds.to_bytes(4, "big")
        consumer.socket.sendall(request)
        time.sleep(0)
        producer.socket.sendall(record)
        began = time.perf_counter()
        producer.receive()
        consumer.receive()
        waited.append(1e6 * (time.perf_counter() - began))
    waited.sort()
    return Load(rounds, waited[len(waited) // 2], waited[len(waited) * 99 // 100])


def _base_offset(response: bytes) -> int:
    _, position = decode_response_header(memoryview(response), ProduceRequest.API_KEY, PRODUCE_VERSION, 0)
    spec = api(ProduceRequest.API_KEY)
    assert spec is not None
    answer: Any = spec.response
    return int(answer.decode(PRODUCE_VERSION, memoryview(response), position).responses[0].partition_responses[0].base_offset)


def librdkafka(cluster: Cluster, row: Row, seconds: float, requests: int) -> Load:
    """confluent-kafka in a process of its own; units are records."""
    job = {"address": cluster.address, "topic": row.topic, "size": row.size, "seconds": seconds, "records": requests, **row.settings}
    command = ["taskset", "-c", str(CLIENT_CORE), sys.executable, str(HERE / "hot_path_client.py"), json.dumps(job)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Load(float(output))


def _rdkafka(kind: str, **settings: Any) -> dict[str, Any]:
    return {"kind": kind, "settings": {name.replace("_", "."): value for name, value in settings.items()}}


IDEMPOTENT: dict[str, Any] = {"acks": "all", "enable_idempotence": True}
ROWS = [
    Row("produce 100 B, acks=1", 1, produce, size=100, connections=8, depth=8),
    Row("produce 1 KiB, acks=1", 1, produce, size=1024, connections=6, depth=3),
    Row("produce 16 KiB, acks=1", 1, produce, size=16 << 10, connections=8, depth=5),
    Row("produce 64 KiB, acks=1", 1, produce, size=64 << 10, connections=8, depth=5),
    Row("produce 1 KiB, acks=1, one by one", 1, produce, size=1024),
    Row("idempotent 1 KiB of 100 B, acks=1", 1, produce_idempotent, size=1024, depth=5),
    Row("idempotent 16 KiB of 100 B, acks=1", 1, produce_idempotent, size=16 << 10, depth=5),
    Row("fetch 16 KiB", 1, fetch, "fetch", 16 << 10, connections=4, depth=2),
    Row("fetch 1 MiB", 1, fetch, "fetch", 1 << 20, connections=4, depth=2),
    Row("fetch 16 KiB in a session", 1, fetch_in_session, "fetch", 16 << 10, depth=2),
    Row("fetch 1 MiB in a session", 1, fetch_in_session, "fetch", 1 << 20, depth=2),
    Row("wake a parked fetch", 1, wake_fetch, "woken", 1 << 20, settings={"session": False}),
    Row("wake a parked fetch in a session", 1, wake_fetch, "woken", 1 << 20, settings={"session": True}),
    Row("librdkafka 100 B, acks=1", 1, librdkafka, size=100, settings=_rdkafka("produce", acks=1, linger_ms=5)),
    Row("librdkafka 1 KiB, acks=1", 1, librdkafka, size=1024, settings=_rdkafka("produce", acks=1, linger_ms=5)),
    Row("librdkafka reads 100 B", 1, librdkafka, "stored", 100, settings=_rdkafka("consume", fetch_queue_backoff_ms=5)),
    Row("produce 100 B, acks=all", 3, produce, "replicated", 100, -1, 8, 8),
    Row("produce 1 KiB, acks=all", 3, produce, "replicated", 1024, -1, 6, 3),
    Row("produce 16 KiB, acks=all", 3, produce, "replicated", 16 << 10, -1, 8, 5),
    Row("produce 1 KiB, acks=all, one by one", 3, produce, "replicated", 1024, -1),
    Row("produce 2 x 16 KiB, acks=all", 3, produce, "spread", 16 << 10, -1, 1, 5, 2),
    Row("idempotent 16 KiB of 100 B, acks=all", 3, produce_idempotent, "replicated", 16 << 10, -1, 1, 5),
    Row("librdkafka 100 B, acks=all", 3, librdkafka, "replicated", 100, settings=_rdkafka("produce", linger_ms=5, **IDEMPOTENT)),
]


# -- clusters ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster_of(name: str, tree: Path, size: int, directory: Path, observer: list[str], *, is_slowed: bool) -> Iterator[Cluster]:
    """A running cluster of the version in `tree`, with its topics."""
    python = tree / ".venv" / "bin" / "python"
    if not python.exists():
        python = Path(sys.executable)
    environment = {**os.environ, "MINIKAFKA_PROFILE": str(directory / "profile"), "PYTHONPATH": f"{tree}:{HERE / 'profiled'}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if is_slowed:
        environment["MINIKAFKA_SLOWED"] = "1"
    own = directory / name
    own.mkdir()
    if observer:
        wrapper = own / "python"
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(observer)} "{python}" "$@"\n')
        wrapper.chmod(0o755)
        environment["MINIKAFKA_PYTHON"] = str(wrapper)
    command = [str(python), str(HERE / "hot_path_cluster.py"), str(size), str(own / "cluster")]
    with subprocess.Popen(command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None and host.stdin is not None
        line = host.stdout.readline()
        if not line:
            raise RuntimeError(f"the brokers of {name} did not start")
        cluster = Cluster(name, host, directory=own, **json.loads(line))
        try:
            asyncio.run(prepare(cluster, size))
            yield cluster
        finally:
            host.stdin.close()
            host.wait(60)


async def prepare(cluster: Cluster, size: int) -> None:
    """Create the topics; broker 1 leads all partitions."""
    kept = {"retention.bytes": str(128 << 20), "segment.bytes": str(64 << 20), "file.delete.delay.ms": "0"}
    replicas = list(range(1, size + 1))
    async with Admin(cluster.address) as admin:
        for topic, partitions in (("produce", 1), ("woken", 1)) if size == 1 else (("replicated", 1), ("spread", 2)):
            await admin.create_topic(topic, assignments=dict.fromkeys(range(partitions), replicas), configs=kept)
        for topic in ("fetch", "stored") if size == 1 else ():
            await admin.create_topic(topic, assignments={0: replicas})
    if size == 1:
        raw_load(cluster, Row("", 1, fetch, depth=5), produce_frame("fetch", 16 << 10, 1), 60.0, 128)


def pin(cluster: Cluster) -> None:
    """All threads of the brokers to one core."""
    for pid in cluster.pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {BROKER_CORE})


# -- measures ----------------------------------------------------------------------------------------------------------


def measure_cpu(clusters: list[Cluster], row: Row, options: argparse.Namespace) -> None:
    """Load each cluster in turn and print the row."""
    found: dict[str, list[tuple[float, Load]]] = {cluster.name: [] for cluster in clusters}
    for number in range(options.rounds + 1):
        for cluster in clusters if number % 2 else reversed(clusters):
            if row.size >= MUCH_BYTES:
                warm_memory(1 << 30)
            before = cluster.cpu_s()
            load = row.run(cluster, row, options.seconds if number else 0.5, 0)
            if number:
                found[cluster.name].append(((cluster.cpu_s() - before) / max(load.units, 1) * 1e6, load))
    line = f"{row.name:<38}"
    for values in found.values():
        line += f"{statistics.median(cpu for cpu, _ in values):>9.2f}"
    if len(clusters) == 2:
        first, second = found.values()
        ratios = sorted(own[0] / other[0] for own, other in zip(first, second, strict=True))
        line += f"{statistics.median(ratios):>8.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    if values[0][1].p50_us:
        line += "   p50 p99 " + "  ".join(_latency(values) for values in found.values())
    print(line, flush=True)


def _latency(values: list[tuple[float, Load]]) -> str:
    return f"{statistics.median(load.p50_us for _, load in values):.0f} {statistics.median(load.p99_us for _, load in values):.0f} us"


Counts = dict[str, tuple[float, float]]


def count_calls(cluster: Cluster, row: Row, requests: int) -> Counts:
    """Calls of functions of Python and C, and the time in them, of a request."""
    return _count_inside(cluster, row, requests, signal.SIGUSR1)


def count_bytecode(cluster: Cluster, row: Row, requests: int) -> Counts:
    """Bytecode instructions of a request."""
    return _count_inside(cluster, row, requests, signal.SIGUSR2)


def _count_inside(cluster: Cluster, row: Row, requests: int, number: signal.Signals) -> Counts:
    files = [cluster.directory.parent / f"profile.{pid}" for pid in cluster.pids]
    for file in files:
        file.unlink(missing_ok=True)
    for pid in cluster.pids:
        os.kill(pid, number)
    time.sleep(0.1)
    load = row.run(cluster, row, 60.0, requests)
    for pid in cluster.pids:
        os.kill(pid, number)
    total: dict[str, list[float]] = {}
    for file in files:
        while not file.exists():
            time.sleep(0.01)
        for name, (calls, seconds) in json.loads(file.read_text()).items():
            sums = total.setdefault(name, [0.0, 0.0])
            sums[0] += calls / load.units
            sums[1] += seconds / load.units * 1e6
    return {name: (calls, micros) for name, (calls, micros) in total.items()}


def count_system_calls(cluster: Cluster, row: Row, requests: int) -> Counts:
    """System calls of a request, and the time in them."""
    output = cluster.directory / "strace"
    command = ["strace", "-q", "-c", "-f", "-U", "name,calls,time-total", "-o", str(output)]
    tracer = subprocess.Popen([*command, *(part for pid in cluster.pids for part in ("-p", str(pid)))])
    time.sleep(0.7)
    load = row.run(cluster, row, 60.0, requests)
    tracer.send_signal(signal.SIGINT)
    tracer.wait()
    counts: Counts = {}
    for line in output.read_text().splitlines():
        if found := re.match(r"(\w+)\s+(\d+)\s+([\d.]+)", line.strip()):
            counts[found[1]] = int(found[2]) / load.units, float(found[3]) / load.units * 1e6
    counts.pop("total", None)
    return counts


def count_instructions(cluster: Cluster, row: Row, requests: int) -> Counts:
    """Instructions of a request in user space."""

    def control(*arguments: str) -> None:
        for pid in cluster.pids:
            subprocess.run(["callgrind_control", *arguments, str(pid)], check=True, capture_output=True)

    control("--instr=on")
    row.run(cluster, row, 600.0, max(requests // 4, 64))
    control("--zero")
    load = row.run(cluster, row, 600.0, requests)
    control("--dump")
    control("--instr=off")
    counts: Counts = {}
    for pid in cluster.pids:
        dumps = sorted(cluster.directory.glob(f"callgrind.out.{pid}.*"), key=lambda path: path.stat().st_mtime)
        table = subprocess.run(["callgrind_annotate", "--threshold=100", str(dumps[-1])], check=True, capture_output=True, text=True).stdout
        for line in table.splitlines():
            # Count, share, file:function, object.
            if found := re.match(r"\s*([\d,]+) \(.*?\)\s+\S*?:(\S+)", line):
                own = counts.get(found[2], (0.0, 0.0))[0] + int(found[1].replace(",", "")) / load.units
                counts[found[2]] = own, own
    return counts


COUNTERS: dict[str, Callable[[Cluster, Row, int], Counts]] = {
    "bytecode": count_bytecode,
    "calls": count_calls,
    "system-calls": count_system_calls,
    "instructions": count_instructions,
}


def count(clusters: list[Cluster], row: Row, options: argparse.Namespace) -> None:
    """Count once on each cluster and print the row."""
    counted = []
    for cluster in clusters:
        row.run(cluster, row, 60.0, max(options.requests // 4, 64))
        counted.append(COUNTERS[options.count](cluster, row, options.requests))
    totals = [sum(calls for calls, _ in counts.values()) for counts in counted]
    ratio = f"{totals[0] / totals[1]:>9.3f}" if len(totals) == 2 else ""
    print(f"{row.name:<38}" + "".join(f"{total:>13,.2f}" for total in totals) + ratio, flush=True)
    if options.profile:
        for cluster, counts in zip(clusters, counted, strict=True):
            print(f"  {cluster.name}: calls, microseconds")
            for name, (calls, micros) in sorted(counts.items(), key=lambda item: -item[1][1])[:SHOWN]:
                print(f"    {calls:>8.3f} {micros:>8.2f}  {name}")


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--count", choices=list(COUNTERS))
    parser.add_argument("--requests", type=int, default=4000, help="to count in")
    parser.add_argument("--profile", action="store_true", help="with --count: what was counted")
    options = parser.parse_args()
    trees = {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    print(f"load {os.getloadavg()[0]:.1f}; {options.count or 'CPU us'} a request: {', '.join(trees)}, ratio", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="minikafka-hot-path-"))
    try:
        subprocess.run(["gcc", "-O2", "-o", str(directory / "raw_load"), str(HERE / "raw_load.c")], check=True)
        for size in (1, 3):
            rows = [row for row in ROWS if row.brokers == size and options.only in row.name]
            if rows:
                run_rows(trees, size, rows, directory, options)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


def run_rows(trees: dict[str, Path], size: int, rows: list[Row], directory: Path, options: argparse.Namespace) -> None:
    """Start the clusters of one size, and measure."""
    with contextlib.ExitStack() as stack:
        clusters = []
        for name, tree in trees.items():
            own = Path(directory / f"{size}")
            own.mkdir(exist_ok=True)
            if not (own / "raw_load").exists():
                shutil.copy(directory / "raw_load", own / "raw_load")
            out = own / name / "callgrind.out.%p"
            observer = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
            observer = observer if options.count == "instructions" else []
            clusters.append(stack.enter_context(cluster_of(name, tree, size, own, observer, is_slowed=bool(options.count))))
        for row in rows:
            if options.count:
                count(clusters, row, options)
            else:
                for cluster in clusters:
                    pin(cluster)
                measure_cpu(clusters, row, options)


if __name__ == "__main__":
    main()
