"""The newest verdict of `minikafka audit --report` in a directory, for the page, the metrics and the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: One line per run, the newest last (written by minikafka/spark/trend.py).
RUNS = "runs.jsonl"
TAIL_BYTES = 64 << 10
MISMATCH = ("DIVERGENT", "CORRUPT", "LOST", "MISSING")
INCOMPLETE = ("UNREADABLE", "INCOMPLETE", "SKIPPED", "SINGLE")


class LastAudit:
    """Caches the newest run. Reads a file only if it has changed, and only its end."""

    def __init__(self, directory: str | None) -> None:
        self._directory = Path(directory) if directory else None
        #: Path, modification time in ns and size of the file from which `_run` was read.
        self._seen: tuple[Path, int, int] | None = None
        self._run: dict[str, Any] | None = None

    def get(self) -> dict[str, Any] | None:
        """outcome, exit_code, finished_ms, seconds, partitions by result, batches, bytes, checks; None if there is no readable run."""
        if self._directory is None:
            return None
        try:
            found = [(path, path.stat()) for path in (self._directory / RUNS, *self._directory.glob(f"*/{RUNS}")) if path.is_file()]
        except OSError:
            return None
        if not found:
            return None
        path, stat = max(found, key=lambda pair: pair[1].st_mtime_ns)
        seen = path, stat.st_mtime_ns, stat.st_size
        if seen != self._seen:
            self._seen, self._run = seen, _read(path, stat.st_mtime_ns // 1_000_000)
        return self._run


def _read(path: Path, finished_ms: int) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            run = json.loads(file.read().splitlines()[-1])
        verdicts = {name: int(count) for name, count in run["verdicts"].items()}
        mismatch, incomplete = (sum(verdicts.get(name, 0) for name in names) for names in (MISMATCH, INCOMPLETE))
        return {
            "outcome": str(run["outcome"]), "exit_code": int(run["exit_code"]), "finished_ms": finished_ms,
            "seconds": float(run["seconds"]),
            "partitions": int(run["partitions"]), "mismatch": mismatch, "incomplete": incomplete,
            "match": int(run["partitions"]) - mismatch - incomplete, "batches": int(run["batches_compared"]),
            "bytes": int(run["bytes_compared"]), "checks": {str(check): int(count) for check, count in run["checks"].items()},
        }  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
