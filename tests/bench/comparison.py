"""What stands in for Kafka in tests, side by side: the same small test suite against each, with its start, CPU time and memory.

    python -m tests.bench.comparison                          all that can run here
    python -m tests.bench.comparison --only minikafka --runs 5
    python -m tests.bench.comparison --address redpanda=localhost:9092        what runs already: the suite's time only

The suite is twenty tests with confluent-kafka. Each has a topic of its own, writes ten records and reads them back in a group of its own.
Every repetition is a new process. CPU time and memory are those of the test process and of all that it started, together; `client only`
imports the client and starts nothing. Memory is the largest sum of proportional set sizes (PSS) that was seen, every 100 ms.

Needed: Java and Maven (Apache Kafka), Go (kfake), `pip install mockafka-py psutil`. What is missing is left out and named.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TESTS = 20
RECORDS = 10
SAMPLE_S = 0.1
KFAKE = Path(tempfile.gettempdir()) / "minikafka-comparison-kfake"


class Clients:
    """confluent-kafka against an address."""

    def __init__(self, address: str, *, creates_topics: bool = True) -> None:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient, NewTopic

        self._common = {"bootstrap.servers": address, "log_level": 0}
        self._kafka = confluent_kafka
        self._new_topic = NewTopic
        self._admin = AdminClient(self._common) if creates_topics else None

    def create(self, topic: str) -> None:
        """A topic of one partition."""
        if self._admin is not None:
            self._admin.create_topics([self._new_topic(topic, 1, 1)])[topic].result(30)

    def producer(self) -> Any:
        """With the default settings, but no waiting for more records."""
        return self._kafka.Producer({**self._common, "linger.ms": 0})

    def consumer(self, group: str) -> Any:
        """One that begins at the beginning."""
        return self._kafka.Consumer({**self._common, "group.id": group, "auto.offset.reset": "earliest"})


class Fakes:
    """mockafka-py's classes in the place of confluent-kafka's."""

    def __init__(self) -> None:
        import mockafka
        from mockafka.admin_client import NewTopic

        self._mockafka = mockafka
        self._new_topic = NewTopic
        self._admin = mockafka.FakeAdminClientImpl()

    def create(self, topic: str) -> None:
        """A topic of one partition."""
        self._admin.create_topics([self._new_topic(topic, 1, 1)])

    def producer(self) -> Any:
        """A fake one."""
        return self._mockafka.FakeProducer()

    def consumer(self, group: str) -> Any:
        """A fake one."""
        return self._mockafka.FakeConsumer()


@contextlib.contextmanager
def client_only() -> Iterator[None]:
    """Nothing to talk to."""
    import confluent_kafka

    assert confluent_kafka
    yield None


@contextlib.contextmanager
def minikafka(mode: Any) -> Iterator[Clients]:
    """One broker, in a thread or in a process."""
    from minikafka.testing import EmbeddedCluster

    with EmbeddedCluster(1, mode=mode) as cluster:
        yield Clients(cluster.bootstrap_servers)


@contextlib.contextmanager
def apache_kafka() -> Iterator[Clients]:
    """One broker in a JVM, formatted and started; what a container has inside."""
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.apache_kafka import KafkaBroker

    with tempfile.TemporaryDirectory() as directory:
        broker = KafkaBroker(Path(directory))
        broker.format()
        with broker.running():
            yield Clients(broker.bootstrap)


@contextlib.contextmanager
def kfake() -> Iterator[Clients]:
    """One broker of franz-go's kfake, as a process."""
    with subprocess.Popen([str(KFAKE)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Clients(process.stdout.readline().strip())
        process.terminate()


@contextlib.contextmanager
def librdkafka_mock() -> Iterator[Clients]:
    """The mock cluster that lives in a client of librdkafka; it makes topics when they are asked for."""
    import confluent_kafka

    owner = confluent_kafka.Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(owner.list_topics(timeout=10).brokers.values()))
    yield Clients(f"{broker.host}:{broker.port}", creates_topics=False)


@contextlib.contextmanager
def mockafka() -> Iterator[Fakes]:
    """No broker and no protocol: classes in the place of the client's."""
    yield Fakes()


@contextlib.contextmanager
def running(address: str) -> Iterator[Clients]:
    """What somebody else has started."""
    yield Clients(address)


CANDIDATES: dict[str, Callable[[], Any]] = {
    "client only": client_only,
    "mockafka-py": mockafka,
    "librdkafka's mock": librdkafka_mock,
    "kfake": kfake,
    "minikafka, thread": lambda: minikafka("thread"),
    "minikafka, process": lambda: minikafka("process"),
    "Apache Kafka, process": apache_kafka,
}


def missing(name: str) -> str:
    """Why a candidate cannot run here; "" when it can."""
    if name == "mockafka-py" and importlib.util.find_spec("mockafka") is None:
        return "pip install mockafka-py"
    if name == "kfake":
        return _build_kfake()
    if name.startswith("Apache"):
        sys.path.insert(0, str(ROOT / "tests"))
        from helpers.apache_kafka import class_path, missing

        reason = missing()
        if reason is None:
            class_path()
        return reason or ""
    return ""


def _build_kfake() -> str:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return "Go is not installed"
    done = subprocess.run([go, "build", "-o", str(KFAKE), "."], cwd=HERE / "kfake", capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def one_test(clients: Any, number: int) -> None:
    """Write and read back."""
    topic = f"test-{number}"
    clients.create(topic)
    producer = clients.producer()
    expected = {f"{number}/{index}".encode() for index in range(RECORDS)}
    for value in sorted(expected):
        producer.produce(topic, value=value.decode(), partition=0)
    assert not producer.flush(30)
    consumer = clients.consumer(f"group-{number}")
    consumer.subscribe([topic])
    seen: set[bytes] = set()
    deadline = time.monotonic() + 60
    while seen != expected:
        assert time.monotonic() < deadline, f"{len(seen)} of {RECORDS} records after 60 s"
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value()
            seen.add(value.encode() if isinstance(value, str) else value)
    consumer.close()


class Watch(threading.Thread):
    """The largest memory of this process and its descendants, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest_bytes = 0

    def run(self) -> None:
        while True:
            self.look()
            time.sleep(SAMPLE_S)

    def look(self) -> None:
        """Now."""
        self.largest_bytes = max(self.largest_bytes, sum(_memory_bytes(process) for process in _family()))


def _family() -> list[Any]:
    import psutil

    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _memory_bytes(process: Any) -> int:
    import psutil

    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", 0) or full.rss)
    except psutil.Error:
        return 0


def _cpu_s() -> float:
    import psutil

    total = 0.0
    for process in _family():
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def measure(name: str, address: str) -> dict[str, float]:
    """One repetition, in this process."""
    watch = Watch()
    watch.start()
    began = time.perf_counter()
    with (running(address) if address else CANDIDATES[name]()) as clients:
        started = time.perf_counter()
        first = started
        for number in range(TESTS if clients is not None else 0):
            one_test(clients, number)
            if number == 0:
                first = time.perf_counter()
        ended = time.perf_counter()
        watch.look()
        cpu_s = _cpu_s()
    return {"first_s": first - began, "suite_s": ended - began, "cpu_s": cpu_s, "memory_mib": watch.largest_bytes / 2**20}


def repeated(name: str, runs: int, address: str = "") -> dict[str, list[float]]:
    """Each repetition in a process of its own. Raises RuntimeError when one fails."""
    rows: list[dict[str, float]] = []
    for _ in range(runs):
        command = [sys.executable, "-m", "tests.bench.comparison", "--one", name, "--at", address]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: [row[key] for row in rows] for key in rows[0]}


def _cell(values: list[float], digits: int) -> str:
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="Names that begin so.")
    parser.add_argument("--address", action="append", default=[], metavar="NAME=HOST:PORT")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--at", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one, options.at)))
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at first")
    print("\n| | first record read | the suite | CPU | memory |\n|---|---|---|---|---|")
    wanted = {name: "" for name in CANDIDATES if name.startswith(options.only)} if not options.address else {}
    wanted |= dict(found.split("=", 1) for found in options.address)
    for name, address in wanted.items():
        reason = "" if address else missing(name)
        if reason:
            print(f"| {name} | left out: {reason} | | | |")
            continue
        found = repeated(name, options.runs, address)
        cells = [_cell(found[key], digits) for key, digits in (("first_s", 2), ("suite_s", 1), ("cpu_s", 1), ("memory_mib", 0))]
        print(f"| {name} | {cells[0]} s | {cells[1]} s | {cells[2]} s | {cells[3]} MiB |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
