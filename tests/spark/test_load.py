"""Bulk load: encoding against other implementations, tables into a broker with faults, the command."""

from __future__ import annotations

import json
import os
import random
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from click.testing import CliRunner  # noqa: E402
from helpers.topic_server import TopicServer  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402
from pyarrow import csv, parquet  # noqa: E402
from pyspark.errors import PythonException  # noqa: E402

from minikafka.cli.load import load  # noqa: E402
from minikafka.client import resuming  # noqa: E402
from minikafka.spark import encode, load_progress, tables  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.spark.engine_spark import what_a_task_says, what_spark_says  # noqa: E402
from minikafka.spark.load import COMPRESSIONS, LoadOptions, run_load  # noqa: E402
from minikafka.wire.batch import RecordBatch, set_producer  # noqa: E402
from minikafka.wire.compression import CompressionType, compress  # noqa: E402
from minikafka.wire.errors import ErrorCode  # noqa: E402


def test_murmur2_is_kafkas() -> None:
    # The pairs of Kafka's own UtilsTest and keys of every length up to 40.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"a-little-bit-longer-string": -1486304829,
             b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, b"abc": 479470107}  # fmt: skip
    assert encode.murmur2(pa.array(list(hashes), pa.binary())).astype(np.int32).tolist() == list(hashes.values())
    kafka = pytest.importorskip("kafka.partitioner.default")
    generator = random.Random(1)
    keys = [generator.randbytes(n % 41) for n in range(400)]
    array = pa.concat_arrays([pa.array([b"in front"], pa.binary()), pa.array(keys, pa.binary())]).slice(1)
    assert encode.murmur2(array).tolist() == [kafka.murmur2(key) & 0xFFFFFFFF for key in keys]


def test_rows_without_a_key_go_round() -> None:
    keys = pa.array([None, b"a", None, b"a", None], pa.binary())
    partition = encode.partitions_of(keys, 5, 3, first_row=7).tolist()
    assert partition[0::2] == [7 % 3, 9 % 3, 11 % 3] and partition[1] == partition[3]
    assert encode.partitions_of(None, 4, 2).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("with_times", [False, True])
def test_encoded_rows_decode_to_the_same_rows(codec: int, with_times: bool) -> None:
    generator = random.Random(codec)
    rows = 3000
    keys = [None if n % 7 == 0 else generator.randbytes(generator.choice([0, 1, 5, 70, 200])) for n in range(rows)]
    values = [None if n % 11 == 0 else generator.randbytes(generator.choice([0, 3, 64, 130, 9000])) for n in range(rows)]
    times = np.array([1_700_000_000_000 + generator.randrange(-(10**7), 10**7) for _ in range(rows)], np.int64) if with_times else None
    partition = encode.partitions_of(pa.array(keys, pa.binary()), rows, 4)
    batches = list(
        encode.encode_rows(
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            partition,
            batch_bytes=50_000,
            now_ms=123,
            timestamps=times,
            codec=codec,
            compress=lambda kind, data: bytes(compress(CompressionType(kind), data)),
        )
    )
    found: dict[int, list[Any]] = {n: [] for n in range(4)}
    for batch in batches:
        set_producer(batch.data, 77, 3, 5, False)
        read = RecordBatch(memoryview(batch.data))
        read.check()
        assert (read.producer_id, read.producer_epoch, read.base_sequence, read.records_count) == (77, 3, 5, batch.records)
        records = list(read.records())
        assert [record.offset for record in records] == list(range(batch.records))
        assert read.max_timestamp == max(record.timestamp for record in records)
        found[batch.partition] += [(record.key, record.value, record.timestamp) for record in records]
    assert len(batches) > 20
    for number in range(4):
        chosen = np.flatnonzero(partition == number).tolist()
        expected = [(keys[n], values[n], int(times[n]) if times is not None else 123) for n in chosen]
        assert [
            (None if key is None else bytes(key), None if value is None else bytes(value), time) for key, value, time in found[number]
        ] == expected


def test_rows_as_json_are_json() -> None:
    import datetime

    table = pa.table(
        {
            "n": pa.array([1, None, 3]),
            "f": pa.array([1.5, float("nan"), 1e300]),
            "b": [True, None, False],
            "s": ['a"b\\c', "línea\n\t", None],
            "t": pa.array([datetime.datetime(2024, 1, 2, 3, 4, 5)] * 3, pa.timestamp("ms")),
            "l": [[1, 2], [], None],
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            'odd "name"': [1, 2, 3],
        }
    )
    rows = [json.loads(row) for row in tables.rows_as_json(table).to_pylist()]
    assert rows[0] == {"n": 1, "f": 1.5, "b": True, "s": 'a"b\\c', "t": rows[0]["t"], "l": [1, 2], "d": "x", 'odd "name"': 1}
    assert rows[1]["f"] is None and rows[1]["s"] == "línea\n\t" and rows[1]["n"] is None and rows[1]["l"] == []
    assert rows[2]["f"] == 1e300 and rows[2]["s"] is None
    assert rows[0]["t"] == "2024-01-02T03:04:05.000", "ISO 8601"


def flights(rows: int) -> pa.Table:
    return pa.table({
        "flight": pa.array(range(rows)), "carrier": pa.array([["UA", "AA", "B6", "DL", None][n % 5] for n in range(rows)]),
        "delay": pa.array([None if n % 13 == 0 else float(n % 90) for n in range(rows)]),
    })  # fmt: skip


def rows_in(server: TopicServer) -> Counter[Any]:
    return Counter(
        (None if record.key is None else bytes(record.key), bytes(record.value))
        for n in range(server.partitions)
        for record in server.records(n)
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_table_arrives_whole(tmp_path: Path, kind: str, compression: str) -> None:
    table, path = flights(20_000), tmp_path / f"flights.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=3000)
    elif kind == "csv":
        csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    with TopicServer("flights", 6) as server:
        options = LoadOptions(server.bootstrap, "flights", key="carrier", compression=compression, batch_bytes=20_000, split_bytes=100_000)
        report = run_load(str(path), options, LocalEngine(1))
    assert (report.rows, report.acknowledged, report.partitions) == (20_000, 20_000, 6)
    found = rows_in(server)
    assert sum(found.values()) == 20_000
    by_flight = {json.loads(value)["flight"]: (key, json.loads(value)) for key, value in found}
    assert sorted(by_flight) == list(range(20_000))
    assert by_flight[1] == (b"AA", {"flight": 1, "carrier": "AA", "delay": 1.0})
    assert by_flight[4][0] is None and by_flight[13][1]["delay"] is None
    for number in range(6):
        assert report.offsets.get(number, (0, 0))[1] == server.next_offset.get(number, 0)


def test_a_value_column_and_a_timestamp_column(tmp_path: Path) -> None:
    table = pa.table({"v": [b"\x00\xff", b"", None], "at": pa.array([5, None, 7])})
    parquet.write_table(table, tmp_path / "t.parquet")
    with TopicServer("t", 1) as server:
        run_load(str(tmp_path), LoadOptions(server.bootstrap, "t", value="v", timestamp="at"), LocalEngine(1))
    records = server.records(0)
    assert [None if record.value is None else bytes(record.value) for record in records] == [b"\x00\xff", b"", None]
    assert records[0].timestamp == 5 and records[1].timestamp > 10**12 and records[2].timestamp == 7


def test_lost_answers_errors_and_closed_connections_give_each_row_once(tmp_path: Path) -> None:
    parquet.write_table(flights(30_000), tmp_path / "t.parquet", row_group_size=5000)

    def fault(partition: int, number: int) -> Any:
        if number == 3:
            return "drop"
        if number in {5, 6}:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if number == 9 and partition == 2 else None

    with TopicServer("t", 4, fault) as server:
        options = LoadOptions(server.bootstrap, "t", key="carrier", batch_bytes=10_000)
        report = run_load(str(tmp_path / "t.parquet"), options, LocalEngine(1))
    assert report.acknowledged == 30_000 and report.retries >= 2
    found = rows_in(server)
    assert len(found) == 30_000 and set(found.values()) == {1}
    for number in range(4):
        ordered = [json.loads(bytes(record.value))["flight"] for record in server.records(number)]
        assert ordered == sorted(ordered), "rows of a task keep their order"


def test_an_error_that_no_retry_cures_fails_with_one_line(tmp_path: Path) -> None:
    parquet.write_table(flights(100), tmp_path / "t.parquet")
    with TopicServer("t", 2, lambda partition, number: ErrorCode.TOPIC_AUTHORIZATION_FAILED) as server:
        result = run("--topic", "t", "--bootstrap-server", server.bootstrap, str(tmp_path / "t.parquet"))
    assert result.exit_code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in result.output and len(result.output.splitlines()) == 1


def test_refused_batches_and_a_deleted_topic_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(flights(100), tmp_path / "t.parquet")
    with TopicServer("t", 2, lambda partition, number: ErrorCode.MESSAGE_TOO_LARGE) as server:
        result = run("--topic", "t", "--bootstrap-server", server.bootstrap, str(tmp_path / "t.parquet"))
    assert result.exit_code == 1 and "use a smaller --batch-size" in result.output

    monkeypatch.setattr(resuming, "UNKNOWN_S_MAX", 0.2)

    def gone(partition: int, number: int) -> ErrorCode:
        server.partitions = 0
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with TopicServer("t", 2, gone) as server:
        result = run("--topic", "t", "--bootstrap-server", server.bootstrap, str(tmp_path / "t.parquet"))
    assert result.exit_code == 1 and "no longer exists: it was deleted" in result.output


def run(*arguments: str) -> Any:
    return CliRunner().invoke(load, [*arguments, "--processes", "1"])


def test_the_command_creates_the_topic_and_reports(tmp_path: Path) -> None:
    csv.write_csv(flights(1000), tmp_path / "flights.csv")
    with TopicServer("new", 0) as server:
        missing = run(str(tmp_path / "flights.csv"), "--topic", "new", "--bootstrap-server", server.bootstrap)
        result = run(
            str(tmp_path / "flights.csv"), "--topic", "new", "--bootstrap-server", server.bootstrap, "--partitions", "5", "-o", "json"
        )
    assert missing.exit_code == 1 and "does not exist" in missing.output
    report = json.loads(result.output)
    assert (result.exit_code, report["rows"], report["acknowledged"], report["partitions"]) == (0, 1000, 1000, 5)


def test_nested_columns_become_json() -> None:
    rows: list[Any] = [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": []}]
    made = tables.as_binary(pa.chunked_array([pa.array(rows)])).to_pylist()
    assert [json.loads(one) if one is not None else None for one in made] == rows
    assert tables.as_binary(pa.chunked_array([pa.array([[1, 2], None])])).to_pylist() == [b"[1,2]", None]


def test_progress_and_result_are_kept_for_prometheus(tmp_path: Path) -> None:
    parquet.write_table(flights(1000), tmp_path / "t.parquet")
    words = (str(tmp_path / "t.parquet"), "--topic", "t", "--job-id", "j", "--metrics-file", str(tmp_path / "load.prom"))

    def metrics() -> dict[str, float]:
        families = text_string_to_metric_families((tmp_path / "load.prom").read_text())
        return {sample.name + sample.labels.get("state", ""): sample.value for family in families for sample in family.samples}

    with TopicServer("t", 3) as server:
        assert run(*words, "--bootstrap-server", server.bootstrap).exit_code == 0
    done = metrics()
    assert (done["minikafka_bulkload_rows"], done["minikafka_bulkload_share"], done["minikafka_bulkload_statedone"]) == (1000, 1, 1)
    assert run(*words, "--bootstrap-server", server.bootstrap).exit_code == 1
    assert (metrics()["minikafka_bulkload_exit_code"], metrics()["minikafka_bulkload_statefailed"]) == (1, 1)
    refused = run(*words, "--to-files", str(tmp_path / "files"))
    assert refused.exit_code == 2 and "--metrics-file" in refused.output


def test_the_leaders_say_how_far_a_load_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_progress, "ASK_EVERY_S", 0.05)
    parquet.write_table(flights(4000), tmp_path / "t.parquet", row_group_size=500)
    said: list[tuple[int, float | None]] = []
    with TopicServer("t", 3) as server:
        options = LoadOptions(server.bootstrap, "t", split_bytes=1 << 16, batch_bytes=4096, bytes_per_second=2_000_000)
        report = run_load(str(tmp_path / "t.parquet"), options, LocalEngine(1), lambda rows, share: said.append((rows, share)))
    assert said[-1] == (4000, 1.0) == (report.rows, 1.0)
    assert [rows for rows, _ in said] == sorted(rows for rows, _ in said) and any(0 < rows < 4000 for rows, _ in said[:-1])
    assert all(share == rows / 4000 for rows, share in said)
    assert load_progress.rate_and_rest(3000, 0.75, 10) == (300, pytest.approx(1000 / 300))
    assert load_progress.rate_and_rest(0, 0.0, 1) == (0, None) and load_progress.rate_and_rest(5, None, 1) == (5, None)


def test_wrong_columns_files_and_brokers_are_reported_in_one_line(tmp_path: Path) -> None:
    parquet.write_table(flights(10), tmp_path / "t.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing else")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    os.mkfifo(tmp_path / "pipe.csv")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for arguments, text, status in (
        ((str(tmp_path / "t.parquet"), "--key", "carier"), "did you mean carrier?", 2),
        ((str(tmp_path / "none.parquet"),), "no such file", 2),
        ((str(tmp_path / "broken.parquet"),), "cannot be read as parquet", 2),
        ((str(tmp_path / "twice.csv"),), "two columns have the name 'a'", 2),
        ((str(tmp_path / "pipe.csv"),), "is a pipe or a device", 2),
        ((str(tmp_path / "t.parquet"),), "no broker answers", 3),
        ((str(tmp_path / "t.parquet"), "--bootstrap-server", "nonsense:port"), "is not host:port", 2),
        ((str(tmp_path / "t.parquet"), "--bootstrap-server", "http://localhost:9092"), "write localhost:9092", 2),
    ):
        result = run("--topic", "t", "--bootstrap-server", f"127.0.0.1:{port}", *arguments)
        assert (result.exit_code, len(result.output.splitlines())) == (status, 1), result.output
        assert text in result.output


def test_an_empty_table_is_a_load_of_no_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    with TopicServer("t", 4) as server:
        load = [str(tmp_path / "t.csv"), "--topic", "t", "--job-id", "none", "--bootstrap-server", server.bootstrap]
        first, again = run(*load), run(*load)
    assert "Loaded 0 rows" in first.output and "into t, 4 partitions" in first.output and "job none" in first.output
    assert first.exit_code == again.exit_code == 0 and "is already done" in again.output


def test_a_dry_run_needs_no_broker(tmp_path: Path) -> None:
    parquet.write_table(flights(5000), tmp_path / "t.parquet")
    for options, partitions in ((["--partitions", "3"], "3 partitions, in"), ([], "1 partition assumed (--partitions), in")):
        result = run(str(tmp_path / "t.parquet"), "--topic", "t", "--dry-run", *options)
        assert result.exit_code == 0 and "5,000 rows" in result.output and f"for t, {partitions}" in result.output


def test_compressions_have_kafkas_numbers() -> None:
    assert [CompressionType[name.upper()].value for name in COMPRESSIONS] == list(range(5))


def test_a_worker_that_does_not_start_says_why() -> None:
    class Py4JJavaError(Exception):
        pass

    said = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
    : org.apache.spark.SparkException: Job aborted due to stage failure: org.apache.spark.SparkException:
    Error from python worker:
      Traceback (most recent call last):
        File "daemon.py", line 129, in manager
      OSError: AF_UNIX path too long
    PYTHONPATH was:
      /container/pyspark.zip
    org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout."""
    assert what_a_task_says(Py4JJavaError(said)) == "a Spark task failed: OSError: AF_UNIX path too long"
    said = "An error occurred while calling o91.x.\n: java.lang.NoSuchMethodError: 'void LogicalRDD.<init>(Seq)'\n\tat io.delta"
    expected = "a JAR of the packages was built for another version of Spark: java.lang.NoSuchMethodError: 'void LogicalRDD.<init>(Seq)'"
    assert what_a_task_says(Py4JJavaError(said)) == expected


def test_sparks_error_is_one_line_that_explains() -> None:
    java = "An error occurred while calling o264.load.\n: org.apache.spark.X: [DATA_SOURCE_NOT_FOUND] No delta.\n\tat org.apache"
    assert what_spark_says(Exception(java)) == "[DATA_SOURCE_NOT_FOUND] No delta."
    assert what_spark_says(Exception("[PATH_NOT_FOUND] Path: file:/x\nmore")) == "[PATH_NOT_FOUND] Path: file:/x"
    assert what_spark_says(ValueError()) == "ValueError"
    assert what_a_task_says(ValueError()) is None
    worker = "An error occurred while calling o91.x.\n: org.apache.spark.SparkException: Job aborted\nTraceback\n  File x\n{}\n\n"
    missing = PythonException(worker.format("ModuleNotFoundError: No module named 'pyarrow'"))
    assert what_a_task_says(missing) == "a worker has no module pyarrow (install minikafka with its extra `spark` where the executors run)"
    assert what_a_task_says(PythonException(worker.format("KeyError: 'k'"))) == "a Spark task failed: KeyError: 'k'"
