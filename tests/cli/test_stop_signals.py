"""A closed terminal stops what runs in it in order, unless nohup runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.cli.stop_signals import as_interruptions
from minikafka.testing.cluster import ProcessCluster


@pytest.fixture(autouse=True)
def _not_ignored() -> Iterator[None]:
    """Whatever runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_stops_a_cluster_in_order(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "minikafka",
        "cluster",
        "up",
        "-n",
        "1",
        "--port",
        "0",
        "--http-port",
        "0",
        "--directory",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert process.wait() == 0
    assert (tmp_path / "broker-1/data/.kafka_cleanshutdown").exists()


@pytest.mark.parametrize("is_ignored", [False, True])
def test_nohup_is_respected(is_ignored: bool) -> None:
    set_up = "signal.signal(signal.SIGHUP, signal.SIG_IGN); " if is_ignored else "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    program = f"import signal; {set_up}from minikafka.cli.stop_signals import stop_signals; print(*(one.name for one in stop_signals()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["SIGTERM", "SIGINT", *([] if is_ignored else ["SIGHUP"])]


def test_a_closed_terminal_stops_a_node_in_order() -> None:
    with ProcessCluster(1) as cluster:
        node = cluster.nodes[1]
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        assert node.process.wait() == 0
        assert (node.log_dir / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_as_interruptions(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), as_interruptions():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before
