"""Opens the source of a task's batches: a segment file, or a replica that a broker serves over the network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from minikafka.spark import fetch_reader
from minikafka.spark.fetch_reader import FetchReader
from minikafka.spark.logformat import SegmentReader
from minikafka.spark.regular_files import open_regular
from minikafka.spark.sources import SegmentTask, log_name

WINDOW_BYTES = 4 << 20


@contextlib.contextmanager
def open_log(
    task: SegmentTask, position: int = 0, low: int = -1, window_bytes: int = WINDOW_BYTES, committed: bool = False
) -> Iterator[SegmentReader | FetchReader]:
    """The batches of a task. A file is read from byte `position`, a remote replica from offset `low` (-1: its log start). With
    `committed`, a remote replica is read only up to the last stable offset.

    Raises FileNotFoundError if the segment is gone, OSError.
    """
    if task.place is not None:
        begin = max(task.base_offset, low)
        end = task.high_watermark if task.next_base < 0 else min(task.high_watermark, task.next_base)
        yield FetchReader(
            task.place, task.topic, task.partition, begin, end, window_bytes, committed, task.follows, fetch_reader.PATIENCE_S
        )
        return
    with open_regular(log_path(task)) as file:
        yield SegmentReader(file.fileno(), task.size, position, window_bytes)


def log_path(task: SegmentTask) -> str:
    """The file that holds the task's batches. The broker's next start may rename it (startup.py)."""
    return os.path.join(task.path, log_name(task.base_offset, task.extensions))
