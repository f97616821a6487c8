"""What an append, a read, a recovery and a truncation cost: microseconds of CPU a call and MB/s, best of some rounds.

    python tests/bench/log_append.py [--directory DIR] [--megabytes N] [--rounds N]

Prints a table. Compare figures of one run only; the disk underneath is the page cache.
"""

from __future__ import annotations

# ruff: noqa: E402 - a script: the path to the packages comes first
import argparse
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from crc32c import crc32c
from helpers.batches import T0, batch

from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log

SIZES = {"100 B x 1": (100, 1), "1 KiB x 1": (1024, 1), "16 KiB x 16": (1024, 16), "64 KiB x 64": (1024, 64)}


def open_log(directory: Path, *, is_clean: bool = True) -> Log:
    return load_log(OsFileSystem(), str(directory), "t", 0, LogConfig(), wall_ms=T0, is_clean=is_clean)


def made(size: int, count: int, producer: int) -> bytearray:
    return batch(*[b"x" * size] * count, producer=(producer, 0, 0) if producer >= 0 else (-1, -1, -1))


def appends(directory: Path, size: int, count: int, rounds: int, megabytes: int, producer: int = -1) -> tuple[float, int]:
    """(best µs an append, bytes of a batch)."""
    data = made(size, count, producer)
    total = min(40_000, megabytes * 1_000_000 // len(data))
    best = 1e9
    for _ in range(rounds):
        shutil.rmtree(directory, ignore_errors=True)
        log = open_log(directory)
        log.assign_epoch_start(0, 0)
        view, set_base = memoryview(data), struct.Struct(">q").pack_into
        copies = [memoryview(bytearray(data)) for _ in range(total)] if producer >= 0 else []
        for number, copy in enumerate(copies):
            sequenced = batch(*[b"x" * size] * count, producer=(producer, 0, number * count))
            copy[:] = sequenced
        append = log.append_as_leader
        started = time.process_time()
        if copies:
            for copy in copies:
                append(copy, 0, T0)
        else:
            for _ in range(total):
                set_base(view, 0, 0)
                append(view, 0, T0)
        best = min(best, (time.process_time() - started) / total)
        log.close_files()
    return best * 1e6, len(data)


def floor(directory: Path, size: int, count: int, rounds: int, megabytes: int) -> float:
    """µs of what no append can do without: CRC and pwrite."""
    data = memoryview(made(size, count, -1))
    total = min(40_000, megabytes * 1_000_000 // len(data))
    best = 1e9
    for _ in range(rounds):
        path = directory.with_suffix(".floor")
        path.unlink(missing_ok=True)
        file = OsFileSystem().open(str(path), create=True)
        pwrite, position, started = file.pwrite, 0, time.process_time()
        for _ in range(total):
            crc32c(data[21:])
            position += pwrite(data, position)
        best = min(best, (time.process_time() - started) / total)
        file.close()
    return best * 1e6


def reads(directory: Path, bytes_max: int) -> float:
    """µs a read at random-ish offsets of the log left by `appends`."""
    log = open_log(directory, is_clean=False)
    end, calls = log.log_end_offset, 20_000
    started = time.process_time()
    for number in range(calls):
        log.read(number * 7919 % end, bytes_max, end_offset=end).slice.release()
    spent = time.process_time() - started
    log.close_files()
    return spent / calls * 1e6


def recovery(directory: Path) -> float:
    """Seconds to check and index the log left by `appends`."""
    started = time.process_time()
    log = open_log(directory, is_clean=False)
    spent = time.process_time() - started
    log.close_files()
    return spent


def truncation(directory: Path, producers: int, cut_off: int, *, with_copies: bool, batches: int = 45_000) -> float:
    """Milliseconds to cut some batches off a log of many, from a state with or without copies of the producers in memory."""
    shutil.rmtree(directory, ignore_errors=True)
    log = open_log(directory)
    for first in range(0, batches, 100):
        fetched = bytearray()
        for offset in range(first, first + 100):
            fetched += batch(b"x" * 100, producer=(offset % producers, 0, offset // producers), base_offset=offset, epoch=0)
        log.append_as_follower(memoryview(fetched))
    if not with_copies:
        log.producer_state.copies.clear()
    started = time.process_time()
    log.truncate_to(batches - cut_off, T0)
    spent = time.process_time() - started
    log.close_files()
    return spent * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", default=None)
    parser.add_argument("--megabytes", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
        directory = Path(temporary) / "t-0"
        print(f"{'batch':14} {'append µs':>10} {'floor µs':>9} {'MB/s':>8} {'read µs':>8} {'recover MB/s':>13}")
        for name, (size, count) in SIZES.items():
            micros, stored = appends(directory, size, count, options.rounds, options.megabytes)
            least = floor(directory, size, count, options.rounds, options.megabytes)
            log_bytes = (directory / "00000000000000000000.log").stat().st_size
            seconds = recovery(directory)
            read_micros = reads(directory, 65536)
            speed, recovered = stored / micros, log_bytes / seconds / 1e6
            print(f"{name:14} {micros:10.2f} {least:9.2f} {speed:8.0f} {read_micros:8.2f} {recovered:13.0f}")
        micros, stored = appends(directory, 100, 1, options.rounds, min(options.megabytes, 8), producer=7)
        print(f"{'100 B idemp.':14} {micros:10.2f} {'':9} {stored / micros:8.0f}")
        print(f"\n{'cut off 45,000':14} {'producers':>10} {'from a copy ms':>15} {'without ms':>11}")
        for producers in (1, 100, 1000):
            for cut_off in (1, 1000):
                with_copies, without = (truncation(directory, producers, cut_off, with_copies=with_copies) for with_copies in (True, False))
                print(f"{cut_off:14} {producers:10} {with_copies:15.1f} {without:11.1f}")


if __name__ == "__main__":
    main()
