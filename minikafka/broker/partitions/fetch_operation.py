"""One fetch from its request to its response: read, perhaps park until there is enough, send file regions (DelayedFetch)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.partitions.fetch_read import FetchParams, PartitionRead, PartitionReader, end_offset_of
from minikafka.broker.partitions.fetch_steps import FetchInSteps, FetchTurns, Steps, StepsOf
from minikafka.core.fetch_session import FetchContext
from minikafka.net.socket_writer import SENDFILE_BYTES_MIN
from minikafka.storage.cold_reads import Look
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable

    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.fetch_session import FetchSessionCache

_PartitionData = FetchResponse.PartitionData
#: The budget of a step, and the costs of its actions: read a partition, find it still empty, check it for new data, watch it, describe
#: it in the response, find no news of it. The unit is about 0.3 µs. A check of one of ten thousand partitions finds nothing in the caches.
STEP_COST = 16_384
#: What a parked fetch of fewer partitions keeps is not counted.
FEW_READS = 32
#: What a fetch that waits keeps in memory for each partition: what it asked for and what was read, ten times the bytes of the request.
READ_BYTES = 384
#: With these Apache Kafka does not ask the log, and its answer has an empty list of aborted transactions instead of none.
NOT_READ = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
READ_COST, EMPTY_COST, LOOK_COST, WATCH_COST, ANSWER_COST, NO_NEWS_COST = 96, 6, 8, 6, 24, 3


class FetchHost(Protocol):
    """What a fetch needs from the broker."""

    replicas: ReplicaManager
    metadata: MetadataHost
    reader: PartitionReader
    sessions: FetchSessionCache
    turns: FetchTurns
    fetch_bytes_max: int
    now_ms: Callable[[], int]
    entry: Any

    def holds(self, partition: Partition | None) -> bool:
        """Whether this broker still has the partition."""

    def wait_ms(self, operation: FetchOperation) -> int:
        """How long a fetch may be parked, in ms."""

    def hint(self, context: RequestContext, read: PartitionRead, data: _PartitionData, response: FetchResponse) -> None:
        """Name the leader in the response."""


_NOTHING = FetchContext(None, (), False)


class FetchOperation(FetchInSteps):
    """One fetch."""

    __slots__ = ("_before", "_broker", "_by_key", "_bytes", "_is_settled", "fetch_context", "params", "reads", "request")

    def __init__(self, broker: FetchHost, context: RequestContext, request: FetchRequest, params: FetchParams) -> None:
        super().__init__(context, broker.turns)
        self._broker = broker
        self.request = request
        self.params = params
        self.fetch_context = _NOTHING
        self.reads: list[PartitionRead] = []
        #: What was read when the fetch was parked, while it is read again.
        self._before: list[PartitionRead] = []
        #: The size of all records that were read, and whether one of the reads must be answered now, however little there is.
        self._bytes, self._is_settled = 0, False
        #: The reads by `Partition.key`, made when they are asked for.
        self._by_key: dict[Hashable, PartitionRead] | None = None

    def abandon(self) -> None:
        """Drop the fetch and everything that it holds."""
        self.is_done = True
        for read in self.reads:
            read.release()
        self._forget()

    def _forget(self) -> None:
        self.reads, self._before, self._by_key = [], [], None
        session = self.fetch_context.session
        self.fetch_context.partitions = []
        if session is not None and session.parked is self:
            session.parked = None

    def serving(self, context: Generator[None, None, FetchContext]) -> Steps:
        """Serve the request until it is answered or parked."""
        try:
            self.fetch_context = yield from context
        except ApiError as error:
            self.is_done = True
            self.context.respond(FetchResponse(error_code=error.code))
            return
        session = self.fetch_context.session
        parked = None if session is None else session.parked
        if isinstance(parked, FetchOperation) and not parked.is_done:
            # The client sent a new request in the session, so answer its parked one now; otherwise the new one would wait behind it.
            parked.expire()
        produces, request = self._broker.replicas.waiting.produces, self.request
        yield from self._own_turn()
        completions = produces.completions
        yield from self._reading()
        yield from self._own_turn()
        if request.max_wait_ms <= 0 or self._is_settled or self._bytes >= request.min_bytes or not self.reads:
            yield from self._responding()
            return
        if session is not None:
            session.parked = self
        # A follower's offsets may complete produces, whose coordinators may write to a partition that this fetch has already read.
        if produces.completions != completions and (yield from self.looking()):
            yield from self.answering()
            return
        # Partitions that were read in an earlier turn may have changed before they were watched.
        self._is_woken |= len(self.reads) * READ_COST > STEP_COST
        yield from self._parking()
        yield from self.until_nothing_happens()

    def _own_turn(self) -> Steps:
        """Leave what follows for another turn if there are very many partitions: the step before has taken its time, too."""
        if len(self.fetch_context.partitions) * READ_COST > STEP_COST:
            yield None

    def _parking(self) -> Steps:
        """Park the fetch under every partition."""
        keys: list[Hashable] = [read.partition.key for read in self.reads if read.partition is not None]
        waiting, some = self._broker.replicas.waiting, STEP_COST // WATCH_COST
        if len(keys) >= FEW_READS:
            self.context.keep(READ_BYTES * len(keys))
        waiting.park(waiting.fetches, self, keys[:some], self._broker.wait_ms(self))
        for begin in range(some, len(keys), some):
            yield None
            waiting.fetches.watch(self, keys[begin : begin + some])

    def answering(self) -> Steps:
        """Read what is there, and answer."""
        yield from self._own_turn()
        self._begin_reading()
        yield from self._reading()
        yield from self._own_turn()
        yield from self._responding()

    def looking(self) -> StepsOf[bool]:
        """Whether to answer now."""
        gathered, left, min_bytes = 0, STEP_COST, max(self.request.min_bytes, 1)
        for read in self.reads:
            found = self._change_of(read)
            if found is None:
                found = -1 if min_bytes == 1 else (yield from self.look_up(partial(self._gathered_from, read)))
            if found < 0:
                return True
            gathered += found
            left -= LOOK_COST
            if left <= 0:
                left = STEP_COST
                yield None
        return gathered >= min_bytes

    def is_due_by(self, key: Hashable) -> bool | None:
        """A fetch for which any bytes are enough, such as a follower's, looks at the partition alone: looking at all of them for each that
        changes took minutes of those that a leader of 10,000 has."""
        if self.request.min_bytes > 1:
            return None
        if self._by_key is None:
            self._by_key = {read.partition.key: read for read in self.reads if read.partition is not None}
        read = self._by_key.get(key)
        return None if read is None else self._change_of(read) != 0

    def _change_of(self, read: PartitionRead) -> int | None:
        """0 if there is nothing new, -1 if a change of the partition is reason enough to answer, None if there are records."""
        partition = read.partition
        if partition is None or not self._broker.holds(partition):
            return -1
        if partition.log.failure is not None or partition.leader_epoch != read.leader_epoch:
            return -1
        if partition.leader is None and (self.params.is_follower or not self.params.may_read_follower):
            return -1
        if read.is_throttled:
            return 0
        offset = read.wanted.fetch_offset
        end = end_offset_of(partition, self.params)
        if end < offset and partition.log.log_end_offset < offset:
            return -1
        return 0 if end <= offset else None

    def _gathered_from(self, read: PartitionRead, look: Look) -> int:
        """The bytes available now; -1 if they are reason enough to answer."""
        partition = read.partition
        assert partition is not None
        try:
            with look:
                stop = partition.log.offset_position(end_offset_of(partition, self.params))
                if read.position is None:
                    read.position = partition.log.offset_position(read.wanted.fetch_offset)
            start = read.position
        except (ApiError, StorageError):
            return -1
        if start.segment_base_offset != stop.segment_base_offset:
            return -1
        return min(stop.file_position - start.file_position, read.wanted.max_bytes)

    # -- reading and answering -------------------------------------------------------------------------------------

    def _begin_reading(self) -> None:
        """Forget what was read. After parking, only partitions are read again that have data now; a follower's fetch offset was recorded
        when its request came (readFromPurgatory)."""
        before = self._before = self.reads
        for read in before:
            read.release()
        self.reads, self._by_key = [], None
        self._bytes, self._is_settled = 0, False

    def _reading(self) -> Steps:
        """Read all partitions."""
        while (yield from self.look_up(self._read_some)):
            yield None

    def _read_some(self, look: Look) -> bool:
        """Read some more partitions. Returns whether others are left for another step. Raises NotInMemory, and then goes on if it is called
        again."""
        broker, params, before, reads = self._broker, self.params, self._before, self.reads
        image, now_ms = broker.metadata.image, broker.now_ms()
        bytes_max = self.request.max_bytes if params.is_follower else min(self.request.max_bytes, broker.fetch_bytes_max)
        partitions, left = self.fetch_context.partitions, STEP_COST
        for number in range(len(reads), len(partitions)):
            if left <= 0:
                return True
            if before and broker.holds(before[number].partition) and before[number].is_still_empty(params):
                reads.append(before[number])
                left -= EMPTY_COST
                continue
            read = broker.reader.read(partitions[number], params, max(bytes_max - self._bytes, 0), not self._bytes, now_ms, image, look)
            reads.append(read)
            left -= READ_COST
            self._bytes += read.size
            if read.settles:
                self._is_settled = True
        params.is_noted = True
        self._before = []
        return False

    def _responding(self) -> Steps:
        """Send the response."""
        self.is_done = True
        pause_ms = 0
        if self.context.limits is not None and not self.params.is_follower:
            pause_ms = self.context.fetched(sum(read.size for read in self.reads))  # type: ignore[attr-defined]
        if pause_ms > 0:
            response = self._held_back(pause_ms)
        else:
            cold = [read.slice for read in self.reads if read.is_cold and read.slice is not None]
            if cold:
                yield self._turns.cold_reads.read_slices(cold)
            response = FetchResponse(session_id=self.fetch_context.session_id)
            number = 0
            while (number := self._describe_some(response, number)) < len(self.reads):
                yield None
        self._forget()
        self.context.respond(response)

    def _held_back(self, pause_ms: int) -> FetchResponse:
        """The empty response for a consumer above its quota (KIP-219). A new session is not created: the client would take an empty first
        response for one that leaves its partitions out."""
        for read in self.reads:
            read.release()
        fetch_context = self.fetch_context
        if fetch_context.session is not None and not fetch_context.is_incremental:
            self._broker.sessions.drop(fetch_context.session)
            fetch_context.session = None
        return FetchResponse(throttle_time_ms=pause_ms, session_id=fetch_context.session_id)

    def _describe_some(self, response: FetchResponse, first: int) -> int:
        """Add some more partitions to the response, in the order of the request, from number `first` on. Returns the number of the next.
        A topic that the request names twice appears twice (FetchResponse.toMessage)."""
        fetch_context, by_id, left = self.fetch_context, self.params.by_id, STEP_COST
        session, topics = fetch_context.session, response.responses
        for number in range(first, len(self.reads)):
            if left <= 0:
                return number
            read = self.reads[number]
            left -= NO_NEWS_COST
            wanted = read.wanted
            size = read.size
            if session is not None:
                news = wanted.is_news(
                    read.high_watermark,
                    read.log_start_offset,
                    has_more=size > 0 or read.preferred >= 0,
                    is_rest_ignored=read.code is not ErrorCode.NONE or read.diverging is not None,
                )
                if fetch_context.is_incremental and not news:
                    continue
            left -= ANSWER_COST
            if not topics or (topics[-1].topic_id != wanted.topic_id if by_id else topics[-1].topic != wanted.topic):
                topics.append(FetchResponse.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id))
            topics[-1].partitions.append(self._partition_data(read, response))
            if size:
                fetch_context.served(wanted)
                if self.params.is_follower:
                    self._broker.replicas.replication_bytes_out += size
                elif read.partition is not None:
                    read.partition.bytes_out += size
        return len(self.reads)

    def _records(self, read: PartitionRead) -> Any:
        """What to send of a partition: a file region, or bytes if there are few in all, since that costs less."""
        if read.slice is None:
            return b""
        if self._bytes >= SENDFILE_BYTES_MIN:
            return read.slice
        try:
            return read.slice.read()
        except OSError:
            read.code = ErrorCode.KAFKA_STORAGE_ERROR
            return b""
        finally:
            read.slice.release()

    def _partition_data(self, read: PartitionRead, response: FetchResponse) -> _PartitionData:
        records = self._records(read)
        data = _PartitionData(
            partition_index=read.wanted.index,
            error_code=read.code,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            preferred_read_replica=read.preferred,
            records=records,
        )
        if read.aborted is not None:
            data.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in read.aborted
            ]
        elif read.code not in NOT_READ:
            data.aborted_transactions = None
        if read.diverging is not None:
            data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
        if read.code is not ErrorCode.NONE:
            self._broker.entry.count_error(read.code)
        if read.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            self._broker.hint(self.context, read, data, response)
        return data
