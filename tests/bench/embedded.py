"""Time from `EmbeddedCluster(...)` to ready, to the first acknowledged record, and to a group's first record. Best and median of some runs.

    python -m tests.bench.embedded [runs]

"process" is the first cluster of a process, which waits for imports elsewhere; "process again" one that follows.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import confluent_kafka

from minikafka.testing import EmbeddedCluster
from minikafka.testing.processes import Zygote


def measure(brokers: int, mode: Any) -> tuple[float, float, float]:
    """(ready, first acknowledged, first consumed) in seconds; the last one from the start of the consumer."""
    began = time.perf_counter()
    with EmbeddedCluster(brokers, mode=mode, topics=["t"]) as cluster:
        ready = time.perf_counter() - began
        producer = confluent_kafka.Producer(cluster.client_config(**{"linger.ms": 0}))
        producer.produce("t", b"x")
        assert producer.flush(10) == 0
        acknowledged = time.perf_counter() - began
        joining = time.perf_counter()
        consumer = confluent_kafka.Consumer(cluster.client_config(**{"group.id": "g", "auto.offset.reset": "earliest"}))
        consumer.subscribe(["t"])
        message = consumer.poll(10)
        assert message is not None and message.value() == b"x"
        consumed = time.perf_counter() - joining
        consumer.close()
        del producer
    return ready, acknowledged, consumed


def main() -> None:
    """Print a table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{'brokers':>7} {'mode':>13} {'ready':>15} {'first ack':>15} {'group first':>15}   best / median of {runs}, seconds")
    for brokers in (1, 3):
        for mode in ("thread", "process", "process again"):
            rows = []
            for _ in range(runs):
                if mode == "process":
                    Zygote.end()
                rows.append(measure(brokers, mode.split()[0]))
            cells = [f"{min(column):.2f} / {statistics.median(column):.2f}" for column in zip(*rows, strict=True)]
            print(f"{brokers:>7} {mode:>13} " + " ".join(f"{cell:>15}" for cell in cells))


if __name__ == "__main__":
    main()
