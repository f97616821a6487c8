# ruff: noqa: E402 - a script: the path to the packages comes first
"""What the data source's driver pays to know what there is in log directories: CPU seconds and bytes read.

    PYTHONPATH=. python tests/bench/source_listing.py [--partitions 10000] [--segment-mb 512]

Every partition's active segment is a hard link to one file of that size with its index, which is what counts: all of it would be read
without the index. Also: the pieces of one large segment, each read from where it begins.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

import pyarrow as pa
from helpers import partition_files as files
from helpers.batches import batch

from minikafka.spark import source_ranges
from minikafka.spark.source_listing import available
from minikafka.spark.source_options import SourceOptions
from minikafka.spark.source_reading import read_range

BATCH_BYTES = 16_000
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--segment-mb", type=int, default=512)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = files.log_directory(Path(name) / "b1")
        count = chosen.segment_mb * 1_000_000 // BATCH_BYTES
        model = files.partition(directory, "t-0", {0: [batch(b"x" * 15_900, base_offset=n, epoch=0) for n in range(count)]})
        with (model / f"{0:020d}.index").open("ab") as index:
            index.truncate(10 << 20)
        for number in range(1, chosen.partitions):
            path = directory / f"t-{number}"
            path.mkdir()
            for file in model.iterdir():
                os.link(file, path / file.name)
        files.checkpoint(directory, "replication-offset-checkpoint", {f"t-{number}": count for number in range(chosen.partitions)})
        options = SourceOptions.parse({"logdirs": str(directory)})
        read, cpu = bytes_read(), time.process_time()
        found = available(options)
        read, cpu = bytes_read() - read, time.process_time() - cpu
        assert len(found.bounds) == chosen.partitions and set(found.bounds.values()) == {(0, count)}
        print(f"{chosen.partitions:,} partitions of {chosen.segment_mb} MB: {cpu:.2f} CPU s, {read / 1e6:.1f} MB read, "
              f"{read / chosen.partitions:,.0f} bytes a partition")  # fmt: skip
        kept(options)
        pieces(directory)


def kept(options: SourceOptions) -> None:
    """What a driver holds: what it found, the ranges of a query, a stream's offsets in the checkpoint."""
    tracemalloc.start()
    found = available(options)
    begin, end = source_ranges.starting(options, found, "earliest"), source_ranges.ending(options, found)
    listed = tracemalloc.get_traced_memory()[0]
    work = source_ranges.ranges(options, found, begin, end)
    planned, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = len(found.bounds)
    offsets = len(json.dumps(source_ranges.as_json(end, found.topic_ids)))
    print(f"in the driver: {listed / each:,.0f} bytes a partition found, {(planned - listed) / len(work):,.0f} a range ({len(work):,}), "
          f"peak {peak / 1e6:.1f} MB")  # fmt: skip
    print(f"{len(pickle.dumps(work[0])):,} bytes a task, {offsets / each:.0f} bytes a partition in a stream's checkpoint")


def pieces(directory: Path) -> None:
    options = SourceOptions.parse({"logdirs": str(directory), "assign": '{"t": [0]}', "minpartitions": "8"})
    for number, wanted in enumerate(source_ranges.batch_ranges(options)):
        read, cpu = bytes_read(), time.process_time()
        rows = sum(one.num_rows for one in read_range(wanted, "records", SCHEMA))
        print(f"piece {number}: {rows:,} rows, {time.process_time() - cpu:.2f} CPU s, {(bytes_read() - read) / 1e6:.0f} MB read")


if __name__ == "__main__":
    main()
