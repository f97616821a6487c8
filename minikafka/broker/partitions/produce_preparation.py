"""Prepares, in a thread, Produce batches that must be inspected or converted and are too long for a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from minikafka.broker import log_flush
from minikafka.broker.front.named_twice import last_of_each
from minikafka.broker.log_flush import SYNCS_BEFORE_ROLL
from minikafka.broker.partitions.prepared_memory import PreparedMemory
from minikafka.broker.partitions.produce_answer import TOPIC_ID_VERSION_MIN, appended_before, records_bytes
from minikafka.storage.errors import LogClosed, StorageError
from minikafka.storage.validation import Fitting
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.produce_handover import ServedHere
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.net.network import Connection
    from minikafka.net.turn_share import TurnShares
    from minikafka.storage.config import LogConfig
    from minikafka.storage.log import Log
    from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

#: Partition -> its batch was prepared, or the error for which it must not be appended.
Prepared = dict[object, "Ready | ApiError"]
#: Partitions whose batches must be prepared, each with whether the batch is heavy; the log of the others is flushed first.
Heavy = list["tuple[Partition, ProduceRequest.PartitionProduceData, bool]"]


def keep_last_of_each(request: ProduceRequest) -> None:
    """If a partition is named twice, its last records count, and nothing may look at the others, as in Kafka."""
    if _names_one_twice(request):
        for _ in last_of_each(request, ("topic_data", "partition_data"), ("index",)):
            pass  # long requests come in parts


def _names_one_twice(request: ProduceRequest) -> bool:
    topics = request.topic_data
    if len(topics) > 1 and len({(topic.name, topic.topic_id) for topic in topics}) < len(topics):
        return True
    for topic in topics:
        count = len(topic.partition_data)
        if count > 1 and len({data.index for data in topic.partition_data}) < count:
            return True
    return False


class Ready:
    """A batch that was checked and converted for a partition with a configuration."""

    __slots__ = ("_config", "_partition")

    def __init__(self, partition: Partition, config: LogConfig) -> None:
        self._partition = partition
        self._config = config

    def fitting(self, partition: Partition) -> Fitting:
        """How to append it to the partition that has the name now. After a change of the configuration, or of a topic that was made
        again, it is checked again, or refused if that takes long."""
        is_same = partition is self._partition and partition.log.config == self._config
        return Fitting.DONE if is_same else Fitting.ELSEWHERE


class Look:
    """Finds the partitions of a request whose batches must be prepared, in as many turns as that takes: a client may have made each of
    them so that the look at it takes as long as it can."""

    def __init__(self, replicas: ReplicaManager, context: RequestContext | ServedHere, request: ProduceRequest) -> None:
        self._replicas = replicas
        self._by_id = by_id = context.api_version >= TOPIC_ID_VERSION_MIN
        #: Bytes of all records.
        self.size = records_bytes(request)
        self.found: Heavy = []
        self._left: deque[tuple[tuple[Any, int], ProduceRequest.PartitionProduceData]] = deque()
        appended = appended_before(context.connection)
        for topic in request.topic_data:
            name = topic.topic_id if by_id else topic.name
            self._left += [((name, data.index), data) for data in topic.partition_data if (name, data.index) not in appended]
        #: Whether this turn's share is used up: the request goes on in another turn. A fast path has used it up if it has appended some.
        self.is_used_up = bool(appended)

    def go_on(self, wall_ms: int, shares: TurnShares) -> None:
        """Look at partitions until this turn's share is used up."""
        left, found_by = self._left, self._partitions()
        is_over = shares.begin() if len(left) > 1 else None
        self.is_used_up = False
        while left and not self.is_used_up:
            key, data = left.popleft()
            partition = found_by.get(key)
            if partition is not None:
                self._look_at(partition, data, wall_ms)
            self.is_used_up = is_over is not None and is_over()

    def _partitions(self) -> Mapping[Any, Partition]:
        return self._replicas.partitions_by_id if self._by_id else self._replicas.partitions

    def _look_at(self, partition: Partition, data: ProduceRequest.PartitionProduceData, wall_ms: int) -> None:
        if data.records is None or partition.leader is None or partition.log.failure is not None:
            return
        log, records = partition.log, cast("memoryview", data.records)
        is_heavy = log.is_heavy(records)
        if is_heavy or log.must_sync_first(records, wall_ms, 1):
            self.found.append((partition, data, is_heavy))


class Preparation:
    """Invariant: requests of a connection are appended in order. So the connection accepts no request while one is being prepared, and
    those that it had accepted before wait behind it (`under_way`)."""

    def __init__(self, replicas: ReplicaManager, work: HeavyWork, wall_ms: Callable[[], int], shares: TurnShares) -> None:
        self._replicas = replicas
        self._work = work
        self._wall_ms = wall_ms
        self._shares = shares
        self._memory = PreparedMemory()
        #: Connection -> the newest of its requests that are being prepared, which waits for the one before it. None of its others may
        #: be appended before these.
        self.under_way: dict[Connection, asyncio.Task[None]] = {}

    def look(self, context: RequestContext | ServedHere, request: ProduceRequest) -> Look:
        """Look for the partitions of a request whose batches must be prepared; `start` does the rest if that takes long."""
        look = Look(self._replicas, context, request)
        if not look.is_used_up:
            look.go_on(self._wall_ms(), self._shares)
        return look

    def start(self, context: RequestContext, look: Look, go_on: Callable[[Prepared], ProduceResponse | None]) -> None:
        """Finish the look, prepare the batches, put them into the request, call `go_on` with the results, and send the response that it
        returns."""
        context.keep(look.size)
        connection = context.connection
        connection.keep_frame()
        connection.hold()
        preparing = self._prepare(context, look, go_on, self.under_way.get(connection))
        task = self.under_way[connection] = self._work.start(preparing, "a produce", connection)
        task.add_done_callback(partial(self._ended, connection))

    def _ended(self, connection: Connection, task: asyncio.Task[None]) -> None:
        if self.under_way.get(connection) is task:
            del self.under_way[connection]

    async def _prepare(
        self,
        context: RequestContext,
        look: Look,
        go_on: Callable[[Prepared], ProduceResponse | None],
        earlier: asyncio.Task[None] | None,
    ) -> None:
        prepared: Prepared = {}
        self._memory.begin(look)
        try:
            if earlier is not None:
                await asyncio.wait([earlier])
            while look.is_used_up:
                await asyncio.sleep(0)
                look.go_on(self._wall_ms(), self._shares)
            for partition, data, is_heavy in look.found:
                try:
                    if is_heavy:
                        prepared[partition.key] = await self._prepare_one(context, look, partition, data)
                    await self._sync_first(partition.log, cast("memoryview", data.records))
                except ApiError as error:
                    prepared[partition.key] = error
            response = go_on(prepared)
        finally:
            self._memory.end(look)
            context.connection.go_on()
        if response is not None:
            context.respond(response)

    async def _prepare_one(
        self, context: RequestContext | ServedHere, look: Look, partition: Partition, data: ProduceRequest.PartitionProduceData
    ) -> Ready:
        """Prepare a batch. Raises ApiError."""
        records = cast("memoryview", data.records)
        async with self._memory.turn(look):
            config = partition.log.config
            made = data.records = await self._work.run(partition.log.prepare, records, self._wall_ms())
            if made.obj is not records.obj:
                context.keep(look.size + self._memory.add(look, len(made)))
        return Ready(partition, config)

    async def _sync_first(self, log: Log, records: memoryview) -> None:
        """Flush a log that must be synced before a new segment begins. Others may append meanwhile, but not for ever: then the roll syncs.
        Raises ApiError."""
        try:
            for _ in range(SYNCS_BEFORE_ROLL):
                if not log.must_sync_first(records, self._wall_ms(), 1):
                    return
                await log_flush.flush(log, self._work.run)
        except LogClosed:
            return  # a move has replaced it, and the append goes to the copy; or the append fails in the same way
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
