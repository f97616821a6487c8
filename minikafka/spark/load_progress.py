"""Progress of a running load: partition leaders report how many rows of each task they have, wherever the task runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from minikafka.spark.security import Security

#: (rows that the leaders have, share of the table from 0 to 1, or None if its number of rows is unknown)
Progress = Callable[[int, float | None], None]
ASK_EVERY_S = 1.0
ASK_TIMEOUT_MS = 5_000


class Target(Protocol):
    """The target of a load (LoadOptions)."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def security(self) -> Security: ...


class LoadWatch:
    """A thread that asks the leaders once a second while the load runs, and retries if they do not answer. `planned` rows 0: unknown."""

    def __init__(self, options: Target, producers: list[tuple[int, int]], planned: int, progress: Progress | None) -> None:
        self._options, self._producers, self._planned, self._progress = options, producers, planned, progress
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load-progress", daemon=True)

    def __enter__(self) -> LoadWatch:
        if self._progress is not None and self._producers:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(ASK_TIMEOUT_MS / 1000)

    def report(self, rows: int) -> None:
        """Pass the number of written rows to the progress callback."""
        if self._progress is not None:
            self._progress(rows, min(1.0, rows / self._planned) if self._planned else None)

    def _work(self) -> None:
        from minikafka.spark.produce_client import LoadProducer, ProduceFailed

        options, ids = self._options, [producer for producer, _ in self._producers]
        producer = LoadProducer(
            options.bootstrap, options.topic, timeout_ms=ASK_TIMEOUT_MS, delivery_ms=ASK_TIMEOUT_MS, security=options.security
        )
        while not self._ended.wait(ASK_EVERY_S):
            with contextlib.suppress(ProduceFailed):
                producer.partition_count()
                there = producer.last_sequences(ids)
                rows = sum(sequence + 1 for partitions in there.values() for sequence in partitions.values())
                if not self._ended.is_set():
                    self.report(rows)
        producer.close()


def rate_and_rest(rows: int, share: float | None, passed_s: float) -> tuple[float, float | None]:
    """(rows per second, seconds left or None if unknown)."""
    rate = rows / max(passed_s, 1e-3)
    return rate, rows * (1 - share) / share / rate if share and rate > 0 else None
