"""What three brokers cost before anybody uses them: start, memory, CPU at rest. Compares checkouts, which take turns in one run.

    python -m tests.bench.start_and_rest [--rounds 5] [--port 21000] [--rest-s 10] NAME=PATH [NAME=PATH ...]

PATH is a checkout with a virtual environment in `.venv`; without any, the current checkout is measured. Three combined nodes start as
processes of their own, on formatted storage, with Kafka's default time-outs. Each figure is a median, with the smallest and the largest.
The ratio is the median of the rounds' ratios to the first checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
NODES = (1, 2, 3)
#: After the start, before anything at rest is measured.
SETTLE_S = 5.0
START_TIMEOUT_S = 60.0
#: Metadata version 1 of no topics.
METADATA = struct.pack(">hhih", 3, 1, 0, -1) + struct.pack(">i", 0)
IMPORT = """
import json, sys, time
began_s, began_cpu_s = time.perf_counter(), time.process_time()
import minikafka.broker.node
took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
names = list(sys.modules)
print(json.dumps([took_s, cpu_s, len(names), sum(name.startswith("minikafka") for name in names)]))
"""


class Tree:
    """A checkout to be measured."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.python = str(path / ".venv/bin/python")
        # Without bytecode, the compiler would be measured.
        self.environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}

    def run(self, *arguments: str) -> str:
        """Run Python in this checkout, and return what it prints."""
        done = subprocess.run([self.python, *arguments], capture_output=True, text=True, env=self.environment, cwd="/", check=True)
        return done.stdout

    @contextmanager
    def cluster(self, port: int) -> Iterator[tuple[list[psutil.Popen], float]]:
        """Three nodes that have just been started, and when. Broker 1 listens on `port`, and so on."""
        folder = Path(tempfile.mkdtemp())
        cluster_id = self.run("-m", "minikafka", "storage", "random-uuid").strip()
        for node in NODES:
            (folder / f"{node}.properties").write_text(properties(node, port, folder))
            self.run("-m", "minikafka", "storage", "format", "-t", cluster_id, "-c", str(folder / f"{node}.properties"))
        nodes = []
        began_s = time.monotonic()
        try:
            for node in NODES:
                with open(folder / f"{node}.log", "wb") as log:
                    command = [self.python, "-m", "minikafka", "start", "-c", str(folder / f"{node}.properties")]
                    nodes.append(psutil.Popen(command, stdout=log, stderr=log, env=self.environment, cwd="/"))
            yield nodes, began_s
        finally:
            for process in nodes:
                process.kill()
                process.wait()
            shutil.rmtree(folder)


def properties(node: int, port: int, folder: Path) -> str:
    """The properties of one node."""
    voters = ",".join(f"{other}@127.0.0.1:{port + 10 + other}" for other in NODES)
    return f"""process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port + node - 1},CONTROLLER://127.0.0.1:{port + 10 + node}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data{node}
"""


def brokers_named(port: int) -> int:
    """The number of brokers in a node's metadata; 0 if it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection, connection.makefile("rwb") as stream:
            stream.write(struct.pack(">i", len(METADATA)) + METADATA)
            stream.flush()
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    except (OSError, struct.error):
        return 0
    return int(struct.unpack_from(">i", answer, 4)[0])


def cpu_s(nodes: list[psutil.Popen]) -> float:
    """The CPU time that the processes have used."""
    return sum(times.user + times.system for times in (process.cpu_times() for process in nodes))


def at_rest(nodes: list[psutil.Popen]) -> tuple[float, int]:
    """The CPU time of all threads in seconds, which the kernel here counts exactly, and the number of times that they were woken up."""
    used_ns = wake_ups = 0
    for process in nodes:
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            used_ns += int((thread / "schedstat").read_text().split()[0])
            wake_ups += int((thread / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return used_ns / 1e9, wake_ups


def memory_mib(nodes: list[psutil.Popen]) -> float:
    """The mean proportional set size."""
    return statistics.mean(process.memory_full_info().pss for process in nodes) / (1 << 20)


def measure(tree: Tree, port: int, rest_s: float) -> dict[str, float]:
    """All figures of one round."""
    found: dict[str, float] = {}
    took_s, import_cpu_s, modules, own = json.loads(tree.run("-c", IMPORT))
    found["import of a node, ms"], found["CPU of the import, ms"] = 1000 * took_s, 1000 * import_cpu_s
    found["modules"], found["own modules"] = modules, own
    with tree.cluster(port) as (nodes, began_s):
        while brokers_named(port + len(NODES) - 1) < len(NODES):
            if time.monotonic() > began_s + START_TIMEOUT_S:
                raise TimeoutError(f"{tree.name}: the brokers do not start")
            time.sleep(0.005)
        found["start, s"] = time.monotonic() - began_s
        found["CPU of the start, s"] = cpu_s(nodes)
        time.sleep(SETTLE_S)
        found["memory a broker, MiB"] = memory_mib(nodes)
        (before_s, before), clock_s = at_rest(nodes), time.monotonic()
        time.sleep(rest_s)
        passed_s, (after_s, after) = time.monotonic() - clock_s, at_rest(nodes)
        found["CPU at rest, % of a core"] = 100 * (after_s - before_s) / passed_s
        found["wake-ups a second"] = (after - before) / passed_s
    return found


def show(trees: list[Tree], results: dict[str, list[dict[str, float]]]) -> None:
    """Print a table."""
    first = results[trees[0].name]
    print("\n" + " | ".join(["", *(tree.name for tree in trees), *(f"{tree.name} / {trees[0].name}" for tree in trees[1:])]))
    for figure in first[0]:
        cells = [figure]
        for tree in trees:
            values = [result[figure] for result in results[tree.name]]
            cells.append(f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})")
        for tree in trees[1:]:
            ratios = [other[figure] / own[figure] for own, other in zip(first, results[tree.name], strict=True)]
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        print(" | ".join(cells))


def main() -> None:
    """Measure all checkouts by turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", default=[f"this={ROOT}"], metavar="NAME=PATH")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=21000)
    parser.add_argument("--rest-s", type=float, default=10.0)
    options = parser.parse_args()
    trees = [Tree(name, Path(path)) for name, _, path in (given.partition("=") for given in options.trees)]
    for tree in trees:
        tree.run("-c", IMPORT)
        with tree.cluster(options.port):
            time.sleep(3)
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(options.rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            found = measure(tree, options.port, options.rest_s)
            results[tree.name].append(found)
            shown = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
            print(f"load {os.getloadavg()[0]:.1f} {tree.name}: {shown}", flush=True)
    show(trees, results)


if __name__ == "__main__":
    main()
