"""What `load --to-files` takes, beside the same bytes written plainly in one run; what starts up once (the JVM) is said apart.

usage: python tests/bench/load_files.py [--rows 4000000] [--partitions 8] [--processes 2] [--compression none] [--spark] [--directory .]
Rows of a 12-byte key and a 100-byte value from Parquet, page cache warm, as three replicas. Everything is synced, as the load does it;
medians of --rounds, free memory touched before each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from memory import warm_memory
from pyarrow import parquet

from minikafka.spark.cluster_files import ClusterOptions
from minikafka.spark.cluster_manifest import check_directory
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.load import LoadOptions
from minikafka.spark.to_files import load_to_files

PIECE = 4 << 20


def write_table(path: Path, rows: int) -> None:
    generator = np.random.default_rng(1)
    with parquet.ParquetWriter(path, pa.schema([("key", pa.binary()), ("value", pa.binary())]), compression="none") as writer:
        for start in range(0, rows, 250_000):
            count = min(250_000, rows - start)
            raw = generator.integers(97, 123, count * 112, np.uint8)
            columns = [fixed(raw[: count * 12], count, 12), fixed(raw[count * 12 :], count, 100)]
            writer.write_table(pa.table(columns, names=["key", "value"]), row_group_size=250_000)


def fixed(data: Any, count: int, size: int) -> pa.Array:
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))])


def plain(task: tuple[str, int]) -> None:
    """Write so many bytes to a new file, synced."""
    path, size = task
    piece = memoryview(os.urandom(PIECE))
    with open(path, "wb", buffering=0) as file:
        while size > 0:
            size -= file.write(piece[:size])
        os.fdatasync(file.fileno())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--directory", default=None, help="where to work [default: the system's temporary directory]")
    return parser.parse_args()


def engine_of(given: argparse.Namespace) -> Any:
    """The local one, or Spark's after its first job."""
    if not given.spark:
        return LocalEngine(given.processes)
    from minikafka.spark.engine_spark import SparkEngine

    start = time.perf_counter()
    engine = SparkEngine(master=f"local[{given.processes}]")
    list(engine.map(len, [(), ()]))
    print(f"start of Spark and its first job: {time.perf_counter() - start:.1f} s")
    return engine


def verify(target: str, processes: int) -> None:
    start = time.perf_counter()
    checked = check_directory(target, LocalEngine(processes))
    seconds = time.perf_counter() - start
    assert checked.is_good, checked.problems
    print(f"verify-files: {checked.bytes / 1e9:.2f} GB in {seconds:.2f} s ({checked.bytes / seconds / 1e9:.1f} GB/s)")


def plain_seconds(directory: str, total_bytes: int, processes: int, rounds: int) -> float:
    """The median time of writing so many bytes to eight files, and syncing them."""
    times = []
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for number in range(rounds):
            sizes = [(f"{directory}/plain-{number}-{part}", total_bytes // 8) for part in range(8)]
            warm_memory(3 << 30)
            start = time.perf_counter()
            pool.map(plain, sizes, 1)
            times.append(time.perf_counter() - start)
            for path, _ in sizes:
                os.unlink(path)
    return statistics.median(times)


def main() -> None:
    given = arguments()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        source = Path(name) / "rows.parquet"
        write_table(source, given.rows)
        source.read_bytes()
        options = LoadOptions("", "t", key="key", value="value", partitions=given.partitions, compression=given.compression)
        engine = engine_of(given)
        reports = []
        for number in range(given.rounds):
            target = f"{name}/cluster-{number}"
            warm_memory(3 << 30)
            reports.append(load_to_files(str(source), options, ClusterOptions(target), engine))
            if number == 0:
                verify(target, given.processes)
            shutil.rmtree(target)
        engine.close()
        best = sorted(reports, key=lambda report: report.seconds)[len(reports) // 2]
        spread = f"{min(report.seconds for report in reports):.2f} to {max(report.seconds for report in reports):.2f}"
        disk = plain_seconds(name, 3 * best.bytes, given.processes, given.rounds)
        print(f"{best.rows:,} rows, {given.partitions} partitions x 3 replicas, {best.engine} engine, {given.processes} processes")
        print(f"  three times {best.bytes / 1e6:,.0f} MB written plainly and synced: {disk:.2f} s ({3 * best.bytes / disk / 1e9:.2f} GB/s)")
        rate, times_plain = best.rows_per_second, best.seconds / disk
        print(f"  load to files: {best.seconds:.2f} s ({spread}), {rate:,.0f} rows/s, {times_plain:.2f} times the plain write")
        for label, seconds in (
            ("encode", best.encode_seconds), ("segments and replicas", best.assemble_seconds), ("format and publish", best.publish_seconds),
        ):  # fmt: skip
            print(f"    {label:22s} {seconds:.2f} s, {best.rows / seconds:,.0f} rows/s")


if __name__ == "__main__":
    main()
