"""The batches that a producer has not settled yet, for each partition."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from minikafka.wire.errors import ErrorCode
from minikafka.wire.record import Record


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was stored; offset -1 with acks=0, timestamp in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Batch:
    """Records of one partition.

    Either `records` holds them, or `prepared` the bytes of a whole batch that the caller has built. `encoded` is None until the batch is
    first sent; then it keeps its bytes, its `producer` and its `sequence` for every retry. `sequence` -1: not numbered yet. `closed`: takes
    no more records. `in_doubt`: an attempt may have stored it. Times are those of the event loop.
    """

    __slots__ = (
        "closed", "count", "created_s", "deadline_s", "encoded", "futures", "in_doubt", "prepared", "producer", "records", "sequence",
        "size",
    )  # fmt: skip

    def __init__(self, now_s: float, deadline_s: float) -> None:
        self.records: list[Record] = []
        self.futures: list[asyncio.Future[RecordMetadata]] = []
        self.size = 0
        self.created_s = now_s
        self.deadline_s = deadline_s
        self.sequence = -1
        self.producer: tuple[int, int] = (-1, -1)
        self.encoded: bytearray | None = None
        self.prepared: bytearray | None = None
        self.count = 0
        self.closed = False
        self.in_doubt = False

    def reset_sequence(self) -> None:
        """The batch was not stored, so it may be sent again with another sequence number."""
        self.encoded, self.sequence, self.in_doubt = None, -1, False


class RetryBatch(Exception):
    """A batch, and those after it, have to be sent again; `at_once`: without back-off."""

    def __init__(self, code: ErrorCode, reason: str, *, at_once: bool = False) -> None:
        super().__init__(reason)
        self.code, self.reason, self.at_once = code, reason, at_once


class PartitionQueue:
    """The batches of a partition that are not settled, in order of sending; the first ones may be in flight."""

    __slots__ = ("batches", "index", "next_sequence", "task", "topic", "wake")

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.batches: deque[Batch] = deque()
        self.next_sequence = 0
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
