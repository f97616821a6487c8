"""Clients of the simulated cluster: minikafka's producer and consumer, each as a process on its own host, and the history they record.

Producers write unique values with acks=all and idempotence; readers read every partition from its beginning; members of a group share the
partitions, commit, and are killed now and then. The checks are those of Jepsen's Kafka workload (see `history`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.client.consumer import LATEST, Consumer
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError, DeliveryFailed
from minikafka.client.maintenance import Maintenance
from minikafka.client.producer import Producer
from minikafka.sim import dead_letters
from minikafka.sim.client import Client
from minikafka.sim.consumer_members import GROUP as CONSUMERS
from minikafka.sim.consumer_members import STATIC, ConsumerMembers
from minikafka.sim.gathering import GatheringProducer
from minikafka.sim.history import History, Write
from minikafka.sim.loop import ProcessLoop
from minikafka.sim.node import WALL_MS
from minikafka.sim.share_members import GROUP as SHARERS
from minikafka.sim.share_members import ShareMembers
from minikafka.sim.streams_members import StreamsMembers
from minikafka.sim.transactors import TOPIC as TRANSFERS
from minikafka.sim.transactors import Transactors

if TYPE_CHECKING:
    from minikafka.sim.parts import GroupHistory, World

TOPIC = "records"
GROUP = "members"
#: Part of the consumer's error about a batch with a wrong CRC.
UNREADABLE = "holds records that cannot be read"
EXPECTED_ERRORS = (ClientError, *TRANSPORT_ERRORS)
LAST_WRITE_TIMEOUT_MS = 15_000
#: How long members of a share group may take to settle every record after everything healed.
SETTLING_S = 30.0
GROUP_RESOURCE = 32


class Workload:
    """Runs the clients; `history` records what they saw."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = History(world)
        self.transactors = Transactors(world, self)
        self.consumer_members = ConsumerMembers(world, self)
        self.share_members = ShareMembers(world, self, world.invariants.shares)
        self.letters = world.invariants.shares.letters
        self.letter_reader = dead_letters.DeadLetterReader(world, self.letters)
        self.streams_members = StreamsMembers(world, self)
        self.is_over = False
        self.clients: list[Client] = []
        self.consumed = 0
        #: Reads that were refused because of a wrong CRC.
        self.noticed = 0
        self._values = 0
        self._admin = Client(world, "admin", self._nothing)
        self._last = Client(world, "last", self._nothing)

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged records."""
        return self.history.acknowledged

    def loops(self) -> list[ProcessLoop | None]:
        """The event loops of all clients."""
        return [client.loop for client in self.everybody()]

    def everybody(self) -> list[Client]:
        """Every client process."""
        return [self._admin, self._last, *self.clients]

    async def _nothing(self, client: Client) -> None:
        """The main function of the admin's process, which only provides a host on the network."""

    async def prepare(self) -> None:
        """Create the topics."""
        options = self.world.options
        self._admin.boot()
        configs = {"min.insync.replicas": str(min(options.min_isr, options.replication_factor)), **options.topic}
        async with self.admin() as admin:
            for name in (TOPIC, TRANSFERS) if options.transactors else (TOPIC,):
                await admin.create_topic(
                    name, partitions=options.partitions, replication_factor=options.replication_factor, configs=configs
                )
            if options.has_dead_letters:
                await admin.create_topic(
                    dead_letters.TOPIC, partitions=options.partitions, replication_factor=options.replication_factor,
                    configs={"min.insync.replicas": configs["min.insync.replicas"], **dead_letters.TOPIC_CONFIGS},
                )  # fmt: skip
            if options.share_members:
                own = dead_letters.GROUP_CONFIGS if options.has_dead_letters else {}
                changes = {"share.auto.offset.reset": "earliest", **own}
                await admin.alter_configs(GROUP_RESOURCE, SHARERS, [("set", name, value) for name, value in changes.items()])

    def admin(self, timeout_ms: int = 10_000) -> Maintenance:
        """An admin client; use it on the world's own loop."""
        network = self.world.fabric.network("admin", self.world.loop)
        return Maintenance(self.world.bootstrap, network=network, timeout_ms=timeout_ms)

    def start(self) -> None:
        """Begin the load."""
        options = self.world.options
        mains = [("producer", self._produce, options.producers), ("reader", self._read, options.readers),
                 ("member", self._join, options.group_members),
                 ("consumer", self.consumer_members.run, options.consumer_members - options.static_members),
                 ("sharer", self.share_members.run, options.share_members),
                 ("letters", self.letter_reader.run, int(options.has_dead_letters)),
                 ("streamer", self.streams_members.run, options.streams_members),
                 (STATIC, self.consumer_members.run, options.static_members), ("transactor", self.transactors.write, options.transactors),
                 ("committed", self.transactors.read, options.committed_readers),
                 ("hasty", self.transactors.write_hastily, options.hasty_writers)]  # fmt: skip
        for name, main, count in mains:
            for number in range(count):
                client = Client(self.world, f"{name}-{number}", main)
                self.clients.append(client)
                client.boot()

    # -- producers -------------------------------------------------------------------------------------------------

    def _producer(self, client: Client, delivery_timeout_ms: int) -> Producer:
        options = self.world.options
        make = Producer if options.gather_s is None else partial(GatheringProducer, gather_s=options.gather_s)
        return make(
            self.world.bootstrap, linger_ms=1, delivery_timeout_ms=delivery_timeout_ms, request_timeout_ms=min(delivery_timeout_ms, 5000),
            client_id=client.name, network=client.network, batch_size=options.batch_bytes_max,
        )  # fmt: skip

    async def _produce(self, client: Client) -> None:
        options = self.world.options
        producer = self._producer(client, options.delivery_timeout_ms)
        while not self.is_over:
            try:
                await producer.start()
                break
            except EXPECTED_ERRORS:
                await asyncio.sleep(0.2)
        while not self.is_over:
            partition = client.random.randrange(options.partitions)
            for _ in range(1 + client.random.randrange(options.batch_records_max)):
                await self._send(client, producer, partition)
                if options.gather_s is not None:
                    partition = client.random.randrange(options.partitions)
            await asyncio.sleep(client.random.expovariate(1.0) * options.pace_s)
        await producer.flush()
        await producer.close()

    async def _send(self, client: Client, producer: Producer, partition: int) -> Write:
        self._values += 1
        text = f"{client.life}/{self._values}"
        value = text.encode().ljust(self.world.options.value_bytes, b".")
        write = self.history.invoked(client.life, partition, value)
        now_ms = WALL_MS + int(self.world.now * 1000)
        try:
            future = await producer.send(TOPIC, value, partition=partition, timestamp_ms=now_ms)
        except EXPECTED_ERRORS as error:
            self.history.failed(write, type(error).__name__)
            return write

        def settled(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                self.history.acked(write, future.result().offset)
            else:
                self.history.failed(write, error.code.name if isinstance(error, DeliveryFailed) else type(error).__name__)

        future.add_done_callback(settled)
        return write

    # -- consumers -------------------------------------------------------------------------------------------------

    def _consumer(self, client: Client, **options: Any) -> Consumer:
        return Consumer(self.world.bootstrap, client_id=client.name, network=client.network, **options)

    async def _read(self, client: Client) -> None:
        consumer = self._consumer(client, auto_offset_reset="none")
        await self._persist(consumer.start)
        keys = [(TOPIC, index) for index in range(self.world.options.partitions)]
        await consumer.assign(keys, dict.fromkeys(keys, 0))
        expected = dict.fromkeys(range(self.world.options.partitions), 0)
        while True:
            try:
                records = await consumer.poll(timeout_ms=500)
            except BrokerError as error:
                if not error.code.retriable:
                    self.world.violate("S13", f"{client.name} is refused: {error}")
                await asyncio.sleep(0.05)
                continue
            except ClientError as error:
                if UNREADABLE in str(error) and self.world.chaos.has_rotted:
                    self.noticed += 1
                    continue
                self.world.violate("S13", f"{client.name}: {error}")
                return
            for record in records:
                self.consumed += 1
                if record.offset != expected[record.partition]:
                    self.world.violate(
                        "L8", f"{client.name} polled offset {record.offset} of {record.partition} after {expected[record.partition] - 1}"
                    )
                expected[record.partition] = record.offset + 1
                self.history.read(client.name, record.partition, record.offset, record.value or b"", record.leader_epoch)

    async def _join(self, client: Client) -> None:
        consumer = self._consumer(
            client, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=2000,
            heartbeat_interval_ms=500, rebalance_timeout_ms=3000,
        )  # fmt: skip
        await self._persist(consumer.start)
        await consumer.subscribe([TOPIC])
        commit_at = self.world.now + 1.0
        stored: dict[Any, int] = {}
        group = self.history.group(GROUP)
        while True:
            try:
                self.took(client.name, group, await consumer.poll(timeout_ms=500))
                if self.world.now >= commit_at:
                    commit_at = self.world.now + 1.0
                    # The cluster does not come to rest while a member commits the same offsets again and again.
                    offsets = {key: position for key in consumer.assignment if (position := consumer.position(key)) is not None}
                    if not self.is_over or offsets != stored:
                        await self._commit(group, consumer, offsets)
                        stored = offsets
            except EXPECTED_ERRORS:
                await asyncio.sleep(0.05)

    def group(self, name: str) -> GroupHistory:
        """What a group has read and committed."""
        return self.history.group(name)

    def took(self, name: str, group: GroupHistory, records: list[Any]) -> None:
        """A member of a group has polled records."""
        for record in records:
            self.consumed += 1
            self.history.read(name, record.partition, record.offset, record.value or b"", record.leader_epoch)
            group.read(record.partition, record.offset)

    async def _commit(self, group: GroupHistory, consumer: Consumer, offsets: dict[Any, int]) -> None:
        if not offsets:
            return
        attempts = [group.committing(index, offset) for (_, index), offset in offsets.items()]
        try:
            await consumer.commit(offsets)
        except BrokerError:
            return  # refused, or of unknown outcome
        for attempt in attempts:
            group.committed(attempt)

    async def _persist(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
                return
            except EXPECTED_ERRORS:
                await asyncio.sleep(0.2)

    # -- the end ---------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """After healing: wait until pending writes are settled, write one record to each partition, and read everything again."""
        world = self.world
        self.is_over = True
        while self.history.pending(self._living()) or self.transactors.is_pending(self._living()):
            await asyncio.sleep(0.1)
        self._last.boot()
        await asyncio.sleep(0)
        results: list[BaseException | None] = []

        async def guarded() -> None:
            try:
                await self._finish_there()
                results.append(None)
            except Exception as error:
                results.append(error)

        loop = self._last.loop
        assert loop is not None
        loop.call_soon(lambda: setattr(self, "_finishing", loop.create_task(guarded())))
        while not results and world.violation is None:
            await asyncio.sleep(0.05)
        if results and results[0] is not None:
            raise results[0]
        while not all(self.history.group(name).has_read(self.history.final) for name in self._groups()):
            await asyncio.sleep(0.1)
        await self._settle_shares()

    async def _settle_shares(self) -> None:
        deadline, fewest = self.world.now + SETTLING_S, len(self.history.final) + 1
        shares = self.world.invariants.shares
        while self.world.options.share_members and (left := shares.unsettled(self.history.final)):
            if len(left) < fewest:
                deadline, fewest = self.world.now + SETTLING_S, len(left)
            if self.world.now > deadline:
                self.world.violate("S28", f"{SHARERS} was never given {left[:5]}, or not as often as allowed")
                return
            await asyncio.sleep(0.1)
        await self._settle_letters(deadline)

    async def _settle_letters(self, deadline: float) -> None:
        # Once a bit has flipped, a leader may refuse to read what it should have copied, and a reader what was written.
        while self.world.options.has_dead_letters and not self.world.chaos.has_rotted and (missing := self.letters.missing()):
            if self.world.now > deadline:
                self.world.violate("S29", f"{missing[:5]} were given up, and are not in the dead-letter queue")
                return
            await asyncio.sleep(0.1)
        self.letters.judge(self.history.final)

    def _living(self) -> set[str]:
        return {client.life for client in self.clients if client.loop is not None and not client.loop.is_dead}

    def _groups(self) -> list[str]:
        """The groups that have members."""
        options = self.world.options
        return [name for name, count in ((GROUP, options.group_members), (CONSUMERS, options.consumer_members)) if count]

    async def _finish_there(self) -> None:
        client, history = self._last, self.history
        producer = self._producer(client, LAST_WRITE_TIMEOUT_MS)
        await producer.start()
        for index in range(self.world.options.partitions):
            write = await self._send(client, producer, index)
            await producer.flush()
            if write.offset is None:
                self.world.violate("L7", f"partition {index} takes no record although everything has healed: {write.error}")
        await producer.close()
        consumer = self._consumer(client, auto_offset_reset="none")
        await consumer.start()
        keys = [(TOPIC, index) for index in range(self.world.options.partitions)]
        ends = await consumer.offsets_for(dict.fromkeys(keys, LATEST))
        await consumer.assign(keys, dict.fromkeys(keys, 0))
        while any((consumer.position(key) or 0) < ends[key] for key in keys):
            for record in await consumer.poll(timeout_ms=1000):
                history.read(client.name, record.partition, record.offset, record.value or b"", record.leader_epoch)
                history.finally_read(record.partition, record.offset, record.value or b"")
        history.ends = {key[1]: end for key, end in ends.items()}
        await consumer.close()
        for name in self._groups():
            group, consumer = history.group(name), self._consumer(client, group_id=name, enable_auto_commit=False)
            await consumer.start()
            asked = group.clock
            group.stored = {key[1]: offset for key, offset in (await consumer.committed(keys)).items()}
            group.asked = (asked, group.clock)
            await consumer.close()
        if self.world.options.transactors:
            await self.transactors.finish(client)

    def judge(self) -> None:
        """Compare the history with the logs."""
        self.history.judge()
        self.transactors.judge()
