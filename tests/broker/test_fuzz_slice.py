"""A bounded slice of the fuzzer over all APIs and versions (tests/bench/fuzz.py): no unexpected exceptions, lost data or stuck clients."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from bench import fuzz_requests
from bench.fuzz import Report, run, watching
from bench.fuzz_requests import LEFT_OUT, LEFT_OUT_ON_CONTROLLERS, Requests, corpus

from minikafka.wire.frame import response_bytes
from minikafka.wire.messages.init_producer_id import InitProducerIdResponse
from minikafka.wire.registry import apis


@pytest.mark.timeout(60)
def test_requests_of_all_kinds_do_no_harm() -> None:
    report = run(40, seed=11)
    assert not report.problems, "\n".join(report.problems)
    assert report.frames >= 240 and report.answers > 40 and len(report.by_api) > 40


def test_a_watcher_that_ends_early_is_a_finding() -> None:
    """Its round would pass, whatever happened after that."""
    report = Report()

    def gone(_: str) -> None:
        raise TimeoutError("timed out")

    watching(report, gone, "x")
    assert report.problems == ["gone has ended: TimeoutError: timed out"]


WATCHED = """
import asyncio, time
from minikafka.net.loop_watch import LoopWatch

def burn(seconds):
    began_s = time.thread_time()
    while time.thread_time() - began_s < seconds:
        pass

async def main():
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    for _ in range(100):
        burn(0.002)
        await asyncio.sleep(0)
    burn(0.06)
    await asyncio.sleep(0)
    time.sleep(0.4)
    await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    watch.stop()
    print(watch.longest.cpu_s)

asyncio.run(main())
"""


def test_a_turn_is_measured_alone_and_waiting_for_a_processor_is_not_in_it() -> None:
    """A busy machine gave false findings: the longest turn by the clock, with the processor time of those before it."""
    path = os.pathsep.join([str(Path(fuzz_requests.__file__).parent / "exact_turns"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", WATCHED], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert 0.06 <= float(done.stdout) < 0.1


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_every_api_is_drawn_and_the_corpus_too(listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_requests, "CORPUS_SHARE", 0.05)
    assert len(corpus(listener)) >= 3
    drawn = list(islice(Requests("1", listener, ["t"], {}), 6_000))
    assert {name for name, _ in corpus(listener)} <= {one.name for one in drawn}
    left_out = {one.key for one in apis() if listener in one.listeners} - {one.key for one in drawn}
    assert left_out <= (LEFT_OUT if listener == "broker" else LEFT_OUT_ON_CONTROLLERS)
    damaged = sum(one.is_damaged for one in drawn)
    assert 0.2 < damaged / len(drawn) < 0.3


def test_what_was_answered_is_used() -> None:
    learned: dict = {}
    requests = Requests("1", "broker", ["t"], learned)
    asked = next(one for one in requests if one.name == "InitProducerId" and not one.is_damaged)
    answer = InitProducerIdResponse(producer_id=0x1234567890, producer_epoch=1)
    requests.learn(asked, response_bytes(answer, asked.version, 1)[4:])
    assert list(learned["producer_id"]) == [0x1234567890]
    wanted = struct.pack(">q", 0x1234567890)
    assert any(wanted in one.frame for one in islice(requests, 3_000))
