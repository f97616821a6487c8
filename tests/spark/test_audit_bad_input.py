"""What an audit is given that is wrong: one clear line, the right exit status, nothing lost, no traceback."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from helpers import log_fault_clusters
from helpers.audited_clusters import BROKERS, messages_of, registered_topic, three_alike
from helpers.audited_clusters import audit as audited
from helpers.log_clusters import Partition, plain, write_broker

from minikafka.cli.audit import audit
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.engine_spark import SparkUnavailable, start_session
from minikafka.spark.fetch_client import BrokerError, Connection, Security


def run(*arguments: str) -> Result:
    return CliRunner().invoke(audit, [*arguments, "--processes", "1", "--quiet"])


@contextlib.contextmanager
def server(answer: bytes) -> Iterator[str]:
    """Takes one request a connection, answers with these bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("answer", "text"), [
    (b"", "closed the connection"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a Kafka broker"),
    (b"\x15\x03\x03\x00\x02\x02\x0a" + bytes(40), "not a Kafka broker"),
    ((20).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\x7f" * 16, "elements"),
    ((4).to_bytes(4, "big") + (99).to_bytes(4, "big"), "wrong correlation id"),
])  # fmt: skip
def test_whatever_answers_on_the_port(answer: bytes, text: str) -> None:
    with server(answer) as place:
        result = run("--bootstrap-server", place)
    assert (result.exit_code, len(result.output.splitlines())) == (3, 1), result.output
    assert text in result.output


def test_a_refused_password_is_reported_without_the_password(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="eve" password="secret";'
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    with server((8).to_bytes(4, "big") + (1).to_bytes(4, "big") + (33).to_bytes(2, "big") + bytes(2)) as place:
        result = run("--bootstrap-server", place, "--command-config", str(config))
    assert result.exit_code == 3 and "UNSUPPORTED_SASL_MECHANISM" in result.output and "secret" not in result.output
    assert "secret" not in repr(Security.from_properties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                                                          "sasl.jaas.config": login}))  # fmt: skip


@pytest.mark.parametrize(("properties", "text"), [
    ("security.protocol=TLS", "must be one of PLAINTEXT"),
    ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "must be one of PLAIN, SCRAM"),
    ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "sasl.jaas.config"),
])  # fmt: skip
def test_settings_that_are_not_supported(tmp_path: Path, properties: str, text: str) -> None:
    (tmp_path / "c.properties").write_text(properties)
    result = run("--bootstrap-server", "127.0.0.1:1", "--command-config", str(tmp_path / "c.properties"))
    assert result.exit_code == 2 and text in result.output


def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    with server(b"") as place, pytest.raises(BrokerError, match="cannot be reached"):
        host, port = place.split(":")
        Connection(host, int(port), Security(tls=True), timeout_s=5)


@pytest.mark.parametrize(("version", "text"), [
    ('openjdk version "11.0.2" 2019-01-15', "is Java 11"), ('java version "1.8.0_291"', "is Java 8"), ("what?", "a Java of unknown"),
])  # fmt: skip
def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, text: str) -> None:
    pytest.importorskip("pyspark")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match=text):
        start_session("local[1]")


def test_foreign_empty_and_huge_files_beside_the_log_do_no_harm(tmp_path: Path) -> None:
    cluster = log_fault_clusters.replicated(tmp_path)
    files = cluster.files()
    (files / "notes.txt").write_text("hello")
    (files / "00000000000000000000.log.bak").write_bytes(os.urandom(100))
    (files / "00000000000000000000.txnindex").touch()
    result = run(*cluster.paths, "--topic", "rep")
    assert result.exit_code == 0, result.output
    for name in ("not-a-partition", "lost+found"):  # Apache Kafka would not start, minikafka does
        (cluster.directories[1] / name).mkdir()
        result = run(*cluster.paths, "--topic", "rep")
        assert result.exit_code == 0, result.output
        (cluster.directories[1] / name).rmdir()
    with (files / "00000000000000000000.timeindex").open("ab") as index:
        index.truncate(3 << 30)  # sparse zeros
    assert run(*cluster.paths, "--topic", "rep").exit_code in {0, 1}


def test_a_directory_without_a_segment_is_a_missing_replica(tmp_path: Path) -> None:
    cluster = log_fault_clusters.replicated(tmp_path)
    for path in cluster.files(3).glob("*.log"):
        path.unlink()
    result = run(*cluster.paths, "--topic", "rep")
    assert result.exit_code == 1 and "AUDIT FAIL" in result.output


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_segment_that_is_a_link_to_nowhere_or_a_pipe_is_unreadable(three_brokers: Any, kind: str) -> None:
    paths = three_brokers()
    segment = Path(paths[0]) / "rep-0" / "00000000000000000000.log"
    segment.unlink()
    if kind == "pipe":
        os.mkfifo(segment)
    else:
        segment.symlink_to("/nowhere")
    result = run(*paths, "-o", "json")
    (finding,) = [one for one in json.loads(result.output)["findings"] if one["level"] != "note"]
    assert (result.exit_code, finding["check"]) == (3, "unreadable") and segment.name in finding["message"]


def test_a_replica_that_lost_its_segments_is_missing_even_where_no_controller_says_so(three_brokers: Any) -> None:
    paths = three_brokers()
    for path in (Path(paths[0]) / "rep-0").glob("*.log"):
        path.unlink()
    result = run(*paths, "-o", "json")
    report = json.loads(result.output)
    (finding,) = [one for one in report["findings"] if one["level"] != "note"]
    assert (result.exit_code, finding["check"], finding["brokers"]) == (1, "replica-missing", ["1"])


def test_a_segment_that_is_deleted_while_it_is_listed_costs_no_replica(three_brokers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, scandir = three_brokers(), os.scandir
    for path in paths:
        (Path(path) / "rep-0" / "00000000000000000000.log.deleted").touch()
        shutil.copy(Path(path) / "rep-0" / "00000000000000000000.log", Path(path) / "rep-0" / "00000000000000000099.log")

    @contextlib.contextmanager
    def delete_meanwhile(path: str) -> Any:
        with scandir(path) as entries:
            found = list(entries)
        for entry in found:
            if entry.name == "00000000000000000099.log":
                os.unlink(entry.path)
        yield iter(found)

    monkeypatch.setattr(os, "scandir", delete_meanwhile)
    result = run(*paths, "-o", "json")
    assert result.exit_code == 0 and len(json.loads(result.output)["partitions"][0]["brokers"]) == 3


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("read_bytes", [0, 150])
def test_what_cannot_be_read_of_a_segment_differs_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, read_bytes: int
) -> None:  # fmt: skip
    """A disk fails in one segment of a replica, in its first batch or in a later one. Nobody knows what it holds."""
    root = three_alike(tmp_path, [plain(base, 5) for base in range(0, 60, 5)], bases=(0, 20, 40), high_watermark=60)
    broken = os.stat(root / "b2" / "t-0" / f"{number * 20:020d}.log").st_ino
    preadv = os.preadv

    def fails(descriptor: int, buffers: list[memoryview], position: int) -> int:
        if os.fstat(descriptor).st_ino != broken:
            return preadv(descriptor, buffers, position)
        if position >= read_bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(descriptor, [buffers[0][:read_bytes]], position)

    monkeypatch.setattr("os.preadv", fails)
    result = audited(root)
    assert [one.verdict for one in result.partitions] == ["UNREADABLE"] and result.exit_code == 3
    assert {one.check for one in result.findings.kept if one.level == "error"} == {"unreadable"}
    later = root / "b3" / "t-0" / f"{40:020d}.log"
    later.write_bytes(later.read_bytes()[:-1] + b"x")
    assert audited(root).exit_code == 1, "beyond it, all is compared as ever"


def test_a_segment_that_is_a_directory_is_unreadable_not_a_crash(tmp_path: Path) -> None:
    cluster = log_fault_clusters.replicated(tmp_path)
    path = cluster.segments()[0]
    path.unlink()
    path.mkdir()
    result = run(*cluster.paths, "--topic", "rep", "-o", "json")
    report = json.loads(result.output)
    assert result.exit_code == 3 and report["partitions"][0]["verdict"] == "UNREADABLE"
    (finding,) = [one for one in report["findings"] if one["level"] != "note"]
    assert (finding["check"], finding["file"]) == ("unreadable", str(path)), "what cannot be read is not missing"


def test_a_partition_directory_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = log_fault_clusters.replicated(tmp_path)
    closed, scandir = str(cluster.files(1)), os.scandir

    def refuse(path: str) -> Any:
        if str(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    result = run(*cluster.paths, "--topic", "rep", "-o", "json")
    report = json.loads(result.output)
    assert result.exit_code == 3 and report["partitions"][0]["verdict"] == "UNREADABLE"
    (finding,) = [one for one in report["findings"] if one["level"] != "note"]
    assert (finding["check"], finding["message"]) == ("unreadable", f"{closed} cannot be read: Permission denied")


@pytest.mark.parametrize(("name", "outcome"), [
    (f"{0:020d}.log\n", "PASS"), (f"{0:020d}.index.cleaned\n", "PASS"), ("\u0661" * 20 + ".log", "FAIL"), ("\u0660" * 20 + ".log", "PASS"),
])  # fmt: skip
def test_a_name_that_only_looks_like_a_segments_is_none(tmp_path: Path, name: str, outcome: str) -> None:
    """Java takes the digits of every script for digits: one is a number that no long holds, another one is 0."""
    paths = three_alike(tmp_path, [plain(at) for at in range(9)])
    (paths / "b2" / "t-0" / name).write_bytes(b"x")
    assert audited(paths).outcome == outcome


@pytest.mark.parametrize("name", [f"{0:020d}.index", f"{0:020d}.timeindex", f"{9:020d}.snapshot"])
def test_a_file_beside_the_log_that_is_a_link_to_nowhere_was_not_read(tmp_path: Path, name: str) -> None:
    paths = three_alike(tmp_path, [plain(at) for at in range(9)])
    (paths / "b2" / "t-0" / name).unlink()
    (paths / "b2" / "t-0" / name).symlink_to("/nowhere/at/all")
    result = audited(paths)
    assert result.outcome == "INCOMPLETE" and "a broken link" in " ".join(messages_of(result, "unreadable"))


@pytest.mark.parametrize(
    "change", [{"offset": 1 << 63}, {"offset": -1}, {"offset": 1.9}, {"offset": True}, {"partition": 0.7}, {"partition": -1}]
)
def test_a_ledger_of_offsets_that_no_record_has(tmp_path: Path, change: dict[str, Any]) -> None:
    """They were taken for others, or for found."""
    paths = three_alike(tmp_path / "cluster", [plain(at) for at in range(9)])
    ledger = tmp_path / "acked.jsonl"
    for row, code in (({"topic": "t", "partition": "0", "offset": 5}, 0), ({"topic": "t", "partition": 0, "offset": 5} | change, 2)):
        ledger.write_text(json.dumps(row) + "\n")
        found = run(*map(str, sorted(paths.iterdir())), "--acked", str(ledger))
        assert found.exit_code == code, found.output
        assert code == 0 or "line 1: not a JSON object with topic, partition and offset" in found.output


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """As a user who may only do what files allow, which root is not."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("t-0", "INCOMPLETE"), ("t-0/00000000000000000000.log", "INCOMPLETE"), ("t-0/00000000000000000000.index", "INCOMPLETE"),
     ("t-0/leader-epoch-checkpoint", "INCOMPLETE"), ("t-0/partition.metadata", "INCOMPLETE"), ("meta.properties", "INCOMPLETE"),
     ("replication-offset-checkpoint", "INCOMPLETE"), ("__cluster_metadata-0", "FAIL"), ("", "INCOMPLETE")],
)  # fmt: skip
def test_what_may_not_be_read_is_no_proof(name: str, outcome: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        for broker in BROKERS:
            log = registered_topic().encode()
            write_broker(folder / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(9)])], log)
        assert audited(folder).outcome == "PASS"  # whatever it imports late is there now
        path = folder / "b2" / name
        path.chmod(0)
        with without_privileges():
            result = run_audit([str(folder / f"b{broker}") for broker in BROKERS], LocalEngine(1), AuditOptions())
        path.chmod(0o755)
    assert result.outcome == outcome, [one.message for one in result.findings.kept]
    assert any("Permission denied" in one.message for one in result.findings.kept)
