"""The log cleaner looks at very many logs in several turns of the loop, and not at all of them behind every round."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.partitions import cleaner as cleaner_module
from minikafka.broker.partitions.cleaner import LogCleaner
from minikafka.net.turn_share import SHARE_S, TurnShares
from minikafka.storage.cleaner import CleaningStopped

LOGS = 60
LOOK_S = 0.001


class SomeLog:
    def __init__(self, index: int) -> None:
        self.topic, self.partition, self.name = "t", index, f"t-{index}"
        self.config = SimpleNamespace(is_compacted=True)
        self.failure = None
        self.watermarks = SimpleNamespace(truncated_to=1 << 62)


async def test_logs_are_looked_at_in_turns_and_compacted_by_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {("t", index): SomeLog(index) for index in range(LOGS)}
    directory: Any = SimpleNamespace(is_offline=False, logs=logs, cleaned={})
    turn, looked, cleaned = 0, list[int](), list[int]()
    loop = asyncio.get_running_loop()

    def next_turn() -> None:
        nonlocal turn, handle
        turn += 1
        handle = loop.call_soon(next_turn)

    handle = loop.call_soon(next_turn)

    def need(log: SomeLog, cleaned_to: int | None, wall_ms: int) -> Any:
        looked.append(turn)
        is_due = log.partition not in cleaned and log.partition % 2 == 0
        return SimpleNamespace(log=log, ratio=log.partition / LOGS, overdue_ms=0, is_due=is_due)

    async def clean(self: LogCleaner, directory: Any, found: Any) -> None:
        cleaned.append(found.log.partition)
        if len(cleaned) == LOGS // 2:
            self._is_stopping = True
            raise CleaningStopped

    monkeypatch.setattr(cleaner_module, "cleaning_need", need)
    monkeypatch.setattr(LogCleaner, "_clean", clean)
    clock = SimpleNamespace(wall_ms=lambda: 0, now_ms=lambda: 0)
    environment: Any = SimpleNamespace(clock=clock, shares=TurnShares(lambda: LOOK_S * len(looked)), loop=loop)
    settings: Any = SimpleNamespace(watch=lambda callback: None, log_cleaner_backoff_ms=15_000)
    cleaner = LogCleaner(settings, environment, [directory], lambda *_: None)
    await cleaner._run()
    handle.cancel()
    assert cleaned == [index for index in reversed(range(LOGS)) if index % 2 == 0], "the dirtiest first"
    first = looked[:LOGS]
    assert max(first.count(of) for of in set(first)) <= SHARE_S / LOOK_S + 1
    assert len(looked) <= 2 * LOGS and cleaner.dirtiest == (LOGS - 1) / LOGS
