"""Work over very many items gives others their turn."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

from minikafka.broker.coordinators.consumer_groups import TopicPatterns
from minikafka.broker.front.turns import STEP_ITEMS, STEPS_PER_COLLECTION, Turns, in_steps
from minikafka.broker.supervise import Supervisor


class Counter:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.turn += 1
        self._handle = self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


async def test_items_come_in_order_and_some_in_a_turn() -> None:
    turns = Counter()
    seen = [(item, turns.turn) async for item in in_steps(range(3 * STEP_ITEMS))]
    turns.stop()
    assert [item for item, _ in seen] == list(range(3 * STEP_ITEMS))
    assert [sum(turn == other for _, other in seen) for turn in dict.fromkeys(turn for _, turn in seen)] == [STEP_ITEMS] * 3


async def test_whether_a_client_may_see_what_its_pattern_matches_is_asked_in_steps() -> None:
    names = [f"t{number}" for number in range(4 * STEP_ITEMS)]
    turns, asked = Counter(), list[int]()

    def may_describe(context: Any, name: str) -> bool:
        asked.append(turns.turn)
        return name != "t7"

    async def run(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    metadata: Any = SimpleNamespace(image=SimpleNamespace(topics_by_name=dict.fromkeys(names), offset=5))
    environment: Any = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 1))
    work: Any = SimpleNamespace(run=run)
    found = await TopicPatterns(environment, metadata, work, may_describe).resolve(None, {"t.*"})
    turns.stop()
    assert found["t.*"].topics == set(names) - {"t7"}
    assert len(asked) == len(names) and max(map(asked.count, set(asked))) <= STEP_ITEMS


async def test_objects_of_one_step_that_take_the_place_of_others_are_not_left_to_a_long_collection() -> None:
    """Python counts those that were made less those that were freed, and so sees no reason for a collection."""
    turns, made, steps = Turns(Supervisor(asyncio.get_running_loop())), 2_000, 20 * STEPS_PER_COLLECTION
    old = [[number] for number in range(made * steps)]
    gc.collect()
    young = []
    kept = []
    for _ in range(steps):
        await turns.next()
        for _ in range(made):
            kept.append([old.pop()[0]])
        young.append(len(gc.get_objects(0)) + len(gc.get_objects(1)))
    assert len(kept) == made * steps and max(young) < 3 * made * STEPS_PER_COLLECTION
