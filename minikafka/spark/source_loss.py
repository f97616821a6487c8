"""Handles records that a query cannot read: it fails, or leaves them out and logs it, as `failOnDataLoss` says.

The rules are those of Spark's own Kafka connector. Records that are gone (retention, a topic created again, a partition that disappeared)
are a loss, which failOnDataLoss=false accepts. Wrong bytes (a checksum, a record that does not decode) always fail the query.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

#: The logger of the reading process: messages go to the stderr of the executor or the driver.
log = logging.getLogger("minikafka.spark")


class DataLossError(ValueError):
    """Requested records are gone; the text names topic, partition, offsets, place and what to do."""


class CorruptBatchError(ValueError):
    """The bytes of a batch differ from what was written; the text names topic, partition, offset, place and what to do."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets [begin, end) of a partition that cannot be read. `place`: a file, a directory or a broker; `end` -1: unknown."""

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
        return f"{self.topic}-{self.partition}: {which} missing: {self.why} ({self.place})"


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """`fail`: failOnDataLoss."""

    fail: bool = True

    def report(self, loss: Loss) -> None:
        """Raise DataLossError, or log what is left out."""
        if self.fail:
            remedy = f"{loss.remedy}; or set" if loss.remedy else "Set"
            raise DataLossError(f"{loss.text}. {remedy} failOnDataLoss=false, which reads on and logs what it skips")
        log.warning("skipped: %s", loss.text)


def corrupt(topic: str, partition: int, begin: int, end: int, what: str, place: str) -> CorruptBatchError:
    """The error for a corrupt batch that holds the offsets [begin, end)."""
    remedy = f"Read another replica, or read past it: up to offset {begin} with endingOffsets, and from {end} with startingOffsets"
    return CorruptBatchError(f"{topic}-{partition}: the batch at offset {begin} is corrupt: {what} ({place}). {remedy}")
