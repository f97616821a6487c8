"""Incremental fetch sessions (KIP-227): the leader remembers a client's partitions, so that both send only changes.

Rules: kafka.server.FetchSession and org.apache.kafka.common.requests.FetchMetadata of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from minikafka.steps import Steps, at_once
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.fetch import FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFFFFFF
EVICTION_MS = 120_000
#: Most partitions of one session, and of all sessions together. Beyond this a client fetches without a session.
PARTITIONS_MAX = 100_000
ALL_PARTITIONS_MAX = 1_000_000
TOPIC_NAME_MAX = 249
#: Partitions of a request that are processed in one step, at about 2 µs each.
STEP_PARTITIONS = 2048
PartitionKey = tuple[object, int]  # (topic name or topic id, partition)
#: Topic id -> name; None if the topic is not known.
NameOf = Callable[[bytes], "str | None"]


class FetchPartition:
    """One partition that a client fetches, with the state in the last answer."""

    __slots__ = (
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.max_bytes = 0
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def update(self, requested: FetchRequest.FetchPartition) -> None:
        """Adopt the position and limits from a request."""
        self.fetch_offset = requested.fetch_offset
        self.leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.log_start_offset = requested.log_start_offset
        self.max_bytes = requested.partition_max_bytes

    def is_news(self, high_watermark: int, log_start_offset: int, *, has_more: bool, is_rest_ignored: bool) -> bool:
        """Whether an incremental response has to include the partition. If so, remembers what it sends. `is_rest_ignored`: the response has
        an error or a diverging epoch, so that the receiver ignores everything else (KAFKA-14704)."""
        news = has_more
        if high_watermark != self.sent_high_watermark:
            news = True
            self.sent_high_watermark = high_watermark
        if log_start_offset != self.sent_log_start_offset:
            news = True
            self.sent_log_start_offset = log_start_offset
        if is_rest_ignored:
            # Forget the high watermark, so that the next answer includes the partition in any case.
            news = True
            self.sent_high_watermark = -1
        return news


class FetchSession:
    """A session, with its partitions in the order in which they are served."""

    __slots__ = ("epoch", "id", "is_privileged", "last_used_ms", "parked", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[PartitionKey, FetchPartition] = OrderedDict()
        self.epoch = 1
        self.last_used_ms = now_ms
        self.parked: object | None = None

    def adopt(self, topic: FetchRequest.FetchTopic, requested: FetchRequest.FetchPartition, name_of: NameOf) -> None:
        """Adopt a partition that a request adds or changes."""
        key = (topic.topic_id if self.uses_topic_ids else topic.topic, requested.partition)
        partition = self.partitions.get(key)
        if partition is None:
            name = (name_of(topic.topic_id) or "") if self.uses_topic_ids else topic.topic
            partition = self.partitions[key] = FetchPartition(name, topic.topic_id, requested.partition)
        partition.update(requested)

    def forget(self, forgotten: Iterable[FetchRequest.ForgottenTopic], name_of: NameOf) -> None:
        """Drop partitions that a request forgets, and look again for the names of topics that were not known."""
        for topic in forgotten:
            identity: object = topic.topic_id if self.uses_topic_ids else topic.topic
            for index in topic.partitions:
                self.partitions.pop((identity, index), None)
        if self.uses_topic_ids:
            for partition in self.partitions.values():
                if not partition.topic:
                    partition.topic = name_of(partition.topic_id) or ""


class FetchContext:
    """One fetch in its session: the partitions to read, and which results to send."""

    __slots__ = ("is_incremental", "partitions", "session")

    def __init__(self, session: FetchSession | None, partitions: Iterable[FetchPartition], is_incremental: bool) -> None:
        self.session = session
        self.partitions = list(partitions)
        self.is_incremental = is_incremental

    @property
    def session_id(self) -> int:
        """The session id for the response; 0 without a session."""
        return NO_SESSION if self.session is None else self.session.id

    def served(self, partition: FetchPartition) -> None:
        """The partition got data, so others come first next time."""
        session = self.session
        if session is not None:
            key = (partition.topic_id if session.uses_topic_ids else partition.topic, partition.index)
            if key in session.partitions:
                session.partitions.move_to_end(key)


class FetchSessionCache:
    """The sessions of a broker.

    Invariant: at most `slots_max` sessions. When the cache is full, a new session replaces the least recently used one if that has been
    idle for two minutes, or if the new session is a follower's and the old one a consumer's.
    """

    def __init__(self, slots_max: int, new_id: Callable[[], int]) -> None:
        """`new_id` returns random positive 31-bit numbers."""
        self._slots_max = slots_max
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def context(self, request: FetchRequest, version: int, *, is_follower: bool, name_of: NameOf, now_ms: int) -> FetchContext:
        """The context of a fetch. Raises ApiError (70, 71, 106), which is answered as the top-level error with session id 0."""
        return at_once(self.context_in_steps(request, version, is_follower=is_follower, name_of=name_of, now_ms=now_ms))

    def context_in_steps(
        self, request: FetchRequest, version: int, *, is_follower: bool, name_of: NameOf, now_ms: int
    ) -> Steps[FetchContext]:
        """Like `context`, with a bounded amount of work between two yields. Raises ApiError."""
        by_id = version >= 13
        session_id, epoch = request.session_id, request.session_epoch
        if version < 7 or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            partitions = yield from self._requested(request, by_id, name_of)
            if version < 7 or epoch == FINAL_EPOCH:
                return FetchContext(None, partitions.values(), False)
            may_stay = self._has_room(len(partitions)) and (by_id or not _has_long_name(request))
            session = self._create(is_follower, by_id, partitions, now_ms) if may_stay else None
            return FetchContext(session, partitions.values(), False)
        session = self._current(request, by_id)
        # Do this first, so that a second request with this epoch is refused even while this one is in progress.
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        due = STEP_PARTITIONS
        for topic in request.topics:
            for requested in topic.partitions:
                if due <= 0:
                    due = STEP_PARTITIONS
                    yield
                due -= 1
                session.adopt(topic, requested, name_of)
        session.forget(request.forgotten_topics_data, name_of)
        if not session.partitions:
            self._sessions.pop(session_id, None)
            return FetchContext(None, (), False)
        return FetchContext(session, session.partitions.values(), True)

    def _current(self, request: FetchRequest, by_id: bool) -> FetchSession:
        """The session of an incremental fetch. Raises ApiError."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        count, has_long_name = len(session.partitions), False
        for topic in request.topics:
            count += len(topic.partitions)
            if len(topic.topic) > TOPIC_NAME_MAX:
                has_long_name = True
        if count > PARTITIONS_MAX or has_long_name:
            del self._sessions[request.session_id]
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session

    def _has_room(self, partitions: int) -> bool:
        return partitions <= PARTITIONS_MAX and self.partitions_count + partitions <= ALL_PARTITIONS_MAX

    def drop(self, session: FetchSession) -> None:
        """Forget a session."""
        self._sessions.pop(session.id, None)

    @staticmethod
    def _requested(request: FetchRequest, by_id: bool, name_of: NameOf) -> Steps[OrderedDict[PartitionKey, FetchPartition]]:
        partitions: OrderedDict[PartitionKey, FetchPartition] = OrderedDict()
        due = STEP_PARTITIONS
        for topic in request.topics:
            name = (name_of(topic.topic_id) or "") if by_id else topic.topic
            due -= 1
            for requested in topic.partitions:
                partition = FetchPartition(name, topic.topic_id, requested.partition)
                partition.update(requested)
                partitions[(topic.topic_id if by_id else name, requested.partition)] = partition
                due -= 1
                if due <= 0:
                    due = STEP_PARTITIONS
                    yield
        return partitions

    def _create(
        self, is_follower: bool, by_id: bool, partitions: OrderedDict[PartitionKey, FetchPartition], now_ms: int
    ) -> FetchSession | None:
        if not partitions or self._slots_max <= 0:
            return None
        if len(self._sessions) >= self._slots_max and not self._evict(is_follower, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id, is_privileged=is_follower, uses_topic_ids=by_id, now_ms=now_ms)
        session.partitions = partitions
        self._sessions[session_id] = session
        return session

    def _evict(self, is_follower: bool, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            if not is_follower:
                return False
            replaceable = next((s for s in self._sessions.values() if not s.is_privileged), None)
            if replaceable is None:
                return False
            oldest = replaceable
        del self._sessions[oldest.id]
        self.evictions += 1
        return True


def _has_long_name(request: FetchRequest) -> bool:
    """Whether the request has a topic name that is too long to exist. Sessions keep names, so such requests get no session."""
    return any(len(topic.topic) > TOPIC_NAME_MAX for topic in request.topics)
