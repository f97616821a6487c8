"""Divides the reading of logs into tasks of an engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from minikafka.spark.sources import SegmentTask

#: Tasks of one list.
TASKS_MAX = 1024


def split(tasks: Iterable[SegmentTask], split_bytes: int) -> Iterator[list[SegmentTask]]:
    """Lists of neighbouring tasks of about `split_bytes` each (a task of Spark costs 50 ms whatever it does). A partition that fits into a
    list is not divided, and shares its list only with such partitions: the task that reads it can judge it."""
    whole, parts = _Batch(split_bytes), _Batch(split_bytes)
    for _, found in itertools.groupby(tasks, key=lambda one: (one.topic, one.partition)):
        several = list(found)
        if sum(one.size for one in several) <= split_bytes and len(several) <= TASKS_MAX:
            yield from whole.add(several)
            continue
        for one in several:
            yield from parts.add([one])
    yield from (batch.tasks for batch in (parts, whole) if batch.tasks)


class _Batch:
    """Tasks that fill up to `split_bytes`."""

    def __init__(self, split_bytes: int) -> None:
        self.split_bytes, self.bytes = split_bytes, 0
        self.tasks: list[SegmentTask] = []

    def add(self, several: list[SegmentTask]) -> Iterator[list[SegmentTask]]:
        """Take these; what was held is given first if they do not fit beside it."""
        size = sum(one.size for one in several)
        if self.tasks and (self.bytes + size > self.split_bytes or len(self.tasks) + len(several) > TASKS_MAX):
            yield self.tasks
            self.tasks, self.bytes = [], 0
        self.tasks += several
        self.bytes += size
