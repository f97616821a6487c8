"""How long the start after a crash takes for a log of small transactions: µs of CPU a batch, now and as it was, in one run.

    python tests/bench/recovery.py [--directory DIR] [--transactions N ...]

Each transaction is one record of 100 bytes and its marker; a tenth are aborted. "as it was": each batch as an append's update of
producers is published, and each batch looks at all transactions whose marker is not known to be replicated: none is, in a recovery.
"""

from __future__ import annotations

# ruff: noqa: E402 - a script: the path to the packages comes first
import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from minikafka.storage import segment
from minikafka.storage.batch_scan import Header, prepare_producer
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.producer_state import ProducerStateManager, ProducerUpdate
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import build_batch, set_base_offset
from minikafka.wire.control import ControlType, end_transaction_batch

WALL_MS = 1_700_000_000_000
PRODUCERS = 4
ABORTED = 0.1


def write_log(directory: Path, transactions: int) -> int:
    """The number of batches."""
    directory.mkdir(parents=True)
    chance, written, offset = random.Random(1), bytearray(), 0
    for number in range(transactions):
        producer_id, epoch = number % PRODUCERS, number // PRODUCERS % 30_000
        kind = ControlType.ABORT if chance.random() < ABORTED else ControlType.COMMIT
        record = (0, WALL_MS + number, None, b"x" * 100, ())
        data = build_batch(
            [record], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True, partition_leader_epoch=0
        )
        marker = end_transaction_batch(
            kind, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp=WALL_MS + number
        )
        for batch in (data, bytearray(marker)):
            set_base_offset(batch, 0, offset)
            written += batch
            offset += 1
    (directory / f"{0:020d}.log").write_bytes(written)
    return offset


class AsItWas:
    """Takes in a batch in the long way; completes transactions itself."""

    def __init__(self) -> None:
        self.unreplicated: dict[int, int] = {}

    def replay(self, producers: ProducerStateManager, header: Header, batch: memoryview) -> None:
        """In place of `batch_scan.replay_producer`."""
        update = ProducerUpdate()
        prepare_producer(producers, update, batch, 0, header)
        producers.publish(update)
        for completed in update.completed:
            producers.complete(completed)
            self.unreplicated[completed.first_offset] = completed.last_offset
        producers.first_unstable_offset = min((*(first for first, _ in producers._unstable), *self.unreplicated), default=None)


def recover(directory: Path, replay: Any) -> float:
    """Seconds of CPU."""
    for leftover in directory.iterdir():
        if leftover.suffix != ".log":
            leftover.unlink()
    kept, segment.replay_producer = segment.replay_producer, replay or segment.replay_producer
    try:
        began = time.process_time()
        log = load_log(OsFileSystem(), str(directory), "t", 0, LogConfig(), wall_ms=WALL_MS, is_clean=False)
        spent = time.process_time() - began
    finally:
        segment.replay_producer = kept
    log.close_files()
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", default=None)
    parser.add_argument("--transactions", type=int, nargs="+", default=[2_000, 20_000])
    options = parser.parse_args()
    print(f"{'transactions':>12} {'as it was µs':>13} {'now µs':>8} {'ratio':>7}")
    for transactions in options.transactions:
        with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
            directory = Path(temporary) / "t-0"
            count = write_log(directory, transactions)
            before_s = recover(directory, AsItWas().replay)
            now_s = min(recover(directory, None) for _ in range(3))
        print(f"{transactions:12,} {before_s / count * 1e6:13.1f} {now_s / count * 1e6:8.1f} {before_s / now_s:7.1f}")


if __name__ == "__main__":
    main()
