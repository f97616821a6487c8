"""Load to files: segments as the log itself would write them, whole clusters read back by storage, bad input, attempts that never mix."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from click.testing import CliRunner, Result  # noqa: E402
from helpers.batches import T0, batch  # noqa: E402
from helpers.file_clusters import NOW_MS, check_records, manifest, write_table  # noqa: E402
from pyarrow import csv, parquet  # noqa: E402

from minikafka.cli.load import load  # noqa: E402
from minikafka.cli.load_files import verify_files  # noqa: E402
from minikafka.spark import cluster_assembly, cluster_nodes, cluster_runs, cluster_segments, to_files  # noqa: E402
from minikafka.spark import report as reporting  # noqa: E402
from minikafka.spark.audit import AuditOptions, run_audit  # noqa: E402
from minikafka.spark.cluster_assembly import AssembleTask, assemble_tasks  # noqa: E402
from minikafka.spark.cluster_files import ClusterOptions  # noqa: E402
from minikafka.spark.cluster_manifest import check_directory  # noqa: E402
from minikafka.spark.cluster_runs import JOB_FILE, _Index  # noqa: E402
from minikafka.spark.cluster_segments import FilesFailed, LogRules, Syncer, copy_file  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.spark.load import COMPRESSIONS, LoadOptions  # noqa: E402
from minikafka.spark.to_files import load_to_files  # noqa: E402
from minikafka.storage.config import LogConfig  # noqa: E402
from minikafka.storage.filesystem import OsFileSystem  # noqa: E402
from minikafka.storage.log_dir import LogDirectory  # noqa: E402
from minikafka.storage.recovery import load_log  # noqa: E402
from minikafka.wire.batch import LOG_APPEND_TIME, RecordBatch, iterate_batches  # noqa: E402
from minikafka.wire.uuid import uuid_to_text  # noqa: E402

TOPIC_ID = bytes(range(1, 17))
OPTIONS = LoadOptions(
    "", "t", key="id", value="body", timestamp="at", headers=(("from", "source"),), partitions=4, batch_bytes=4000, split_bytes=1 << 16
)


def rules_of(config: LogConfig) -> LogRules:
    return LogRules(*(getattr(config, name) for name in LogRules.__slots__))


def random_batches(seed: int) -> list[bytes]:
    generator = random.Random(seed)
    found = []
    for number in range(400):
        values = [b"x" * generator.choice([0, 5, 100, 900]) for _ in range(generator.randrange(1, 9))]
        found.append(batch(*values, timestamp=T0 + number * 50 + generator.randrange(-4000, 4000)))
    return found


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(segment_bytes=30_000, index_interval_bytes=700),
        LogConfig(segment_bytes=30_000, index_interval_bytes=0),
        LogConfig(segment_ms=3_000, index_interval_bytes=1500),
        LogConfig(segment_index_bytes=80, index_interval_bytes=500),
    ],
    ids=["defaults", "by-size", "every-batch-indexed", "by-time", "index-full"],
)
def test_segments_are_those_that_the_log_itself_would_write(tmp_path: Path, config: LogConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    if config.index_interval_bytes == 0:  # every bound is crossed: a batch is larger than a chunk, each file is synced alone
        for bound, value in {"CHUNK_BYTES": 100, "SYNCS_MAX": 1, "SYNC_ALONE_BYTES": 1}.items():
            monkeypatch.setattr(cluster_segments, bound, value)
    batches = random_batches(7)
    log = load_log(OsFileSystem(), str(tmp_path / "log" / "t-0"), "t", 0, config, wall_ms=T0)
    log.assign_topic_id(TOPIC_ID)
    log.assign_epoch_start(0, 0)
    for data in batches:
        log.append_as_leader(memoryview(bytearray(data)), 0, T0)
    log.close()
    for share in (0, 1, 2):  # three runs, as of three tasks, in which the partition is number 1 of 2
        index, position = _Index(), 0
        with (tmp_path / f"run{share}").open("wb") as file:
            for data in batches[share * 150 : (share + 1) * 150]:
                header = RecordBatch(memoryview(data))
                index.add(1, position, len(data), header.records_count, header.max_timestamp)
                position += file.write(data)
        index.write(str(tmp_path / f"run{share}.index"), 2)
    (tmp_path / JOB_FILE).write_text("job")
    written: dict[str, bytes] = {}
    for share in (0, 1):
        runs = tuple(str(tmp_path / f"run{number}") for number in range(3))
        task = AssembleTask(1, share, 2, 2, runs, 2, rules_of(config), uuid_to_text(TOPIC_ID), str(tmp_path), "job")
        (made,) = assemble_tasks([task])
        assert made.error == "" and made.end_offset == log.log_end_offset
        for copy in "01":
            found = {path.name: path.read_bytes() for path in Path(made.path, copy).iterdir()}
            assert set(found) == {fact.name for fact in made.files or ()}
            written |= found
    expected = {path.name: path.read_bytes() for path in (tmp_path / "log" / "t-0").iterdir()}
    assert config == LogConfig() or sum(name.endswith(".log") for name in expected) > 3
    assert sorted(written) == sorted(expected)
    assert [name for name in expected if written[name] != expected[name]] == []


def read_back(target: Path, node: int, config: LogConfig | None = None) -> dict[int, list[tuple[Any, ...]]]:
    """Per partition (offset, key, value, timestamp, headers), read by the storage package, which must find a clean stop."""
    directory = LogDirectory(OsFileSystem(), str(target / f"node-{node}" / "data"))
    directory.open()
    assert directory.is_clean
    directory.load(lambda *_: config or LogConfig(), NOW_MS)
    found = {}
    for (_, partition), log in sorted(directory.logs.items()):
        assert log.high_watermark == log.recovery_point == log.log_end_offset and log.log_start_offset == 0
        assert log.epochs.latest == (0 if log.log_end_offset else -1) and all(segment.is_indexed for segment in log.segments)
        records = []
        offset = 0
        while offset < log.log_end_offset:
            for one in iterate_batches(log.read(offset, 1 << 20, end_offset=log.log_end_offset).slice.read()):
                one.check()
                assert one.partition_leader_epoch == 0 and one.producer_id == -1 and one.base_offset == offset
                for record in one.records():
                    headers = [(name, bytes(value)) for name, value in record.headers]
                    key = None if record.key is None else bytes(record.key)
                    records.append((record.offset, key, bytes(record.value or b""), record.timestamp, headers))
                offset = one.next_offset
        found[partition] = records
    directory.close(directory.previous_broker_epoch)
    return found


def audit(target: Path) -> dict[str, Any]:
    paths = [str(path) for path in sorted(target.glob("node-*/data"))]
    return reporting.build(run_audit(paths, LocalEngine(1), AuditOptions(level="records")))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_table_becomes_a_cluster_that_storage_and_audit_take_for_its_own(tmp_path: Path, compression: str) -> None:
    rows = write_table(tmp_path / "rows.parquet", 5000)
    target = tmp_path / "new" / "cluster"
    configs = {"segment.bytes": "1048576", "internal.segment.bytes": "40000", "index.interval.bytes": "500"}
    options = replace(OPTIONS, compression=compression)
    report = load_to_files(str(tmp_path / "rows.parquet"), options, ClusterOptions(str(target), topic_configs=configs), LocalEngine(1))
    assert (report.rows, report.partitions, report.replication_factor) == (5000, 4, 3)
    assert report.segments > 4 or compression != "none"
    assert sorted(os.listdir(target)) == ["manifest.json", "node-1", "node-2", "node-3"]
    assert os.listdir(tmp_path / "new") == ["cluster"], "nothing is left of the staging directory"
    said = manifest(target)
    assert said["rows_in"] == said["records_written"] == 5000 == sum(one["rows"] for one in said["partitions"])
    assert check_directory(str(target), LocalEngine(1)).problems == []
    judged = audit(target)
    assert judged["outcome"] == "PASS" and judged["findings"] == []
    replicas = [read_back(target, node) for node in (1, 2, 3)]
    check_records(replicas[0], rows)
    assert replicas[0] == replicas[1] == replicas[2]


def test_rows_of_several_tables_make_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are joined until they are as large as this."""
    rows = write_table(tmp_path / "rows.parquet", 2000)
    monkeypatch.setattr(cluster_runs, "TABLE_BYTES_MAX", 1)
    load_to_files(str(tmp_path / "rows.parquet"), OPTIONS, ClusterOptions(str(tmp_path / "c")), LocalEngine(1))
    check_records(read_back(tmp_path / "c", 1), rows)
    assert audit(tmp_path / "c")["outcome"] == "PASS"


def test_a_partition_column_a_replication_factor_of_two_and_partitions_without_rows(tmp_path: Path) -> None:
    rows = write_table(tmp_path / "rows.parquet", 1000)
    target = tmp_path / "c"
    target.mkdir()  # an empty directory may be there
    options = replace(OPTIONS, partitions=9, partition="place")
    nodes = tuple(f"{node}@kafka{node}.example:9092" for node in (7, 3, 5))
    cluster = ClusterOptions(str(target), nodes, replication_factor=2, cluster_id="minikafka-round-tripAA")
    report = load_to_files(str(tmp_path / "rows.parquet"), options, cluster, LocalEngine(1))
    assert report.cluster_id == "minikafka-round-tripAA"
    said = manifest(target)
    assert [one["rows"] for one in said["partitions"]] == [200] * 5 + [0] * 4
    assert all(len(set(one["replicas"])) == 2 for one in said["partitions"])
    assert "advertised.listeners=PLAINTEXT://kafka5.example:9092" in (target / "node-5" / "server.properties").read_text()
    found: dict[int, list[tuple[Any, ...]]] = {}
    for node in (3, 5, 7):
        for partition, records in read_back(target, node).items():
            assert found.setdefault(partition, records) == records
    assert sorted(found) == list(range(9))
    check_records(found, rows, by_column=True)
    assert audit(target)["outcome"] == "PASS"


def test_text_tables_and_records_stamped_by_the_broker(tmp_path: Path) -> None:
    rows = [{"n": n, "name": f"row {n}"} for n in range(3000)]
    csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "rows.csv")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, configs in (("rows.csv", {}), ("rows.jsonl", {"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"})):
        target = tmp_path / f"from-{name}"
        cluster = ClusterOptions(str(target), node_count=1, topic_configs=configs)
        report = load_to_files(str(tmp_path / name), LoadOptions("", "t", partitions=2), cluster, LocalEngine(1))
        assert report.rows == 3000 and report.notes == []
        found = read_back(target, 1)
        numbers = [[json.loads(record[2])["n"] for record in records] for records in found.values()]
        assert sorted(numbers[0] + numbers[1]) == list(range(3000)) and all(part == sorted(part) for part in numbers)
        data = (target / "node-1" / "data" / "t-0" / "00000000000000000000.log").read_bytes()
        first = RecordBatch(memoryview(data))
        first.check()
        if configs:
            assert first.timestamp_type == LOG_APPEND_TIME and first.attributes & 7 == 3
            assert {record[3] for records in found.values() for record in records} == {first.max_timestamp}


def test_old_records_are_not_left_to_retention(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", 100)
    source = str(tmp_path / "rows.parquet")
    report = load_to_files(source, OPTIONS, ClusterOptions(str(tmp_path / "a"), node_count=1), LocalEngine(1))
    assert "2023-11-14: retention.ms=-1 was set" in report.notes[0]
    assert manifest(tmp_path / "a")["topic"]["configs"] == {"retention.ms": "-1"}
    kept = ClusterOptions(str(tmp_path / "b"), node_count=1, topic_configs={"retention.ms": "1000"})
    report = load_to_files(source, OPTIONS, kept, LocalEngine(1))
    assert "brokers will delete segments older than retention.ms" in report.notes[0]
    assert manifest(tmp_path / "b")["topic"]["configs"] == {"retention.ms": "1000"}
    report = load_to_files(source, replace(OPTIONS, timestamp=""), ClusterOptions(str(tmp_path / "c"), node_count=1), LocalEngine(1))
    assert report.notes == []


# ---- what goes wrong --------------------------------------------------------------------------------------------------------


class TwiceEngine(LocalEngine):
    """Every task runs twice, as with speculation; the attempt that counts is chosen at random, the other one's files stay behind."""

    def __init__(self) -> None:
        super().__init__(1)
        self.random, self.runs = random.Random(3), 0

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        for item in items:
            attempts = [function(item), function(item)]
            self.runs += 2
            self.check(attempts)
            yield attempts[self.random.randrange(2)]

    def check(self, attempts: list[Any]) -> None:
        flat = [[one] if not isinstance(one, list) else one for one in attempts]
        assert not {one.path for one in flat[0]} & {one.path for one in flat[1]} and not any(one.error for one in flat[0])


def test_attempts_do_not_mix(tmp_path: Path) -> None:
    rows = write_table(tmp_path / "rows.parquet", 4000)
    engine = TwiceEngine()
    load_to_files(str(tmp_path / "rows.parquet"), OPTIONS, ClusterOptions(str(tmp_path / "c")), engine)
    assert engine.runs > 8
    check_records(read_back(tmp_path / "c", 2), rows)
    assert sorted(os.listdir(tmp_path)) == ["c", "rows.parquet"]
    again = ClusterOptions(str(tmp_path / "d"))
    load_to_files(str(tmp_path / "rows.parquet"), OPTIONS, again, LocalEngine(1))
    first, second = manifest(tmp_path / "c"), manifest(tmp_path / "d")
    logs = [
        sorted(fact for path, fact in said["files"].items() if path.endswith((".log", ".index", ".timeindex")) and "/t-" in path)
        for said in (first, second)
    ]
    assert logs[0] == logs[1], "the bytes depend on the table and the options only"


def test_a_failed_load_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "rows.parquet", 1000)
    source = str(tmp_path / "rows.parquet")
    options = replace(OPTIONS, partitions=2, partition="place")  # holds 0 to 4
    with pytest.raises(FilesFailed, match="the partition column ranges from 0 to 4"):
        load_to_files(source, options, ClusterOptions(str(tmp_path / "c")), LocalEngine(1))
    assert os.listdir(tmp_path) == ["rows.parquet"]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "x.log")

    for module, name in (
        (cluster_assembly, "write_segment"), (cluster_assembly, "copy_file"), (to_files, "write_cluster"), (to_files.Staging, "publish"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(FilesFailed, match=r"cannot write x\.log: No space left on device"):
                load_to_files(source, OPTIONS, ClusterOptions(str(tmp_path / "c")), LocalEngine(1))
        assert os.listdir(tmp_path) == ["rows.parquet"]


def test_a_target_created_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", 1000)

    class Meddling(LocalEngine):
        def map(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
            (tmp_path / "c").mkdir(exist_ok=True)
            (tmp_path / "c" / "mine").write_text("precious")
            return super().map(function, items)

    with pytest.raises(FilesFailed, match="is not empty"):
        load_to_files(str(tmp_path / "rows.parquet"), OPTIONS, ClusterOptions(str(tmp_path / "c")), Meddling(1))
    assert (tmp_path / "c" / "mine").read_text() == "precious"


def test_leftovers_of_a_killed_driver_are_removed_but_not_files_of_a_living_one(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", 1000)
    target = str(tmp_path / "c")
    dead = tmp_path / ".c.load-0123456789abcdef"
    (dead / "runs").mkdir(parents=True)
    (dead / JOB_FILE).write_text("0123456789abcdef")
    with to_files.Staging(target) as living:
        assert not dead.exists()
        load_to_files(str(tmp_path / "rows.parquet"), OPTIONS, ClusterOptions(target, node_count=1), LocalEngine(1))
        assert Path(living.path, "runs").is_dir()
    assert sorted(os.listdir(tmp_path)) == ["c", "rows.parquet"]


def test_an_executor_that_does_not_share_the_directory_says_so(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", 1000)

    class Elsewhere(LocalEngine):
        def map(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
            hidden = replace(items[0].options, staging=str(tmp_path / "another machine's" / "staging"))
            return super().map(function, [replace(item, options=hidden) for item in items])

    with pytest.raises(FilesFailed, match="--to-files needs a directory that all of them share"):
        load_to_files(str(tmp_path / "rows.parquet"), OPTIONS, ClusterOptions(str(tmp_path / "c")), Elsewhere(1))


def test_replicas_are_files_of_their_own(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(5 << 20)
    (tmp_path / "a").write_bytes(data)
    with Syncer() as syncer:
        copy_file(str(tmp_path / "a"), str(tmp_path / "b"), syncer)
    with (tmp_path / "a").open("r+b") as file:
        file.write(b"changed")
    assert (tmp_path / "b").read_bytes() == data and not os.path.samefile(tmp_path / "a", tmp_path / "b")


# ---- the commands -----------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(load, [*arguments, "--engine", "local", "--processes", "1"])


def test_the_command_and_the_check(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", 1000)
    target = tmp_path / "c"
    arguments = [str(tmp_path / "rows.parquet"), "--topic", "t", "--key", "id", "--partitions", "3", "--to-files", str(target)]
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert "Wrote 1,000 rows" in done.output and "3 partitions x 3 replicas" in done.output
    assert f"minikafka start --config {target}/node-2/server.properties" in done.output
    assert f"minikafka audit {target}/node-1/data {target}/node-2/data {target}/node-3/data" in done.output
    again = run(*arguments)
    assert (again.exit_code, again.output) == (2, f"minikafka load: {target} is not empty; give another directory, or remove it first\n")
    checked = CliRunner().invoke(verify_files, [str(target)])
    assert checked.exit_code == 0 and "is unchanged: " in checked.output and "1,000 rows)" in checked.output
    log = target / "node-2" / "data" / "t-1" / "00000000000000000000.log"
    with log.open("r+b") as file:
        file.seek(100)
        file.write(b"!")
    (target / "node-3" / "data" / "t-0" / "leader-epoch-checkpoint").unlink()
    (target / "node-1" / "data" / "t-0" / "more").write_text("x")
    with (target / "node-1" / "data" / "meta.properties").open("a") as file:
        file.write("\n")
    checked = CliRunner().invoke(verify_files, [str(target)])
    assert checked.exit_code == 1
    lines = [line.partition("/data/")[2] for line in checked.output.splitlines()]
    assert lines[0].startswith("meta.properties has ") and lines[1] == "t-0/more is not in the manifest"
    assert lines[2] == "t-1/00000000000000000000.log does not have the CRC-32C in the manifest"
    assert lines[3] == "t-0/leader-epoch-checkpoint is missing"
    said = json.loads(CliRunner().invoke(verify_files, [str(target), "-o", "json"]).output)
    assert said["good"] is False and said["count"] == 4
    (target / "manifest.json").write_text("{")
    assert CliRunner().invoke(verify_files, [str(target)]).exit_code == 2
    shutil.rmtree(target)
    assert CliRunner().invoke(verify_files, [str(target)]).exit_code == 2


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", 1000)
    done = run(str(tmp_path / "rows.parquet"), "--topic", "t", "--to-files", str(tmp_path / "c"), "--dry-run", "--partitions", "2")
    assert done.exit_code == 0 and "Dry run, nothing written: 1,000 rows" in done.output
    assert os.listdir(tmp_path) == ["rows.parquet"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--node", "1@a:9092", "--node", "1@b:9092"], 2, "--node: node 1 is given twice"),
        (["--node", "1@a:9092", "--node", "2@a:9092"], 2, "--node: nodes 1 and 2 would both listen on a:9092"),
        (["--node", "a:9092"], 2, "--node a:9092: expected ID@HOST:PORT[:CONTROLLER_PORT]"),
        (["--node", "1@a:99999"], 2, "ports are 1 to 65535"),
        (["--node", f"{cluster_nodes.NODE_ID_MAX + 1}@a:9092"], 2, "node ids 0 to 2147483647"),
        (["--node", "none.properties"], 2, "cannot read none.properties"),
        (["--nodes", "2", "--replication-factor", "3"], 2, "the cluster has only 2 brokers"),
        (["--replication-factor", "0"], 2, "replication factor must be positive"),
        (["--config", "no.such=1"], 2, "Unknown topic config name: no.such"),
        (["--config", "segment.bytes=many"], 2, "Invalid value many for configuration segment.bytes"),
        (["--config", "cleanup.policy=compact"], 2, "every row needs a key: give --key"),
        (["--config", "cleanup.policy=compact", "--key", "id"], 1, "every row needs a key, but some have none"),
        (["--topic", "a b"], 2, "contains one or more characters other than ASCII alphanumerics"),
        (["--topic", "__consumer_offsets"], 2, "__consumer_offsets is an internal topic"),
        (["--cluster-id", "short"], 2, "--cluster-id:"),
        (["--bootstrap-server", "a:1"], 2, "--bootstrap-server needs a running cluster"),
        (["--throttle", "5"], 2, "--throttle needs a running cluster"),
        (["--batch-size", "2000000"], 2, "takes batches of at most 1,048,588 bytes"),
        (["--config", "max.message.bytes=1000"], 2, "takes batches of at most 1,000 bytes"),
        (["--batch-size", "1024", "--config", "max.message.bytes=1024", "--key", "body"], 1, "a record makes a batch of 2,"),
        (["--compression", "lz4", "--config", "compression.type=zstd"], 2, "the topic's compression.type is zstd"),
        (["--key", "idd"], 2, "there is no column 'idd'; did you mean id?"),
        (["--timestamp", "body"], 1, "a timestamp column must hold timestamps"),
        (["--timestamp", "early"], 1, "a timestamp of -5 ms is before 1970"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    rows = pa.table({"id": ["a", None], "body": ["x" * 200, "y" * 990], "early": [-5, 7]})
    parquet.write_table(rows, tmp_path / "rows.parquet")
    done = run(str(tmp_path / "rows.parquet"), "--topic", "t", "--to-files", str(tmp_path / "c"), *arguments)
    assert done.exit_code == status, done.output
    assert said in done.output and done.output.count("\n") == 1 and "Traceback" not in done.output
    assert os.listdir(tmp_path) == ["rows.parquet"]


def test_server_properties_that_do_not_make_a_cluster(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.parquet", 10)
    common = "controller.listener.names=C\nlistener.security.protocol.map=C:PLAINTEXT,P:PLAINTEXT\ninter.broker.listener.name=P\n"
    texts = {
        "broker": common + "process.roles=broker\nnode.id=5\nlisteners=P://h:1\ncontroller.quorum.voters=1@h:2\n",
        "controller": common + "process.roles=controller\nnode.id=1\nlisteners=C://h:2\ncontroller.quorum.voters=1@h:2\n",
        "other": common + "process.roles=controller\nnode.id=1\nlisteners=C://h:3\ncontroller.quorum.voters=1@h:3\n",
        "wide": common + "process.roles=controller\nnode.id=1\nlisteners=C://h:2\ncontroller.quorum.voters=1@h:2,2@h:4\n",
        "wrong": common + "process.roles=controller\nnode.idd=1\nlisteners=C://h:2\ncontroller.quorum.voters=1@h:2\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.properties").write_text(text)
    arguments = [str(tmp_path / "rows.parquet"), "--topic", "t", "--to-files", str(tmp_path / "c")]
    for names, said in {
        ("broker",): "none of the nodes is a controller",
        ("controller",): "none of the nodes is a broker",
        ("broker", "other"): "controller.quorum.voters differs",
        ("wide",): "names node 2, whose server.properties is not given",
        ("wrong",): "node.id is missing",
    }.items():
        done = run(*arguments, *(text for name in names for text in ("--node", str(tmp_path / f"{name}.properties"))))
        assert done.exit_code == 2 and said in done.output and done.output.count("\n") == 1, done.output
    done = run(*arguments, "--node", str(tmp_path / "broker.properties"), "--node", str(tmp_path / "controller.properties"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "c" / "node-1" / "data" / "__cluster_metadata-0").is_dir()
    assert not (tmp_path / "c" / "node-5" / "data" / "__cluster_metadata-0").exists()
    assert (tmp_path / "c" / "node-5" / "data" / "t-0").is_dir()
