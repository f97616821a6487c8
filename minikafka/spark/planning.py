"""Plans an audit: reads facts from each log directory, in a safe order, and combines them into the plan.

The facts of one log directory (DirectoryFacts) do not depend on the others. So they can be read wherever the directory is: by this process,
by tasks (`mapped`), or by a scan on the broker's own machine (summaries.py). Several tasks share the partition directories; every directory
is listed once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from minikafka.spark import logformat
from minikafka.spark.claims import COORDINATOR_TOPICS, MetadataCopy, agreed_image, read_copy
from minikafka.spark.directories import (
    LogDirectory,
    SourceError,
    check_identities,
    find_log_directories,
    labels_of,
    list_directory,
    open_directory,
)
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.sources import Entry, Plan, assemble, open_entry

#: Runs a function over items, here or elsewhere, and returns the results in the order of the items.
Mapped = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]
#: Number of partition directories per task.
DIRECTORIES_A_TASK = 500
Listed = tuple[tuple[str, int], str, bool]


@dataclass(frozen=True, slots=True)
class PlanScope:
    """The scope of a plan: `topics` and `partitions` (empty: all); see make_plan."""

    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    compacted: tuple[str, ...] = ()
    each_max: int = 20
    transaction_timeout_ms: int = 0

    def has(self, key: tuple[str, int]) -> bool:
        """Whether a partition is in scope."""
        return (not self.topics or key[0] in self.topics) and (not self.partitions or key in self.partitions)


@dataclass(slots=True)
class DirectoryFacts:
    """Everything read from one log directory before its logs: root files, its copy of the metadata log, partition directories."""

    directory: LogDirectory
    findings: list[Finding] = field(default_factory=list)
    copy: MetadataCopy | None = None
    entries: list[Entry] = field(default_factory=list)


def make_plan(
    paths: Iterable[str], topics: Iterable[str] = (), each_max: int = 20, partitions: Iterable[tuple[str, int]] = (),
    transaction_timeout_ms: int = 0, tolerant: bool = False, compacted: Iterable[str] = (), mapped: Mapped = map,
) -> Plan:  # fmt: skip
    """List the replicas of every partition under the log directories. `topics` and `partitions` limit the plan (empty: all).

    `compacted`: topics that a cleaner may have compacted although no metadata log says so. `tolerant`: unreadable root files become
    findings; otherwise they raise SourceError. `mapped`: runs the reading functions.
    """
    scope = PlanScope(tuple(topics), tuple(partitions), tuple(compacted), each_max, transaction_timeout_ms)
    instant_ms = time.time_ns() // 1_000_000
    return plan_of(read_facts(paths, scope, mapped), scope, instant_ms, tolerant)


def read_facts(paths: Iterable[str], scope: PlanScope, mapped: Mapped = map) -> list[DirectoryFacts]:
    """Read the log directories at or below the paths, except the logs themselves.

    The order makes claims safe while brokers run: first the high watermarks, then the controller's in-sync sets, then the sizes of the
    logs. A replica that is in sync at the second step holds what was committed at the first. Coordinators' logs are listed before other
    logs, so the other logs hold whatever groups had committed by then. Raises SourceError.
    """
    found, problem = next(iter(mapped(_find, [list(paths)])))
    if problem:
        raise SourceError(problem)
    facts = list(mapped(_read_root, list(zip(found, labels_of(found), strict=True))))
    for one, copy in zip(facts, mapped(read_copy, [one.directory for one in facts]), strict=True):
        one.copy = copy
    both = list(mapped(_list, [(one, scope) for one in facts]))
    facts = [one for one, _ in both]
    for of_coordinators in (True, False):
        work = list(_shares(both, of_coordinators, scope.each_max))
        for (number, _, _, _), entries in zip(work, mapped(_open_entries, work), strict=True):
            facts[number].entries += entries
    return facts


def _find(paths: list[str]) -> tuple[list[str], str]:
    try:
        return find_log_directories(paths), ""
    except SourceError as error:
        return [], str(error)


def _read_root(item: tuple[str, str]) -> DirectoryFacts:
    findings = FindingList(1 << 30)
    directory = open_directory(*item, findings)
    return DirectoryFacts(directory, findings.kept)


def _list(item: tuple[DirectoryFacts, PlanScope]) -> tuple[DirectoryFacts, list[Listed]]:
    """List one log directory. The returned facts include findings about the directory itself."""
    return item[0], _partitions_in(*item)


def _shares(
    both: list[tuple[DirectoryFacts, list[Listed]]], of_coordinators: bool, each_max: int
) -> Iterator[tuple[int, LogDirectory, list[Listed], int]]:
    """The tasks' work: (number of the log directory, the directory, partition directories, findings to keep for each)."""
    for number, (one, listed) in enumerate(both):
        chosen = [row for row in listed if (row[0][0] in COORDINATOR_TOPICS) == of_coordinators]
        for start in range(0, len(chosen), DIRECTORIES_A_TASK):
            rows = chosen[start : start + DIRECTORIES_A_TASK]
            yield number, one.directory.of_partitions({row[0] for row in rows}), rows, each_max


def _open_entries(work: tuple[int, LogDirectory, list[Listed], int]) -> list[Entry]:
    _, directory, rows, each_max = work
    return [open_entry(directory, *row, each_max) for row in rows]


def _partitions_in(facts: DirectoryFacts, scope: PlanScope) -> list[Listed]:
    """(partition, path, whether it is a `-future` copy) for each partition directory in scope."""
    found, directory = [], facts.directory
    for name in list_directory(directory):
        path = os.path.join(directory.path, name)
        future = logformat.parse_future_name(name)
        parsed = future or logformat.parse_partition_name(name)
        if parsed is None and name.endswith("-future"):
            text = f"{path} is a copy of a partition, but its name does not say of which one"
            facts.findings.append(Finding("unreadable", text, brokers=(directory.broker,), file=path))
        elif parsed is None and directory.cluster_id and os.path.isdir(path) and not logformat.is_kafkas_directory(name):
            text = f"{path} is no partition's directory: Apache Kafka does not start beside it"
            facts.findings.append(Finding("foreign-directory", text, brokers=(directory.broker,), file=path))
        if parsed is not None and future is None and name != f"{parsed[0]}-{parsed[1]}":
            text = f"Apache Kafka takes {path} for {parsed[0]}-{parsed[1]}, minikafka does not"
            facts.findings.append(Finding("not-compared", text, *parsed, brokers=(directory.broker,), file=path))
        if parsed is not None and scope.has(parsed):
            found.append((parsed, path, future is not None))
    return found


def plan_of(facts: list[DirectoryFacts], scope: PlanScope, instant_ms: int, tolerant: bool = True) -> Plan:
    """Combine the facts of all log directories into a plan, without reading anything. Raises SourceError, unless `tolerant`."""
    findings = FindingList(scope.each_max)
    directories = [one.directory for one in facts]
    for one in facts:
        for finding in one.findings:
            findings.add(finding)
    check_identities(directories, findings)
    plan = Plan({}, directories, findings, instant_ms)
    plan.image = agreed_image(directories, [one.copy for one in facts if one.copy is not None], findings)
    for directory in directories:
        if directory.unread and not tolerant:
            raise SourceError(directory.unread[0].message)
        for unread in directory.unread if not directory.is_listed else ():
            findings.add(unread)
    entries = [(one.directory, entry) for one in facts for entry in one.entries]
    assemble(plan, entries, set(scope.topics), set(scope.partitions), set(scope.compacted), scope.transaction_timeout_ms)
    return plan
