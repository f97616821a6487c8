"""ShareFetch and ShareAcknowledge (API keys 78 and 79).

Rules: KafkaApis.handleShareFetchRequest, DelayedShareFetch of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.fetch_steps import FetchTurns
from minikafka.broker.partitions.leader_hint import name_leader
from minikafka.broker.share.fetch_operation import (
    ACKNOWLEDGE_COST,
    Pace,
    PartitionData,
    Results,
    ShareFetchOperation,
    finder,
    refused,
)
from minikafka.broker.share.fetch_read import end_offset, read
from minikafka.broker.share.group_requests import is_member_id
from minikafka.broker.share.settings import are_share_groups_enabled
from minikafka.broker.supervise import Ends
from minikafka.core.share.acknowledgements import Acknowledgement, is_valid
from minikafka.core.share.partition import ACQUIRE_MODES
from minikafka.core.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Partition, ShareSession
from minikafka.core.share.state import SharePartitionKey
from minikafka.storage.cold_reads import Look
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from minikafka.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.turns import Turns
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.share.leader import HeldSharePartition, ShareLeader
    from minikafka.broker.share.settings import ShareGroupSettings
    from minikafka.core.purgatory import Purgatory

RENEWAL_VERSION_MIN = 2
_LEADER_HINTS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
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

    def try_complete(self, key: Hashable = None) -> bool:
        return False

    def expire(self) -> None:
        self.is_done = True
        self._context.respond(ShareFetchResponse(error_code=self._code))


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
        self._supervisor = environment.supervisor
        self._cold_reads = environment.cold_reads
        self._turns: Turns
        self.turns: FetchTurns
        self.fetch_bytes_max: int = config.fetch_max_bytes
        self.leader = leader
        self.settings = settings

    def register(self, dispatcher: Dispatcher) -> None:
        """Register both APIs."""
        self._turns = dispatcher.large.turns
        self.turns = FetchTurns(self._supervisor, self._turns, self._cold_reads, "a share fetch")
        dispatcher.register(ShareFetchRequest, self.fetch, is_served=self._is_served)
        dispatcher.register(ShareAcknowledgeRequest, self.acknowledge, is_served=self._is_served)
        dispatcher.subscribe_connection_ends(self._connection_closed)

    def _connection_closed(self, connection: Any) -> None:
        self.leader.release(self.leader.sessions.connection_closed(connection))

    def _is_served(self) -> bool:
        return are_share_groups_enabled(self._metadata.image)

    def _check(self, request: Any) -> None:
        if not self._is_served():
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
            is_final = request.share_session_epoch == FINAL_EPOCH
            if not is_final and request.share_acquire_mode not in ACQUIRE_MODES:
                # As in Apache Kafka, the session goes on. Nothing is acknowledged, because the answer does not say what was.
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        except ApiError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
                waiting = self._replicas.waiting
                waiting.park(waiting.fetches, _WithoutSession(context, error.code), [], request.max_wait_ms)
                return None
            return ShareFetchResponse(error_code=error.code)
        fetch = ShareFetchOperation(self, context, request, session)
        acknowledged = {partition: batches for partition, batches in acknowledged.items() if batches}
        acknowledging = self._acknowledging(context, session, acknowledged, is_renewal, fetch.acknowledged)
        reads = not is_final and not is_renewal and request.max_records > 0 and request.max_bytes > 0
        fetch.start(fetch.serving(acknowledging, reads=reads))
        return None

    def park(self, fetch: ShareFetchOperation) -> Purgatory:
        """Keep a fetch until its max_wait_ms have passed. Returns where it may watch keys."""
        waiting = self._replicas.waiting
        waiting.park(waiting.fetches, fetch, [], fetch.request.max_wait_ms)
        return waiting.fetches

    def _session(self, context: RequestContext, request: ShareFetchRequest, *, has_acknowledgements: bool) -> ShareSession:
        requested = [(topic.topic_id, p.partition_index) for topic in request.topics for p in topic.partitions]
        forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
        connection: Any = context.connection
        return self.leader.sessions.fetch(
            request.group_id or "", request.member_id or "", request.share_session_epoch, requested, forgotten, connection,
            has_acknowledgements=has_acknowledgements,
        )  # fmt: skip

    def take(
        self, fetch: ShareFetchOperation, held: HeldSharePartition, left: int, bytes_max: int, look: Look
    ) -> tuple[PartitionData | None, int]:
        """One partition's data, with at most `left` records, and the number of records; None if there is nothing to report.

        As in Apache Kafka, the first answer of a session also names partitions that could deliver records but have none.
        """
        if not self.leader.is_held(held):
            return refused(0, held.error or ErrorCode.NOT_LEADER_OR_FOLLOWER), 0
        core, log, session = held.core, held.partition.log, fetch.session
        if core is None or not self.leader.sessions.is_current(session):
            # The share partition is loading, or the session has ended.
            return None, 0
        empty = PartitionData(records=b"") if fetch.request.share_session_epoch == INITIAL_EPOCH and core.can_acquire else None
        if left <= 0 or held.key[1:] in session.unverified:
            return empty, 0
        rules = self.settings.rules(session.group_id)
        if core.fetch_offset < log.log_start_offset:
            core.log_start_moved(log.log_start_offset)
        if not core.can_acquire or core.fetch_offset >= end_offset(held.partition, is_read_committed=rules.is_read_committed):
            return empty, 0
        if self._replicas.is_in_doubt(held.partition):
            # Another leader may have confirmed acknowledgements of these records.
            return refused(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), 0
        try:
            with look:
                found = read(held.partition, core.fetch_offset, left, bytes_max, is_read_committed=rules.is_read_committed)
        except (ApiError, StorageError, CorruptRecord) as error:
            return refused(0, error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR), 0
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
        data = PartitionData(
            records=records,
            acquired_records=[kind(first_offset=one[0], last_offset=one[1], delivery_count=one[2]) for one in acquired],
        )
        return data, sum(one.last_offset - one.first_offset + 1 for one in acquired)

    def respond(self, fetch: ShareFetchOperation, response: ShareFetchResponse, acknowledged: Results) -> None:
        """Send the response, with the results of the acknowledgements. A final fetch ends the session."""
        find = finder(response)
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
            self.leader.release([session])

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
        acknowledging = self._acknowledging(context, session, _acknowledgements(request), is_renewal, settled)
        pace = Pace()
        for _ in acknowledging:
            if pace.is_over(ACKNOWLEDGE_COST):
                ends = Ends("connection", context.close)
                self._supervisor.start(self._acknowledge_on(context, acknowledging, pace), "acknowledgements", ends=ends)
                break
        return None

    async def _acknowledge_on(self, context: RequestContext, acknowledging: Iterator[None], pace: Pace) -> None:
        """Acknowledge the rest in later turns of the loop. Meanwhile nothing is read from the client."""
        context.connection.hold()
        try:
            await self._turns.next()
            for _ in acknowledging:
                if pace.is_over(ACKNOWLEDGE_COST):
                    await self._turns.next()
        finally:
            context.connection.go_on()

    def _acknowledging(
        self,
        context: RequestContext,
        session: ShareSession,
        acknowledged: Mapping[Partition, list[Acknowledgement]],
        is_renewal: bool,
        on_results: Callable[[Results], None],
    ) -> Iterator[None]:
        """Acknowledge; yields after each partition. `on_results(results)` is called when everything is written or refused, perhaps before
        the end."""
        results: Results = {}
        waiting = len(acknowledged) + 1
        may_renew = context.api_version >= RENEWAL_VERSION_MIN
        empty: list[Partition] = []
        is_any_processed = False

        def settle(partition: Partition | None, code: ErrorCode, message: str | None) -> None:
            nonlocal waiting
            if partition is not None:
                results[partition] = (code, message if code is not ErrorCode.NONE else None)
            waiting -= 1
            if waiting == 0:
                # As in Apache Kafka, partitions without acknowledgements are named beside those whose acknowledgements were processed.
                for name in () if is_any_processed else empty:
                    del results[name]
                on_results(results)

        for partition, batches in acknowledged.items():

            def done(code: ErrorCode, message: str | None, partition: Partition = partition) -> None:
                settle(partition, code, message)

            is_sound = is_valid(batches, may_renew=may_renew, is_renewal=is_renewal)
            fault = self.fault_of(context, partition) if is_sound else ErrorCode.INVALID_REQUEST
            if fault is not None:
                done(fault, None)
            elif not batches:
                empty.append(partition)
                done(ErrorCode.NONE, None)
            else:
                is_any_processed = True
                self.leader.acknowledge(SharePartitionKey(session.group_id, *partition), session.member_id, batches, done)
            yield
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
