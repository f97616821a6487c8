"""Clients with transactions: writers that commit, abort, take too long, are fenced by successors, or copy records together with their
offsets; read_committed readers; and the judge of what both saw (S17, as Jepsen's Kafka workload: atomicity, G1a, exactly once)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.client.consumer import LATEST, Consumer
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError, ProducerFenced, TransactionFailed
from minikafka.client.producer import Producer
from minikafka.client.transactional import TransactionalProducer
from minikafka.sim.gathering import GatheringTransactionalProducer
from minikafka.sim.node import WALL_MS
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.sim.client import Client
    from minikafka.sim.parts import Workload, World

TOPIC = "transfers"
SOURCE = "records"
EXPECTED_ERRORS = (ClientError, *TRANSPORT_ERRORS)
LAST = "tx-last"
LAST_TIMEOUT_MS = 15_000
#: How a transaction shall end -> weight.
ENDINGS = {"commit": 12, "abort": 3, "late": 2, "succeed": 2}
LEFT_OPEN_SHARE = 0.3
COPIED_MAX = 4
#: Share of ended transactions after which a copying writer checks its group's committed offset.
ASK_SHARE = 0.4
#: Prefix of the values of writers with acks=1.
HASTY = b"hasty-"


@dataclass(slots=True)
class Attempt:
    """One transaction. `copied`: (partition, first offset, exclusive end) of the records that it copies. `outcome` is "" while it is
    unknown; then all or none of its records may be visible. `is_committing`: a commit was requested, so readers may see it."""

    number: int
    transactional_id: str
    values: list[tuple[int, bytes]] = field(default_factory=list)
    copied: tuple[int, int, int] | None = None
    is_committing: bool = False
    outcome: str = ""
    #: (reader, partition, offset) of the first read of one of its records.
    seen: tuple[str, int, int] | None = None


class Transactors:
    """The clients with transactions, and their history."""

    def __init__(self, world: World, workload: Workload) -> None:
        self.world = world
        self._workload = workload
        self.attempts: list[Attempt] = []
        #: Outcome -> transactions, for the totals.
        self.outcomes: Counter[str] = Counter()
        self._by_value: dict[bytes, tuple[Attempt, int]] = {}
        self._acked: dict[bytes, int] = {}
        self._places: dict[tuple[int, int], bytes] = {}
        #: Reader process -> partition -> (offsets that it read, its position: it must have seen everything before).
        self._read: dict[str, dict[int, tuple[set[int], int]]] = {}
        self._busy: set[str] = set()
        self._final: dict[tuple[int, int], bytes] = {}
        self._stored: dict[tuple[str, int], int] = {}

    # -- writers ---------------------------------------------------------------------------------------------------

    def _producer(self, client: Client, transactional_id: str) -> TransactionalProducer:
        options = self.world.options
        gather_s = options.gather_s
        make = TransactionalProducer if gather_s is None else partial(GatheringTransactionalProducer, gather_s=gather_s)
        return make(
            self.world.bootstrap, transactional_id, linger_ms=1,
            transaction_timeout_ms=options.transaction_timeout_ms if transactional_id != LAST else LAST_TIMEOUT_MS,
            delivery_timeout_ms=options.delivery_timeout_ms, request_timeout_ms=5000, client_id=client.name, network=client.network,
        )  # fmt: skip

    async def _incarnation(self, client: Client, transactional_id: str) -> TransactionalProducer:
        producer = self._producer(client, transactional_id)
        for work in (producer.start, producer.init_transactions):
            while True:
                try:
                    await work()
                    break
                except EXPECTED_ERRORS:
                    await asyncio.sleep(0.2)
        return producer

    async def write(self, client: Client) -> None:
        """The process of a writer. Every second writer copies records of the other topic, each exactly once."""
        number = int(client.name.rpartition("-")[2])
        transactional_id = f"tx-{number}"
        self._busy.add(client.life)
        producer = await self._incarnation(client, transactional_id)
        source = Source(self, client, transactional_id) if number % 2 else None
        if source is not None:
            await source.rewind()
        while not self._workload.is_over:
            if not await self._transact(client, producer, source):
                await producer.close(0)
                producer = await self._incarnation(client, transactional_id)
                if source is not None:
                    await source.rewind()
            await asyncio.sleep(client.random.expovariate(1.0) * self.world.options.pace_s)
        if client.random.random() < LEFT_OPEN_SHARE:
            producer.begin()
            attempt = self._attempt(transactional_id)
            attempt.outcome = "left open"
            self.outcomes["left open"] += 1
            try:
                await self._send(client, producer, attempt, client.random.randrange(self.world.options.partitions))
                await producer.flush()
            except EXPECTED_ERRORS:
                pass  # whatever happened, the coordinator has to end the transaction
        self._busy.discard(client.life)

    async def write_hastily(self, client: Client) -> None:
        """The process of a writer with acks=1 and without transactions. Any of its records may be lost or duplicated."""
        options, chance = self.world.options, client.random
        producer = Producer(
            self.world.bootstrap, acks=1, linger_ms=1, delivery_timeout_ms=options.delivery_timeout_ms, request_timeout_ms=1000,
            client_id=client.name, network=client.network,
        )  # fmt: skip
        number = 0
        while not self._workload.is_over:
            number += 1
            value = f"{client.life}/{number}".encode().ljust(options.value_bytes, b".")
            now_ms = WALL_MS + int(self.world.now * 1000)
            try:
                future = await producer.send(TOPIC, value, partition=chance.randrange(options.partitions), timestamp_ms=now_ms)
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
            except EXPECTED_ERRORS:
                pass  # nothing depends on it
            await asyncio.sleep(chance.expovariate(1.0) * options.pace_s)
        await producer.close(0)

    def _attempt(self, transactional_id: str) -> Attempt:
        attempt = Attempt(len(self.attempts), transactional_id)
        self.attempts.append(attempt)
        return attempt

    async def _send(self, client: Client, producer: TransactionalProducer, attempt: Attempt, partition: int, origin: str = "") -> None:
        text = f"{client.life}/{attempt.number}/{len(attempt.values)}{origin}"
        value = text.encode().ljust(self.world.options.value_bytes, b".")
        attempt.values.append((partition, value))
        self._by_value[value] = (attempt, partition)
        now_ms = WALL_MS + int(self.world.now * 1000)
        future = await producer.send(TOPIC, value, partition=partition, timestamp_ms=now_ms)

        def settled(future: asyncio.Future[Any]) -> None:
            if not future.cancelled() and future.exception() is None:
                self._acked[value] = offset = future.result().offset
                self.world.invariants.acknowledged(partition, offset, TOPIC)

        future.add_done_callback(settled)

    async def _transact(self, client: Client, producer: TransactionalProducer, source: Source | None) -> bool:
        """Run one transaction. Returns whether the producer can continue."""
        options, chance = self.world.options, client.random
        ending = chance.choices(list(ENDINGS), list(ENDINGS.values()))[0]
        attempt = self._attempt(str(producer.transactional_id))
        producer.begin()
        try:
            for _ in range(1 + chance.randrange(options.batch_records_max)):
                await self._send(client, producer, attempt, chance.randrange(options.partitions))
            if source is not None:
                await source.copy(producer, attempt)
            if ending == "late":
                await producer.flush()
                await asyncio.sleep(options.transaction_timeout_ms / 1000 * (0.5 + chance.random()))
        except EXPECTED_ERRORS:
            ending = "abort" if ending != "succeed" else ending
        if ending == "succeed":
            return await self._succeeded(client, producer, attempt)
        if not await self._settle(client, producer, attempt, ending != "abort"):
            return False
        if source is not None:
            await source.settled(attempt)
        return True

    async def _settle(self, client: Client, producer: TransactionalProducer, attempt: Attempt, should_commit: bool) -> bool:
        """Commit or abort until the outcome is known. Returns whether the producer can continue."""
        while True:
            try:
                if should_commit:
                    attempt.is_committing = True
                    await producer.commit()
                    self._ended(attempt, "committed")
                else:
                    await producer.abort()
                    self._ended(attempt, "aborted")
                return True
            except TransactionFailed:
                should_commit = False
            except ProducerFenced:
                # An earlier commit may have succeeded, and its response been lost.
                self._ended(attempt, "" if attempt.is_committing else "fenced")
                return False
            except BrokerError as error:
                if error.code is not ErrorCode.INVALID_TXN_STATE or not attempt.is_committing:
                    self.world.violate("S17", f"{client.name}: transaction {attempt.number} cannot be aborted: {error}")
                    return False
                should_commit = True
            except EXPECTED_ERRORS:
                should_commit = attempt.is_committing and client.random.random() < 0.5
                await asyncio.sleep(0.05)

    async def _succeeded(self, client: Client, producer: TransactionalProducer, attempt: Attempt) -> bool:
        """Another producer takes over the transactional id while the transaction is open. This one must never commit anything again, not
        even its successor's transaction."""
        successor = await self._incarnation(client, attempt.transactional_id)
        self._ended(attempt, "fenced")
        own = self._attempt(attempt.transactional_id)
        successor.begin()
        try:
            await self._send(client, successor, own, client.random.randrange(self.world.options.partitions))
            await successor.flush()
            if client.random.random() < 0.5:
                await self._send(client, producer, attempt, client.random.randrange(self.world.options.partitions))
        except EXPECTED_ERRORS:
            pass  # ending the transaction shows the failure
        try:
            await producer.commit()
            self.world.violate("S17", f"{client.name}: a fenced producer committed after transaction {attempt.number}")
        except EXPECTED_ERRORS:
            await self._settle(client, successor, own, client.random.random() < 0.5)
        await successor.close(0)
        return False

    def _ended(self, attempt: Attempt, outcome: str) -> None:
        attempt.outcome = outcome
        self.outcomes[outcome or "unknown"] += 1
        if attempt.seen is not None and outcome != "committed" and outcome:
            reader, partition, offset = attempt.seen
            self.world.violate("S17", f"{reader} read {partition}/{offset} of transaction {attempt.number}, which was {outcome}")

    # -- readers ---------------------------------------------------------------------------------------------------

    def _consumer(self, client: Client, **options: Any) -> Consumer:
        return Consumer(
            self.world.bootstrap, client_id=client.name, network=client.network, isolation_level="read_committed", **options
        )

    async def read(self, client: Client) -> None:
        """The process of a read_committed reader, from the beginning."""
        consumer = self._consumer(client, auto_offset_reset="none")
        while True:
            try:
                await consumer.start()
                break
            except EXPECTED_ERRORS:
                await asyncio.sleep(0.2)
        keys = [(TOPIC, index) for index in range(self.world.options.partitions)]
        await consumer.assign(keys, dict.fromkeys(keys, 0))
        while True:
            try:
                records = await consumer.poll(timeout_ms=500)
            except BrokerError as error:
                if not error.code.retriable:
                    self.world.violate("S13", f"{client.name} is refused: {error}")
                await asyncio.sleep(0.05)
                continue
            except ClientError as error:
                self.world.violate("S13", f"{client.name}: {error}")
                return
            self._take(client.life, records)
            for key in keys:
                offsets, _ = self._read.setdefault(client.life, {}).get(key[1], (set(), 0))
                self._read[client.life][key[1]] = (offsets, consumer.position(key) or 0)

    def _take(self, reader: str, records: list[Any]) -> None:
        """Check the records that a read_committed reader has received."""
        for record in records:
            offsets, position = self._read.setdefault(reader, {}).setdefault(record.partition, (set(), 0))
            place, value = (record.partition, record.offset), bytes(record.value or b"")
            attempt, partition = self._by_value.get(value, (None, -1))
            self._workload.consumed += 1
            is_hasty = value.startswith(HASTY)
            if not is_hasty and (attempt is None or partition != record.partition):
                self.world.violate("L8", f"{reader} read {value!r} at {place} of {TOPIC}, which no client wrote there")
                return
            if record.offset < position or record.offset in offsets:
                self.world.violate("L8", f"{reader} read {place} of {TOPIC} after {position}")
            if self._places.setdefault(place, value) != value:
                self.world.violate("L8", f"inconsistent offset {place} of {TOPIC}: {self._places[place]!r} and {value!r}")
            offsets.add(record.offset)
            if is_hasty or attempt is None:
                continue
            self.world.invariants.checked["S17"] += 1
            if not attempt.is_committing or attempt.outcome not in ("", "committed"):
                outcome = attempt.outcome or "not committed"
                self.world.violate("S17", f"{reader} read {value!r} at {place}, of transaction {attempt.number}, which was {outcome}")
            attempt.seen = attempt.seen or (reader, *place)

    # -- the end ---------------------------------------------------------------------------------------------------

    def is_pending(self, living: set[str]) -> bool:
        """Whether a living writer has not finished its transactions."""
        return bool(self._busy & living)

    async def finish(self, client: Client) -> None:
        """After healing: wait until open transactions have ended, commit one more record to each partition, and read everything."""
        options = self.world.options
        if self.world.chaos.injected["clock"]:
            # A transaction that began while the coordinator's clock was an hour ahead would stay open for long.
            for number in range(options.transactors):
                await (await self._incarnation(client, f"tx-{number}")).close()
        deadline = self.world.now + options.transaction_timeout_ms / 1000 + 15.0
        while (unrest := self.world.invariants.isolation.unrest()) is not None:
            if self.world.now > deadline:
                self.world.violate(*unrest)
                return
            await asyncio.sleep(0.1)
        producer = await self._incarnation(client, LAST)
        attempt = self._attempt(LAST)
        producer.begin()
        for index in range(options.partitions):
            await self._send(client, producer, attempt, index)
        attempt.is_committing = True
        try:
            await producer.commit()
        except EXPECTED_ERRORS as error:
            self.world.violate("L7", f"nothing can be committed although everything has healed: {error}")
        self._ended(attempt, "committed")
        await producer.close()
        keys = [(TOPIC, index) for index in range(options.partitions)]
        while self.world.invariants.isolation.unrest() is not None:
            await asyncio.sleep(0.05)
        consumer = self._consumer(client, auto_offset_reset="none")
        await consumer.start()
        ends = await consumer.offsets_for(dict.fromkeys(keys, LATEST))
        await consumer.assign(keys, dict.fromkeys(keys, 0))
        while any((consumer.position(key) or 0) < ends[key] for key in keys):
            records = await consumer.poll(timeout_ms=1000)
            self._take(client.life, records)
            self._final |= {(record.partition, record.offset): bytes(record.value or b"") for record in records}
        await consumer.close()
        for number in range(1, options.transactors, 2):
            group = Consumer(
                self.world.bootstrap, client_id=client.name, network=client.network, group_id=f"tx-{number}", enable_auto_commit=False
            )
            await group.start()
            stored = await group.committed([(SOURCE, index) for index in range(options.partitions)])
            self._stored |= {(f"tx-{number}", index): offset or 0 for (_, index), offset in stored.items()}
            await group.close()

    def judge(self) -> None:
        """Check atomicity, aborted reads, loss, order, and that each record was copied once."""
        if not self.world.options.transactors:
            return
        fail = self.world.violate
        where: dict[bytes, tuple[int, int]] = {}
        for place, value in sorted(self._final.items()):
            if value in where and not value.startswith(HASTY):
                fail("L8", f"duplicate: {value!r} is at {where[value]} and {place} of {TOPIC}")
            where[value] = place
        last: dict[tuple[str, int], tuple[int, bytes]] = {}
        copies: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for attempt in self.attempts:
            visible = [value for _, value in attempt.values if value in where]
            if attempt.outcome not in ("", "committed") or not attempt.is_committing:
                if visible:
                    fail("S17", f"{visible[0]!r} is read at {where[visible[0]]}, of transaction {attempt.number}: {attempt.outcome}")
                continue
            if len(visible) < len(attempt.values) and (visible or attempt.outcome == "committed"):
                missing = [value for _, value in attempt.values if value not in where]
                fail("S17", f"transaction {attempt.number} ({attempt.outcome or 'outcome unknown'}) is torn: {len(visible)} of"
                            f" {len(attempt.values)} records are read, {missing[0]!r} is not")  # fmt: skip
            for partition, value in attempt.values if visible else ():
                if value in self._acked and where[value] != (partition, self._acked[value]):
                    fail("L8", f"{value!r} was acknowledged at {partition}/{self._acked[value]}, but is at {where[value]}")
                before = last.get((attempt.transactional_id, partition))
                if before is not None and before[0] >= where[value][1]:
                    fail("L8", f"out of order: {value!r} at {where[value]} after {before[1]!r} at {before[0]}")
                last[attempt.transactional_id, partition] = (where[value][1], value)
            if attempt.copied is not None and visible:
                copies.setdefault((attempt.transactional_id, attempt.copied[0]), []).append(attempt.copied[1:])
        for key, stored in self._stored.items():
            end = 0
            for first, next_first in copies.get(key, []):
                if first != end:
                    fail("S17", f"{key[0]} copied {SOURCE}-{key[1]} from {first} on after it had copied up to {end}")
                end = next_first
            if end != stored:
                fail("S17", f"{key[0]} has copied {SOURCE}-{key[1]} up to {end}, but {stored} is stored")
        for reader, partitions in self._read.items():
            for index, (offsets, position) in partitions.items():
                unseen = [offset for (number, offset) in self._final if number == index and offset < position and offset not in offsets]
                if unseen:
                    fail("S17", f"{reader} is at {position} of {TOPIC}-{index} but was not given {unseen[:5]}")


class Source:
    """The input of a copying writer: one partition of the other topic, from its group's committed offset on."""

    def __init__(self, transactors: Transactors, client: Client, group_id: str) -> None:
        world = transactors.world
        self._transactors = transactors
        self._client = client
        self._key = (SOURCE, client.random.randrange(world.options.partitions))
        self._consumer = Consumer(
            world.bootstrap, client_id=client.name, network=client.network, group_id=group_id, enable_auto_commit=False,
            auto_offset_reset="earliest", isolation_level="read_committed",
        )  # fmt: skip
        self._is_started = False
        self._position = 0

    async def rewind(self) -> None:
        """Continue from the committed offset. No open transaction can change it, because the transactional id has been taken over."""
        while True:
            try:
                if not self._is_started:
                    await self._consumer.start()
                    self._is_started = True
                self._position = (await self._consumer.committed([self._key]))[self._key] or 0
                await self._consumer.assign([self._key], {self._key: self._position})
                return
            except EXPECTED_ERRORS:
                await asyncio.sleep(0.2)

    async def copy(self, producer: TransactionalProducer, attempt: Attempt) -> None:
        """Copy some records, and commit the offset after them, in the transaction. Raises what the producer raises."""
        partition = self._key[1]
        try:
            records = await self._consumer.poll(timeout_ms=100, records_max=COPIED_MAX)
        except EXPECTED_ERRORS:
            return
        if not records:
            return
        attempt.copied = (partition, self._position, records[-1].offset + 1)
        for record in records:
            target = self._client.random.randrange(self._transactors.world.options.partitions)
            await self._transactors._send(self._client, producer, attempt, target, f"<{partition}:{record.offset}")
        metadata = self._consumer.group_metadata
        await producer.send_offsets_to_transaction({self._key: attempt.copied[2]}, metadata)

    async def settled(self, attempt: Attempt) -> None:
        """Move the position forward or back, depending on the outcome. Now and then check the group's committed offset: no other client
        commits it, so it must have moved if the transaction was committed, and must be unchanged otherwise."""
        if attempt.copied is not None and attempt.outcome == "committed":
            self._position = attempt.copied[2]
        if attempt.copied is not None and self._client.random.random() < ASK_SHARE:
            expected = self._position
            await self.rewind()
            if self._position != expected:
                self._transactors.world.violate(
                    "S17", f"transaction {attempt.number}, which was {attempt.outcome}, leaves {self._position} as the offset of"
                           f" {SOURCE}-{self._key[1]}, not {expected}"
                )  # fmt: skip
            return
        self._consumer.seek(self._key, self._position)
