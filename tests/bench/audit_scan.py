"""Audit and load speed against the machine: MB/s of the scan beside a plain crc32c walk of the same files, rows/s of the encoder.

usage: python tests/bench/audit_scan.py [--gigabytes 1] [--processes 2] [--spark] [--rows 4000000]
Files are written to a temporary directory and read once before measuring (page cache warm).
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from minikafka.spark.audit import AuditOptions, Engine, run_audit
from minikafka.spark.encode import build_batch
from minikafka.spark.engine_local import LocalEngine

SEGMENT_BYTES = 256 << 20


def write_segments(directory: Path, total_bytes: int, segment_bytes: int = SEGMENT_BYTES) -> int:
    """Partitions of one segment each: batches of 16.5 KB, 135 records of about 100 bytes. Returns the offset at which they all end."""
    import pyarrow as pa

    from minikafka.spark.encode import frame_records

    generator = np.random.default_rng(1)
    keys, values = (pa.array([generator.bytes(size) for _ in range(135)], pa.binary()) for size in (12, 100))
    offsets, framed = frame_records(keys, values, None, np.arange(135))
    records = memoryview(framed)[int(offsets[0]) : int(offsets[-1])]
    batch = build_batch(records, 135, 1_700_000_000_000, 1_700_000_000_000)
    end = segment_bytes // len(batch) * 135
    for number in range(max(1, total_bytes // segment_bytes)):
        partition = directory / f"bench-{number}"
        partition.mkdir(parents=True)
        with (partition / f"{0:020d}.log").open("wb") as file:
            for offset in range(0, end, 135):
                struct.pack_into(">q", batch, 0, offset)
                struct.pack_into(">i", batch, 12, 0)
                file.write(batch)
        describe(partition, end)
    own(directory)
    return end


def describe(partition: Path, end: int) -> None:
    """What a broker that stopped in order keeps beside a log that ends there."""
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    no_producers = struct.pack(">i", 0)
    (partition / f"{end:020d}.snapshot").write_bytes(struct.pack(">hI", 1, crc32c(no_producers)) + no_producers)


def own(directory: Path) -> None:
    """Make it the log directory of the broker whose number ends its name, stopped in order."""
    (directory / "meta.properties").write_text(f"version=1\ncluster.id=bench\nnode.id={directory.name[-1]}\n")
    (directory / ".kafka_cleanshutdown").touch()


def plain_scan(path: str) -> int:
    """The yardstick: header walk and CRC over mmap, nothing else."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view, unpack, position, size = memoryview(mapped), struct.Struct(">iibI").unpack_from, 0, len(mapped)
        good = 0
        while position < size:
            length, _, _, stored = unpack(view, position + 8)
            end = position + 12 + length
            good += crc32c(view[position + 21 : end]) == stored
            position = end
        view.release()
        return good


def timed(label: str, total: int, work: Any, base: float = 0.0) -> float:
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = max(best, total / (time.perf_counter() - start))
    ratio = f"  {best / base:5.2f} x" if base else ""
    print(f"{label:58s} {best / 1e6:9.0f} MB/s{ratio}", flush=True)
    return best


def bench_scan(gigabytes: float, processes: int, spark: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        half = int(gigabytes * (1 << 30)) // 2
        for broker in (1, 2):
            write_segments(Path(name) / f"broker-{broker}", half)
        files = [str(path) for path in Path(name).rglob("*.log")]
        total = sum(os.path.getsize(path) for path in files)
        print(f"{len(files)} segments, {total / 1e6:.0f} MB, 16.5 KB batches, {processes} processes")
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            base = timed("plain mmap walk + crc32c, multiprocessing", total, lambda: pool.map(plain_scan, files, 1))
        engine: Engine = LocalEngine(processes)
        one_side = [f"{name}/broker-1", f"{name}/broker-2"]
        timed("audit, local engine: all checks and comparison", total, lambda: check(run_audit(one_side, engine)), base)
        timed(
            "audit, local engine, blake2b digests", total, lambda: check(run_audit(one_side, engine, AuditOptions(digest="blake2b"))), base
        )
        timed(
            "audit, local engine, every record decoded",
            total,
            lambda: check(run_audit(one_side, engine, AuditOptions(level="records"))),
            base,
        )
        engine.close()
        if spark:
            from minikafka.spark.engine_spark import SparkEngine

            start = time.perf_counter()
            engine = SparkEngine(master=f"local[{processes}]")
            check(run_audit(one_side, engine))
            print(f"Spark session and first job: {time.perf_counter() - start:.1f} s")
            timed("audit, Spark engine", total, lambda: check(run_audit(one_side, engine)), base)
            engine.close()


def check(result: Any) -> None:
    assert result.outcome == "PASS", [found.message for found in result.findings.kept][:3]


def bench_encode(rows: int) -> None:
    import pyarrow as pa

    from minikafka.spark.encode import encode_rows, murmur2, partitions_of

    part = 1 << 17
    keys = pa.array([f"key-{n:08d}".encode() for n in range(part)], pa.binary())
    values = pa.array([os.urandom(100) for _ in range(part)], pa.binary())
    rounds = max(1, rows // part)
    for label, work in (
        ("murmur2", lambda: murmur2(keys)),
        (
            "partition + encode (8 partitions)",
            lambda: sum(b.records for b in encode_rows(keys, values, partitions_of(keys, part, 8), batch_bytes=512 << 10, now_ms=0)),
        ),
    ):
        start = time.perf_counter()
        for _ in range(rounds):
            work()
        seconds = time.perf_counter() - start
        print(f"{label:40s} {rounds * part / seconds / 1e6:6.2f} M rows/s a core, {seconds / rounds / part * 1e9:5.0f} ns/row", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    bench_scan(options.gigabytes, options.processes, options.spark)
    bench_encode(options.rows)
