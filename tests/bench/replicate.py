"""CPU time of the broker code for one Produce with acks=all and its replication: three brokers in one process, over sockets.

    python tests/bench/replicate.py [requests]

A client keeps five requests in flight, each with one batch of 16 KiB for each of two partitions, as the Java client does. User time of the
whole process, in microseconds a request; the best of five rounds.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys

from raw import produce_frame

from minikafka.client.admin import Admin
from minikafka.testing import EmbeddedCluster

IN_FLIGHT = 5


def receive(connection: socket.socket) -> None:
    """Receive one response."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    connection.recv(size, socket.MSG_WAITALL)


def measure(connection: socket.socket, frame: bytes, requests: int) -> float:
    """User time a request, in microseconds."""
    began = os.times().user
    for number in range(requests):
        connection.sendall(frame)
        if number >= IN_FLIGHT:
            receive(connection)
    for _ in range(min(IN_FLIGHT, requests)):
        receive(connection)
    return (os.times().user - began) / requests * 1e6


async def prepare(bootstrap: str) -> None:
    """Create the topic: broker 1 leads both partitions."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic("spread", assignments={0: [1, 2, 3], 1: [1, 2, 3]})


def main() -> None:
    """Print one line."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    with EmbeddedCluster(3, mode="thread") as cluster:
        asyncio.run(prepare(cluster.bootstrap_servers))
        host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
        with socket.create_connection((host, int(port))) as connection:
            frame = produce_frame("spread", 16 << 10, -1, 2)
            measure(connection, frame, requests // 4)
            rounds = [measure(connection, frame, requests) for _ in range(5)]
    print(f"replicated produce 2x16 KiB {min(rounds):.1f} us (median {statistics.median(rounds):.1f})")


if __name__ == "__main__":
    main()
