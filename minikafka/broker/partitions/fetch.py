"""Fetch (API key 1) of consumers and followers: sessions, parking until there is enough, file regions instead of bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.fetch_lane import FetchLane
from minikafka.broker.partitions.fetch_read import CONSUMER, FetchParams, PartitionRead, PartitionReader, end_offset_of
from minikafka.broker.partitions.leader_hint import name_leader
from minikafka.core.fetch_session import FetchContext, FetchSessionCache
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable

    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost

REPLICA_STATE_VERSION_MIN = 15
TOPIC_ID_VERSION_MIN = 13
FOLLOWER_READ_VERSION_MIN = 11
LEADER_HINT_VERSION_MIN = 12
ENDPOINTS_VERSION_MIN = 16
_PartitionData = FetchResponse.PartitionData
#: How long a follower's fetch waits while no controller answers this broker. A leader is believed for FOLLOWED_MS after a fetch that
#: another one followed: both have room.
UNHEARD_WAIT_MS = 250
#: When followers whose fetches have been answered early are answered again. Two fetches prove that they follow, and what they prove is
#: to be known before half of minikafka.heartbeat.reconnect.ms is over.
SECOND_ASKING_MS = 20


class _Fetch:
    """One fetch: reads, perhaps parks, reads again and answers (DelayedFetch)."""

    __slots__ = ("_handlers", "context", "fetch_context", "is_done", "params", "reads", "request")

    def __init__(
        self, handlers: FetchHandlers, context: RequestContext, request: FetchRequest, fetch_context: FetchContext, params: FetchParams
    ) -> None:
        self._handlers = handlers
        self.context = context
        self.request = request
        self.fetch_context = fetch_context
        self.params = params
        self.reads: list[PartitionRead] = []
        self.is_done = False

    def close(self, reason: str) -> None:
        """It failed inside: the client is told by the end of its connection."""
        self.context.close(reason)

    def read(self) -> int:
        """Read every partition; the bytes gathered, or -1 when the answer must leave at once. After parking, only those that have
        something by now: what a fetch says of a follower was noted when it came (readFromPurgatory)."""
        before = self.reads
        for read in before:
            read.release()
        handlers = self._handlers
        image = handlers.metadata.image
        now_ms = handlers.now_ms()
        bytes_left = self.request.max_bytes
        if not self.params.is_follower:
            bytes_left = min(bytes_left, handlers.fetch_bytes_max)
        gathered, settled, at_least_one = 0, False, True
        self.reads = []
        for number, wanted in enumerate(self.fetch_context.partitions):
            if before and handlers.holds(before[number].partition) and before[number].is_still_empty(self.params):
                self.reads.append(before[number])
                continue
            read = handlers.reader.read(wanted, self.params, bytes_left, at_least_one, now_ms, image)
            self.reads.append(read)
            size = read.size
            if size:
                at_least_one = False
                gathered += size
                bytes_left = max(bytes_left - size, 0)
            settled = settled or read.settles
        self.params.is_noted = True
        return -1 if settled else gathered

    @property
    def keys(self) -> list[Hashable]:
        """The partitions whose changes may complete the fetch."""
        return [read.partition.key for read in self.reads if read.partition is not None]

    def try_complete(self) -> bool:
        """Answer if enough has gathered, or if what was parked does not stand any more. Byte counts come from positions, nothing is
        read."""
        if not self._is_due():
            return False
        self.read()
        self.respond()
        return True

    def _is_due(self) -> bool:
        gathered, min_bytes = 0, max(self.request.min_bytes, 1)
        for read in self.reads:
            partition = read.partition
            if partition is None or not self._handlers.holds(partition):
                return True
            if partition.log.failure is not None or partition.leader_epoch != read.leader_epoch:
                return True
            if partition.leader is None and (self.params.is_follower or not self.params.may_read_follower):
                return True
            if read.is_throttled:
                continue
            offset = read.wanted.fetch_offset
            end = end_offset_of(partition, self.params)
            if end < offset and partition.log.log_end_offset < offset:
                return True
            if end <= offset:
                continue
            if min_bytes == 1:
                return True
            try:
                stop = partition.log.offset_position(end)
                start = read.position if read.position is not None else partition.log.offset_position(offset)
            except (ApiError, StorageError):
                return True
            if start.segment_base_offset != stop.segment_base_offset:
                return True
            gathered += min(stop.file_position - start.file_position, read.wanted.max_bytes)
        return gathered >= min_bytes

    def expire(self) -> None:
        """max.wait.ms has passed: answer with what there is."""
        self.read()
        self.respond()

    def respond(self) -> None:
        """Send the answer."""
        self.is_done = True
        session = self.fetch_context.session
        if session is not None and session.parked is self:
            session.parked = None
        if self.context.limits is not None and not self.params.is_follower:
            pause_ms = self.context.fetched(sum(read.size for read in self.reads))  # type: ignore[attr-defined]
            if pause_ms > 0:
                self._respond_held_back(pause_ms)
                return
        self.context.respond(self._response())

    def _respond_held_back(self, pause_ms: int) -> None:
        """A consumer that is above its quota gets nothing now (KIP-219). A session that is only beginning does not begin: the client takes
        an empty first answer for one that leaves partitions out."""
        for read in self.reads:
            read.release()
        fetch_context = self.fetch_context
        if fetch_context.session is not None and not fetch_context.is_incremental:
            self._handlers.sessions.drop(fetch_context.session)
            fetch_context.session = None
        self.context.respond(FetchResponse(throttle_time_ms=pause_ms, session_id=fetch_context.session_id))

    def _response(self) -> FetchResponse:
        fetch_context = self.fetch_context
        response = FetchResponse(session_id=fetch_context.session_id)
        # In the order of the request: a topic that stands in it twice stands in the answer twice (FetchResponse.toMessage).
        topic, last = FetchResponse.FetchableTopicResponse(), None
        for read in self.reads:
            wanted = read.wanted
            size = read.size
            if fetch_context.session is not None:
                news = wanted.is_news(
                    read.high_watermark,
                    read.log_start_offset,
                    has_more=size > 0 or read.preferred >= 0,
                    is_rest_ignored=read.code is not ErrorCode.NONE or read.diverging is not None,
                )
                if fetch_context.is_incremental and not news:
                    continue
            identity: object = wanted.topic_id if self.params.by_id else wanted.topic
            if identity != last:
                last, topic = identity, FetchResponse.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
                response.responses.append(topic)
            topic.partitions.append(self._partition_data(read, response))
            if size:
                fetch_context.served(wanted)
                if self.params.is_follower:
                    self._handlers.replicas.replication_bytes_out += size
                elif read.partition is not None:
                    read.partition.bytes_out += size
        return response

    def _partition_data(self, read: PartitionRead, response: FetchResponse) -> _PartitionData:
        data = _PartitionData(
            partition_index=read.wanted.index,
            error_code=read.code,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            preferred_read_replica=read.preferred,
            records=b"" if read.slice is None else read.slice,
        )
        if read.aborted is not None:
            data.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in read.aborted
            ]
        else:
            data.aborted_transactions = None
        if read.diverging is not None:
            data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
        if read.code is not ErrorCode.NONE:
            self._handlers.entry.count_error(read.code)
        if read.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            self._handlers.hint(self.context, read, data, response)
        return data


#: (context, whether a broker fetches) -> whether a topic must not be read; None: all may be.
Judge = Callable[["RequestContext", bool], Callable[[str], bool] | None]


class FetchHandlers:
    """Serves Fetch on a broker listener."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        environment: Environment,
        judge: Judge | None = None,
    ) -> None:
        """`judge`, with an authorizer: says which topics a request must not read."""
        self.replicas = replicas
        self.metadata = metadata
        self.now_ms = environment.clock.now_ms
        self.fetch_bytes_max: int = config.fetch_max_bytes
        self.reader = PartitionReader(replicas, config.is_rack_aware)
        self._judge = judge
        self._supervisor = environment.supervisor
        self._asking: asyncio.TimerHandle | None = None
        self.entry: Any = None
        #: How many of the requests were followers', by version.
        self.follower_counts: list[int] = []
        random = environment.random
        self.sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, lambda: random.randrange(1, 0x7FFFFFFF))

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve Fetch."""
        entry = self.entry = dispatcher.register(FetchRequest, self.fetch)
        self.follower_counts = [0] * len(entry.counts)
        dispatcher.lanes[FetchRequest.API_KEY] = partial(
            FetchLane, self.replicas, self.fetch_bytes_max, self.reader.is_rack_aware, entry
        )

    def ask_followers(self) -> None:
        """No controller hears this broker: answer fetches of followers that wait now, and once more in a moment, so that who follows says
        so."""
        self._answer_followers()
        if self._asking is None:
            self._asking = self._supervisor.call_later(SECOND_ASKING_MS / 1000, "asking followers", self._ask_again)

    def _ask_again(self) -> None:
        self._asking = None
        if self.replicas.is_unheard():
            self._answer_followers()

    def _answer_followers(self) -> None:
        self.replicas.waiting.fetches.expire_those(lambda fetch: isinstance(fetch, _Fetch) and fetch.params.is_follower)

    def holds(self, partition: Partition | None) -> bool:
        """Whether a partition is still one of this broker's."""
        return partition is not None and self.replicas.partitions.get(partition.key) is partition

    def _name_of(self, topic_id: bytes) -> str | None:
        topic = self.metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
        """Answer at once when there is enough, nothing to wait for or something to say; else park."""
        version = context.api_version
        if version >= REPLICA_STATE_VERSION_MIN:
            replica_id, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        else:
            replica_id, broker_epoch = request.replica_id, -1
        if replica_id >= 0:
            self.follower_counts[version] += 1
        if context.sample is not None:
            context.sample.name = "FetchFollower" if replica_id >= 0 else "FetchConsumer"
        if context.limits is not None:
            _limit(context, request, replica_id >= 0)
        try:
            fetch_context = self.sessions.context(
                request, version, is_follower=replica_id >= 0, name_of=self._name_of, now_ms=self.now_ms()
            )
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        params = FetchParams(
            replica_id if replica_id >= 0 else CONSUMER,
            broker_epoch,
            request.isolation_level,
            request.rack_id,
            by_id=version >= TOPIC_ID_VERSION_MIN,
            may_read_follower=version >= FOLLOWER_READ_VERSION_MIN,
            listener=context.listener,
            is_denied=None if self._judge is None else self._judge(context, replica_id >= 0),
        )
        session = fetch_context.session
        if session is not None and session.parked is not None:
            # The client has news for its session: what it parked before is answered now, or its news would wait behind it.
            parked = session.parked
            assert isinstance(parked, _Fetch)
            if not parked.is_done:
                parked.expire()
        fetch = _Fetch(self, context, request, fetch_context, params)
        completions = self.replicas.waiting.produces.completions
        gathered = fetch.read()
        if request.max_wait_ms <= 0 or gathered < 0 or gathered >= request.min_bytes or not fetch.reads:
            fetch.respond()
            return None
        if session is not None:
            session.parked = fetch
        # What a follower's offsets let complete may have written, as a coordinator does, to a partition that had been read before.
        if self.replicas.waiting.produces.completions != completions and fetch.try_complete():
            return None
        self._park(fetch)
        return None

    def _park(self, fetch: _Fetch) -> None:
        wait_ms = fetch.request.max_wait_ms
        if fetch.params.is_follower and self.replicas.is_unheard():
            wait_ms = min(wait_ms, UNHEARD_WAIT_MS)
        self.replicas.waiting.park(self.replicas.waiting.fetches, fetch, fetch.keys, wait_ms)

    def hint(self, context: RequestContext, read: PartitionRead, data: _PartitionData, response: FetchResponse) -> None:
        """Tell who leads, so that the client need not ask for metadata (KIP-951)."""
        if context.api_version < LEADER_HINT_VERSION_MIN:
            return
        image, wanted = self.metadata.image, read.wanted
        name_leader(
            image, image.topics_by_name.get(wanted.topic), wanted.index, context.listener, data, response,
            with_endpoint=context.api_version >= ENDPOINTS_VERSION_MIN,
        )  # fmt: skip


def _limit(context: Any, request: FetchRequest, is_follower: bool) -> None:
    """Followers have throttles of their own. No answer is larger than what the client may have in a window of its quota."""
    if is_follower:
        context.exempt()
    elif context.limits.fetch is not None:
        request.max_bytes = min(request.max_bytes, context.limits.fetch.window_bytes)
        request.min_bytes = min(request.min_bytes, request.max_bytes)
