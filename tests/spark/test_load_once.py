"""Each row once: tasks that run again, drivers that are killed, jobs that are resumed, and what a load refuses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from click.testing import CliRunner  # noqa: E402
from helpers.topic_server import TopicServer  # noqa: E402
from pyarrow import parquet  # noqa: E402

from minikafka.cli.load import load  # noqa: E402
from minikafka.spark import encode, produce_client  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.spark.load import LoadFailed, LoadOptions, run_load  # noqa: E402
from minikafka.wire.errors import ErrorCode  # noqa: E402

ROWS = 30_000


@pytest.fixture
def table(tmp_path: Path) -> str:
    rows = pa.table({"k": [f"key-{n % 71}" for n in range(ROWS)], "n": list(range(ROWS))})
    parquet.write_table(rows, tmp_path / "rows.parquet", row_group_size=3000)
    return str(tmp_path / "rows.parquet")


def options_of(server: TopicServer, **more: Any) -> LoadOptions:
    return LoadOptions(server.bootstrap, "t", key="k", batch_bytes=8_000, split_bytes=1 << 20, job="job-1", **more)


def assert_each_once(server: TopicServer) -> None:
    found = Counter(json.loads(bytes(record.value))["n"] for number in range(server.partitions) for record in server.records(number))
    assert sorted(found) == list(range(ROWS)) and set(found.values()) == {1}
    for number in range(server.partitions):
        order = [json.loads(bytes(record.value))["n"] for record in server.records(number)]
        assert order == sorted(order)


class TwiceEngine(LocalEngine):
    """Runs every task two times and believes the second, as Spark does when an executor is lost after its work."""

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        for item in items:
            function(item)
            yield function(item)


def test_a_task_that_runs_again_writes_nothing_again(table: str) -> None:
    with TopicServer("t", 4) as server:
        report = run_load(table, options_of(server), TwiceEngine(1))
        assert_each_once(server)
    assert (report.rows, report.acknowledged, report.reconciled) == (ROWS, ROWS, True)
    assert report.repeated > ROWS * 0.8, "all but the last batch of each partition is known to the leaders"


@pytest.mark.parametrize("bytes_max", [1, 20_000])
def test_more_than_may_wait_for_its_acknowledgement(table: str, monkeypatch: pytest.MonkeyPatch, bytes_max: int) -> None:
    monkeypatch.setattr(produce_client, "QUEUE_BYTES_MAX", bytes_max)
    with TopicServer("t", 4) as server:
        assert run_load(table, options_of(server), LocalEngine(1)).reconciled
        assert_each_once(server)


class AtOnceEngine(LocalEngine):
    """Two attempts of every task at the same time (speculative execution)."""

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        for item in items:
            results: list[Any] = []
            attempts = [threading.Thread(target=lambda item=item, results=results: results.append(function(item))) for _ in range(2)]
            for attempt in attempts:
                attempt.start()
            for attempt in attempts:
                attempt.join()
            yield next((result for result in results if not result[1].error), results[0])


def test_speculative_attempts_write_each_row_once(table: str) -> None:
    with TopicServer("t", 3) as server:
        report = run_load(table, options_of(server), AtOnceEngine(1))
        assert_each_once(server)
    assert report.reconciled


def test_a_failed_job_is_resumed_with_its_id(table: str) -> None:
    broken = [True]

    def fault(partition: int, number: int) -> Any:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if broken[0] and number > 6 else None

    with TopicServer("t", 4, fault) as server:
        with pytest.raises(LoadFailed, match="resume with --job-id job-1"):
            run_load(table, options_of(server), LocalEngine(1))
        written = sum(server.next_offset.values())
        assert 0 < written < ROWS
        broken[0] = False
        report = run_load(table, options_of(server), LocalEngine(1))
        assert_each_once(server)
        assert report.reconciled and report.rows == ROWS and report.repeated > 0
        again = run_load(table, options_of(server), LocalEngine(1))
        assert again.already_done and again.rows == ROWS
        assert_each_once(server)


def test_a_killed_driver_is_followed_by_another(table: str) -> None:
    killed: list[subprocess.Popen[bytes]] = []

    def fault(partition: int, number: int) -> Any:
        if number == 8 and killed:
            killed[0].send_signal(signal.SIGKILL)
        return None

    with TopicServer("t", 4, fault) as server:
        command = ["load", table, "--topic", "t", "--key", "k", "--bootstrap-server", server.bootstrap, "--batch-size", "8000"]
        command += ["--processes", "1", "--job-id", "night", "--split-bytes", str(1 << 20), "--throttle", "400000", "-o", "json"]
        start = [sys.executable, "-c", "from minikafka.cli.main import main; main()", *command]
        killed.append(subprocess.Popen(start, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}))
        assert killed[0].wait(60) == -signal.SIGKILL
        assert 0 < sum(server.next_offset.values()) < ROWS
        result = CliRunner().invoke(load, [*command[1:], "--throttle", "0"])
        assert_each_once(server)
    report = json.loads(result.output)
    assert (result.exit_code, report["rows"], report["reconciled"], report["job"]) == (0, ROWS, True, "night")


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_a_killed_executor_of_a_cluster_costs_nothing(table: str) -> None:
    """Two executors, each a JVM of its own with its Python workers; one of them dies by SIGKILL when it has written some."""
    killed: list[int] = []

    def executors() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and "CoarseGrainedExecutorBackend" in (entry / "cmdline").read_text() and marker in (
                    entry / "environ"
                ).read_text():  # fmt: skip
                    found.append(int(entry.name))
        return found

    def fault(partition: int, number: int) -> Any:
        if number == 8 and not killed:
            killed.extend(executors()[:1])
            os.kill(killed[0], signal.SIGKILL)
        return None

    marker = f"MINIKAFKA_TEST={os.getpid()}"
    with TopicServer("t", 4, fault) as server:
        command = ["load", table, "--topic", "t", "--key", "k", "--bootstrap-server", server.bootstrap, "--batch-size", "8000"]
        command += ["--master", "local-cluster[2,1,1024]", "--split-bytes", str(1 << 16), "-o", "json"]
        start = [sys.executable, "-c", "from minikafka.cli.main import main; main()", *command]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MINIKAFKA_TEST": str(os.getpid())}
        done = subprocess.run(start, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert_each_once(server)
    report = json.loads(done.stdout)
    assert killed and (report["engine"], report["rows"], report["reconciled"]) == ("spark", ROWS, True)


def test_another_table_under_the_same_id_is_refused(table: str, tmp_path: Path) -> None:
    with TopicServer("t", 4) as server:
        run_load(table, options_of(server), LocalEngine(1))
        with pytest.raises(LoadFailed, match="another table, topic or batch layout"):
            run_load(table, options_of(server, compression="lz4"), LocalEngine(1))


def test_an_old_job_is_not_resumed(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with TopicServer("t", 2, lambda partition, number: ErrorCode.TOPIC_AUTHORIZATION_FAILED) as server:
        with pytest.raises(LoadFailed):
            run_load(table, options_of(server), LocalEngine(1))
        monkeypatch.setattr("minikafka.spark.load.RESUME_MS_MAX", -1)
        with pytest.raises(LoadFailed, match="cannot be resumed without writing rows twice"):
            run_load(table, options_of(server), LocalEngine(1))


def test_a_leader_that_lost_records_is_found_at_the_end(table: str) -> None:
    with TopicServer("t", 2) as server:
        real = server._DescribeProducersRequest
        server._DescribeProducersRequest = lambda request: _one_less(real(request))  # type: ignore[method-assign]
        with pytest.raises(LoadFailed, match="the leader has"):
            run_load(table, options_of(server), LocalEngine(1))


def _one_less(answer: Any) -> Any:
    for partition in answer.topics[0].partitions:
        for state in partition.active_producers:
            state.last_sequence -= 1
    return answer


def test_headers_partitions_and_crc32(tmp_path: Path) -> None:
    import zlib

    rows = pa.table({"k": [f"k{n}" for n in range(100)], "v": [b"v"] * 100, "p": [n % 3 for n in range(100)], "h": [None, "x"] * 50})
    parquet.write_table(rows, tmp_path / "t.parquet")
    with TopicServer("t", 3) as server:
        options = LoadOptions(server.bootstrap, "t", key="k", value="v", partition="p", headers=(("from", "h"), ("long name", "k")))
        run_load(str(tmp_path), options, LocalEngine(1))
        for number in range(3):
            keys = [bytes(record.key) for record in server.records(number)]
            assert keys == [b"k%d" % n for n in range(number, 100, 3)]
            found = [[(name, value and bytes(value)) for name, value in record.headers] for record in server.records(number)]
            assert found == [[("from", b"x" if n % 2 else None), ("long name", b"k%d" % n)] for n in range(number, 100, 3)]
    with TopicServer("t", 3) as server:
        run_load(str(tmp_path), replace(options, bootstrap=server.bootstrap, partition="", partitioner="crc32"), LocalEngine(1))
        for number in range(3):
            assert {zlib.crc32(bytes(record.key)) % 3 for record in server.records(number)} <= {number}
    assert encode.partitions_of(pa.array([b"abc"]), 1, 1000, partitioner="crc32").tolist() == [zlib.crc32(b"abc") % 1000]


@pytest.mark.parametrize(("column", "text"), [("k", "must hold integers"), ("n", "the topic has partitions 0 to 3")])
def test_a_bad_partition_column_is_reported(table: str, column: str, text: str) -> None:
    with TopicServer("t", 4) as server, pytest.raises(LoadFailed, match=text):
        run_load(table, options_of(server, partition=column), LocalEngine(1))


def test_a_header_without_a_column_is_a_usage_error(table: str) -> None:
    result = CliRunner().invoke(load, [table, "--topic", "t", "--header", "x"])
    assert result.exit_code == 2 and "NAME=COLUMN" in result.output
