"""Requests that wait: however many end together, they end in turns of the loop that are short."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from pathlib import Path

import pytest
from helpers.live_node import live_node
from helpers.turn_lengths import too_long
from helpers.work_unit import usual_unit_s

from minikafka.broker.partitions.waiting import Waiting

MANY = 3_000


class Request:
    """Its answer takes half a unit of work, as that of a fetch of some partitions does."""

    def __init__(self, left: list[int]) -> None:
        self.is_done = False
        self._left = left

    def try_complete(self, key: Hashable = None, /) -> bool:
        return self.is_done

    def expire(self) -> None:
        self.is_done = True
        self._left[0] -= 1
        until_s = time.thread_time() + usual_unit_s() / 2
        while time.thread_time() < until_s:
            pass


@pytest.mark.parametrize("end", ["time is up", "stop"])
async def test_very_many_requests_that_end_together_take_turns(tmp_path: Path, end: str) -> None:
    """3,000 that timed out together took turns of 20 ms, and at a stop a single one."""
    async with live_node(tmp_path) as node:

        async def all_end() -> None:
            await asyncio.sleep(0)
            waiting, left = Waiting(node.environment), [MANY]
            for number in range(MANY):
                waiting.park(waiting.fetches, Request(left), [number % 10], 1 if end == "time is up" else 60_000)
            if end == "stop":
                await waiting.close()
            await asyncio.sleep(0)  # a turn counts when it is over
            while left[0]:
                await asyncio.sleep(0.001)

        assert not await too_long(all_end)
