"""Standard input of produce and console-producer: every line, and Ctrl-C while nothing is typed."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.cli.lines import CHUNK_BYTES, Lines
from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, topics=["typed"]) as made:
        yield made


@pytest.mark.parametrize("command", [["produce", "typed"], ["console-producer", "--topic", "typed"]])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_the_next_line_is_waited_for(command: list[str], times: int, cluster: EmbeddedCluster) -> None:
    """What was typed before is in the topic."""
    environment = {**os.environ, "MINIKAFKA_BOOTSTRAP": cluster.bootstrap_servers}
    before = end(cluster)
    with subprocess.Popen(
        [sys.executable, "-m", "minikafka", *command], env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        wait_until(lambda: end(cluster) == before + 2, "the lines", 30.0)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
        assert process.wait() in (130, -signal.SIGINT)
        assert b"Traceback" not in process.stderr.read()


def end(cluster: EmbeddedCluster) -> int:
    """The log end of the topic's only partition."""
    return int(cluster.replicas("typed", 0)[1]["log_end_offset"])


async def _all(lines: Lines) -> list[bytes]:
    return [line async for line in lines]


def test_lines_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [b"a\n", b"\n", b"b" * (3 * CHUNK_BYTES) + b"\n", b"\xff\r\n", b"without an end"]
    reader, writer = os.pipe()

    class Input:
        def fileno(self) -> int:
            return reader

    monkeypatch.setattr(sys, "stdin", Input())

    async def both() -> list[bytes]:
        reading = asyncio.ensure_future(_all(Lines()))
        await asyncio.to_thread(_write, writer, b"".join(given))
        return await reading

    assert asyncio.run(both()) == given
    os.close(reader)


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(data)


def test_an_input_without_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))

    async def read() -> list[bytes]:
        return await _all(Lines())

    assert asyncio.run(read()) == [b"a\n", b"b"]


def test_an_input_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader = os.open(tmp_path, os.O_RDONLY)

    class Input:
        def fileno(self) -> int:
            return reader

    monkeypatch.setattr(sys, "stdin", Input())

    async def read() -> list[bytes]:
        return await _all(Lines())

    with pytest.raises(OSError, match="directory"):
        asyncio.run(read())
    os.close(reader)
