"""The history of clients, and what a Kafka-like log must never do: rules checked during the run, anomalies at the end.

The rules during the run are those of Redpanda's chaos suite, the anomalies those of Jepsen's checker for Kafka-like logs
(`jepsen.tests.kafka`), under their names. Values are unique; a value is of one partition.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

Place = tuple[int, int]


class Outcome(Enum):
    """The outcome of a send: OK acknowledged, FAIL certainly not stored, INFO unknown."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(slots=True)
class Send:
    """One sent record. `acknowledged_before` is the highest acknowledged offset of its partition when it was sent."""

    process: str
    partition: int
    value: str
    started_s: float
    acknowledged_before: int
    outcome: Outcome = Outcome.INFO
    offset: int = -1
    ended_s: float = 0.0


@dataclass(slots=True)
class Poll:
    """What one poll handed out, in order: (partition, offset, value). Partitions or positions set anew are another `assignment`."""

    process: str
    assignment: int
    records: list[tuple[int, int, str]]
    ended_s: float


@dataclass(slots=True)
class History:
    """Thread-safe record of a run. `violations` are the rules that were broken while it ran."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    #: (time.monotonic(), a client's message).
    notes: list[tuple[float, str]] = field(default_factory=list)
    acknowledged: int = 0
    last_ack_s: float = field(default_factory=time.monotonic)
    longest_silence_s: float = 0.0
    _written: set[str] = field(default_factory=set)
    _stored: dict[Place, str] = field(default_factory=dict)
    _acked: set[Place] = field(default_factory=set)
    _highest_acknowledged: defaultdict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    _read: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, process: str, partition: int, value: str) -> Send:
        """A record is handed to a producer."""
        with self._lock:
            send = Send(process, partition, value, time.monotonic(), self._highest_acknowledged[partition])
            self.sends.append(send)
            self._written.add(value)
            return send

    def note(self, line: str) -> None:
        """Note a client's message."""
        self.notes.append((time.monotonic(), line))

    def settled(self, send: Send, outcome: Outcome, partition: int = -1, offset: int = -1) -> None:
        """The producer has reported the outcome."""
        with self._lock:
            send.outcome, send.offset, send.ended_s = outcome, offset, time.monotonic()
            if outcome is not Outcome.OK:
                return
            place = (send.partition, offset)
            self.acknowledged += 1
            self.longest_silence_s = max(self.longest_silence_s, send.ended_s - max(self.last_ack_s, send.started_s))
            self.last_ack_s = send.ended_s
            if offset < 0:
                return  # librdkafka tells no place of what it takes for written because what followed it was
            if partition != send.partition:
                self._broken(f"{send.value} was sent to partition {send.partition} and acknowledged in {partition}")
            if offset <= send.acknowledged_before:
                self._broken(
                    f"{send.value} was acknowledged at {place}, but {send.acknowledged_before} had been acknowledged when it was sent"
                )
            if place in self._acked:
                self._broken(f"{place} was acknowledged twice")
            self._acked.add(place)
            self._seen(place, send.value, "acknowledged")

    def polled(self, process: str, assignment: int, records: list[tuple[int, int, str]]) -> None:
        """A consumer was handed records."""
        with self._lock:
            self.polls.append(Poll(process, assignment, records, time.monotonic()))
            for partition, offset, value in records:
                key = (process, assignment, partition)
                if offset <= self._read.get(key, -1):
                    self._broken(f"{process} read partition {partition} at {offset} after {self._read[key]}")
                self._read[key] = offset
                if value not in self._written:
                    self._broken(f"{process} read {value!r} at {(partition, offset)}, which nobody wrote")
                self._seen((partition, offset), value, "read")

    def _seen(self, place: Place, value: str, how: str) -> None:
        stored = self._stored.setdefault(place, value)
        if stored != value:
            self._broken(f"{place} {how} as {value!r}, known as {stored!r}")
        self._highest_acknowledged[place[0]] = max(self._highest_acknowledged[place[0]], place[1])

    def _broken(self, text: str) -> None:
        self.violations.append(text)

    @property
    def ends(self) -> dict[int, int]:
        """The highest acknowledged offset by partition."""
        with self._lock:
            found: dict[int, int] = {}
            for partition, offset in self._acked:
                found[partition] = max(found.get(partition, -1), offset)
            return found


def anomalies(history: History) -> dict[str, list[str]]:
    """The anomalies by Jepsen's names; those that a log with idempotent producers never allows. Call it after everything was read."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    values = _values(history)
    read = {value for poll in history.polls for *_, value in poll.records}
    for place, several in values.items():
        if len(several) > 1:
            found["inconsistent-offsets"].append(f"{place}: {sorted(several)}")
    places = _places(values)
    found["duplicate"] += [f"{value}: {sorted(where)}" for value, where in places.items() if len(where) > 1]
    highest_read: dict[int, int] = {}
    for poll in history.polls:
        for partition, offset, _ in poll.records:
            highest_read[partition] = max(highest_read.get(partition, -1), offset)
    for send in history.sends:
        if send.outcome is Outcome.OK and send.value not in read:
            kind = "lost-write" if send.offset <= highest_read.get(send.partition, -1) else "unseen"
            found[kind].append(f"{send.value} at {(send.partition, send.offset)}, the highest read is {highest_read.get(send.partition)}")
        elif send.outcome is Outcome.FAIL and send.value in read:
            found["G1a"].append(f"{send.value} has failed and was read at {sorted(places[send.value])}")
    _sends(history, found)
    _polls(history, values, found)
    return {kind: reported for kind, reported in found.items() if reported}


def twice(history: History) -> dict[str, list[Place]]:
    """Values that are stored more than once, and their places."""
    return {value: sorted(where) for value, where in _places(_values(history)).items() if len(where) > 1}


def _values(history: History) -> dict[Place, set[str]]:
    values: defaultdict[Place, set[str]] = defaultdict(set)
    for poll in history.polls:
        for partition, offset, value in poll.records:
            values[(partition, offset)].add(value)
    for send in history.sends:
        if send.outcome is Outcome.OK and send.offset >= 0:
            values[(send.partition, send.offset)].add(send.value)
    return values


def _places(values: dict[Place, set[str]]) -> dict[str, set[Place]]:
    places: defaultdict[str, set[Place]] = defaultdict(set)
    for place, several in values.items():
        for value in several:
            places[value].add(place)
    return places


def _sends(history: History, found: defaultdict[str, list[str]]) -> None:
    last: dict[tuple[str, int], Send] = {}
    for send in history.sends:
        if send.outcome is not Outcome.OK or send.offset < 0:
            continue
        key = (send.process, send.partition)
        before = last.get(key)
        if before is not None and send.offset <= before.offset:
            found["nonmonotonic-send"].append(f"{send.value} at {send.offset} after {before.value} at {before.offset}")
        last[key] = send


def _polls(history: History, values: dict[Place, set[str]], found: defaultdict[str, list[str]]) -> None:
    """Within one assignment a reader gets the stored offsets of a partition one after the other: no step back, none left out.

    Gaps without a value (control batches) are not skips: only the rank among the stored offsets counts.
    """
    ranks: dict[Place, int] = {}
    for partition in {place[0] for place in values}:
        for rank, offset in enumerate(sorted(place[1] for place in values if place[0] == partition)):
            ranks[(partition, offset)] = rank
    last: dict[tuple[str, int, int], tuple[int, int]] = {}
    for number, poll in enumerate(history.polls):
        for partition, offset, value in poll.records:
            key = (poll.process, poll.assignment, partition)
            before = last.get(key)
            rank = ranks[(partition, offset)]
            if before is not None and rank != before[0] + 1:
                inside = "int-" if before[1] == number else ""
                kind = "poll-skip" if rank > before[0] + 1 else "nonmonotonic-poll"
                found[inside + kind].append(f"{poll.process}: partition {partition} at {offset} ({value})")
            last[key] = (rank, number)


def realtime_lag_s(history: History) -> float:
    """The worst age of a record when it was first read, counted from its acknowledgement."""
    acked = {send.value: send.ended_s for send in history.sends if send.outcome is Outcome.OK}
    first: dict[str, float] = {}
    for poll in history.polls:
        for _, _, value in poll.records:
            first.setdefault(value, poll.ended_s)
    return max((read_s - acked[value] for value, read_s in first.items() if value in acked), default=0.0)
