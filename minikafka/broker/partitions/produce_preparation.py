"""Prepares, in a thread, Produce batches that must be inspected or converted and are too long for a turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from minikafka.broker.front.named_twice import last_of_each
from minikafka.broker.partitions import log_flush
from minikafka.broker.partitions.log_flush import SYNCS_BEFORE_ROLL
from minikafka.broker.partitions.produce_answer import TOPIC_ID_VERSION_MIN
from minikafka.storage.errors import StorageError
from minikafka.storage.validation import Fitting
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.produce_handover import ServedHere
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.storage.log import Log
    from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

#: Partition -> the result of preparing its batch, or the error for which it must not be appended.
Prepared = dict[object, "Fitting | ApiError"]
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


class Preparation:
    """Invariant: requests of a connection are appended in order, so the connection accepts no request while one is being prepared."""

    def __init__(self, replicas: ReplicaManager, work: HeavyWork, wall_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._work = work
        self._wall_ms = wall_ms

    def heavy(self, context: RequestContext | ServedHere, request: ProduceRequest) -> Heavy:
        """The partitions of a request whose batches must be prepared."""
        found: Heavy = []
        wall_ms = self._wall_ms()
        by_id: Mapping[tuple[Any, int], Partition] = self._replicas.partitions_by_id
        by_name: Mapping[tuple[Any, int], Partition] = self._replicas.partitions
        for topic in request.topic_data:
            name, found_by = (topic.topic_id, by_id) if context.api_version >= TOPIC_ID_VERSION_MIN else (topic.name, by_name)
            for data in topic.partition_data:
                partition = found_by.get((name, data.index))
                if partition is None or data.records is None or partition.leader is None or partition.log.failure is not None:
                    continue
                log, records = partition.log, cast("memoryview", data.records)
                is_heavy = log.is_heavy(records)
                if is_heavy or log.must_sync_first(records, wall_ms):
                    found.append((partition, data, is_heavy))
        return found

    def start(
        self,
        context: RequestContext,
        request: ProduceRequest,
        heavy: Heavy,
        go_on: Callable[[Prepared], ProduceResponse | None],
    ) -> None:
        """Prepare the batches, put them into the request, call `go_on` with the results, and send the response that it returns."""
        context.connection.keep_frame()
        context.connection.hold()
        self._work.start(self._prepare(context, heavy, go_on), "a produce", context.connection)

    async def _prepare(self, context: RequestContext, heavy: Heavy, go_on: Callable[[Prepared], ProduceResponse | None]) -> None:
        prepared: Prepared = {}
        try:
            for partition, data, is_heavy in heavy:
                try:
                    if is_heavy:
                        data.records = await self._work.run(partition.log.prepare, data.records, self._wall_ms())
                        prepared[partition.key] = Fitting.DONE
                    await self._sync_first(partition.log, cast("memoryview", data.records))
                except ApiError as error:
                    prepared[partition.key] = error
            response = go_on(prepared)
        finally:
            context.connection.go_on()
        if response is not None:
            context.respond(response)

    async def _sync_first(self, log: Log, records: memoryview) -> None:
        """Flush a log that must be synced before a new segment begins. Others may append meanwhile, but not for ever: then the roll syncs.
        Raises ApiError."""
        try:
            for _ in range(SYNCS_BEFORE_ROLL):
                if not log.must_sync_first(records, self._wall_ms()):
                    return
                await log_flush.flush(log, self._work.run)
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
