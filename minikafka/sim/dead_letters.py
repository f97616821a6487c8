"""S29: the dead-letter queue of the share group (KIP-1191), as a consumer of its topic sees it. It gets what members reject and what was
delivered as often as allowed, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from minikafka.client.consumer import Consumer
from minikafka.client.errors import ClientError
from minikafka.sim.rejoining import EXPECTED_ERRORS
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import ApiError

if TYPE_CHECKING:
    from minikafka.sim import parts
    from minikafka.sim.attempts import Attempt, Place
    from minikafka.sim.client import Client
    from minikafka.sim.parts import Invariants, World

TOPIC = "dlq.records"
TOPIC_CONFIGS = {"errors.deadletterqueue.group.enable": "true"}
GROUP_CONFIGS = {"errors.deadletterqueue.topic.name": TOPIC, "errors.deadletterqueue.copy.record.enable": "true"}
ACCEPT, RELEASE, REJECT = 1, 2, 3
_PREFIX = "__dlq.errors."


class DeadLetters:
    """What the topic may hold, and what it must hold in the end."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._world = invariants.world
        #: Records that a leader may have given up: rejected by a member, or delivered as often as allowed.
        self._allowed: set[Place] = set()
        #: Records that were given up, as a leader has confirmed.
        self._required: set[Place] = set()
        #: Records that a member has tried to accept: a rejection that comes after that is confirmed too, and has no effect.
        self._perhaps_accepted: set[Place] = set()
        #: Contents of the records that have arrived, and records that a leader could not write in the time that it has.
        self._arrived: dict[Place, bytes | None] = {}
        self._unwritten: set[Place] = set()

    def delivered(self, place: Place, count: int) -> None:
        """A leader gives out a record for the `count`-th time."""
        if count >= self._world.options.delivery_count_max:
            self._allowed.add(place)

    def trying(self, attempt: Attempt) -> None:
        """A member is about to acknowledge a record."""
        if attempt.kind == REJECT:
            self._allowed.add(attempt.place)
        elif attempt.kind == ACCEPT:
            self._perhaps_accepted.add(attempt.place)

    def confirmed(self, attempt: Attempt) -> None:
        """A leader has confirmed an acknowledgement."""
        if attempt.kind == REJECT or (attempt.kind == RELEASE and attempt.count >= self._world.options.delivery_count_max):
            self._required.add(attempt.place)

    def arrived(self, place: Place, value: bytes | None) -> None:
        """The topic has a record."""
        self._invariants.checked["S29"] += 1
        self._arrived[place] = value
        if place not in self._allowed:
            self._world.violate("S29", f"{place} is in the dead-letter queue, and was neither rejected nor delivered as often as allowed")

    def unwritten(self, batch: bytes) -> None:
        """A leader could not write a batch, and has given up."""
        for one in iterate_batches(memoryview(batch)):
            self._unwritten.update(_place(record.headers) for record in one.records())

    def missing(self) -> list[Place]:
        """The records that the topic must have and does not."""
        return sorted(self._required - self._perhaps_accepted - self._arrived.keys() - self._unwritten)

    def judge(self, final: dict[Place, bytes]) -> None:
        """Compare the contents with those of the topic itself. Records without contents could not be read by their leader."""
        for place, value in self._arrived.items():
            if value is not None and final.get(place, value) != value:
                self._world.violate("S29", f"{place} has other contents in the dead-letter queue")


class DeadLetterReader:
    """The client that reads the topic."""

    def __init__(self, world: World, letters: parts.DeadLetters) -> None:
        self._world = world
        self._letters = letters

    async def run(self, client: Client) -> None:
        """Read the topic from its start, for ever."""
        consumer = Consumer(self._world.bootstrap, client_id=client.name, network=client.network, auto_offset_reset="none")
        await _persist(consumer)
        keys = [(TOPIC, index) for index in range(self._world.options.partitions)]
        await consumer.assign(keys, dict.fromkeys(keys, 0))
        while True:
            try:
                records = await consumer.poll(timeout_ms=500)
            except (ClientError, ApiError):
                await asyncio.sleep(0.05)
                continue
            for record in records:
                self._letters.arrived(_place(record.headers), record.value)


async def _persist(consumer: Consumer) -> None:
    while True:
        try:
            return await consumer.start()
        except EXPECTED_ERRORS:
            await asyncio.sleep(0.2)


def _place(headers: Iterable[tuple[str, Any]]) -> Place:
    named = dict(headers)
    return int(named[f"{_PREFIX}partition"]), int(named[f"{_PREFIX}offset"])
