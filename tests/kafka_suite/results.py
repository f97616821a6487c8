"""Results of the suite: one line a test, a count for each class, and what is known of those that do not pass."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).parent
#: The newest result of each test, kept with the sources: what the page of the documentation is made from.
KEPT = HERE / "results.tsv"
#: The same of Apache Kafka's own brokers, 4.3.0 in the tests' JVM (`--kind inprocess`), as far as they have run.
BASELINE = HERE / "baseline.tsv"
REASONS = HERE / "reasons.toml"
#: Why variants are left out without --combined. Their numbers among the variants of a method change from run to run.
COMBINED = "combined nodes are not selected"
#: In front of a file's name: they belong to one run.
DIRECTORIES = re.compile(r"(?<!\w)/([^/\s]+/)+")
STATES = ("pass", "fail", "internals", "skip")
#: How the reason of a failing test begins -> the column that counts it, "fails" for any other. The first: processes of Apache Kafka 4.4.0
#: fail it in the same way. The second: it is about something that minikafka does not have. The third: it reads a broker's memory.
COLUMNS = {"as Apache Kafka 4.4:": "fails as 4.4 does", "not offered:": "not offered", "inside a broker:": "internals"}

#: Counts a failing test of no other column that Apache Kafka's own brokers fail, too.
THERE_TOO = "fails there too"
COLUMNS_SHOWN = ("internals", "fails as 4.4 does", "not offered", THERE_TOO, "fails")
#: A reason names up to as many methods.
NAMED_MAX = 3

#: Counts of the tests that Apache Kafka's brokers have run, and passed.
THERE_RUN, THERE_PASS = "run there", "passed there"


@dataclass(slots=True, frozen=True)
class Result:
    """One test. `state` is one of STATES; internals is a test that asked for an object inside of a broker."""

    test: str
    state: str
    seconds: float
    note: str

    @property
    def class_name(self) -> str:
        """The test's class, with its package."""
        return self.test.partition("#")[0].removesuffix("/container").rpartition(".")[0]


def read(path: Path) -> dict[str, Result]:
    """By test; a later line of a test replaces an earlier one. Nothing if there is no such file."""
    found = {}
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        test, state, seconds, note = [*line.split("\t"), ""][:4]
        found[test] = Result(test, state, float(seconds), note)
    return found


def merge(kept: Path, new: Iterable[Result]) -> None:
    """Write the newest result of every test that ran, in the order of their names. Times, notes of what passes and directories are left
    out, so that the file changes only when results do. The number of a variant that was left out now was that of another one before."""
    ran, left_out = {}, set[str]()
    for result in new:
        if result.state != "skip":
            ran[result.test] = result
        elif result.note == COMBINED:
            left_out.add(result.test)
    methods = {name.partition("#")[0] for name in ran}
    before = {name: each for name, each in read(kept).items() if name not in left_out or name.partition("#")[0] not in methods}
    results = before | ran
    notes = {name: "" if each.state == "pass" else DIRECTORIES.sub("", each.note) for name, each in results.items()}
    lines = (f"{each.test}\t{each.state}\t0\t{notes[name]}" for name, each in sorted(results.items()))
    kept.write_text("".join(line.rstrip("\t") + "\n" for line in lines))


def reasons() -> dict[str, str]:
    """The beginning of a test's name -> why it does not pass here."""
    return {name: why for name, why in tomllib.loads(REASONS.read_text())["reasons"].items()} if REASONS.exists() else {}


def reason_of(test: str, reason_by_test: dict[str, str]) -> str | None:
    """Why, as the longest entry says that the test's name begins with."""
    fitting = [name for name in reason_by_test if test.startswith(name)]
    return reason_by_test[max(fitting, key=len)] if fitting else None


def unexplained(results: Iterable[Result], reason_by_test: dict[str, str]) -> list[Result]:
    """The tests that fail and have no reason."""
    return [result for result in results if result.state == "fail" and reason_of(result.test, reason_by_test) is None]


def table(
    results: Sequence[Result], reason_by_test: dict[str, str], baseline: Mapping[str, Result] = MappingProxyType({})
) -> list[str]:
    """Lines of Markdown: what share fails, the classes where something does not pass, with a row for all, the others, and why tests fail.
    `baseline`: what the same tests did with Apache Kafka's own brokers."""
    counts = _counts(results, reason_by_test, baseline)
    shown = _columns_shown(baseline)
    total: Counter[str] = Counter()
    for of_class in counts.values():
        total.update(of_class)
    whole = [name for name, of_class in counts.items() if of_class["pass"] == _tests(of_class)]
    columns = ["class", "tests", *(["pass on Apache Kafka"] if baseline else []), "pass", *shown]
    lines = [share(total), "", *passed_there(results, reason_by_test, baseline), f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [_row(f"`{_short(name)}`", counts[name], baseline) for name in sorted(counts) if name not in whole]
    if whole:
        passing: Counter[str] = Counter()
        for name in whole:
            passing.update(counts[name])
        lines.append(_row(f"{len(whole)} classes that pass completely", passing, baseline))
    lines.append(_row(f"{len(counts)} classes", total, baseline))
    if whole:
        lines += ["", "| classes that pass completely | tests |", "|---|---|"]
        lines += [f"| `{_short(name)}` | {_tests(counts[name])} |" for name in sorted(whole)]
    return lines + _failing(results, reason_by_test)


def passed_there(results: Sequence[Result], reason_by_test: dict[str, str], baseline: Mapping[str, Result]) -> list[str]:
    """A sentence on the tests that pass on Apache Kafka's own brokers, and an empty line; nothing without a baseline."""
    comparable = [result for result in results if result.test in baseline and baseline[result.test].state == "pass"]
    columns = Counter(_column(result, reason_by_test, baseline) for result in comparable)
    judged = len(comparable) - columns["internals"]
    if not judged:
        return []
    as_next, absent, other = columns["fails as 4.4 does"], columns["not offered"], columns["fails"]
    ran = sum(result.test in baseline for result in results)
    sentences = f"""\
Apache Kafka 4.3.0's own brokers pass {len(comparable)} of the {ran} tests that also ran on them. {columns["internals"]} of these access
objects inside a broker. minikafka passes {columns["pass"]} of the other {judged}. {as_next} fail in the same way on Apache Kafka 4.4.0,
{absent} test features that minikafka does not have, and {other} fail for other reasons: {100 * other / judged:.1f}%."""
    return [*textwrap.wrap(" ".join(sentences.split()), 140, break_long_words=False, break_on_hyphens=False), ""]


def total(
    results: Iterable[Result], reason_by_test: dict[str, str], baseline: Mapping[str, Result] = MappingProxyType({})
) -> Counter[str]:
    """The counts of all classes together."""
    return sum(_counts(results, reason_by_test, baseline).values(), Counter())


def _counts(results: Iterable[Result], reason_by_test: dict[str, str], baseline: Mapping[str, Result]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for result in results:
        if result.state != "skip":
            of_class = counts.setdefault(result.class_name, Counter())
            of_class[_column(result, reason_by_test, baseline)] += 1
            there = baseline.get(result.test)
            if there is not None:
                of_class[THERE_RUN] += 1
                of_class[THERE_PASS] += there.state == "pass"
    return counts


def _failing(results: Iterable[Result], reason_by_test: dict[str, str]) -> list[str]:
    """A row for each reason in each class; its tests by name if they are few."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in sorted((result for result in results if result.state == "fail"), key=lambda result: result.test):
        why = reason_of(result.test, reason_by_test) or "not looked into"
        found.setdefault((result.class_name, why), []).append(result.test.removeprefix(result.class_name).strip("."))
    if not found:
        return []
    rows = []
    for (name, why), tests in found.items():
        methods = sorted({test.partition("#")[0] for test in tests})
        shown = ", ".join(f"`{method}`" for method in methods) if len(methods) <= NAMED_MAX else ""
        rows.append(f"| `{_short(name)}` | {len(tests)} | {shown} | {why} |")
    return ["", "| fails in | tests | methods | why |", "|---|---|---|---|", *rows]


def _short(name: str) -> str:
    return name.removeprefix("org.apache.")


def _column(result: Result, reason_by_test: dict[str, str], baseline: Mapping[str, Result]) -> str:
    if result.state != "fail":
        return result.state
    why = reason_of(result.test, reason_by_test) or ""
    there = baseline.get(result.test)
    other = THERE_TOO if there is not None and there.state == "fail" else "fails"
    return next((column for begin, column in COLUMNS.items() if why.startswith(begin)), other)


def _columns_shown(baseline: Mapping[str, Result]) -> list[str]:
    return [column for column in COLUMNS_SHOWN if baseline or column != THERE_TOO]


def _tests(counts: Counter[str]) -> int:
    return sum(counts[column] for column in ("pass", *COLUMNS_SHOWN))


def _row(name: str, counts: Counter[str], baseline: Mapping[str, Result]) -> str:
    there = [f"{counts[THERE_PASS]} of {counts[THERE_RUN]}" if counts[THERE_RUN] else ""] if baseline else []
    cells = [name, _tests(counts), *there, counts["pass"], *(counts[column] or "" for column in _columns_shown(baseline))]
    return f"| {' | '.join(map(str, cells))} |"


def share(counts: Counter[str]) -> str:
    """How much fails of what can run: of what passes on Apache Kafka 4.4 as processes, as far as is known."""
    failing, absent = counts["fails"], counts["not offered"]
    can_run = counts["pass"] + failing
    with_absent = 100 * (failing + absent) / max(1, can_run + absent)
    return (
        f"Of {can_run} tests that can run, {failing} fail: {100 * failing / max(1, can_run):.1f}%. Including tests of features "
        f"that minikafka does not have, {failing + absent} of {can_run + absent} fail: {with_absent:.1f}%."
    )
