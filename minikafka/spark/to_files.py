"""A table as the directories of a new cluster: every replica's segments, indexes and checkpoints, ready to be started.

Two passes on the engine (Spark, or processes of this machine). Encode: each task turns its rows into finished batches, in one run file.
Assemble: for each partition the batches get their offsets and become segments, once, and copies for the other replicas. The driver then
moves the files into place, formats the nodes around them, writes the manifest and publishes everything by one rename. Until then nothing
is at the target; what failed attempts wrote lies in files of their own and is thrown away.

Rows of a partition are in the order of the table. The bytes depend on the table, the options and the time of the load only.
"""

from __future__ import annotations

import heapq
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from minikafka.addresses import host_port
from minikafka.counted import counted
from minikafka.spark.cluster_assembly import Assembled, AssembleTask, assemble_tasks
from minikafka.spark.cluster_files import ClusterOptions, ClusterPlan, plan_cluster, write_cluster
from minikafka.spark.cluster_manifest import MANIFEST, Manifest, checksum_of, files_below
from minikafka.spark.cluster_runs import EncodeFrame, EncodeOptions, EncodeTask, Run, encode_task, unpickled
from minikafka.spark.cluster_segments import FilesFailed
from minikafka.spark.cluster_staging import Staging
from minikafka.spark.load import LoadOptions, _check_columns, _split_bytes
from minikafka.wire.batch import LOG_APPEND_TIME

if TYPE_CHECKING:
    from minikafka.spark.audit import Engine
    from minikafka.spark.tables import Unit

#: (stage, done, all of it) of the pass that is running.
Progress = Callable[[str, int, int], None]
TASKS_PER_CORE = 4


@dataclass(slots=True)
class FilesReport:
    """What was written. `encode_seconds` and `assemble_seconds` are the times of the two passes, `publish_seconds` is the time of the
    publication. `notes`: messages for the user."""

    directory: str
    topic: str
    partitions: int
    replication_factor: int
    rows: int
    batches: int
    bytes: int
    files: int
    segments: int
    cluster_id: str
    nodes: list[dict[str, Any]]
    engine: str
    seconds: float
    encode_seconds: float
    assemble_seconds: float
    publish_seconds: float
    notes: list[str]

    @property
    def rows_per_second(self) -> float:
        """The average rate over the whole time."""
        return self.rows / self.seconds if self.seconds else 0.0


def load_to_files(
    table: str, options: LoadOptions, cluster: ClusterOptions, engine: Engine, progress: Progress | None = None
) -> FilesReport:
    """Write a table that pyarrow reads (Parquet, CSV, JSON lines) as the log directories of a cluster that has not started yet.

    `progress(stage, done, of)` is called as results come in. Raises FilesFailed, TableError, ValueError."""
    from minikafka.spark.tables import plan_units

    started = time.perf_counter()
    plan, options = plan_load(options, cluster)
    split_bytes = _split_bytes(table, options, engine.parallelism)
    units, columns = plan_units(table, options.format, split_bytes, options.delimiter, options.unpacked_bytes_max)
    _check_columns(options, columns)
    with Staging(plan.directory) as staging:
        common = _encode_options(plan, options, staging)
        groups = _contiguous(units, engine.parallelism * TASKS_PER_CORE)
        tasks = [EncodeTask(index, tuple(group), common) for index, group in enumerate(groups)]
        weights = [sum(unit.bytes for unit in group) for group in groups]
        runs = _collect(engine.map(encode_task, tasks), weights, "encoding", progress)
        return _finish(plan, runs, staging, engine, common, table, progress, started)


def dataframe_to_files(frame: Any, options: LoadOptions, cluster: ClusterOptions, progress: Progress | None = None) -> FilesReport:
    """Write the cluster of a Spark DataFrame; `key`, `value`, `timestamp`, `partition` and the headers' columns are SQL expressions.

    The records of a partition are in the order of the DataFrame's partitions. The DataFrame must give the same rows in the same partitions
    when a task runs again. Raises FilesFailed.
    """
    from minikafka.spark.engine_spark import SparkEngine
    from minikafka.spark.load_frame import _select

    started = time.perf_counter()
    plan, options = plan_load(options, cluster)
    chosen, selected = _select(frame, options)
    engine = SparkEngine(frame.sparkSession)
    with Staging(plan.directory) as staging:
        common = _encode_options(plan, selected, staging)
        runs = [run for row in chosen.mapInArrow(EncodeFrame(common), "run binary").collect() if (run := unpickled(row.run)) is not None]
        runs = _collect(iter(runs), [1] * len(runs), "encoding", progress)
        return _finish(plan, runs, staging, engine, common, "a Spark DataFrame", progress, started)


# ---- planning -----------------------------------------------------------------------------------------------------------------


def plan_load(options: LoadOptions, cluster: ClusterOptions) -> tuple[ClusterPlan, LoadOptions]:
    """Everything that can be refused before a row is read is refused here. Raises FilesFailed."""
    options = replace(options, partitions=options.partitions or 1)
    plan = plan_cluster(cluster, options.topic, options.partitions)
    codec = plan.log.compression_type
    if codec != "producer":
        codec = "none" if codec == "uncompressed" else codec
        if options.compression not in ("none", codec):
            raise FilesFailed(f"--compression {options.compression}: the topic's compression.type is {plan.log.compression_type}")
        options = replace(options, compression=codec)
    if plan.log.is_compacted and not options.key:
        raise FilesFailed(f"{options.topic} is compacted (cleanup.policy), so every row needs a key: give --key")
    if options.compression == "none" and options.batch_bytes > _batch_bytes_max(plan):
        raise FilesFailed(
            f"--batch-size {options.batch_bytes}: {options.topic} takes batches of at most {_batch_bytes_max(plan):,} bytes "
            "(max.message.bytes, segment.bytes)"
        )
    return plan, options


def _batch_bytes_max(plan: ClusterPlan) -> int:
    return min(plan.log.max_message_bytes, plan.log.segment_bytes)


def _encode_options(plan: ClusterPlan, options: LoadOptions, staging: Staging) -> EncodeOptions:
    return EncodeOptions(
        options, staging.path, staging.job, time.time_ns() // 1_000_000, _batch_bytes_max(plan),
        LOG_APPEND_TIME if plan.log.is_log_append_time else 0, plan.log.is_compacted,
    )  # fmt: skip


def _contiguous(units: Sequence[Unit], count: int) -> list[list[Unit]]:
    """At most `count` lists of neighbours of about the same size: rows stay in the order of the table."""
    total = sum(unit.bytes for unit in units)
    groups: list[list[Unit]] = []
    done = 0
    for unit in units:
        number = min(count - 1, done * count // max(total, 1))
        if not groups or number >= len(groups):
            groups.append([])
        groups[-1].append(unit)
        done += unit.bytes
    return groups


# ---- running ------------------------------------------------------------------------------------------------------------------


def _collect(found: Iterator[Run], weights: Sequence[int], stage: str, progress: Progress | None) -> list[Run]:
    """All runs by the number of their task. Raises FilesFailed at the first that failed."""
    runs: dict[int, Run] = {}
    done = 0
    for run in found:
        if run.error:
            raise FilesFailed(run.error)
        runs[run.index] = run
        done += weights[run.index] if run.index < len(weights) else 0
        if progress is not None:
            progress(stage, done, sum(weights))
    return [runs[index] for index in sorted(runs)]


def _finish(
    plan: ClusterPlan, runs: list[Run], staging: Staging, engine: Engine, common: EncodeOptions, source: str, progress: Progress | None,
    started: float,
) -> FilesReport:  # fmt: skip
    """Assemble, reconcile, format, publish."""
    encoded = time.perf_counter()
    rows = sum(run.rows for run in runs)
    count = common.load.partitions
    rows_of = [sum(of) for of in zip(*(run.rows_of for run in runs), strict=True)] or [0] * count
    bytes_of = [sum(of) for of in zip(*(run.bytes_of for run in runs), strict=True)] or [0] * count
    tasks = _assemble_tasks(plan, [run.path for run in runs], bytes_of, engine.parallelism, staging)
    made: list[Assembled] = []
    for group in engine.map(assemble_tasks, tasks):
        for one in group:
            if one.error:
                raise FilesFailed(one.error)
        made += group
        if progress is not None:
            progress("writing segments", sum(done.bytes for done in made), sum(bytes_of))
    records_of = [0] * count
    for one in made:
        records_of[one.partition] += one.records
    _reconcile(rows, rows_of, records_of, made)
    assembled = time.perf_counter()
    notes = _keep_old_records(plan, made, runs, common.now_ms)
    manifest = _publish(plan, made, records_of, source, rows, staging, common.now_ms)
    finished = time.perf_counter()
    return FilesReport(
        plan.directory, plan.topic, count, plan.replication_factor, rows, sum(run.batches for run in runs), sum(bytes_of),
        len(manifest.files), sum(one.segments for one in made), plan.cluster_id, manifest.nodes, engine.name, finished - started,
        encoded - started, assembled - encoded, finished - assembled, notes,
    )  # fmt: skip


def _assemble_tasks(
    plan: ClusterPlan, runs: list[str], bytes_of: Sequence[int], parallelism: int, staging: Staging
) -> list[list[AssembleTask]]:
    """Lists of about equal bytes, some for each core. Segments of a partition are shared when there are more cores than partitions."""
    tasks: list[tuple[int, AssembleTask]] = []
    for partition, size in enumerate(bytes_of):
        segments = math.ceil(size / plan.rules.segment_bytes)
        shares = max(1, min(segments, math.ceil(2 * parallelism / len(bytes_of))))
        for share in range(shares):
            task = AssembleTask(
                partition, share, shares, len(bytes_of), tuple(runs), plan.replication_factor, plan.rules, plan.topic_id_text,
                staging.path, staging.job,
            )  # fmt: skip
            tasks.append((size // shares, task))
    groups: list[list[AssembleTask]] = [[] for _ in range(min(len(tasks), parallelism * TASKS_PER_CORE))]
    heap = [(0, number) for number in range(len(groups))]
    for size, task in sorted(tasks, key=lambda entry: -entry[0]):
        load, number = heap[0]
        groups[number].append(task)
        heapq.heapreplace(heap, (load + size + 1, number))
    return groups


def _reconcile(rows: int, rows_of: Sequence[int], records_of: Sequence[int], made: Sequence[Assembled]) -> None:
    """Rows read == rows partitioned == records counted in the segments == log end offsets. Raises FilesFailed."""
    if rows != sum(rows_of):
        raise FilesFailed(f"{counted(rows, 'row was', 'rows were')} read, but only {sum(rows_of):,} given a partition")
    ends = {one.partition: one.end_offset for one in made}
    for partition, (expected, found) in enumerate(zip(rows_of, records_of, strict=True)):
        if expected != found or ends[partition] != found:
            records = counted(found, "record")
            raise FilesFailed(f"partition {partition}: {counted(expected, 'row')}, but {records} up to offset {ends[partition]:,}")


def _keep_old_records(plan: ClusterPlan, made: Sequence[Assembled], runs: Sequence[Run], now_ms: int) -> list[str]:
    """Records older than the topic's retention would be deleted as soon as a broker starts: retention.ms=-1, unless it was asked for."""
    log = plan.log
    oldest = min((one.oldest_max_timestamp for one in made if one.oldest_max_timestamp >= 0), default=now_ms)
    if not log.is_deleted or log.retention_ms < 0 or now_ms - oldest < log.retention_ms:
        return []
    first = min((run.timestamp_min for run in runs if run.timestamp_max >= 0), default=oldest)
    old = f"the oldest record dates from {time.strftime('%Y-%m-%d', time.gmtime(first / 1000))}"
    days = f"{log.retention_ms / 86_400_000:g} days"
    if "retention.ms" in plan.configs:
        return [f"{old}: brokers will delete segments older than retention.ms ({days}) when they start"]
    plan.set_config("retention.ms", "-1")
    return [f"{old}: retention.ms=-1 was set for the topic; otherwise brokers would delete records after {days} (--config overrides)"]


# ---- publishing ---------------------------------------------------------------------------------------------------------------


def _publish(
    plan: ClusterPlan, made: Sequence[Assembled], records_of: Sequence[int], source: str, rows: int, staging: Staging, now_ms: int
) -> Manifest:
    root = f"{staging.path}/cluster"
    os.mkdir(root)
    manifest = _manifest(plan, made, records_of, source, rows, now_ms)
    for node in plan.nodes:
        os.makedirs(f"{root}/{node.folder}/data")
    for partition, nodes in enumerate(plan.replicas):
        for node_id in nodes:
            os.mkdir(f"{root}/{_place(plan, node_id, partition)}")
    for one in made:
        for copy, node_id in enumerate(plan.replicas[one.partition]):
            place = _place(plan, node_id, one.partition)
            for fact in one.files or ():
                os.rename(f"{one.path}/{copy}/{fact.name}", f"{root}/{place}/{fact.name}")
                manifest.add(f"{place}/{fact.name}", fact.bytes, fact.crc32c)
    write_cluster(plan, root, records_of, now_ms)
    for path in files_below(root):
        if path not in manifest.files:
            with open(f"{root}/{path}", "rb") as file:
                manifest.add(path, os.fstat(file.fileno()).st_size, checksum_of(file.fileno()))
    manifest.write(root)
    staging.publish(root)
    return manifest


def _place(plan: ClusterPlan, node_id: int, partition: int) -> str:
    return f"node-{node_id}/data/{plan.topic}-{partition}"


def _manifest(plan: ClusterPlan, made: Sequence[Assembled], records_of: Sequence[int], source: str, rows: int, now_ms: int) -> Manifest:
    bytes_of, segments_of = [0] * len(records_of), [0] * len(records_of)
    for one in made:
        bytes_of[one.partition] += one.bytes
        segments_of[one.partition] += one.segments
    numbers = zip(range(len(records_of)), plan.replicas, records_of, bytes_of, segments_of, strict=True)
    names = ("partition", "replicas", "rows", "bytes", "segments")
    nodes: list[dict[str, Any]] = [
        {
            "id": node.node_id, "roles": list(node.config.process_roles), "properties": f"{node.folder}/server.properties",
            "data": f"{node.folder}/data", "bootstrap": _addresses(node.config.broker_listeners, node.config.advertised),
        }
        for node in plan.nodes
    ]  # fmt: skip
    topic: Mapping[str, Any] = {
        "name": plan.topic, "id": plan.topic_id_text, "partitions": len(records_of), "replication_factor": plan.replication_factor,
        "configs": plan.configs,
    }  # fmt: skip
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms / 1000))
    partitions = [dict(zip(names, row, strict=True)) for row in numbers]
    return Manifest(created, plan.cluster_id, nodes, dict(topic), partitions, source, rows, sum(records_of))


def _addresses(listeners: Sequence[Any], advertised: Mapping[str, Any]) -> list[str]:
    return [host_port(advertised[one.name].host or "localhost", advertised[one.name].port) for one in listeners]


def instructions(report: FilesReport) -> list[str]:
    """What to type next."""
    lines = [f"minikafka start --config {report.directory}/{node['properties']}" for node in report.nodes]
    bootstrap = next(node["bootstrap"][0] for node in report.nodes if node["bootstrap"])
    return [
        f"Written to {report.directory} ({MANIFEST} has every file's checksum). Start each node, with minikafka or with Apache Kafka 4.3:",
        *(f"  {line}" for line in lines),
        f"  (or kafka-server-start.sh {report.directory}/{report.nodes[0]['properties']}, and so on)",
        "Then:",
        f"  minikafka consume {report.topic} --from-beginning --bootstrap-server {bootstrap}",
        f"  minikafka audit {' '.join(report.directory + '/' + node['data'] for node in report.nodes)}",
    ]
