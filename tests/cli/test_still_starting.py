"""`cluster up` on a machine that is busy: it says what its brokers do, and can be stopped before they are up."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from minikafka.cli import cluster_up, still_starting
from minikafka.cli.still_starting import StillStarting, progress

LOGS = "broker 1: epoch 3 of the metadata quorum has no leader\nbroker 2: nothing yet"


def test_it_is_said_again_and_again_until_the_brokers_are_up() -> None:
    said: queue.Queue[str] = queue.Queue()
    with StillStarting(lambda: LOGS, every_s=0.01, say=said.put) as start:
        assert [said.get(timeout=30).splitlines()[1:] for _ in range(2)] == [[f"  {line}" for line in LOGS.splitlines()]] * 2
        start.end()
        start._thread.join()
        before = said.qsize()
    assert said.qsize() == before


@pytest.mark.parametrize(("load", "busy"), [(1.0, ""), (64.0, "; 64 programs want this machine's 2 cores")])
def test_a_busy_machine_is_named(load: float, busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(still_starting, "os", SimpleNamespace(getloadavg=lambda: (load, 0, 0), cpu_count=lambda: 2))
    assert progress(20.4, "") == f"still starting after 20 s{busy}"


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("handlers")
def test_a_start_that_takes_long_can_be_ended(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The signal was only remembered until the brokers were up, or had failed to."""

    class Slow:
        def __enter__(self) -> None:
            os.kill(os.getpid(), number)
            raise AssertionError("the start went on")

        def __exit__(self, *_: object) -> None: ...

    with pytest.raises(SystemExit) as ended:
        cluster_up._run(Slow, 0, str(tmp_path), is_elsewhere=False)  # type: ignore[arg-type]
    assert ended.value.code == 130 and capsys.readouterr().err == "stopped before the cluster was up\n"
