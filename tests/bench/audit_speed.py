"""The figures of audit and load as ratios in one run, page cache warm; what starts up once (the JVM) is said apart.

usage: python tests/bench/audit_speed.py [--gigabytes 1] [--processes 2] [--spark] [--rows 4000000] [--estate 10000] [--growth 1,4,16,64]
The yardstick of the audit is a plain walk with crc32c over mmap in as many processes; that of the load is the encoder's own rate.
Shares are of CPU seconds of all processes, which others on the machine change less than the time on the clock.
`--estate N`: plans N partitions of ten sparse segments each. `--growth`: seconds a GB while the log grows, from hard links of a segment.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from audit_scan import SEGMENT_BYTES, check, describe, own, plain_scan, write_segments

from minikafka.spark.audit import AuditOptions, Engine, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.planning import make_plan
from minikafka.spark.sources import partition_tasks


def best(work: Any, rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def cpu_seconds() -> float:
    """User and system time of this process and of those below it, Spark's Java and workers among them."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            ended = times.children_user + times.children_system if process.name() != "java" else 0.0
            total += times.user + times.system + ended
    return total


def cheapest(work: Any, rounds: int = 3) -> tuple[float, float]:
    """The fewest seconds and CPU seconds of a few rounds. The kernel counts CPU time in ticks, so at least one is returned."""
    spent: list[float] = []

    def counted() -> None:
        before = cpu_seconds()
        work()
        spent.append(cpu_seconds() - before)

    return best(counted, rounds), max(min(spent), 1 / os.sysconf("SC_CLK_TCK"))


def audit_ratios(gigabytes: float, processes: int, spark: bool, segment_bytes: int = SEGMENT_BYTES) -> None:
    with tempfile.TemporaryDirectory() as name:
        for broker in (1, 2):
            write_segments(Path(name) / f"broker-{broker}", int(gigabytes * (1 << 30)) // 2, segment_bytes)
        files = [str(path) for path in Path(name).rglob("*.log")]
        total = sum(os.path.getsize(path) for path in files)
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            plain, plain_cpu = cheapest(lambda: pool.map(plain_scan, files, 1))
        print(f"{len(files)} segments, {total / 1e9:.2f} GB, {processes} processes; plain walk + crc32c: {total / plain / 1e9:.2f} GB/s")
        engine: Engine = LocalEngine(processes)
        both, one = [f"{name}/broker-1", f"{name}/broker-2"], [f"{name}/broker-1"]
        each = {
            "audit, every check, replicas compared": (both, AuditOptions()),
            "the same, digest blake2b": (both, AuditOptions(digest="blake2b")),
            "the same, every record decoded": (both, AuditOptions(level="records")),
        }
        for label, (paths, options) in each.items():
            seconds, cpu = cheapest(lambda paths=paths, options=options: check(run_audit(paths, engine, options)), 2)
            print(f"  {label:42s} {total / seconds / 1e9:6.2f} GB/s  {plain_cpu / cpu:5.2f} of the plain walk")
        alone = best(lambda: check(run_audit(one, engine, AuditOptions(self_check=True)))) * 2
        compared = best(lambda: check(run_audit(both, engine)))
        print(f"  comparison of two replicas costs {100 * (compared / alone - 1):.0f} % on top of checking each alone")
        engine.close()
        if spark:
            from minikafka.spark.engine_spark import SparkEngine

            start, cpu = time.perf_counter(), cpu_seconds()
            engine = SparkEngine(master=f"local[{processes}]")
            check(run_audit(both, engine))
            print(f"  Spark's start and first job: {time.perf_counter() - start:.1f} s, {cpu_seconds() - cpu:.1f} s of CPU time")
            for size in (512, 256):
                chosen = AuditOptions(split_bytes=size << 20)
                seconds, cpu = cheapest(lambda chosen=chosen: check(run_audit(both, engine, chosen)))
                label = f"audit on Spark, splits of {size} MiB"
                print(f"  {label:42s} {total / seconds / 1e9:6.2f} GB/s  {plain_cpu / cpu:5.2f} of the plain walk")
            engine.close()


def estate(partitions: int) -> None:
    """Sparse segments: what planning costs when there is very much to plan."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "estate-1"
        root.mkdir()
        own(root)
        for number in range(partitions):
            directory = root / f"topic-{number % 100}-{number // 100}"
            directory.mkdir()
            for segment in range(10):
                with (directory / f"{segment * 1_000_000:020d}.log").open("wb") as file:
                    file.truncate(1 << 30)
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        plan = make_plan([str(root)])
        tasks = sum(1 for copies in plan.replicas.values() for _ in partition_tasks(copies, "batches", "crc"))
        seconds = time.perf_counter() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{len(plan.replicas):,} partitions, {tasks:,} segments planned in {seconds:.1f} s, {grown:.0f} MiB more memory")


def growth(sizes: list[int], processes: int, segment_bytes: int = SEGMENT_BYTES) -> None:
    """The same segment linked into more and more partitions: seconds a GB must not grow. Four segments are one of the sizes."""
    with tempfile.TemporaryDirectory() as name:
        end = write_segments(Path(name) / "seed-1", segment_bytes, segment_bytes)
        seed = next(Path(name, "seed-1").rglob("*.log"))
        engine = LocalEngine(processes)
        for gigabytes in sizes:
            root = Path(name) / f"size-{gigabytes}"
            for number in range(gigabytes * 4):
                directory = root / f"t-{number}"
                directory.mkdir(parents=True)
                os.link(seed, directory / seed.name)
                describe(directory, end)
            own(root)
            total = gigabytes * 4 * seed.stat().st_size
            seconds = best(lambda root=root: check(run_audit([str(root)], engine, AuditOptions(self_check=True))), 2)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"  {total / 1e9:6.1f} GB: {seconds / total * 1e9:.3f} s a GB, driver {memory:.0f} MiB")
        engine.close()


def load_ratios(rows: int, processes: int) -> None:
    """Parquet to batches without a broker, and into three brokers on the same cores."""
    import pyarrow as pa
    from pyarrow import parquet

    from minikafka.spark.load import LoadOptions, run_load
    from minikafka.testing.cluster import ProcessCluster

    with tempfile.TemporaryDirectory() as name:
        part = 1 << 17
        with parquet.ParquetWriter(f"{name}/t.parquet", pa.schema([("k", pa.string()), ("v", pa.binary())])) as writer:
            for start in range(0, rows, part):
                count = min(part, rows - start)
                keys = pa.array([f"key-{number:08d}" for number in range(start, start + count)])
                writer.write_table(pa.table({"k": keys, "v": pa.array([os.urandom(100) for _ in range(count)], pa.binary())}))
        engine = LocalEngine(processes)
        dry_run = LoadOptions("-:1", "t", key="k", value="v", partitions=8, dry_run=True)
        dry = max((run_load(f"{name}/t.parquet", dry_run, engine) for _ in range(3)), key=lambda report: report.rows_per_second)
        print(f"load of {rows:,} rows, 8 partitions, {processes} processes")
        print(f"  read, partition and encode: {dry.rows_per_second / 1e6:.2f} M rows/s")
        with ProcessCluster() as cluster:
            options = LoadOptions(cluster.bootstrap, "t", key="k", value="v", partitions=8, replication_factor=3)
            real = run_load(f"{name}/t.parquet", options, engine)
        engine.close()
        print(f"  into 3 brokers, replication 3, acks=all, on the same cores: {real.rows_per_second / 1e6:.2f} M rows/s, "
              f"{real.rows_per_second / dry.rows_per_second:.2f} of it; reconciled: {real.reconciled}")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--estate", type=int, default=10_000)
    parser.add_argument("--growth", default="1,4,16,64")
    parser.add_argument("--spark", action="store_true")
    chosen = parser.parse_args()
    if chosen.gigabytes:
        audit_ratios(chosen.gigabytes, chosen.processes, chosen.spark)
    if chosen.estate:
        estate(chosen.estate)
    if chosen.growth:
        growth([int(size) for size in chosen.growth.split(",")], chosen.processes)
    if chosen.rows:
        load_ratios(chosen.rows, chosen.processes)
