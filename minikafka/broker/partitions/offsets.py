"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from minikafka.broker.front.named_twice import last_of_each
from minikafka.broker.partitions.fetch_read import READ_COMMITTED
from minikafka.storage.cold_reads import NotInMemory, looking
from minikafka.storage.errors import StorageError
from minikafka.storage.timestamp_lookup import TimestampCandidate
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode
from minikafka.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from minikafka.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minikafka.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.storage.timestamp_lookup import TimestampScan
    from minikafka.storage.types import TimestampOffset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
#: Special timestamp -> first version of ListOffsets that has it (KIP-734, KIP-405, KIP-1005, KIP-1023).
SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
OFFSET_NOT_AVAILABLE_VERSION_MIN = 5
LEADER_EPOCH_VERSION_MIN = 4
CONSUMER = -1
DEBUG_CONSUMER = -2
TO_HIGH_WATERMARK = -1
_OffsetAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse
#: What a search by timestamp waits for: bytes, or a computation.
LookupWork = NotInMemory | Callable[[], "TimestampOffset | None"]
LookupSteps = Generator[LookupWork, "TimestampOffset | None", None]


class _Lookup:
    """Searches for a record by its timestamp, batch by batch. The log may change between two steps, so each step looks at it again."""

    def __init__(self, partition: Partition, timestamp: int, end: int, late: ErrorCode | None, answer: _OffsetAnswer) -> None:
        """Records from `end` on are not reported; if one of them would be the answer, the answer is the error `late`, if given."""
        self.answer = answer
        self.log = partition.log
        self._timestamp = timestamp
        self._end = end
        self._late = late

    def steps(self) -> LookupSteps:
        """The search. Yields what has to be read through, and work that takes long, whose result is sent. Raises ApiError, StorageError,
        CorruptRecord."""
        log, is_maximum, from_offset = self.log, self._timestamp == MAX_TIMESTAMP, self.log.log_start_offset
        size_max, found = log.decompressed_bytes_max, None
        while found is None:
            candidate = yield from looking(log.max_timestamp_candidate if is_maximum else partial(self._next, from_offset))
            if candidate is None:
                break
            find = partial(candidate.largest if isinstance(candidate, TimestampCandidate) and is_maximum else candidate.find, size_max)
            try:
                found = (yield find) if candidate.is_heavy else find()
            finally:
                candidate.release()
            from_offset = candidate.next_offset
        self._settle(found)

    def _next(self, from_offset: int) -> TimestampCandidate | TimestampScan | None:
        return self.log.timestamp_candidate(self._timestamp, from_offset)

    def _settle(self, found: TimestampOffset | None) -> None:
        answer = self.answer
        if found is None or found.offset >= self._end:
            if found is not None and self._late is not None:
                raise ApiError(self._late)
            answer.timestamp, answer.offset, answer.leader_epoch = -1, -1, -1
            return
        answer.timestamp, answer.offset, answer.leader_epoch = found.timestamp, found.offset, found.leader_epoch


#: A look-up, its search, and the work that it waits for; None if it has not begun.
_Unfinished = tuple[_Lookup, LookupSteps, LookupWork | None]


def _sent(steps: LookupSteps, result: TimestampOffset | None) -> LookupWork:
    """The next work of a search. Raises StopAsyncIteration at its end, since a coroutine may not raise StopIteration."""
    try:
        return steps.send(result)
    except StopIteration:
        raise StopAsyncIteration from None


@contextlib.contextmanager
def _as_errors_of(answer: _OffsetAnswer, version: int) -> Iterator[None]:
    """Turn exceptions into errors in a partition's answer."""
    try:
        yield
    except ApiError as error:
        answer.error_code = _for_version(error.code, version)
    except StorageError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    except CorruptRecord:
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
    if version < LEADER_EPOCH_VERSION_MIN:
        answer.leader_epoch = -1


class _DelayedDelete:
    """A DeleteRecords request that waits until all live replicas have advanced their log start."""

    __slots__ = ("_alive", "_context", "_response", "_waiting", "is_done")

    def __init__(self, context: RequestContext, response: DeleteRecordsResponse, alive: object) -> None:
        self._context = context
        self._response = response
        self._alive = alive
        self._waiting: list[tuple[Partition, int, DeleteRecordsResponse.DeleteRecordsPartitionResult]] = []
        self.is_done = False

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self._context.close(reason)

    def wait_for(self, partition: Partition, offset: int, result: DeleteRecordsResponse.DeleteRecordsPartitionResult) -> None:
        self._waiting.append((partition, offset, result))

    @property
    def keys(self) -> list[tuple[str, int]]:
        return [entry[0].key for entry in self._waiting]

    def try_complete(self, key: Hashable = None) -> bool:
        left = []
        for partition, offset, result in self._waiting:
            leader = partition.leader
            if leader is None:
                result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                continue
            low = leader.low_watermark(partition.log.log_start_offset, self._alive)  # type: ignore[arg-type]
            if low >= offset:
                result.low_watermark = low
            else:
                left.append((partition, offset, result))
        self._waiting = left
        if left:
            return False
        self.is_done = True
        self._context.respond(self._response)
        return True

    def expire(self) -> None:
        for _, _, result in self._waiting:
            result.error_code, result.low_watermark = ErrorCode.REQUEST_TIMED_OUT, -1
        self._waiting = []
        self.is_done = True
        self._context.respond(self._response)


class OffsetHandlers:
    """Serves ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataHost, environment: Environment, heavy_work: HeavyWork) -> None:
        self._replicas = replicas
        self._heavy_work = heavy_work
        self._metadata = metadata
        self._clock = environment.clock
        self._cold_reads = environment.cold_reads
        self._shares = environment.shares

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve these APIs on a broker listener."""
        dispatcher.register(ListOffsetsRequest, self.list_offsets)
        dispatcher.register(OffsetForLeaderEpochRequest, self.offset_for_leader_epoch)
        dispatcher.register(DeleteRecordsRequest, self.delete_records)

    # -- ListOffsets -----------------------------------------------------------------------------------------------

    def list_offsets(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse | None:
        """Offsets by timestamp, and special ones: latest, earliest, maximum timestamp, tiered storage. If records take long to decompress,
        or are not in memory, the answer follows later."""
        lookups: list[_Unfinished] = []
        is_over: Callable[[], bool] | None = None
        topics: dict[str, ListOffsetsResponse.ListOffsetsTopicResponse] = {}
        named = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
        for topic in request.topics:
            answered = topics.setdefault(topic.name, ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name))
            for wanted in topic.partitions:
                times = named.pop((topic.name, wanted.partition_index), 0)
                if times == 0:
                    continue
                answer = _OffsetAnswer(partition_index=wanted.partition_index)
                answered.partitions.append(answer)
                with _as_errors_of(answer, context.api_version):
                    if times > 1:
                        raise ApiError(ErrorCode.INVALID_REQUEST)
                    lookup = self._list_offset(context.api_version, request, topic.name, wanted, answer)
                    if lookup is None:
                        continue
                    steps, is_over = lookup.steps(), is_over or self._shares.begin()
                    # Even in what is in memory, searching hundreds of logs takes long.
                    is_late = is_over()
                    work = None if is_late else next(steps, None)
                    if is_late or work is not None:
                        lookups.append((lookup, steps, work))
        response = ListOffsetsResponse(topics=list(topics.values()))
        if lookups:
            self._heavy_work.start(self._look_up(context, response, lookups), "a look-up by time", context.connection)
            return None
        return response

    async def _look_up(self, context: RequestContext, response: ListOffsetsResponse, lookups: list[_Unfinished]) -> None:
        is_over = self._shares.begin()
        for lookup, steps, work in lookups:
            with _as_errors_of(lookup.answer, context.api_version), contextlib.suppress(StopAsyncIteration), contextlib.closing(steps):
                if is_over():
                    await asyncio.sleep(0)
                    is_over = self._shares.begin()
                while True:
                    work = _sent(steps, None if work is None else await self._done(lookup, work))
        context.respond(response)

    async def _done(self, lookup: _Lookup, work: LookupWork) -> TimestampOffset | None:
        """The result of work for a look-up."""
        if isinstance(work, NotInMemory):
            await self._cold_reads.read(work)
            return None
        with lookup.log.disk("look up a timestamp"):
            return await self._heavy_work.run(work)

    def _list_offset(
        self,
        version: int,
        request: ListOffsetsRequest,
        topic: str,
        wanted: ListOffsetsRequest.ListOffsetsPartition,
        answer: _OffsetAnswer,
    ) -> _Lookup | None:
        """Fill in the answer, or return the look-up by timestamp that is still to be done."""
        timestamp = wanted.timestamp
        if timestamp < 0 and timestamp not in (LATEST, EARLIEST) and version < SPECIAL_SINCE.get(timestamp, 1 << 15):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        partition = self._replicas.require(topic, None, wanted.partition_index)
        partition.check_epoch(wanted.current_leader_epoch)
        if request.replica_id != DEBUG_CONSUMER:
            partition.leading()
        log = partition.log
        end = log.log_end_offset
        if request.replica_id == CONSUMER:
            end = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer.offset = log.log_start_offset
            answer.leader_epoch = _epoch_at(partition, log.log_start_offset)
            return None
        if timestamp == LATEST_TIERED:
            answer.offset = -1
            return None
        if timestamp == EARLIEST_PENDING_UPLOAD:
            answer.offset = -1
            return None
        leader = partition.leader
        is_current = leader is None or leader.is_high_watermark_current
        if timestamp == LATEST:
            if request.replica_id == CONSUMER and not is_current:
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
            answer.offset = end
            answer.leader_epoch = partition.leader_epoch
            return None
        # As long as the leader does not know its high watermark, the consumer has to ask again.
        late = ErrorCode.OFFSET_NOT_AVAILABLE if request.replica_id == CONSUMER and not is_current else None
        return _Lookup(partition, timestamp, end, late, answer)

    # -- OffsetForLeaderEpoch --------------------------------------------------------------------------------------

    def offset_for_leader_epoch(self, context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """The end offset of an epoch in this log (KIP-101, KIP-279, KIP-320)."""
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=wanted.partition)
                answers.append(answer)
                try:
                    partition = self._replicas.require(topic.topic, None, wanted.partition)
                    partition.check_epoch(wanted.current_leader_epoch)
                    partition.leading()
                    answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
                except ApiError as error:
                    answer.error_code = error.code
            response.topics.append(OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return response

    # -- DeleteRecords ---------------------------------------------------------------------------------------------

    def delete_records(self, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
        """Advance the log start. Answered when the live replicas have followed, or after the timeout (KIP-107)."""
        for _ in last_of_each(request, ("topics", "partitions"), ("partition_index",)):
            pass
        response = DeleteRecordsResponse()
        delayed = _DelayedDelete(context, response, self._is_alive)
        for topic in request.topics:
            results = []
            for wanted in topic.partitions:
                result = DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
                results.append(result)
                try:
                    if topic.name.startswith("__cluster_metadata"):
                        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                    partition = self._replicas.require(topic.name, None, wanted.partition_index)
                    partition.leading()
                    offset = self._move_log_start(partition, wanted.offset)
                    delayed.wait_for(partition, offset, result)
                except ApiError as error:
                    result.error_code = error.code
            response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=results))
        if not delayed.try_complete():
            self._replicas.waiting.park(self._replicas.waiting.deletes, delayed, list(delayed.keys), max(request.timeout_ms, 0))
        return None

    def _move_log_start(self, partition: Partition, offset: int) -> int:
        log = partition.log
        if log.config.is_compacted and not log.config.is_deleted:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "records of a topic that is not cleaned by deletion cannot be deleted")
        if offset == TO_HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            if log.increment_log_start_offset(offset):
                log.delete_old_segments(self._clock.wall_ms())
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return offset

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_VERSION_MIN:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _epoch_at(partition: Partition, offset: int) -> int:
    found: int = partition.log.epochs.epoch_for_offset(offset)
    return found
