"""Audits log directories that only their own machines see: each machine scans its directories into a summary, and one compares them.

A summary holds the facts of the log directories (planning.DirectoryFacts) and a summary of each segment, made by the machine's own plan.
The plan of all machines together may need more (another broker's high watermark divides a cell, digests differ). Each such need becomes a
question. A second scan answers the questions for its machine with the same functions, and its summary is given together with the first.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from minikafka.spark import logical
from minikafka.spark.audit import AuditOptions, Engine, mapped
from minikafka.spark.claims import COORDINATOR_TOPICS
from minikafka.spark.coordination import CoordinatorFacts, Source, cluster_of, seen_of
from minikafka.spark.directories import is_locked
from minikafka.spark.planning import DirectoryFacts, PlanScope, plan_of, read_facts
from minikafka.spark.replay import Replay
from minikafka.spark.rereading import Disk, NotAnsweredError, Places
from minikafka.spark.scan import Cell, Detail, Resume, SegmentSummary, scan_segments
from minikafka.spark.sources import DELETE, UNKNOWN, Replica, SegmentTask, partition_tasks
from minikafka.spark.splits import split
from minikafka.spark.summary_codec import ANSWERS, FORMAT_DIGEST, digest_of
from minikafka.spark.summary_file import SummaryError, SummaryReader, SummaryWriter
from minikafka.spark.views import Key, is_limited, view

ENTRIES_A_FRAME = 1000


def scope_of(options: AuditOptions) -> PlanScope:
    """The scope of a plan with these options."""
    return PlanScope(
        tuple(options.topics), tuple(options.partitions), tuple(options.compacted), options.findings_each_max,
        options.transaction_timeout_ms,
    )  # fmt: skip


# ---- on the machine that has the log directories -----------------------------------------------------------------------------------


def write_scan(
    paths: Iterable[str], engine: Engine, options: AuditOptions, path: str, questions: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> int:  # fmt: skip
    """Scan the log directories at or below `paths` into the summary file `path`. With a file of `questions`, answer those about these
    directories instead. Returns the number of segments read or questions answered. Raises SourceError, SummaryError, OSError."""
    scope, instant_ms = scope_of(options), time.time_ns() // 1_000_000
    facts = read_facts(paths, scope)
    header = _header(facts, options, instant_ms)
    if questions:
        asked = _questions_to(header["id"], questions)
        with SummaryWriter(path) as file:
            file.add("header", "", header | {"answers": True})
            for name, value in mapped(engine, _answer, asked):
                file.add("answer", name, value)
        return len(asked)
    with SummaryWriter(path) as file:
        file.add("header", "", header)
        for number, one in enumerate(facts):
            file.add("directory", str(number), [one.directory, one.findings, one.copy])
            for at in range(0, len(one.entries), ENTRIES_A_FRAME):
                file.add("entries", str(number), one.entries[at : at + ENTRIES_A_FRAME])
        read = _scan_all(facts, scope, instant_ms, engine, options, file, progress)
        file.add("after", "", {"running": _running(facts)})
    return read


def _header(facts: list[DirectoryFacts], options: AuditOptions, instant_ms: int) -> dict[str, Any]:
    from minikafka import __version__

    host = platform.node() or "?"
    places = sorted((one.directory.directory_id, one.directory.broker, os.path.abspath(one.directory.path)) for one in facts)
    name = hashlib.blake2b(repr((host, places)).encode(), digest_size=8).hexdigest()
    return {
        "shape": FORMAT_DIGEST, "version": __version__, "id": name, "host": host, "instant_ms": instant_ms, "running": _running(facts),
        "states": {one.directory.path: _state_of(one.directory.path) for one in facts},
        "options": {
            "topics": list(options.topics), "partitions": [list(one) for one in options.partitions], "level": options.level,
            "digest": options.digest, "compacted": list(options.compacted), "transaction_timeout_ms": options.transaction_timeout_ms,
        },
    }  # fmt: skip


def _state_of(path: str) -> str | None:
    """A digest of a log directory's state: names, sizes and times of its segments. None if a broker may be running in it, because then
    they change anyway."""
    if is_locked(path):
        return None
    found = []
    try:
        for folder in _entries(path):
            files = _entries(folder.path) if folder.is_dir() else []
            found += [(folder.name, one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files if one.name.endswith(".log")]
    except OSError:
        return None  # The scan reports what cannot be read.
    return hashlib.blake2b(repr(sorted(found)).encode(), digest_size=8).hexdigest()


def _entries(path: str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return list(entries)


def _running(facts: list[DirectoryFacts]) -> list[str]:
    """Log directories whose broker may be running: without a clean shutdown, and locked."""
    return [one.directory.path for one in facts if one.directory.clean is not True and is_locked(one.directory.path)]


def _scan_all(
    facts: list[DirectoryFacts], scope: PlanScope, instant_ms: int, engine: Engine, options: AuditOptions, file: SummaryWriter,
    progress: Callable[[int, int], None] | None,
) -> int:  # fmt: skip
    plan = plan_of(facts, scope, instant_ms)
    tasks = (task for copies in plan.replicas.values() for task in partition_tasks(copies, options.level, options.digest))
    split_bytes = max(1 << 20, min(options.split_bytes, plan.bytes // max(1, 2 * engine.parallelism) + 1))
    kept: dict[str, list[SegmentSummary]] = {}
    coordinators = {one.path: one for copies in plan.replicas.values() for one in copies if one.topic in COORDINATOR_TOPICS}
    read = done = 0
    for scanned in mapped(engine, scan_segments, list(split(tasks, split_bytes))):
        by_path: dict[str, list[SegmentSummary]] = {}
        for summary in scanned:
            by_path.setdefault(summary.task.path, []).append(summary)
            if summary.task.path in coordinators:
                kept.setdefault(summary.task.path, []).append(summary)
            read, done = read + 1, done + summary.task.size
        for name, summaries in by_path.items():
            file.add("scan", name, summaries)
        if progress is not None:
            progress(done, plan.bytes)
    sources = []
    for name, summaries in kept.items():
        if not is_limited(summaries):
            copy = view(coordinators[name], sorted(summaries, key=lambda one: one.task.base_offset))
            source = seen_of(cluster_of(plan), [copy]).source
            sources += [source] if source is not None else []
    for name, value in mapped(engine, _answer, [(digest_of(["coordinator", source], ""), "coordinator", (source,)) for source in sources]):
        file.add("answer", name, value)
    return read


def _answer(item: tuple[str, str, tuple[Any, ...]]) -> tuple[str, Any]:
    name, kind, arguments = item
    return name, ANSWERS[kind](*arguments)


def _questions_to(name: str, path: str) -> list[tuple[str, str, tuple[Any, ...]]]:
    reader = SummaryReader(path)
    try:
        if not reader.header.get("questions"):
            raise SummaryError(f"{path} contains no questions from `minikafka audit --compare-summaries`")
        return [(digest, *reader.one("question", one)) for one in reader.names("question") if one.startswith(name)
                for digest in [one.removeprefix(name)]]  # fmt: skip
    finally:
        reader.close()


# ---- where summaries are compared ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scan:
    """One machine's summaries: its scan, and its answers to later questions."""

    reader: SummaryReader
    answers: list[SummaryReader] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return self.reader.prefix


class Summaries:
    """The summaries of all machines, as a source for the comparison (rereading.Files). Missing answers are noted in `questions`."""

    def __init__(self, paths: Iterable[str]) -> None:
        readers = [SummaryReader(path) for path in paths]
        self.scans = [Scan(one) for one in readers if not one.header.get("answers")]
        self.questions: dict[tuple[str, str], tuple[str, tuple[Any, ...]]] = {}
        self._pair(readers)
        for one, label in zip(self.scans, labels([scan.reader.header for scan in self.scans]), strict=True):
            for reader in (one.reader, *one.answers):
                reader.prefix = f"{label}:"

    def _pair(self, readers: list[SummaryReader]) -> None:
        by_name: dict[str, Scan] = {}
        for scan in self.scans:
            first = by_name.setdefault(scan.reader.header["id"], scan)
            if first is not scan:
                raise SummaryError(f"{first.reader.path} and {scan.reader.path} are scans of the same log directories: give only "
                                   "one of them")
            if scan.reader.header["options"] != self.scans[0].reader.header["options"]:
                raise SummaryError(f"{self.scans[0].reader.path} and {scan.reader.path} were made with different options")
        for one in readers:
            if one.header.get("questions") or (one.header.get("answers") and one.header["id"] not in by_name):
                raise SummaryError(f"{one.path} answers none of the scans that were given")
            if one.header.get("answers"):
                _check_states(by_name[one.header["id"]].reader, one)
                by_name[one.header["id"]].answers.append(one)

    def close(self) -> None:
        """Close the files."""
        for scan in self.scans:
            for reader in (scan.reader, *scan.answers):
                reader.close()

    def facts(self) -> tuple[list[DirectoryFacts], set[str], int]:
        """(facts of all log directories, directories whose broker may have been running, time at which the first scan began)."""
        found, running = [], set()
        for scan in self.scans:
            reader = scan.reader
            running |= {reader.prefix + one for one in (*reader.header["running"], *reader.one("after")["running"])}
            for name in reader.names("directory"):
                directory, findings, copy = reader.one("directory", name)
                entries = [entry for chunk in reader.all("entries", name) for entry in chunk]
                facts = DirectoryFacts(directory, findings, copy, entries)
                _distinguish(facts, scan)
                found.append(facts)
        return found, running, min((scan.reader.header["instant_ms"] for scan in self.scans), default=0)

    # -- what is asked

    def scanned(self, tasks: list[SegmentTask]) -> list[SegmentSummary]:
        """The summaries of one replica's segments, as a scan with these tasks would give them. Raises NotAnsweredError."""
        scan = self._scan_of(tasks[0].path)
        held = {one.task.base_offset: one for chunk in scan.reader.all("scan", tasks[0].path.removeprefix(scan.prefix)) for one in chunk}
        found, open_ = [], None
        for task in tasks:
            one = as_if_scanned(held[task.base_offset], task) if task.base_offset in held else None
            try:
                found.append(one if one is not None else self._ask("scan", task.path, task))
            except NotAnsweredError as error:
                open_ = error
        if open_ is not None:
            raise open_
        return found

    def replayed(self, replica: Replica, tasks: list[SegmentTask], cleaned_to: int) -> tuple[list[SegmentSummary], Replay]:
        """As views.replay_apart."""
        bare = replace(replica, claim=None, segments=[], findings=type(replica.findings)())
        found: tuple[list[SegmentSummary], Replay] = self._ask("replay", replica.path, (bare, tasks, cleaned_to))
        return found

    def coordinator(self, source: Source) -> CoordinatorFacts:
        """As coordination.read_coordinator."""
        found: CoordinatorFacts = self._ask("coordinator", source.path, source)
        return found

    def detail(self, tasks: list[SegmentTask], positions: list[int], key: Key, resume: Resume | None) -> Detail:
        if not tasks:
            return Disk().detail(tasks, positions, key, resume)
        found: Detail = self._ask("detail", tasks[0].path, tasks, positions, key, resume)
        return found

    def surviving(self, places: Places, key: Key, share: tuple[int, int] = (1, 0)) -> logical.Surviving:
        if not places:
            return logical.Surviving()
        found: logical.Surviving = self._ask("surviving", places[0][0].path, places, key, share)
        return found

    def latest(
        self, tasks: list[SegmentTask], aborted: list[tuple[int, int, int]], passes: int, number: int, low: int, until: int
    ) -> logical.Column:  # fmt: skip
        found: logical.Column = self._ask("latest", tasks[0].path, tasks, aborted, passes, number, low, until)
        return found

    def _scan_of(self, path: str) -> Scan:
        return next(one for one in self.scans if path.startswith(one.prefix))

    def _ask(self, kind: str, path: str, *arguments: Any) -> Any:
        scan = self._scan_of(path)
        name = digest_of([kind, *arguments], scan.prefix)
        for reader in (scan.reader, *scan.answers):
            for value in reader.all("answer", name):
                return value
        self.questions[scan.reader.header["id"], name] = kind, arguments
        raise NotAnsweredError(f"the summaries are not enough: {scan.prefix.rstrip(':')} must be scanned again (--questions)")

    def write_questions(self, path: str) -> None:
        """Write the unanswered questions, for `audit --scan --questions` on each machine."""
        prefixes = {scan.reader.header["id"]: scan.prefix for scan in self.scans}
        with SummaryWriter(path) as file:
            file.add("header", "", {"shape": FORMAT_DIGEST, "questions": True, "version": self.scans[0].reader.header["version"]})
            for (name, digest), (kind, arguments) in self.questions.items():
                file.add("question", name + digest, (kind, arguments), prefixes[name])


def labels(headers: list[dict[str, Any]]) -> list[str]:
    """A name for each scan: its host, and if that is not unique, as much of its id as is. Paths of two machines with one name would be
    mixed up: a log would be compared with itself."""
    hosts, digits = [header["host"] for header in headers], 4
    while len({header["id"][:digits] for header in headers}) < len(headers):
        digits += 1
    return [header["host"] if hosts.count(header["host"]) == 1 else f"{header['host']}#{header['id'][:digits]}" for header in headers]


def _check_states(scan: SummaryReader, answers: SummaryReader) -> None:
    """Check that the answers come from the scanned state. Raises SummaryError if a directory has changed."""
    before, after = scan.header.get("states", {}), answers.header.get("states", {})
    for path, state in before.items():
        if state is not None and after.get(path) is not None and after[path] != state:
            raise SummaryError(f"{path} changed between {scan.path} and {answers.path}: scan again")


def _distinguish(facts: DirectoryFacts, scan: Scan) -> None:
    """Make device numbers, and the names of directories without a cluster id, unique: machines may share them."""
    number = int(scan.reader.header["id"], 16)
    directory = facts.directory
    if not directory.cluster_id:
        directory.broker = scan.prefix + directory.broker
    for entry in facts.entries:
        if entry.replica is None:
            continue
        for segment in entry.replica.segments:
            segment.device = number ^ (segment.device << 64)
        if not directory.cluster_id:
            entry.replica.broker = entry.replica.node = directory.broker


def as_if_scanned(held: SegmentSummary, task: SegmentTask) -> SegmentSummary | None:
    """The summary that a scan with `task` would give, derived from another plan's summary of the file; None if it cannot be derived."""
    old = held.task
    same = ("size", "next_base", "extensions", "snapshots", "clean", "level", "digest", "is_rebuilt", "recovered_from")
    if any(getattr(old, name) != getattr(task, name) for name in same) or task.cell_shift < old.cell_shift:
        return None
    if old.high_watermark != task.high_watermark and held.end_position != old.size:
        return None
    if old.policy != task.policy and ({old.policy, task.policy} != {DELETE, UNKNOWN} or _is_sparse(held)):
        return None
    cells = held.cells.values()
    first, end = min((one.first for one in cells), default=0), max((one.end for one in cells), default=0)
    if old.cleaned_to != task.cleaned_to:
        low, high = sorted((old.cleaned_to, task.cleaned_to))
        if low <= 0 or not (high <= min(first, old.base_offset) or low >= max(end, held.end_offset)):
            return None
    if _cuts_inside(old, first, end) != _cuts_inside(task, first, end):
        return None
    behind = sum(cut <= first for cut in task.cuts) - sum(cut <= first for cut in old.cuts)
    result = replace(held, task=task, cells=_moved(held.cells, behind, task.cell_shift - old.cell_shift))
    if old.broker != task.broker:
        for finding in (*result.findings.kept, *result.gaps):
            finding.brokers = (task.broker,)
    return result


def _is_sparse(held: SegmentSummary) -> bool:
    return held.compacted or any(check == "batch-sparse" for check, _ in held.findings.counts)


def _cuts_inside(task: SegmentTask, first: int, end: int) -> set[tuple[int, bool]]:
    return {(cut, cut in task.starts) for cut in task.cuts if first < cut < end}


def _moved(cells: dict[Key, Cell], behind: int, coarser: int) -> dict[Key, Cell]:
    """The cells renumbered for `behind` more zones, and merged into cells that are larger by a power of two (`coarser`: its exponent)."""
    moved: dict[Key, Cell] = {}
    for (zone, number), cell in cells.items():
        key = zone + behind, number >> coarser
        merged = moved.get(key)
        if merged is None:
            moved[key] = replace(cell)
            continue
        merged.digest = (merged.digest + cell.digest) & 0xFFFFFFFFFFFFFFFF
        merged.first, merged.end = min(merged.first, cell.first), max(merged.end, cell.end)
        merged.position = min(merged.position, cell.position)
        for name in ("batches", "records", "bytes", "offsets"):
            setattr(merged, name, getattr(merged, name) + getattr(cell, name))
    return moved
