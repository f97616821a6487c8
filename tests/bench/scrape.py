"""What a scrape of a broker with many partitions costs, on its loop: all of it, and the longest time that the loop stands still.

    python tests/bench/scrape.py [--partitions 1000] [--dialects s]
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import time
from typing import Any

from minikafka.broker.measures.request_times import SAMPLES_KEPT
from minikafka.testing import EmbeddedBroker
from minikafka.testing.wait import wait_until


def fill(dispatcher: Any) -> None:
    """As many samples as are kept, of as many kinds of requests as a busy cluster has."""
    chance = random.Random(1)
    for entry in dispatcher.entries[:16]:
        entry.counts[-1] += SAMPLES_KEPT
        for _ in range(SAMPLES_KEPT):
            dispatcher.times.record(entry.name, dispatcher.times.now_s(), [chance.expovariate(1) for _ in range(6)])


def measure(partitions: int = 1000, dialects: str = "s", rounds: int = 9, profile: bool = False) -> tuple[float, float, int]:
    """(seconds of processor time for a scrape, for its longest step, bytes): the best of some rounds."""
    from minikafka.broker.observe.metrics.node import NodeMetrics

    async def scrape() -> tuple[float, float, int]:
        total, longest, size = 0.0, 0.0, 0
        pieces = metrics.steps()
        while True:
            begun = time.thread_time()
            piece = next(pieces, None)
            took = time.thread_time() - begun
            total, longest = total + took, max(longest, took)
            if piece is None:
                return total, longest, size
            size += len(piece)

    with EmbeddedBroker(topics={"wide": partitions}, config={"minikafka.metrics.dialects": dialects}) as broker:
        runner = broker.broker(1).process._runner
        metrics = NodeMetrics(runner.node)
        loop = runner.node.environment.loop

        def once() -> tuple[float, float, int]:
            return asyncio.run_coroutine_threadsafe(scrape(), loop).result(30)

        fill(runner.node.broker.dispatcher)
        hosted = runner.node.broker.replicas.partitions
        # Replicas take their roles some at a time.
        wait_until(lambda: sum(one.leader is not None for one in list(hosted.values())) >= partitions, "every partition is led", 30)
        once()
        found = [once() for _ in range(rounds)]
        if profile:
            profiler = cProfile.Profile()

            async def profiled() -> None:
                profiler.enable()
                metrics.render()
                profiler.disable()

            asyncio.run_coroutine_threadsafe(profiled(), loop).result(30)
            pstats.Stats(profiler).sort_stats("cumtime").print_stats(35)
    return min(one[0] for one in found), min(one[1] for one in found), found[-1][2]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--dialects", default="s")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    total_s, longest_s, size = measure(arguments.partitions, arguments.dialects, profile=arguments.profile)
    print(f"{arguments.partitions} partitions: {1000 * total_s:.1f} ms, {1000 * longest_s:.1f} ms at a time, {size} bytes")
