"""What a broker of the demo discards when it comes back, told apart by who wrote it: the broker's log line only counts records."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import Path

from minikafka.counted import counted
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import WireError

_LINE = re.compile(r"\b(?P<topic>[\w.-]+)-(?P<index>\d+): in epoch \d+ truncated from (?P<end>\d+) to (?P<first>\d+)")
#: Begin of a record's value -> what one such record is, and several.
WRITERS = {
    "orphan-": ("written with acks=1",) * 2,
    "warm-up": ("sent to prepare those",) * 2,
    "live-": ("live, not acknowledged, which its producer sends again", "live, not acknowledged, which their producer sends again"),
    "": ("loaded",) * 2,
}


class LeftLogs:
    """The ends of the logs of a dead broker, read before it starts again and discards a part of them."""

    def __init__(self, log_dir: Path, topic: str) -> None:
        self._topic = topic
        self._segments: dict[int, bytes] = {}
        for directory in log_dir.glob(f"{topic}-*"):
            segments = sorted(directory.glob("*.log"))
            if segments:
                self._segments[int(directory.name.rpartition("-")[2])] = segments[-1].read_bytes()

    def explain(self, line: str) -> str:
        """Which records the truncation of a line of the broker's log discarded; "" if it is none, or they cannot be read."""
        found = _LINE.search(line)
        if found is None or found["topic"] != self._topic:
            return ""
        first, end = int(found["first"]), int(found["end"])
        values = self._values(int(found["index"]), first, end)
        if len(values) != end - first:
            return ""
        kinds = Counter(next(begin for begin in WRITERS if value.startswith(begin)) for value in values)
        parts = [f"{kinds[begin]} {texts[kinds[begin] > 1]}" for begin, texts in WRITERS.items() if kinds[begin]]
        return f"{counted(end - first, 'record')} that only this broker had: {', '.join(parts)}"

    def _values(self, index: int, first: int, end: int) -> list[str]:
        found = []
        with contextlib.suppress(WireError):
            for batch in iterate_batches(memoryview(self._segments.get(index, b""))):
                if batch.last_offset >= first:
                    values = ((record.offset, bytes(record.value or b"")) for record in batch.records())
                    found += [value.decode(errors="replace") for offset, value in values if first <= offset < end]
        return found
