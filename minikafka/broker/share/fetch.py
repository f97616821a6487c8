"""ShareFetch and ShareAcknowledge (API keys 78 and 79).

Rules: KafkaApis.handleShareFetchRequest, DelayedShareFetch of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.leader_hint import name_leader
from minikafka.broker.share.fetch_read import end_offset, read
from minikafka.broker.share.group_requests import SHARE_VERSION, is_member_id
from minikafka.core.share.acknowledgements import Acknowledgement, is_valid
from minikafka.core.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Partition, ShareSession
from minikafka.core.share.state import SharePartitionKey
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from minikafka.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.share.leader import HeldSharePartition, ShareLeader
    from minikafka.broker.share.settings import ShareGroupSettings

RENEWAL_VERSION_MIN = 2
_LEADER_HINTS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_PartitionData = ShareFetchResponse.PartitionData
#: The error code and message of each partition's acknowledgements; NONE = written.
Results = dict[Partition, tuple[ErrorCode, "str | None"]]
#: Makes, for a request, the test whether a topic may not be read.
Judge = Callable[["RequestContext"], Callable[[str], bool]]


class _WithoutSession:
    """A fetch that gets no session. It fails only when its time is up, so that the client does not retry in a tight loop."""

    def __init__(self, context: RequestContext, code: ErrorCode) -> None:
        self._context = context
        self._code = code
        self.is_done = False

    def close(self, reason: str) -> None:
        self._context.close(reason)

    def try_complete(self) -> bool:
        return False

    def expire(self) -> None:
        self.is_done = True
        self._context.respond(ShareFetchResponse(error_code=self._code))


class _ShareFetch:
    """One fetch. It waits until a share partition has records to hand out, and until its acknowledgements are written."""

    __slots__ = ("_handlers", "acknowledged", "context", "errors", "held", "is_done", "request", "response", "session")

    def __init__(self, handlers: ShareFetchHandlers, context: RequestContext, request: ShareFetchRequest, session: ShareSession) -> None:
        self._handlers = handlers
        self.context = context
        self.request = request
        self.session = session
        self.held: dict[Partition, HeldSharePartition] = {}
        self.errors: dict[Partition, ErrorCode] = {}
        #: The results of the acknowledgements; None = not all are known yet.
        self.acknowledged: Results | None = None
        self.response: ShareFetchResponse | None = None
        #: The records are collected: only acknowledgements may still be awaited.
        self.is_done = False

    def close(self, reason: str) -> None:
        """An internal failure: close the client's connection."""
        self.context.close(reason)

    @property
    def keys(self) -> list[Hashable]:
        """The keys of events that may complete the fetch."""
        keys: list[Hashable] = []
        for held in self.held.values():
            keys += [held.wait_key, held.partition.key]
        return keys

    def add(self, partition: Partition) -> None:
        """Fetch this partition of the session too."""
        handlers = self._handlers
        fault = handlers.fault_of(self.context, partition)
        if fault is not None:
            self.errors[partition] = fault
            return
        try:
            self.held[partition] = handlers.leader.get(SharePartitionKey(self.session.group_id, *partition))
        except ApiError as error:
            self.errors[partition] = error.code

    def try_complete(self) -> bool:
        """Answer if there are records to hand out, or an error to report."""
        if self.is_done:
            return True
        if not self._is_due():
            return False
        self.collect()
        return True

    def _is_due(self) -> bool:
        handlers, gathered = self._handlers, 0
        for held in self.held.values():
            if not handlers.leader.is_held(held):
                return True
            if held.core is None or not held.core.can_acquire:
                continue
            offset, log = held.core.fetch_offset, held.partition.log
            is_read_committed = handlers.settings.rules(self.session.group_id).is_read_committed
            end = end_offset(held.partition, is_read_committed=is_read_committed)
            if log.failure is not None or offset < log.log_start_offset:
                return True
            if offset >= end:
                continue
            if self.request.min_bytes <= 1 or offset < held.core.next_offset:
                return True
            try:
                start, stop = log.offset_position(offset), log.offset_position(end)
            except (ApiError, StorageError):
                return True
            if start.segment_base_offset != stop.segment_base_offset:
                return True
            gathered += stop.file_position - start.file_position
        return gathered >= max(self.request.min_bytes, 1)

    def expire(self) -> None:
        """max.wait.ms has passed: answer with the available records."""
        if not self.is_done:
            self.collect()

    def collect(self) -> None:
        """Take the available records, and answer when the acknowledgements are known."""
        self.is_done = True
        self.response = self._handlers.collect(self)
        self.answer()

    def acknowledgements_settled(self, results: Results) -> None:
        """Every acknowledgement was written or refused."""
        self.acknowledged = results
        self.answer()

    def answer(self) -> None:
        """Answer if both the records and the results of the acknowledgements are there."""
        if self.response is not None and self.acknowledged is not None:
            self._handlers.respond(self, self.response, self.acknowledged)


class ShareFetchHandlers:
    """Serves ShareFetch and ShareAcknowledge on a broker listener."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        leader: ShareLeader,
        settings: ShareGroupSettings,
        judge: Judge | None,
    ) -> None:
        """`judge` (with an authorizer): finds topics that a request may not read."""
        self._clock = environment.clock
        self._replicas = replicas
        self._metadata = metadata
        self._judge = judge
        self._bytes_max = config.fetch_max_bytes
        self.leader = leader
        self.settings = settings

    def register(self, dispatcher: Dispatcher) -> None:
        """Register both APIs."""
        dispatcher.register(ShareFetchRequest, self.fetch)
        dispatcher.register(ShareAcknowledgeRequest, self.acknowledge)
        dispatcher.subscribe_connection_ends(self._connection_closed)

    def _connection_closed(self, connection: Any) -> None:
        for session in self.leader.sessions.connection_closed(connection):
            self.leader.release(session)

    def _check(self, request: Any) -> None:
        if self._metadata.image.features.get(SHARE_VERSION, 0) < 1:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if request.group_id is None:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if not is_member_id(request.member_id):
            raise ApiError(ErrorCode.INVALID_REQUEST)

    def fault_of(self, context: RequestContext, partition: Partition) -> ErrorCode | None:
        """UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED or UNKNOWN_TOPIC_OR_PARTITION; None when the partition may be read.

        Returned and not raised: a session can have thousands of unknown partitions, and exceptions would be expensive.
        """
        topic = self._metadata.image.topics_by_id.get(partition[0])
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._judge is not None and self._judge(context)(topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return None if partition[1] in topic.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # -- ShareFetch ----------------------------------------------------------------------------------------------------

    def fetch(self, context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse | None:
        """Process the request's acknowledgements, then wait for records."""
        acknowledged = _acknowledgements(request)
        is_renewal = context.api_version >= RENEWAL_VERSION_MIN and request.is_renew_ack
        try:
            self._check(request)
            if is_renewal:
                _check_renewal(request)
            session = self._session(context, request, has_acknowledgements=any(acknowledged.values()))
        except ApiError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
                waiting = self._replicas.waiting
                waiting.park(waiting.fetches, _WithoutSession(context, error.code), [], request.max_wait_ms)
                return None
            return ShareFetchResponse(error_code=error.code)
        fetch = _ShareFetch(self, context, request, session)
        is_final = request.share_session_epoch == FINAL_EPOCH
        acknowledged = {partition: batches for partition, batches in acknowledged.items() if batches}
        self._acknowledge(context, session, acknowledged, is_renewal, fetch.acknowledgements_settled)
        if not is_final and not is_renewal and request.max_records > 0 and request.max_bytes > 0:
            partitions = list(session.partitions)
            turn = request.share_session_epoch % len(partitions) if partitions else 0
            for partition in partitions[turn:] + partitions[:turn]:
                fetch.add(partition)
        if not fetch.held or request.max_wait_ms <= 0:
            fetch.expire()
        elif not fetch.try_complete():
            waiting = self._replicas.waiting
            waiting.park(waiting.fetches, fetch, fetch.keys, request.max_wait_ms)
        return None

    def _session(self, context: RequestContext, request: ShareFetchRequest, *, has_acknowledgements: bool) -> ShareSession:
        requested = [(topic.topic_id, p.partition_index) for topic in request.topics for p in topic.partitions]
        forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
        connection: Any = context.connection
        return self.leader.sessions.fetch(
            request.group_id or "", request.member_id or "", request.share_session_epoch, requested, forgotten, connection,
            has_acknowledgements=has_acknowledgements,
        )  # fmt: skip

    def collect(self, fetch: _ShareFetch) -> ShareFetchResponse:
        """Acquire the available records of all partitions for the member."""
        response = ShareFetchResponse(responses=[])
        answers: dict[bytes, list[_PartitionData]] = {}
        left = fetch.request.max_records
        bytes_max = min(fetch.request.max_bytes, self._bytes_max) // max(len(fetch.held), 1)
        for partition, code in fetch.errors.items():
            answers.setdefault(partition[0], []).append(_refused(partition[1], code))
        for partition, held in fetch.held.items():
            data, count = self._take(fetch, held, left, max(bytes_max, 1))
            left -= count
            if data is not None:
                data.partition_index = partition[1]
                answers.setdefault(partition[0], []).append(data)
        kind = ShareFetchResponse.ShareFetchableTopicResponse
        response.responses = [kind(topic_id=topic_id, partitions=partitions) for topic_id, partitions in answers.items()]
        return response

    def _take(self, fetch: _ShareFetch, held: HeldSharePartition, left: int, bytes_max: int) -> tuple[_PartitionData | None, int]:
        """One partition's records or error, and the number of records; None when it has neither.

        As in Apache Kafka, the first answer of a session also names partitions that could hand out records but have none.
        """
        if not self.leader.is_held(held):
            return _refused(0, held.error or ErrorCode.NOT_LEADER_OR_FOLLOWER), 0
        core, log, session = held.core, held.partition.log, fetch.session
        if core is None or not self.leader.sessions.is_current(session):
            # The share partition is loading, or the session has ended.
            return None, 0
        empty = _PartitionData(records=b"") if fetch.request.share_session_epoch == INITIAL_EPOCH and core.can_acquire else None
        if left <= 0:
            return empty, 0
        rules = self.settings.rules(session.group_id)
        if core.fetch_offset < log.log_start_offset:
            core.log_start_moved(log.log_start_offset)
        if not core.can_acquire or core.fetch_offset >= end_offset(held.partition, is_read_committed=rules.is_read_committed):
            return empty, 0
        try:
            found = read(held.partition, core.fetch_offset, left, bytes_max, is_read_committed=rules.is_read_committed)
        except (ApiError, StorageError, CorruptRecord) as error:
            return _refused(0, error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR), 0
        if fetch.context.limits is not None and fetch.context.fetched(len(found.data)) > 0:  # type: ignore[attr-defined]
            # Above its quota the client gets no records, so that none are locked in vain.
            return empty, 0
        request = fetch.request
        acquired = core.acquire(
            session.member_id, request.share_acquire_mode, request.batch_size, left, found.fetched, self._clock.now_ms()
        )
        self.leader.settle(held)
        if not acquired:
            return empty, 0
        records = found.records_of(acquired)
        held.partition.bytes_out += len(records)
        kind = ShareFetchResponse.AcquiredRecords
        data = _PartitionData(
            records=records,
            acquired_records=[kind(first_offset=one[0], last_offset=one[1], delivery_count=one[2]) for one in acquired],
        )
        return data, sum(one.last_offset - one.first_offset + 1 for one in acquired)

    def respond(self, fetch: _ShareFetch, response: ShareFetchResponse, acknowledged: Results) -> None:
        """Send the response, with the results of the acknowledgements. A final fetch ends the session."""
        find = _finder(response)
        for partition, (code, message) in acknowledged.items():
            data = find(partition)
            data.acknowledge_error_code, data.acknowledge_error_message = code, message
        response.acquisition_lock_timeout_ms = self.settings.rules(fetch.session.group_id).record_lock_duration_ms
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code in _LEADER_HINTS or data.acknowledge_error_code in _LEADER_HINTS:
                    self._hint(fetch.context, topic.topic_id, data, response)
        if fetch.request.share_session_epoch == FINAL_EPOCH:
            self._end(fetch.session)
        fetch.context.respond(response)

    def _hint(self, context: RequestContext, topic_id: bytes, data: Any, response: Any) -> None:
        image = self._metadata.image
        name_leader(image, image.topics_by_id.get(topic_id), data.partition_index, context.listener, data, response)

    def _end(self, session: ShareSession) -> None:
        if self.leader.sessions.remove(session.key) is not None:
            self.leader.release(session)

    # -- ShareAcknowledge ----------------------------------------------------------------------------------------------

    def acknowledge(self, context: RequestContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse | None:
        """Answer when all acknowledgements are written or refused."""
        try:
            self._check(request)
            session = self.leader.sessions.acknowledge(request.group_id or "", request.member_id or "", request.share_session_epoch)
        except ApiError as error:
            return ShareAcknowledgeResponse(error_code=error.code)

        def settled(results: Results) -> None:
            response = ShareAcknowledgeResponse(responses=[])
            topics: dict[bytes, list[Any]] = {}
            for (topic_id, index), (code, message) in results.items():
                data = ShareAcknowledgeResponse.PartitionData(partition_index=index, error_code=code, error_message=message)
                topics.setdefault(topic_id, []).append(data)
                if code in _LEADER_HINTS:
                    self._hint(context, topic_id, data, response)
            kind = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
            response.responses = [kind(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
            response.acquisition_lock_timeout_ms = self.settings.rules(session.group_id).record_lock_duration_ms
            if request.share_session_epoch == FINAL_EPOCH:
                self._end(session)
            context.respond(response)

        is_renewal = context.api_version >= RENEWAL_VERSION_MIN and request.is_renew_ack
        self._acknowledge(context, session, _acknowledgements(request), is_renewal, settled)
        return None

    def _acknowledge(
        self,
        context: RequestContext,
        session: ShareSession,
        acknowledged: Mapping[Partition, list[Acknowledgement]],
        is_renewal: bool,
        on_results: Callable[[Results], None],
    ) -> None:
        """Call `on_results(results)` when every acknowledgement is written or refused, possibly before this returns."""
        results: Results = {}
        waiting = len(acknowledged) + 1
        may_renew = context.api_version >= RENEWAL_VERSION_MIN

        def settle(partition: Partition | None, code: ErrorCode, message: str | None) -> None:
            nonlocal waiting
            if partition is not None:
                results[partition] = (code, message if code is not ErrorCode.NONE else None)
            waiting -= 1
            if waiting == 0:
                on_results(results)

        for partition, batches in acknowledged.items():

            def done(code: ErrorCode, message: str | None, partition: Partition = partition) -> None:
                settle(partition, code, message)

            fault = self.fault_of(context, partition)
            if fault is None and not is_valid(batches, may_renew=may_renew, is_renewal=is_renewal):
                fault = ErrorCode.INVALID_REQUEST
            if fault is not None:
                done(fault, None)
            elif not batches:
                done(ErrorCode.NONE, None)
            else:
                self.leader.acknowledge(SharePartitionKey(session.group_id, *partition), session.member_id, batches, done)
        settle(None, ErrorCode.NONE, None)


def _acknowledgements(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[Partition, list[Acknowledgement]]:
    """The request's acknowledgements by partition."""
    found: dict[Partition, list[Acknowledgement]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            batches = found.setdefault((topic.topic_id, partition.partition_index), [])
            batches += [Acknowledgement(b.first_offset, b.last_offset, b.acknowledge_types) for b in partition.acknowledgement_batches]
    return found


def _check_renewal(request: ShareFetchRequest) -> None:
    """A fetch that renews locks fetches nothing (KIP-1222). Raises INVALID_REQUEST."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise ApiError(ErrorCode.INVALID_REQUEST)


def _refused(index: int, code: ErrorCode) -> _PartitionData:
    return _PartitionData(partition_index=index, error_code=code, error_message=code.text, records=b"")


def _finder(response: ShareFetchResponse) -> Callable[[Partition], _PartitionData]:
    """A function that returns a partition of the response, and adds it if it is missing."""
    topics = {topic.topic_id: topic for topic in response.responses}
    answered = {(topic.topic_id, data.partition_index): data for topic in response.responses for data in topic.partitions}

    def find(partition: Partition) -> _PartitionData:
        data = answered.get(partition)
        if data is None:
            topic_id, index = partition
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
                response.responses.append(topic)
            data = answered[partition] = _PartitionData(partition_index=index, records=b"")
            topic.partitions.append(data)
        return data

    return find
