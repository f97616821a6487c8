"""Samples of requests, durations, windows and rates, over clocks that the test turns; and a sampled request on a live node."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.measures.durations import Durations, Window
from minikafka.broker.measures.readings import Readings
from minikafka.broker.measures.request_times import PHASES, SAMPLES_A_SECOND, RequestTimes, Sample, quantiles_of
from minikafka.client.admin import Admin
from minikafka.client.producer import Producer


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class FlushingConnection:
    """Sends at the end of the turn, like SocketConnection, and calls watchers before and afterwards."""

    last_active_s = 999.998

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.queue: list[Any] = []

    def watch_flush(self, watcher: Any) -> None:
        self.queue.append(watcher)

    def finish(self, ticket: int, pieces: list[bytes]) -> None:
        self.queue.append(self)

    def flush(self) -> None:
        self.clock.now_s += 0.004

    def end_of_turn(self) -> None:
        for one in self.queue:
            one.flush()


def medians(times: RequestTimes, name: str) -> dict[str, float]:
    return {phase: times.quantiles(name, phase)[0] for phase in PHASES}


def test_the_phases_of_a_request() -> None:
    clock = Clock()
    times, connection = RequestTimes(clock), FlushingConnection(clock)
    sample = Sample(times, connection)
    sample.name = "FetchFollower"
    clock.now_s += 0.001
    sample.handled()
    clock.now_s += 0.5
    sample.finish(connection, 0, [b"answer"])
    clock.now_s += 0.003
    connection.end_of_turn()
    for name in ("FetchFollower", "Fetch"):
        found = medians(times, name)
        assert found == pytest.approx(
            {"requestqueue": 2, "local": 1, "remote": 500, "responsequeue": 3, "responsesend": 4, "total": 510}
        )  # fmt: skip
    clock.now_s += 400
    assert medians(times, "Fetch") == dict.fromkeys(PHASES, 0.0), "five minutes later"


def test_an_answer_in_the_handler_leaves_nothing_remote() -> None:
    clock = Clock()
    times, connection = RequestTimes(clock), FlushingConnection(clock)
    sample = Sample(times, connection)
    sample.name = "Metadata"
    clock.now_s += 0.002
    sample.finish(connection, 0, [b"answer"])
    clock.now_s += 0.010
    sample.handled()
    connection.end_of_turn()
    found = medians(times, "Metadata")
    assert (found["local"], found["remote"]) == (pytest.approx(2), 0)


def test_many_connections_are_sampled_less_often() -> None:
    times = RequestTimes(Clock())
    times.connections = 3
    assert times.interval_s == 0.05
    times.connections = 10 * SAMPLES_A_SECOND
    assert times.interval_s == 10


def test_quantiles() -> None:
    assert quantiles_of([]) == [0.0] * 6
    assert quantiles_of([float(value) for value in range(100, -1, -1)]) == [50, 75, 95, 98, 99, 100]


def test_durations_are_counted_without_a_clock_and_forgotten_in_time() -> None:
    clock = Clock()
    counted, measured = Durations(None), Durations(clock)
    for durations in (counted, measured):
        with durations.measured():
            clock.now_s += 0.25
        with pytest.raises(OSError), durations.measured():
            raise OSError
        assert durations.count == 1
    assert counted.quantiles()[0] == 0
    assert measured.quantiles()[0] == pytest.approx(250)
    clock.now_s += 301
    assert measured.quantiles()[0] == 0


def test_windows() -> None:
    window = Window()
    assert math.isnan(window.average(0)) and math.isnan(window.largest(0)) and window.rate(0) == 0
    window.record(60, 0)
    window.record(30, 10_000)
    assert (window.rate(10_000), window.average(10_000), window.largest(10_000)) == (3, 45, 60)
    window.record(30, 40_000)
    assert (window.rate(50_000), window.average(50_000)) == (1000 * 120 / 50_000, 40)
    assert (window.rate(60_000), window.average(60_000)) == (1, 30), "what is a minute old has gone"
    assert math.isnan(window.average(200_000))


def test_rates_of_counters_between_scrapes() -> None:
    readings = Readings()
    assert readings.rate(("a", 1), 100, 0) == 0
    assert readings.rate(("a", 1), 150, 10_000) == 5
    assert readings.rate(("a", 1), 150, 10_001) == pytest.approx(5, rel=0.01), "another scraper at the same time"
    for second in range(20, 200, 10):
        last = readings.rate(("a", 1), 150, second * 1000)
    assert last == 0, "a minute later"
    readings.keep("a", set())
    assert readings.rate(("a", 1), 1000, 300_000) == 0


async def test_a_live_node_times_its_requests(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        times = node.broker.dispatcher.times
        assert times is not None
        async with Admin(bootstrap) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        async with Producer(bootstrap) as producer:
            while "Produce" not in times.samples:
                await (await producer.send("t", b"x", partition=0))
        found = medians(times, "Produce")
        assert 0 < found["local"] < found["total"] < 1000
        assert found["total"] >= found["local"] + found["remote"] + found["responsesend"] > 0
        assert len(times.samples["Produce"]) > 0
    assert times.connections == 0, "each connection has left"
