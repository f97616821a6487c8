"""A cluster of some version of minikafka for `hot_path.py`, which runs this with that version's Python.

Prints the brokers' ports and process ids as JSON, and stops them when its input ends. It uses only what every version has.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from minikafka.testing.cluster import ProcessCluster

PROPERTIES = {
    "log.retention.check.interval.ms": "250",
    "broker.session.timeout.ms": "600000",
    "broker.heartbeat.interval.ms": "5000",
    "replica.lag.time.max.ms": "600000",
}


def main() -> None:
    """Runs until its input ends."""
    size, directory = int(sys.argv[1]), Path(sys.argv[2])
    cluster = ProcessCluster(size, properties={**PROPERTIES, "min.insync.replicas": "1"}, directory=directory)
    try:
        cluster.format()
        # Nodes are started with sys.executable: this one may put a program before it that observes them.
        sys.executable = os.environ.get("MINIKAFKA_PYTHON", sys.executable)
        cluster.start(timeout_s=600.0)
        pids = [node.process.pid for node in cluster.nodes.values() if node.process is not None]
        print(json.dumps({"ports": [node.port for node in cluster.nodes.values()], "pids": pids}), flush=True)
        sys.stdin.read()
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
