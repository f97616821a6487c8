"""`minikafka cluster kill` and the others, without the command that starts the cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minikafka.cli import cluster_control, cluster_up
from minikafka.cli.cluster_control import ControlServer
from minikafka.cli.control_socket import socket_path
from minikafka.cli.main import cli
from minikafka.cli.starting_cluster import StartingCluster
from minikafka.testing import EmbeddedCluster, processes
from minikafka.testing.processes import ProcessNode


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, topics=["t"]) as made, ControlServer(made):
        yield made


def say(cluster: EmbeddedCluster, *words: str) -> Result:
    return CliRunner().invoke(cli, ["cluster", *words, "-b", cluster.bootstrap_servers])


def test_a_broker_is_killed_and_comes_back(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader("t", 0)
    killed = say(cluster, "kill", str(leader))
    assert (killed.exit_code, killed.output) == (0, f"broker {leader} was killed (SIGKILL)\n")
    state = json.loads(say(cluster, "status", "-o", "json", "--topic", "t").output)[0]
    assert [row["state"] for row in state["brokers"] if row["broker"] == leader] == ["ended"]
    assert state["partitions"][0]["leader"] != leader and state["partitions"][0]["leader_epoch"] == 1
    again = say(cluster, "kill", str(leader))
    assert again.exit_code == 1 and f"broker {leader} is not running" in again.output
    assert say(cluster, "start", "--wipe", str(leader)).output == f"broker {leader} is in service with an empty disk\n"
    cluster.wait_healthy()


def test_a_broker_is_cut_off_and_links_heal(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader("t", 0)
    assert "cut off from the others" in say(cluster, "cut", str(leader)).output
    shown = say(cluster, "status", "--topic", "t").output
    assert shown.count("leads in") == 2, shown
    assert say(cluster, "heal").output == "all links work\n"
    cluster.wait_healthy()
    assert say(cluster, "status", "--topic", "t").output.count("leads in") == 1


def test_a_broker_that_hangs_does_not_keep_the_others_from_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has stopped it. What it answers later is no answer to another command: the control channel was out of step for good."""
    with EmbeddedCluster(3, topics=["t"], mode="process") as cluster, ControlServer(cluster):
        hung = cluster.broker(cluster.controller)
        pid, number = hung.process.pid, hung.node_id
        os.kill(pid, signal.SIGSTOP)
        try:
            cluster.wait_until(lambda: hung.paused)
            states = {row["broker"]: row["state"] for row in json.loads(say(cluster, "status", "-o", "json").output)[0]["brokers"]}
            assert states == {node: "paused" if node == number else "running" for node in (1, 2, 3)}
            monkeypatch.setattr(processes, "is_stopped", lambda pid: False)
            answer, asked = ProcessNode.ask, list[ProcessNode]()

            def briefly(node: ProcessNode, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
                asked.append(node)
                return answer(node, command, arguments, 0.2 if node is hung.process else timeout_s)

            monkeypatch.setattr(ProcessNode, "ask", briefly)
            found = json.loads(say(cluster, "status", "-o", "json").output)[0]
            assert {row["broker"]: row["state"] for row in found["brokers"]}[number] == "silent"
            assert asked.count(hung.process) == 1, "it is not asked again"
            shown = next(row for row in found["partitions"] if row["topic"] == "t")
            assert len(shown["said"]) == 2 and str(number) not in shown["said"]
        finally:
            os.kill(pid, signal.SIGCONT)
            monkeypatch.undo()
        assert {"epoch", "leader"} <= set(hung.ask("quorum"))
        assert "silent" not in say(cluster, "status").output


def test_stop_pause_and_resume(cluster: EmbeddedCluster) -> None:
    assert say(cluster, "stop", "3").output == "broker 3 has stopped\n"
    assert say(cluster, "start", "3").output == "broker 3 is in service\n"
    assert say(cluster, "pause", "2").exit_code == 0
    assert cluster.broker(2).paused
    assert say(cluster, "resume", "2").exit_code == 0
    cluster.wait_healthy()


def test_without_a_majority_of_controllers_nobody_waits_for_new_leaders(cluster: EmbeddedCluster) -> None:
    first, second = say(cluster, "pause", "1"), say(cluster, "kill", "2")
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert second.output.endswith("only 1 of 3 controllers is left: no new leader can be elected\n")
    assert say(cluster, "resume", "1").exit_code == say(cluster, "start", "2").exit_code == 0
    cluster.wait_healthy()


def test_a_slow_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_control, "QUIET_S", 0.0)
    may_answer = threading.Event()

    def echo(text: str, **_: object) -> None:
        assert text.startswith("waiting for minikafka cluster up")
        may_answer.set()

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rwb") as stream:
            assert json.loads(stream.readline())["action"] == "heal"
            may_answer.wait()
            stream.write(b'{"text": "at last"}\n')

    path = socket_path(1)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setattr(cluster_control.click, "echo", echo)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        try:
            listening.listen()
            slow = threading.Thread(target=answer, args=(listening,), daemon=True)
            slow.start()
            assert cluster_control.ask("localhost:1", "heal") == "at last"
            slow.join()
        finally:
            path.unlink()


def test_a_long_directory_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with EmbeddedCluster(1) as made, ControlServer(made):
        assert json.loads(say(made, "status", "-o", "json").output)[0]["brokers"][0]["state"] == "running"


def test_what_killed_clusters_left_is_removed(cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sockets stayed for ever, each on a port of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    directory = socket_path(0).parent
    directory.mkdir(mode=0o700)
    for number in (1, 2):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(directory / f"{number}.sock"))
            left.listen()
    (directory / "1.starting").touch()
    (directory / "notes.txt").touch()
    with socket.socket(socket.AF_UNIX) as alive, StartingCluster(4):
        alive.bind(str(directory / "3.sock"))
        alive.listen()
        with ControlServer(cluster):
            own = socket_path(cluster.brokers[0].port).name
            assert {path.name for path in directory.iterdir()} == {"3.sock", "4.starting", "notes.txt", own}


def test_wrong_requests(cluster: EmbeddedCluster) -> None:
    unknown = say(cluster, "kill", "9")
    assert unknown.exit_code == 1 and "there is no broker 9" in unknown.output
    elsewhere = CliRunner().invoke(cli, ["cluster", "status", "-b", "localhost:1"])
    assert elsewhere.exit_code == 3
    assert "no `minikafka cluster up` is running at localhost:1 on this machine. One runs elsewhere: add -b localhost:" in elsewhere.output
    for form in ("table", "json"):
        nowhere = say(cluster, "status", "--topic", "nope", "-o", form)
        assert (nowhere.exit_code, nowhere.output) == (1, "error: no running broker has a replica of the topic nope\n")
    assert socket_path(cluster.brokers[0].port).parent.stat().st_mode & 0o077 == 0


def test_without_any_cluster_the_next_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = CliRunner().invoke(cli, ["cluster", "kill", "1", "-b", "localhost:1"]).output
    assert said.endswith("on this machine. Start one in another terminal, then repeat the command.\n")


def test_up_names_the_port_that_is_taken_and_its_owner(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    port = cluster.brokers[0].port

    def again() -> str:
        said = CliRunner().invoke(cli, ["cluster", "up", "-n", "1", "--port", str(port), "--http-port", "0", "--directory", str(tmp_path)])
        assert said.exit_code == 1
        assert f"port {port} of 127.0.0.1 is not free" in said.output
        assert f"minikafka cluster status -b localhost:{port}" in said.output
        return said.output

    assert "--directory" not in again(), "nobody uses that directory: it was said to be the running cluster's"
    with EmbeddedCluster(1, directory=tmp_path):
        assert f"and another --directory: a running cluster uses {tmp_path}" in again()


def test_up_starts_no_part_of_a_cluster(tmp_path: Path) -> None:
    """Two of three brokers and controllers are gone: it gave up after 73 s, without a word about the directory."""
    for node_id in (1, 2, 3):
        (tmp_path / f"broker-{node_id}/data").mkdir(parents=True)
        (tmp_path / f"broker-{node_id}/data/meta.properties").touch()
    run = CliRunner().invoke(cli, ["cluster", "up", "-n", "1", "--directory", str(tmp_path)])
    assert run.exit_code == 2
    assert f"{tmp_path} has the data of 3 brokers: start them with -n 3, or choose another --directory" in run.output


def test_up_names_the_directory_that_another_cluster_uses(tmp_path: Path) -> None:
    """It told of a lock only, in the words of Kafka's broker."""
    with EmbeddedCluster(1, directory=tmp_path):
        said = CliRunner().invoke(cli, ["cluster", "up", "--port", "0", "--http-port", "0", "--directory", str(tmp_path)])
    assert said.exit_code == 1 and f"Another cluster runs on {tmp_path}: stop that one, or choose another --directory" in said.stderr
    assert not cluster_up._is_in_use(str(tmp_path))


@pytest.mark.parametrize(
    ("is_kept", "end"), [(True, "Ctrl-C stops it."), (False, "Ctrl-C stops it and deletes its data; --directory keeps the data.")]
)
def test_it_is_said_what_becomes_of_the_data(is_kept: bool, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = SimpleNamespace(
        brokers=[], cluster_id="c", bootstrap_servers="localhost:9092", secured=None, directory=Path("/somewhere")
    )
    cluster_up._announce(made, 1.0, is_elsewhere=False, is_kept=is_kept)
    assert capsys.readouterr().err.splitlines()[-1] == end
