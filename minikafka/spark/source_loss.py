"""What a query wanted and cannot have: refused, or left out and said, as `failOnDataLoss` asks.

Where Spark's own Kafka connector refuses, this does: records that are gone (retention, a topic made again, a partition that vanished) are a
loss, which failOnDataLoss=false takes; bytes that are wrong (a checksum, a record that does not decode) are refused either way.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

#: Of the process that reads: an executor's end up in its stderr, a driver's in the query's.
log = logging.getLogger("minikafka.spark")


class DataLossError(ValueError):
    """Records that a query wanted are gone; the text names topic, partition, offsets, place and what to do."""


class CorruptBatchError(ValueError):
    """A batch whose bytes are not what was written; the text names topic, partition, offset, place and what to do."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets [begin, end) of a partition that cannot be read. `place`: a file, a directory or a broker; `end` -1: nobody knows how far."""

    topic: str
    partition: int
    begin: int
    end: int
    why: str
    place: str
    remedy: str = ""

    @property
    def text(self) -> str:
        which = f"offsets {self.begin} to {self.end - 1} are" if self.end > self.begin + 1 else f"offset {self.begin} is"
        which = f"everything from offset {self.begin} on is" if self.end < 0 else which
        return f"{self.topic}-{self.partition}: {which} not there: {self.why} ({self.place})"


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """`fail`: failOnDataLoss."""

    fail: bool = True

    def report(self, loss: Loss) -> None:
        """Raises DataLossError, or says what is left out."""
        if self.fail:
            remedy = f"{loss.remedy}; or set" if loss.remedy else "Set"
            raise DataLossError(f"{loss.text}. {remedy} failOnDataLoss=false, which reads on and logs what it leaves out")
        log.warning("left out: %s", loss.text)


def corrupt(topic: str, partition: int, begin: int, end: int, what: str, place: str) -> CorruptBatchError:
    """For a batch that holds the offsets [begin, end)."""
    remedy = f"Read another replica, or read past it: up to offset {begin} with endingOffsets, and from {end} with startingOffsets"
    return CorruptBatchError(f"{topic}-{partition}: the batch at offset {begin} is corrupt: {what} ({place}). {remedy}")
