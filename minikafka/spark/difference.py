"""Compares the replicas of a partition by digests and, where digests differ, batch by batch.

A cell whose digests differ is reread in pages, all replicas in step, to its end. A replica that has ended drops out. A replica whose batch
differs from the others' is reported and drops out. The others continue, so that later differences are found too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minikafka.spark.coverage import Account
from minikafka.spark.findings import ERROR, NOTE, Finding, FindingList
from minikafka.spark.scan import Cell, Detail, Resume
from minikafka.spark.sources import UNBOUNDED
from minikafka.spark.views import Key, ReplicaView, finding_of, names_of, zones_of

DIGEST_MASK = (1 << 64) - 1

Refine = Callable[[ReplicaView, Key, Resume | None], Detail]
Logical = Callable[[list[ReplicaView], Key, int], list[tuple[Finding, list[ReplicaView]]]]
Latest = Callable[[ReplicaView, ReplicaView, int, int], Finding | None]


@dataclass(frozen=True, slots=True)
class Readers:
    """Functions that reread files. `refine(view, cell, resume)` reads a page of batch headers. `logical(views, cell, low)` compares the
    records that survived cleaning, and returns findings, each with the replicas it blames. `latest(one, other, low, fence)` compares the
    latest record of every key."""

    refine: Refine
    logical: Logical
    latest: Latest


def equal_cells(views: list[ReplicaView], key: Key) -> Cell | None:
    """The cell if it is equal on all replicas, else None."""
    first = views[0].cells.get(key)
    if first is None:
        return None
    same = all(
        (other := one.cells.get(key)) is not None and (other.digest, other.batches) == (first.digest, first.batches) for one in views[1:]
    )
    return first if same else None


class _Pages:
    """Reads one replica's batches in a cell page by page. `row`: number of batches of this page that were taken. `taken`: digest and number
    of all batches of the cell that were taken."""

    def __init__(self, view: ReplicaView, key: Key, refine: Refine) -> None:
        self.view, self._key, self._refine = view, key, refine
        self.row = 0
        self.taken = (0, 0)
        self.page = refine(view, key, None)

    def refill(self) -> None:
        """Read the next page if this one is used up."""
        while self.row >= len(self.page.digest) and self.page.resume is not None:
            self.page, self.row = self._refine(self.view, self._key, self.page.resume), 0

    @property
    def rest(self) -> Any:
        return self.page.digest[self.row :]

    @property
    def head(self) -> int | None:
        """The digest of the next batch; None at the end."""
        return int(self.page.digest[self.row]) if self.row < len(self.page.digest) else None

    @property
    def is_as_scanned(self) -> bool:
        """Whether the taken batches match the cell's digest."""
        cell = self.view.cells.get(self._key)
        return self.taken == ((0, 0) if cell is None else (cell.digest, cell.batches))

    def take(self, rows: int) -> Cell:
        """Take the next `rows` batches, and return their totals."""
        chosen = slice(self.row, self.row + rows)
        header = self.page.header[chosen]
        digest, batches = self.taken
        self.taken = (digest + int(self.page.digest[chosen].sum(dtype=np.uint64))) & DIGEST_MASK, batches + rows
        self.row += rows
        return Cell(
            0, rows, int(np.maximum(header["count"].astype(np.int64), 0).sum()), int(self.page.size[chosen].sum()), 0,
            int(np.maximum(header["last_delta"].astype(np.int64) + 1, 0).sum()),
        )  # fmt: skip


class Comparison:
    """Compares the replicas zone by zone, and accounts for what was compared."""

    def __init__(self, views: list[ReplicaView], readers: Readers, findings: FindingList) -> None:
        self.views, self.readers, self.findings = views, readers, findings
        self.differed_logically: dict[tuple[int, int], tuple[ReplicaView, ReplicaView]] = {}
        self.named: set[int] = set()  # offsets of reported errors
        self.odd: set[int] = set()  # replicas that a majority contradicts; further differences are not reported
        self.compared, self.above = Cell(0, 0, 0, 0, 0), Cell(0, 0, 0, 0, 0)
        self.shift = next((summary.task.cell_shift for one in views for summary in one.summaries), 0)
        self.cleaned = max(one.replica.cleaned_to for one in views)
        if any(one.cleaned_to == UNBOUNDED for one in views):  # it is unknown how far cleaners came
            self.cleaned = max(one.replica.segments[-1].base_offset for one in views)
        self.accounts = {id(one): one.account for one in views}
        self.alone: ReplicaView | None = None  # the only replica that answers for the current zone, if others just hold it too

    def run(self) -> list[Account]:
        """Compare everything. Returns the accounts in the order of the views."""
        for zone, low, high in zones_of(self.views):
            claiming = [one for one in self.views if one.claims(low, high)]
            others = [one for one in self.views if one not in claiming and one.end_offset > low and one.log_start <= low]
            self._due(zone, claiming)
            claiming, others = ([one for one in group if id(one) not in self.odd] for group in (claiming, others))
            if len(claiming) > 1:
                self._zone(zone, low, claiming, committed=True)
            if others:
                self.alone = claiming[0] if len(claiming) == 1 else None
                self._zone(zone, low, claiming[:1] + others, committed=False)
        self._latest_records()
        self._lagging()
        return list(self.accounts.values())

    def _due(self, zone: int, claiming: list[ReplicaView]) -> None:
        for one in claiming:
            account = self.accounts[id(one)]
            owed = account.due if len(claiming) > 1 else account.alone
            for cell in (cell for key, cell in one.cells.items() if key[0] == zone):
                owed.add(cell.batches, cell.offsets)
                account.extend(cell.first, cell.end)

    def _latest_records(self) -> None:
        """If cleaners left different bytes, the latest record of every key must still be equal below both claims. Each replica is compared
        with the one that answers for most of those that answer for the same zone."""
        for first, other in self.differed_logically.values():
            low = max(first.log_start, other.log_start)
            fence = min(first.claim_to, other.claim_to, first.end_offset, other.end_offset)
            found = self.readers.latest(first, other, low, fence) if low < fence else None
            if found is not None:
                if (_never_said(first) or _never_said(other)) and found.offset >= _fork(first, other):
                    found.check, found.level = "replica-tail", NOTE
                if not self._has_named(found):
                    self.findings.add(found)

    def _has_named(self, found: Finding) -> bool:
        """Whether the same record of this replica is reported already: at one offset are different records, so the latest are too."""
        return any((one.check, one.brokers, one.offset) == (found.check, found.brokers, found.offset) for one in self.findings.kept)

    def _zone(self, zone: int, low: int, views: list[ReplicaView], committed: bool) -> None:
        for number in sorted({key[1] for one in views for key in one.cells if key[0] == zone}):
            key = zone, number
            views = [one for one in views if key in one.cells or one.end_offset > max(low, number << self.shift)]
            if len(views) < 2:
                self._pass_over(key, views, committed)
                continue
            equal = equal_cells(views, key)
            if equal is not None:
                self._count(equal, views, committed)
            elif low < self.cleaned:
                gone = self._logically(key, max(low, number << self.shift), views, committed)
                views = [one for one in views if one not in gone]
            else:
                views = self._in_step(key, views, committed)

    def _pass_over(self, key: Key, views: list[ReplicaView], committed: bool) -> None:
        """Skip a cell that a single replica is left with, because the others ended or were reported as different."""
        for one in views:
            cell = one.cells.get(key)
            if committed and cell is not None and self._ended_before(cell.first, views):
                self.accounts[id(one)].stands_alone(cell.batches, cell.offsets)

    def _ended_before(self, offset: int, views: list[ReplicaView]) -> bool:
        """Whether all other replicas simply have no batches from this offset on."""
        return all(one in views or one.end_offset <= offset for one in self.views)

    def _count(self, cell: Cell, views: list[ReplicaView], committed: bool) -> None:
        """Count equal batches. Those above a high watermark are counted separately, because they do not prove that records are safe."""
        total = self.compared if committed else self.above
        total.batches += cell.batches
        total.records += cell.records
        total.bytes += cell.bytes
        if committed:
            for one in views:
                self.accounts[id(one)].compared.add(cell.batches, cell.offsets)
        elif self.alone is not None:
            self.accounts[id(self.alone)].beside.add(cell.batches, cell.offsets)

    def _in_step(self, key: Key, views: list[ReplicaView], committed: bool) -> list[ReplicaView]:
        """Compare one cell batch by batch to its end. Returns the replicas that continue to the next cell."""
        going = [_Pages(one, key, self.readers.refine) for one in views]
        ended: list[ReplicaView] = []
        while len(going) > 1:
            for pages in going:
                pages.refill()
            if all(pages.head is None for pages in going):
                break
            rows = _equal_rows(going)
            self._take(going, rows, committed)
            for pages in going:
                pages.refill()
            if len({pages.head for pages in going}) == 1:
                continue
            offset = min(int(pages.page.header["base_offset"][pages.row]) for pages in going if pages.head is not None)
            # Of a stretch that could not be read nobody can say that it differs.
            over = [pages for pages in going if (pages.head is None and pages.view.end_offset <= offset) or pages.view.is_unread(offset)]
            ended += [pages.view for pages in over]
            going = [pages for pages in going if pages not in over]
            if len({pages.head for pages in going}) > 1:
                odd = self._report(going, offset, committed)
                going = [pages for pages in going if pages not in odd]
        self._contradiction(going, key)
        self._rest(going, ended, key, committed)
        return [pages.view for pages in going] + ended

    def _contradiction(self, going: list[_Pages], key: Key) -> None:
        """Report replicas whose digests differ although rereading found them equal: a file changed in between, so neither reading proves
        anything."""
        if len(going) < 2 or equal_cells([pages.view for pages in going], key) is not None or any(pages.page.failed for pages in going):
            return
        changed = tuple(pages.view.broker for pages in going if not pages.is_as_scanned)
        text = "digests differed, but a second reading of the same replicas did not: files changed in between; audit again"
        self.findings.add(finding_of("not-compared", text, self.views, changed, key[1] << self.shift))

    def _take(self, going: list[_Pages], rows: int, committed: bool) -> None:
        for number, pages in enumerate(going):
            cell = pages.take(rows)
            if number == 0:
                self._count(cell, [], committed)
            if committed:
                self.accounts[id(pages.view)].compared.add(cell.batches, cell.offsets)

    def _rest(self, going: list[_Pages], ended: list[ReplicaView], key: Key, committed: bool) -> None:
        """Handle what is left after the last comparison: a single remaining replica, or a reading that failed."""
        for pages in going:
            if pages.page.failed:
                info, offset = {"moved": pages.page.moved}, key[1] << self.shift
                self.findings.add(finding_of("not-compared", pages.page.failed, self.views, (pages.view.broker,), offset, details=info))
        if len(going) != 1 or not committed or not ended:
            return
        pages = going[0]
        pages.refill()
        while pages.head is not None:
            offset = int(pages.page.header["base_offset"][pages.row])
            left = pages.take(len(pages.rest))
            if self._ended_before(offset, [pages.view]):
                self.accounts[id(pages.view)].stands_alone(left.batches, left.offsets)
            pages.refill()

    def _report(self, going: list[_Pages], offset: int, committed: bool) -> list[_Pages]:
        members: dict[int | None, list[int]] = {}
        for number, pages in enumerate(going):
            members.setdefault(pages.head, []).append(number)
        largest = max(members.values(), key=len)
        tie = sum(1 for numbers in members.values() if len(numbers) == len(largest)) > 1
        odd = [number for number in range(len(going)) if tie or number not in largest]
        sides = [_side(pages.view, pages.page, pages.row) for pages in going]
        text = f"at offset {offset} " + "; ".join(f"broker {side['broker']} {_says(side)}" for side in sides)
        brokers = tuple(going[number].view.broker for number in odd)
        distinct = [sides[numbers[0]] for numbers in members.values()]
        certain = (committed and not any(_never_said(pages.view) for pages in going)) or _never_cut(distinct)
        named_before = offset in self.named
        self.named |= {offset} if certain else set()
        self.odd |= {id(going[number].view) for number in odd} if certain and not tie else set()
        if certain and not committed:
            text += ": above the high watermark, but of one leader epoch, so replication will not cut it"
        check, level = ("replica-differs", ERROR) if certain else ("replica-tail", NOTE)
        position = next((sides[number]["position"] for number in odd if sides[number]["position"] is not None), -1)
        views = [pages.view for pages in going]
        info = {"sides": sides, "majority": [] if tie else [views[number].broker for number in largest], **_last_common(views)}
        if committed or not named_before:
            self.findings.add(finding_of(check, text, views, brokers, offset, likely_cause(distinct), level, info, position))
        return [going[number] for number in odd]

    def _logically(self, key: Key, low: int, views: list[ReplicaView], committed: bool) -> list[ReplicaView]:
        """Compare a cleaned cell. Each broker cleans on its own, so only records that survive on several replicas must be equal."""
        gone: list[ReplicaView] = []
        # The one that answers for most: a shorter one cannot tell a lost key from one that a tombstone beyond its end removed.
        longest = max(views, key=lambda one: min(one.claim_to, one.end_offset))
        self.differed_logically |= {(id(longest), id(other)): (longest, other) for other in views if other is not longest}
        for found, blamed in self.readers.logical(views, key, low):
            is_certain = (committed and not any(map(_never_said, views))) or found.details.get("one_epoch")
            if found.check != "not-compared" and not is_certain:
                found.check, found.level = "replica-tail", NOTE
            self.findings.add(found)
            gone += blamed
        rest = [one for one in views if one not in gone]
        held = [(one, one.cells[key]) for one in rest if key in one.cells] if len(rest) > 1 else []
        for number, (one, cell) in enumerate(held):
            self._count(cell if number == 0 else Cell(0, 0, 0, 0, 0), [], committed)
            if committed:
                self.accounts[id(one)].compared.add(cell.batches, cell.offsets)
        return gone

    def _lagging(self) -> None:
        longest = max(one.end_offset for one in self.views)
        for one in self.views:
            if one.end_offset < longest:
                text = f"{names_of([one.broker])} ends at {one.end_offset}, the longest replica at {longest}"
                self.findings.add(finding_of("replica-lagging", text, self.views, (one.broker,), one.end_offset))


def _never_said(one: ReplicaView) -> bool:
    """Whether a killed broker has no high watermark at all, so that what it has of another leader epoch may not have been committed."""
    replica = one.replica
    return replica.clean is False and replica.place is None and not replica.has_high_watermark


def _fork(one: ReplicaView, other: ReplicaView) -> int:
    """Where the first leader epoch begins that only one of them knows; behind all records if there is none."""
    known, theirs = dict(one.replica.epochs or []), dict(other.replica.epochs or [])
    return min((start for epoch, start in (known | theirs).items() if (epoch in known) != (epoch in theirs)), default=UNBOUNDED)


def _equal_rows(going: list[_Pages]) -> int:
    """The number of next batches that are equal on all replicas, within their current pages."""
    shortest = min(len(pages.rest) for pages in going)
    same = np.ones(shortest, bool)
    for pages in going[1:]:
        same &= pages.rest[:shortest] == going[0].rest[:shortest]
    different = np.flatnonzero(~same)
    return int(different[0]) if len(different) else shortest


def _never_cut(sides: list[dict[str, Any]]) -> bool:
    """Whether two of the contents are valid batches of one leader epoch. A follower truncates to the end of its epochs on the leader
    (KIP-101). So a difference inside an epoch stays, and is served once the high watermark has passed it."""
    epochs = [side["epoch"] for side in sides if side["base_offset"] is not None and side["crc_valid"]]
    return len(set(epochs)) < len(epochs)


def _last_common(views: list[ReplicaView]) -> dict[str, Any]:
    """The newest leader epoch that starts at the same offset on all of these replicas."""
    epoch_starts = [{(epoch, start) for epoch, start in one.replica.epochs or []} for one in views]
    common = max(set.intersection(*epoch_starts), default=None)
    return {"last_common_epoch": None if common is None else common[0]}


def _side(one: ReplicaView, detail: Detail, row: int) -> dict[str, Any]:
    """One replica's batch in this row, as plain values."""
    if row >= len(detail.digest):
        return {"broker": one.broker, "log_end": one.end_offset, "base_offset": None, "position": None, "crc_valid": True}
    header = detail.header[row]
    return {
        "broker": one.broker, "log_end": one.end_offset, "base_offset": int(header["base_offset"]),
        "last_offset": int(header["base_offset"]) + int(header["last_delta"]), "epoch": int(header["epoch"]), "crc": int(header["crc"]),
        "crc_valid": int(header["crc"]) == int(detail.crc[row]), "bytes": int(detail.size[row]), "records": int(header["count"]),
        "producer_id": int(header["producer_id"]), "base_sequence": int(header["base_sequence"]), "segment": int(detail.segment[row]),
        "position": int(detail.position[row]),
    }  # fmt: skip


def _says(side: dict[str, Any]) -> str:
    if side["base_offset"] is None:
        return f"has no batch there (its log ends at {side['log_end']})"
    crc = "" if side["crc_valid"] else ", CRC wrong"
    return f"has {side['base_offset']}..{side['last_offset']} of epoch {side['epoch']} ({side['bytes']} bytes at {side['position']}{crc})"


def likely_cause(sides: list[dict[str, Any]]) -> str:
    """The usual cause of a pattern of differences (one side per distinct content)."""
    held = [side for side in sides if side["base_offset"] is not None]
    if any(not side["crc_valid"] for side in held):
        return "bit rot or a torn write: one copy no longer matches its CRC"
    epochs = {side["epoch"] for side in held}
    if len(held) < len(sides):
        return "one copy lacks the batch: it was lost after it was acknowledged, or never copied"
    if len(epochs) > 1 and len({side["crc"] for side in held}) == 1:
        return "the same records with different leader epochs: a follower stamped or kept a wrong epoch (the CRC does not cover it)"
    if len(epochs) > 1:
        both = " and ".join(map(str, sorted(epochs)))
        return f"two leaders wrote these offsets in epochs {both}: a deposed leader's records were not truncated"
    if len({(side["base_offset"], side["last_offset"]) for side in held}) > 1:
        return "batches were lost, repeated or swapped in one copy"
    return "the same epoch, valid CRCs and different bytes: a log was changed after replication, or two brokers led in the same epoch"
