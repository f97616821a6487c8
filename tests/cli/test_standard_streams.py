"""A command whose standard streams are closed, on a full disk, or read by a program that has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.client.producer import Producer
from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import wait_until

FULL = Path("/dev/full")
RECORDS = 3000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of two brokers that have a topic with many records."""
    with EmbeddedCluster(2, topics=["big"]) as cluster:
        asyncio.run(_write(cluster.bootstrap_servers))
        yield cluster.bootstrap_servers


async def _write(address: str) -> None:
    async with Producer(address) as producer:
        for number in range(RECORDS):
            await producer.send("big", f"value {number}".encode())


def sh(line: str, address: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which $MK is the command; the status is that of the first command of a pipe."""
    environment = {**os.environ, "MK": f"{sys.executable} -m minikafka", "MINIKAFKA_BOOTSTRAP": address, **more}
    return subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


COMMANDS = [
    "--help",
    "--version",
    "topics --help",
    "topics --list",
    "topics --describe -o json",
    "consume big --from-beginning -n 2000",
    "console-consumer --topic big --from-beginning --max-messages 2000",
    "verifiable-producer --topic big --max-messages 2000",
    "verifiable-consumer --topic big --group-id g --reset-policy earliest --max-messages 2000",
    "configs --reference",
    "health",
    "doctor",
    "sim --seeds 1..2",
    "audit --engine local --bootstrap-server $MINIKAFKA_BOOTSTRAP --topic big",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_ends_makes_no_failure(command: str, reader: str, address: str) -> None:
    done = sh(f"$MK {command} 2> >(cat >&2) | {reader}", address)
    assert "Traceback" not in done.stderr and "exception" not in done.stderr and "rror:" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line(command: str, address: str) -> None:
    done = sh(f"$MK {command} > /dev/full", address)
    assert done.stderr.endswith("error: No space left on device: standard output\n"), done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("error:") == 1
    assert done.returncode == (3 if command.startswith("audit") else 1)
    lost = sh(f"$MK {command} > /dev/null 2> /dev/full", address)
    assert lost.returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_none_that_matter(command: str, closed: str, address: str) -> None:
    done = sh(f"$MK {command} {closed}", address)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_verdict_stays_though_nobody_reads_it(tmp_path: Path) -> None:
    """`health | true` of a cluster that does not answer."""
    done = sh("$MK doctor | true", "127.0.0.1:1")
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("outputs", [">&- 2>&- <&-", "> >(true) 2> >(true)", "2> /dev/full"])
def test_a_cluster_runs_on_without_its_outputs(outputs: str, tmp_path: Path) -> None:
    """It is stopped by a signal, and ends with 0."""
    line = f"exec {sys.executable} -m minikafka cluster up -n 1 --port 0 --http-port 0 --topic t --directory {tmp_path} {outputs}"
    with subprocess.Popen(["bash", "-c", line], stdin=subprocess.DEVNULL) as process:
        log = tmp_path / "broker-1/broker.log"
        wait_until(lambda: log.exists() and "t-0: leads" in log.read_text(), "the topic", 30.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait() in (0, 130)
    assert (tmp_path / "broker-1/data/.kafka_cleanshutdown").exists()
