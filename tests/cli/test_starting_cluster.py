"""A command that comes while `cluster up` is still starting waits for it; it said that no cluster runs after three seconds."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.cli import cluster_control, common, starting_cluster
from minikafka.cli.main import cli
from minikafka.cli.starting_cluster import StartingCluster, is_starting
from minikafka.client.cluster import may_be_starting
from minikafka.testing import EmbeddedCluster


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(common, "FIRST_ANSWER_MS", 0)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a command has seen the announcement."""
    seen = threading.Event()

    def noted(addresses: list[tuple[str, int]]) -> bool:
        found = is_starting(addresses)
        if found:
            seen.set()
        return found

    monkeypatch.setattr(starting_cluster, "is_starting", noted)
    return seen


def test_a_start_is_announced_until_it_ends_or_its_process_does(port: int, tmp_path: Path) -> None:
    here = [("127.0.0.1", port)]
    assert not is_starting(here)
    with StartingCluster(port) as start:
        assert is_starting([("elsewhere", 1), *here]) and not is_starting([("elsewhere", port)])
        start.end()
        assert not is_starting(here)
    with StartingCluster(port) as start:
        assert start._file is not None
        start._file.close()  # as the kernel does for a process that was killed: the file stays
        assert list(tmp_path.rglob("*.starting")) and not is_starting(here)


def test_a_command_waits_for_the_start(port: int, asked: threading.Event) -> None:
    """To its end: the first broker that answers has no topics yet, and does not know the others."""
    with StartingCluster(port) as start:
        thread, said = _in_a_thread(["topics", "--list", "-b", f"localhost:{port}"])
        assert asked.wait(60)
        with EmbeddedCluster(1, first_port=port, topics=["t"]):
            assert thread.is_alive()
            start.end()
            thread.join(60)
    status, listed = said[0]
    assert status == 0 and "t" in listed.splitlines()


def test_without_a_start_it_does_not_wait(port: int) -> None:
    assert CliRunner().invoke(cli, ["topics", "--list", "-b", f"localhost:{port}"]).exit_code == common.EXIT_UNREACHABLE
    assert may_be_starting.get() is None, "a command leaves its patience to clients that are made after it"


def test_the_commands_of_cluster_wait_too(port: int, asked: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_control, "START_POLL_S", 0.01)
    with StartingCluster(port) as start:
        thread, said = _in_a_thread(["cluster", "kill", "1", "-b", f"localhost:{port}"])
        assert asked.wait(60) and thread.is_alive()
        start.end()
        thread.join(60)
    status, text = said[0]
    assert status == common.EXIT_UNREACHABLE and text.startswith("the cluster is still starting, waiting") and text.count("\n") == 2


def _in_a_thread(words: list[str]) -> tuple[threading.Thread, list[tuple[int, str]]]:
    """The thread, and where the command's status and output will be."""
    said: list[tuple[int, str]] = []

    def run() -> None:
        done = CliRunner().invoke(cli, words)
        said.append((done.exit_code, done.stdout if done.exit_code == 0 else done.output))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, said
