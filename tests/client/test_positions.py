"""Where a consumer goes on: what was asked for before the application moved it does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from minikafka.client.consumer import Consumer, TopicPartition

PARTITION = ("topic", 0)


class SlowCoordinator(Consumer):
    """Hears of committed offsets when `answered` is set."""

    def __init__(self) -> None:
        super().__init__("localhost:1", group_id="group")
        self.asked = asyncio.Event()
        self.answered = asyncio.Event()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        self.asked.set()
        await self.answered.wait()
        return {PARTITION: 3196}


async def test_a_late_answer_about_committed_offsets_does_not_take_a_seek_back() -> None:
    """A rebalance asks for the committed offset while its coordinator is away; the application goes back to it by itself, reads on,
    and commits. The answer of before then must not make it read everything again."""
    consumer = SlowCoordinator()
    assigning = asyncio.ensure_future(consumer.assign([PARTITION]))
    await consumer.asked.wait()
    consumer.seek(PARTITION, 3330)
    consumer.answered.set()
    await assigning
    assert consumer.position(PARTITION) == 3330


async def test_positions_are_those_of_the_last_assignment() -> None:
    consumer = SlowCoordinator()
    assigning = asyncio.ensure_future(consumer.assign([PARTITION]))
    await consumer.asked.wait()
    await consumer.assign([PARTITION], {PARTITION: 4000})
    consumer.answered.set()
    await assigning
    assert consumer.position(PARTITION) == 4000


async def test_without_a_seek_the_group_goes_on_where_it_has_committed() -> None:
    consumer = SlowCoordinator()
    consumer.answered.set()
    await consumer.assign([PARTITION])
    assert consumer.position(PARTITION) == 3196
