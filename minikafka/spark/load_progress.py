"""How far a load is, told while it runs: the leaders know how many rows of each task they have, on whatever machine the task runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from minikafka.spark.security import Security

#: (rows that the leaders have, share of the table from 0 to 1 or None when nobody knows how many rows it has)
Progress = Callable[[int, float | None], None]
ASK_EVERY_S = 1.0
ASK_TIMEOUT_MS = 5_000


class Target(Protocol):
    """Where a load goes (LoadOptions)."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def security(self) -> Security: ...


class LoadWatch:
    """A thread that asks once a second while the load runs; a cluster in trouble is asked again later. `planned` rows 0: unknown."""

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

    def tell(self, rows: int) -> None:
        """Say how many rows are there."""
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
                    self.tell(rows)
        producer.close()


def rate_and_rest(rows: int, share: float | None, passed_s: float) -> tuple[float, float | None]:
    """(rows a second, seconds left or None when nobody knows)."""
    rate = rows / max(passed_s, 1e-3)
    return rate, rows * (1 - share) / share / rate if share and rate > 0 else None
