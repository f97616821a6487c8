"""Looking closer: what a comparison reads of the logs again where digests differ. The files are at hand, or somebody else has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from minikafka.spark import logical
from minikafka.spark.difference import Readers
from minikafka.spark.findings import Finding
from minikafka.spark.scan import Detail, Resume, detail
from minikafka.spark.sources import UNBOUNDED, SegmentTask
from minikafka.spark.views import Key, ReplicaView, cleaned_below, names_of

Value = TypeVar("Value")
Places = list[tuple[SegmentTask, int]]


class NotAnsweredError(LookupError):
    """What was asked for is on another machine, and was not read there yet."""


class Files(Protocol):
    """Reads logs again: in this process (Disk), or from summaries of other machines. Each may raise OSError or NotAnsweredError."""

    def detail(self, tasks: list[SegmentTask], positions: list[int], key: Key, resume: Resume | None) -> Detail:
        """A page of one replica's batches in a cell."""
        ...

    def surviving(self, places: Places, key: Key, share: tuple[int, int] = (1, 0)) -> logical.Surviving:
        """As logical.surviving."""
        ...

    def latest(
        self, tasks: list[SegmentTask], aborted: list[tuple[int, int, int]], passes: int, number: int, low: int, until: int
    ) -> logical.Column:  # fmt: skip
        """As logical.latest."""
        ...


class Disk:
    """The files are here."""

    def detail(self, tasks: list[SegmentTask], positions: list[int], key: Key, resume: Resume | None) -> Detail:
        return detail(tasks, positions, key, resume)

    def surviving(self, places: Places, key: Key, share: tuple[int, int] = (1, 0)) -> logical.Surviving:
        return logical.surviving(places, key, share)

    def latest(
        self, tasks: list[SegmentTask], aborted: list[tuple[int, int, int]], passes: int, number: int, low: int, until: int
    ) -> logical.Column:  # fmt: skip
        return logical.latest(tasks, aborted, passes, number, low, until)


def places_of(view: ReplicaView, key: Key) -> tuple[list[SegmentTask], list[int]]:
    """The segments of a replica that have batches in a cell, and where they begin."""
    places = [(summary.task, summary.cells[key].position) for summary in view.summaries if key in summary.cells]
    return [task for task, _ in places], [position for _, position in places]


def _aborted(view: ReplicaView, other: ReplicaView) -> list[tuple[int, int, int]]:
    """The aborted transactions of a replica, also those of whose end only the other one knows yet."""
    ended = (one for one in other.aborted if view.opened.get(one[0], (-1, -1))[0] == one[1] and one[2] >= view.end_offset)
    return [*view.aborted, *ended]


class Rereading:
    """The readers of a comparison (difference.Readers)."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.readers = Readers(self.page, self.compare_surviving, self.compare_latest)

    def page(self, view: ReplicaView, key: Key, resume: Resume | None) -> Detail:
        """A page of one replica's batches in a cell."""
        found = self.files.detail(*places_of(view, key), key, resume)
        found.broker = view.broker
        return found

    def compare_surviving(self, views: list[ReplicaView], key: Key, low: int) -> list[tuple[Finding, list[ReplicaView]]]:
        """What survives on several replicas must be the same there, whatever each broker's cleaner removed: (finding, the replicas that
        have something else than the most). In as many passes as keep the memory bounded."""
        passes = 1 + max(one.cells[key].records + one.cells[key].batches for one in views if key in one.cells) // logical.SURVIVORS_A_PASS
        found: list[tuple[Finding, list[ReplicaView]]] = []
        for number in range(passes):
            share = passes, number
            try:
                held = _each(
                    lambda one, share=share: self.files.surviving(  # type: ignore[misc]
                        list(zip(*places_of(one, key), strict=True)), key, share
                    ),
                    views,
                )
            except OSError as error:
                return [(_changed_meanwhile(views, low, error), views[1:])]
            found += _unreadable(views, held)
            found += _differing(views, [one.held for one in held])
        reported: set[int] = set()
        first = []
        for finding, gone in sorted(found, key=lambda entry: entry[0].offset):
            if reported.isdisjoint(map(id, gone)):
                first.append((finding, gone))
                reported.update(map(id, gone))
        return first

    def compare_latest(self, one: ReplicaView, other: ReplicaView, low: int, fence: int) -> Finding | None:
        """The latest record of every key below the fence, in as many passes as keep the memory bounded."""
        passes = 1 + max(one.records, other.records) // logical.RECORDS_A_PASS
        cleaned = (cleaned_below(one), cleaned_below(other))
        until = _cleaned_together(one, other)
        worst: tuple[int, int, str] | None = None
        open_: NotAnsweredError | None = None
        for number in range(passes):
            try:
                left, right = _each(
                    lambda side, number=number: self.files.latest(  # type: ignore[misc]
                        [summary.task for summary in side.summaries], _aborted(side, one if side is other else other), passes, number, low,
                        until,
                    ),
                    [one, other],
                )
            except OSError as error:
                return _changed_meanwhile([one, other], low, error)
            except NotAnsweredError as error:
                open_ = error
                continue
            found = logical.first_lost_key(left, right, fence, cleaned, (one.end_offset, other.end_offset))
            worst = min((entry for entry in (worst, found) if entry is not None), default=None)
        if open_ is not None:
            raise open_
        if worst is None:
            return None
        offset, behind, text = worst
        replica, odd, good = one.replica, (one, other)[behind], (one, other)[1 - behind]
        cause = "a cleaner removed something it had to keep, or the replica was away for longer than delete.retention.ms and missed records"
        text = f"compared by key with broker {good.broker}, broker {odd.broker} {text} (offset {offset})"
        return Finding("replica-differs", text, replica.topic, replica.partition, (odd.broker,), offset, cause=cause)


def _cleaned_together(one: ReplicaView, other: ReplicaView) -> int:
    """Up to where the latest records are looked for: how far the cleaner came that came furthest. A cleaner removes a record only for a
    later one of its key before that point, so each log still has the latest one before it. What lies beyond is compared byte for byte.
    Of what a log does not reach nobody can say this: then the latest records of the whole logs count."""
    furthest = max(cleaned_below(one), cleaned_below(other))
    return furthest if 0 < furthest <= min(one.end_offset, other.end_offset) else UNBOUNDED


def _each(read: Callable[[ReplicaView], Value], views: Iterable[ReplicaView]) -> list[Value]:
    """Ask for all before giving up on one that was not answered, so that all are asked for at once. Raises NotAnsweredError, OSError."""
    found: list[Value] = []
    open_: NotAnsweredError | None = None
    for one in views:
        try:
            found.append(read(one))
        except NotAnsweredError as error:
            open_ = error
    if open_ is not None:
        raise open_
    return found


def _unreadable(views: list[ReplicaView], held: list[logical.Surviving]) -> Iterable[tuple[Finding, list[ReplicaView]]]:
    replica = views[0].replica
    for one, kept in zip(views, held, strict=True):
        for check, offset, text in kept.wrong:
            yield Finding(check, text, replica.topic, replica.partition, (one.broker,), offset, details={"one_epoch": True}), []


def _differing(views: list[ReplicaView], held: list[dict[tuple[str, int], tuple[int, int]]]) -> Iterable[tuple[Finding, list[ReplicaView]]]:
    replica, brokers = views[0].replica, tuple(one.broker for one in views)
    reported: set[int] = set()
    for kind, offset in sorted({entry for one in held for entry in one}, key=lambda entry: (entry[1], entry[0])):
        members: dict[tuple[int, int], list[int]] = {}
        for number, one in enumerate(held):
            if (kind, offset) in one and number not in reported:
                members.setdefault(one[kind, offset], []).append(number)
        if len(members) < 2:
            continue
        usual = max(members.values(), key=len)
        tie = sum(len(numbers) == len(usual) for numbers in members.values()) > 1
        odd = sorted(number for numbers in members.values() if tie or numbers is not usual for number in numbers)
        what = "different records" if kind == "record" else "batches with different headers"
        text = f"at offset {offset} {names_of(brokers[n] for numbers in members.values() for n in numbers)} kept {what} in the cleaned part"
        info: dict[str, Any] = {"one_epoch": len({epoch for epoch, _ in members}) < len(members)}
        names = tuple(brokers[number] for number in odd)
        finding = Finding("replica-differs", text, replica.topic, replica.partition, names, offset, details=info)
        gone = odd[1:] if tie else odd
        yield finding, [views[number] for number in gone]
        reported.update(gone)


def _changed_meanwhile(views: list[ReplicaView], low: int, error: OSError) -> Finding:
    replica = views[0].replica
    text = f"the cleaned part could not be compared by key: {error.filename or replica.path}: {error.strerror}"
    where = replica.topic, replica.partition, tuple(one.broker for one in views), low
    return Finding("not-compared", text, *where, details={"moved": isinstance(error, FileNotFoundError)})
