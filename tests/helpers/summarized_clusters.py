"""A cluster's log directories audited twice: by one machine that sees all, and by summaries of machines that see one broker each."""

from __future__ import annotations

from pathlib import Path

from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.summaries import write_scan
from minikafka.spark.summary_audit import compare_summaries

OPTIONS = AuditOptions(level="records", confirm=False)
ROUNDS_MAX = 20


def machines(folder: Path) -> dict[str, list[str]]:
    """{name of a machine: its log directories}; those of one broker are b1, b1-other and so on."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        found.setdefault(path.name.split("-")[0], []).append(str(path))
    return found


def scans(folder: Path, out: Path, options: AuditOptions = OPTIONS) -> list[str]:
    """A summary of each machine."""
    out.mkdir(exist_ok=True)
    for name, paths in machines(folder).items():
        write_scan(paths, LocalEngine(1), options, str(out / name))
    return [str(out / name) for name in machines(folder)]


def by_summaries(folder: Path, out: Path, options: AuditOptions = OPTIONS) -> tuple[AuditResult, int]:
    """(the outcome, how often the machines were asked again)."""
    files = scans(folder, out, options)
    for number in range(ROUNDS_MAX):
        questions = out / f"questions-{number}"
        result = compare_summaries(files, options, str(questions))
        if not questions.exists():
            return result, number
        for name, paths in machines(folder).items():
            files.append(str(out / f"{name}-{number}"))
            write_scan(paths, LocalEngine(1), options, files[-1], str(questions))
    raise AssertionError(f"asked {ROUNDS_MAX} times")


def direct(folder: Path, options: AuditOptions = OPTIONS) -> AuditResult:
    """The audit by one machine."""
    return run_audit([str(path) for path in sorted(folder.iterdir())], LocalEngine(1), options)


Summary = tuple[int, dict[str, tuple[str, list[tuple[str, str, int, tuple[str, ...]]]]]]


def summary_of(result: AuditResult) -> Summary:
    """The exit status and, for each partition, the verdict and the findings with their places."""
    return result.exit_code, {
        f"{one.topic}-{one.partition}": (
            one.verdict, sorted({
                (found.check, found.level, found.offset, tuple(name.partition(" (")[0] for name in found.brokers))
                for found in one.findings.kept
            })
        ) for one in result.partitions
    }  # fmt: skip
