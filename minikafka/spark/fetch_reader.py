"""Reads a range of a remote replica batch by batch, and survives a broker that goes away in the middle.

An audit's reader waits for a broker that went away, and then continues where it was. All readers of a process share the waiting time for a
broker, so that each of them does not wait again in vain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from minikafka.addresses import host_port
from minikafka.spark.fetch_client import OFFSET_NOT_AVAILABLE, OUT_OF_RANGE, BrokerError, Connection, Place, name_of
from minikafka.spark.logformat import Batches, walk

#: How long an audit waits for a broker that went away, and how often it retries.
PATIENCE_S, PAUSE_S = 60.0, 0.25
#: After this many empty answers to fetches below its own high watermark, a replica is read no further.
EMPTY_MAX = 20
FETCH_WAIT_MS = 500
#: (host, port) of brokers that went away, and since when (time.monotonic).
_away_since: dict[tuple[str, int], float] = {}


class FetchReader:
    """Like logformat.SegmentReader, but for a remote replica: reads batches that begin at offsets in [begin, end) and, unless `follows`,
    the batch that `begin` lies inside. `position` counts bytes since `begin`.

    `aborted`: (producer id, first offset) of the aborted transactions in the batches of this step, if `committed`.
    `stopped`: "", or "shrunk" if records are gone (retention) or the replica sends no more.
    `log_start`: the replica's log start in its last answer with records; -1 before. `taken_up`: the first offset of this reader's batches,
    which is larger than `begin` if `begin` lies inside a batch and the reader `follows`. `patience_s`: how long to wait for a broker that
    went away.
    """

    def __init__(
        self, place: Place, topic: str, partition: int, begin: int, end: int, window_bytes: int, committed: bool = False,
        follows: bool = False, patience_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.place, self.key, self.offset, self.end = place, (topic, partition), begin, end
        self.window_bytes, self.committed = window_bytes, committed
        self.low, self.patience_s, self.taken_up = begin if follows else -1, patience_s, begin
        self.aborted: tuple[tuple[int, int], ...] = ()
        self.position = 0
        self.stopped = ""
        self.size = 0
        self.log_start = -1
        #: Whether the replica sent a batch that begins behind the end.
        self.goes_on = False
        self._lost_at = -1.0

    def __iter__(self) -> Iterator[Batches]:
        while self.offset < self.end and not self.stopped:
            try:
                with Connection(self.place.host, self.place.port, self.place.security) as connection:
                    yield from self._read(connection)
            except BrokerError as error:
                if not self._is_worth_waiting(error):
                    raise
                time.sleep(PAUSE_S)

    def _is_worth_waiting(self, error: BrokerError) -> bool:
        """Whether the broker went away, or just came back and has not loaded its partitions yet."""
        now = time.monotonic()
        if error.is_away:
            self._lost_at = now
            return now - _away_since.setdefault((self.place.host, self.place.port), now) < self.patience_s
        return self._lost_at >= 0 and now - self._lost_at < self.patience_s

    def _read(self, connection: Connection) -> Iterator[Batches]:
        empty = 0
        while self.offset < self.end:
            offsets = {self.key: self.offset}
            found = connection.fetch(offsets, self.window_bytes, wait_ms=FETCH_WAIT_MS, committed=self.committed)[self.key]
            if found.error == OUT_OF_RANGE and found.log_start != self.offset:
                self.stopped = "shrunk"
                return
            if found.error and found.error != OFFSET_NOT_AVAILABLE:
                where = host_port(self.place.host, self.place.port)
                raise BrokerError(f"broker {where} refuses {self.key[0]}-{self.key[1]}: {name_of(found.error)}")
            _away_since.pop((self.place.host, self.place.port), None)
            batches, _, why = walk(found.records, self.position)
            if len(batches) == 0:
                if why == "length":
                    raise BrokerError(f"broker {host_port(self.place.host, self.place.port)} sends bytes at offset {self.offset} that are "
                                      "not a batch")
                empty += 1
                if empty > EMPTY_MAX:
                    self.stopped = "shrunk"
                    return
                continue
            empty = 0
            self.aborted, self.log_start = found.aborted, found.log_start
            yield from self._taken(batches)

    def _taken(self, batches: Batches) -> Iterator[Batches]:
        """The batches that begin within the bounds. If all begin beyond them, there is nothing more to read."""
        base, behind = batches.base_offset, batches.last_offset + 1
        begin = int(np.argmin(np.append(base, self.low) < self.low)) if not self.position else 0
        inside = np.flatnonzero(base < self.end)
        end = int(inside[-1]) + 1 if len(inside) else 0
        self.goes_on |= end < len(base)
        if begin:
            self.taken_up = int(behind[begin - 1])
        asked, self.offset = self.offset, int(behind[:end].max()) if end else self.end
        if begin < end:
            kept = slice(begin, end)
            self.position = self.size = int(batches.position[end - 1] + batches.size[end - 1])
            yield Batches(
                batches.position[kept], batches.size[kept], batches.crc[kept], batches.header[kept], batches.window, batches.window_start
            )
        if self.offset <= asked:
            where = f"broker {host_port(self.place.host, self.place.port)}"
            raise BrokerError(f"{where} sent a batch that ends at {self.offset - 1} when asked for offset {asked}")
