"""A range of offsets read: every record of it is handed out, or the task says which it has not.

Batches follow each other without a gap in a log that was never cleaned, so a walk knows at every step which offset must come next. What
does not come is a loss (see source_loss), be it a segment that is gone, a file that was cut or a log that retention shortened meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from minikafka.addresses import host_port
from minikafka.counted import counted
from minikafka.spark.fetch_client import BrokerError, Connection, Place, first_answer
from minikafka.spark.fetch_reader import FetchReader
from minikafka.spark.logformat import MAGIC, Batches, SegmentReader
from minikafka.spark.source_files import (
    aborted_transactions,
    is_cleaned,
    opened,
    position_of,
    segment_bases,
    segment_path,
    topic_id_of,
)
from minikafka.spark.source_listing import bounds_on
from minikafka.spark.source_loss import Loss, LossPolicy, corrupt, log
from minikafka.spark.source_ranges import Range
from minikafka.spark.source_rows import batch_rows, record_rows
from minikafka.spark.source_transactions import Aborted, hidden

WINDOW_BYTES = 4 << 20
#: A segment that vanishes is looked for so often: a cleaner puts another one in its place.
LOOKS_MAX = 3
#: How long a task goes on without an answer from any leader, and how long it waits between attempts.
PATIENCE_S, PAUSE_S = 60.0, 0.5
OTHER_REPLICA = "Read another replica"
CLEANED = "If the topic is compacted, put its broker's cleaner-offset-checkpoint next to the directory"

Step = tuple[Batches, Aborted, str]


def read_range(source_range: Range, mode: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a range. Raises DataLossError, CorruptBatchError, BrokerError, OSError; all name the place."""
    policy = LossPolicy(source_range.fail_on_data_loss)
    for batches, aborted, place in _FileWalk(source_range, policy) if source_range.path else _WireWalk(source_range, policy):
        if mode == "records":
            _check(batches, source_range, place)
        shown = ~hidden(batches, aborted) if source_range.committed else np.ones(len(batches), np.bool_)
        if mode == "batches":
            yield from batch_rows(batches, source_range, schema, shown)
        else:
            yield from record_rows(batches, source_range, schema, shown, place)


def _check(batches: Batches, source_range: Range, place: str) -> None:
    """As a consumer with check.crcs does."""
    inside = (batches.last_offset >= source_range.begin) & (batches.base_offset < source_range.end)
    old, wrong = batches.header["magic"] != MAGIC, batches.header["crc"] != batches.crc
    odd = np.flatnonzero(inside & (old | wrong & source_range.check_crcs))
    if len(odd) == 0:
        return
    row = int(odd[0])
    header = batches.header[row]
    what = f"its checksum is {int(header['crc']):#010x}, its bytes give {int(batches.crc[row]):#010x}"
    if old[row]:
        what = f"magic byte {int(header['magic'])}, but only 2 is known"
    first, last = int(batches.base_offset[row]), int(batches.last_offset[row])
    where = f"{place}, byte {int(batches.position[row])}" if source_range.path else place
    raise corrupt(source_range.topic, source_range.partition, first, last + 1, what, where)


def _part(batches: Batches, rows: slice) -> Batches:
    return Batches(
        batches.position[rows], batches.size[rows], batches.crc[rows], batches.header[rows], batches.window, batches.window_start
    )


class _FileWalk:
    """The batches of a range in a partition's directory. Segments are listed anew for each step: a broker may be at work."""

    def __init__(self, source_range: Range, policy: LossPolicy) -> None:
        self._range, self._policy = source_range, policy
        self._path, self._end = source_range.path, source_range.end
        self._next = source_range.begin
        self._looks = 0
        #: Of the segment that was read last: whether it must be read again, and why reading it stopped before its end.
        self._again, self._stopped = False, ""

    def __iter__(self) -> Iterator[Step]:
        source_range = self._range
        now = topic_id_of(self._path) if source_range.topic_id else ""
        if now and now != source_range.topic_id:
            self._lost(self._end, f"the topic was deleted and recreated (topic id {now}, it was {source_range.topic_id})", self._path)
            return
        aborted = aborted_transactions(self._path, source_range.begin, source_range.end) if source_range.committed else ()
        done: int | None = None
        while self._next < self._end:
            base, begins = self._following(done)
            if base is None:
                self._lost(self._end, "the log ends earlier", self._path)
                return
            if begins and base > self._next:
                self._lost(min(base, self._end), f"the log begins at {base}: retention removed what came before", self._path)
            else:
                self._gap(base, self._path)
            try:
                for batches, place in self._segment(base):
                    yield batches, aborted, place
            except FileNotFoundError:
                self._again = self._look_again()
            done = None if self._again else base

    def _following(self, done: int | None) -> tuple[int | None, bool]:
        """(the segment to read after `done`, whether the log begins with it); None: no segment is left."""
        try:
            bases = segment_bases(self._path)
        except FileNotFoundError:
            bases = []
        if done is not None:
            found = next((base for base in bases if base > done), None)
        else:
            found = max((base for base in bases if base <= self._next), default=bases[0] if bases else None)
        return found, found is not None and found == bases[0]

    def _segment(self, base: int) -> Iterator[tuple[Batches, str]]:
        place = segment_path(self._path, base)
        self._again = False
        with opened(place) as (descriptor, size):
            position = position_of(self._path, base, self._next) if self._next > base else 0
            reader = SegmentReader(descriptor, size, position, WINDOW_BYTES)
            begun = self._next
            for batches in self._from(reader, descriptor, size, position):
                for part in self._continuous(batches, place):
                    yield part, place
                if self._next >= self._end:
                    return
            self._looks = 0 if self._next > begun else self._looks
            if self._is_replaced(descriptor, place):
                self._again = True
            elif self._stopped:
                following, _ = self._following(base)
                upto = self._end if following is None else min(following, self._end)
                self._lost(upto, f"{self._stopped} in a file of {size} bytes", place)

    def _from(self, reader: SegmentReader, descriptor: int, size: int, position: int) -> Iterator[Batches]:
        """The reader's batches; from the segment's beginning if the index had sent it behind what is wanted, or to no batch."""
        first = True
        for batches in reader:
            if first and position and int(batches.base_offset[0]) > self._next:
                break
            first = False
            yield batches
        self._stopped = f"no whole batch at byte {reader.position}" if reader.stopped else ""
        if first and position:
            yield from self._from(SegmentReader(descriptor, size, 0, WINDOW_BYTES), descriptor, size, 0)

    def _is_replaced(self, descriptor: int, place: str) -> bool:
        """Whether the cleaner has put another file in this one's place, which may hold more."""
        with contextlib.suppress(FileNotFoundError):
            if os.stat(place).st_ino == os.fstat(descriptor).st_ino:
                return False
        return self._look_again()

    def _look_again(self) -> bool:
        self._looks += 1
        return self._looks <= LOOKS_MAX

    def _continuous(self, batches: Batches, place: str) -> Iterator[Batches]:
        """Parts of `batches` in the range, after each gap has been looked at."""
        chosen = np.flatnonzero((batches.last_offset >= self._next) & (batches.base_offset < self._end))
        if len(chosen) == 0:
            if int(batches.base_offset[-1]) >= self._end:
                self._gap(self._end, place)
            return
        part = _part(batches, slice(int(chosen[0]), int(chosen[-1]) + 1))
        base, behind = part.base_offset, part.last_offset + 1
        expected = np.concatenate(([self._next], behind[:-1]))
        for row in np.flatnonzero(base > expected).tolist():
            self._next = int(expected[row])
            self._gap(int(base[row]), place)
        back = np.flatnonzero(base[1:] < behind[:-1])
        if len(back):
            row = int(back[0]) + 1
            what = f"it comes after offset {int(behind[row - 1]) - 1}"
            where = f"{place}, byte {int(part.position[row])}"
            raise corrupt(self._range.topic, self._range.partition, int(base[row]), int(behind[row]), what, where)
        self._thinned(part, place)
        self._next = int(behind[-1])
        yield part

    def _thinned(self, part: Batches, place: str) -> None:
        """Batches that hold fewer records than offsets, as only a cleaner leaves them."""
        count, spans = part.header["count"].astype(np.int64), part.last_offset - part.base_offset + 1
        rows = np.flatnonzero((part.header["magic"] == MAGIC) & (count < spans)).tolist()
        if not rows or is_cleaned(self._path, self._range.topic, self._range.partition):
            return
        for row in rows:
            begin = int(part.base_offset[row])
            wanted = counted(int(spans[row]), "record")
            why = f"the batch should hold {wanted} and holds {max(0, count[row])}, and the cleaner has not cleaned here"
            loss = Loss(self._range.topic, self._range.partition, begin, begin + int(spans[row]), why, place, f"{CLEANED}. {OTHER_REPLICA}")
            self._policy.report(loss)

    def _gap(self, upto: int, place: str) -> None:
        """No batch holds the offsets from the next one to `upto`, but later ones are there."""
        upto = min(upto, self._end)
        if self._next >= upto:
            return
        if is_cleaned(self._path, self._range.topic, self._range.partition):
            self._next = upto
            return
        self._lost(upto, "no batch holds them, and the cleaner has not cleaned here", place, CLEANED)

    def _lost(self, upto: int, why: str, place: str, hint: str = "") -> None:
        remedy = f"{hint}. {OTHER_REPLICA}" if hint else OTHER_REPLICA
        self._policy.report(Loss(self._range.topic, self._range.partition, self._next, upto, why, place, remedy))
        self._next = upto


class _WireWalk:
    """The batches of a range from the partition's leader, whoever that is. Offsets that it leaves out between batches were cleaned, as for
    a consumer; those below its log start are lost."""

    def __init__(self, source_range: Range, policy: LossPolicy) -> None:
        self._range, self._policy = source_range, policy
        self._place = source_range.place or Place("", 0)
        self._next, self._end = source_range.begin, source_range.end
        self._deadline = 0.0
        self._has_warned = False

    def __iter__(self) -> Iterator[Step]:
        self._progress()
        while self._next < self._end:
            try:
                yield from self._fetch()
            except BrokerError as error:
                self._look_for_the_leader(error)

    def _progress(self) -> None:
        self._deadline = time.monotonic() + PATIENCE_S

    def _fetch(self) -> Iterator[Step]:
        source_range = self._range
        topic, partition = source_range.topic, source_range.partition
        reader = FetchReader(self._place, topic, partition, self._next, self._end, WINDOW_BYTES, source_range.committed)
        for batches in reader:
            first = int(batches.base_offset[0])
            if first > self._next and reader.log_start > self._next:
                self._lost(first, f"the log begins at {reader.log_start}: retention removed them while they were being read")
            self._warn_of_gaps(batches)
            self._next = min(reader.offset, self._end)
            self._progress()
            yield batches, _all(reader.aborted), self._where
        if reader.stopped:
            self._bounds_have_changed()
        else:
            self._next = self._end

    def _warn_of_gaps(self, batches: Batches) -> None:
        """Offsets inside the log that the leader does not send are no loss to a consumer; in a topic that is not compacted they are odd."""
        base, behind = batches.base_offset, batches.last_offset + 1
        expected = np.concatenate(([self._next], behind[:-1]))
        gaps = np.flatnonzero(base > expected)
        if len(gaps) == 0 or self._has_warned:
            return
        self._has_warned = True
        with contextlib.suppress(BrokerError), Connection(self._place.host, self._place.port, self._place.security) as connection:
            if self._range.topic not in connection.compacted([self._range.topic]):
                first, last = int(expected[gaps[0]]), int(base[gaps[0]]) - 1
                place = f"{self._range.topic}-{self._range.partition}: {self._where}"
                log.warning("%s has no batch with offsets %d to %d, though the topic is not compacted: is a file "
                            "missing?", place, first, last)

    @property
    def _where(self) -> str:
        return f"broker {host_port(self._place.host, self._place.port)}"

    def _bounds_have_changed(self) -> None:
        key = self._range.topic, self._range.partition
        with Connection(self._place.host, self._place.port, self._place.security) as connection:
            first, last = bounds_on(connection, [key], self._range.committed)[key]
        if first > self._next:
            self._lost(first, f"the log begins at {first}: retention or DeleteRecords removed what came before")
        elif last <= self._next:
            self._lost(self._end, f"the log ends at {last}")
        else:
            raise BrokerError(f"{self._where} does not send {key[0]}-{key[1]} from offset {self._next} onwards")

    def _look_for_the_leader(self, error: BrokerError) -> None:
        if time.monotonic() > self._deadline:
            raise error
        time.sleep(PAUSE_S)
        key = self._range.topic, self._range.partition
        try:
            state = first_answer(self._range.bootstrap, self._place.security, [key[0]])
        except BrokerError:
            return  # asked again until the time is up
        partition = state.partitions.get(key)
        if partition is None:
            self._lost(self._end, "the partition no longer exists")
        elif partition.leader in state.brokers:
            self._place = Place(*state.brokers[partition.leader], self._place.security)

    def _lost(self, upto: int, why: str) -> None:
        upto = min(upto, self._end)
        self._policy.report(Loss(self._range.topic, self._range.partition, self._next, upto, why, self._where, "Start again"))
        self._next = upto


def _all(aborted: Iterable[tuple[int, int]]) -> Aborted:
    return [(*one, -1) for one in aborted]
