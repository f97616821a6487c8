"""Follower fetching: one fetcher for each (leader broker, fetcher id), one connection, one incremental fetch session.

A fetcher is driven by what arrives: the response to a fetch is appended where it stands in the receive buffer and the next fetch leaves
in the same turn of the loop. Rules: AbstractFetcherThread and ReplicaFetcherThread of Apache Kafka; KIP-227, KIP-595, KIP-903.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from minikafka.broker.hosts.partition import Partition
from minikafka.core.partition.follower import truncation_for
from minikafka.net.channel import Channel, ConnectionLost
from storage.errors import StorageError, UnexpectedAppendOffset
from wire.errors import ApiError, ErrorCode, WireError
from wire.messages.fetch import FetchRequest, FetchResponse
from wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from minikafka.broker.hosts.fetcher_manager import FetcherManager

logger = logging.getLogger("minikafka.fetcher")

BACKOFF_MS_MIN = 10
IN_FLIGHT_MAX = 2
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
_WAIT_AND_RETRY = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class FetchState:
    """A partition that is being followed."""

    __slots__ = ("asked_in", "backoff_ms", "epoch", "is_asking", "leader_high_watermark", "partition", "resume_ms", "sent")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.backoff_ms = 0
        self.resume_ms = 0
        self.is_asking = False
        self.leader_high_watermark = 0
        #: The number of the fetch that put it into the leader's session: answers to earlier ones are to what it was before.
        self.asked_in = 0
        #: (fetch offset, leader epoch, last fetched epoch, log start) as the session at the leader has them; None = not in it.
        self.sent: tuple[int, int, int, int] | None = None


class Fetcher:
    """Fetches from one leader.

    Invariants: at most two fetches are in flight, the second only to tell the leader of partitions that joined while the first is
    parked there; a partition's next fetch offset is always the end of its log.
    """

    def __init__(self, manager: FetcherManager, leader_id: int, fetcher_id: int) -> None:
        self.key = (leader_id, fetcher_id)
        self.leader_id = leader_id
        self._manager = manager
        self._clock = manager.environment.clock
        self._loop = manager.environment.loop
        self.states: dict[tuple[bytes, int], FetchState] = {}
        self._forgotten: list[tuple[bytes, int]] = []
        #: What the leader's session has; asked for membership only.
        self._in_session: set[tuple[bytes, int]] = set()
        self._channel: Channel | None = None
        self._endpoint: tuple[str, int] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._session_id = 0
        self._session_epoch = 0
        #: The leader has answered a fetch of this connection: it has made a session, or will make none.
        self._is_answered = False
        self._in_flight = 0
        self.fetches = 0
        self._generation = 0
        self._connect_backoff_ms = 0
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    # -- partitions ------------------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Fetch a partition from its log's end."""
        self.states[(partition.topic_id, partition.index)] = FetchState(partition)

    def remove(self, partition: Partition) -> None:
        """Leave a partition out of the next fetch; what is in flight for it is dropped."""
        key = (partition.topic_id, partition.index)
        if self.states.pop(key, None) is not None and key in self._in_session:
            self._forgotten.append(key)

    def _leave_session(self, state: FetchState) -> None:
        """A partition that waits leaves the leader's session: the session would answer for it at once, again and again, with what made it
        wait, and each answer would make it wait anew (AbstractFetcherThread leaves delayed partitions out of its fetches)."""
        state.sent = None
        key = (state.partition.topic_id, state.partition.index)
        if key in self._in_session:
            self._forgotten.append(key)

    def wake(self) -> None:
        """There may be something to ask for."""
        if self._closed:
            return
        if self._channel is None or self._channel.closed:
            self._connect()
        elif self._in_flight == 0 or (self._in_flight < IN_FLIGHT_MAX and self._session_id and self._has_news()):
            self._fetch()

    def _has_news(self) -> bool:
        now_ms = self._clock.now_ms()
        return any(state.sent is None and state.resume_ms <= now_ms and not state.is_asking for state in self.states.values())

    # -- connection ------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        broker = self._manager.metadata.image.brokers.get(self.leader_id)
        endpoint = None if broker is None else broker.listeners.get(self._manager.config.inter_broker_listener)
        if endpoint is None:
            self._retry_connect("its address is not known")
            return
        host, port = endpoint[0], endpoint[1]
        try:
            channel = await Channel.open(
                self._manager.environment.network,
                host,
                port,
                client_id=f"broker-{self._manager.replicas.broker_id}-fetcher-{self.key[1]}",
                timeout_ms=self._manager.config.replica_socket_timeout_ms,
                security=self._manager.security,
            )
        except (OSError, TimeoutError) as error:
            self._retry_connect(str(error))
            return
        if self._closed:
            channel.close()
            return
        self._channel = channel
        self._endpoint = (host, port)
        self._connect_backoff_ms = 0
        self._manager.lost_leaders.discard(self.leader_id)
        self._reset_session()
        self._fetch()

    def _retry_connect(self, reason: str) -> None:
        if self._closed:
            return
        if self._connect_backoff_ms == 0:
            logger.info("cannot fetch from broker %d yet: %s", self.leader_id, reason)
        self._connect_backoff_ms = self._next_backoff(self._connect_backoff_ms)
        self._wake_in(self._connect_backoff_ms)

    def _next_backoff(self, backoff_ms: int) -> int:
        return min(max(backoff_ms * 2, BACKOFF_MS_MIN), self._manager.config.replica_fetch_backoff_ms)

    def _wake_in(self, delay_ms: int) -> None:
        due = self._loop.time() + delay_ms / 1000
        if self._timer is not None:
            if self._timer.when() <= due and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._timer_due)

    def _timer_due(self) -> None:
        self._timer = None
        self.wake()

    def _reset_session(self) -> None:
        self._session_id, self._session_epoch = 0, 0
        self._is_answered = False
        self._in_flight = 0
        self._generation += 1
        self._forgotten.clear()
        self._in_session.clear()
        for state in self.states.values():
            state.sent = None

    def leader_changed(self) -> None:
        """The leader registered anew: connect again if its address changed, and wait neither for back-offs nor for its former life."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        broker = self._manager.metadata.image.brokers.get(self.leader_id)
        endpoint = None if broker is None else broker.listeners.get(self._manager.config.inter_broker_listener)
        if self._channel is not None and endpoint is not None and self._endpoint != (endpoint[0], endpoint[1]):
            self._drop_channel("the leader has another address")
        self._connect_backoff_ms = 0
        for state in self.states.values():
            state.resume_ms = 0
        self.wake()

    def _drop_channel(self, reason: str) -> None:
        channel, self._channel = self._channel, None
        self._reset_session()
        if channel is not None:
            channel.close(reason)

    def close(self, reason: str) -> None:
        """End the fetcher."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for task in self._tasks:
            task.cancel()
        self._drop_channel(reason)

    # -- asking ----------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        channel = self._channel
        if channel is None or channel.closed or self._closed:
            return
        topics, soonest_ms = self._changed()
        incremental = self._session_id != 0
        if not incremental and not topics:
            if soonest_ms is not None:
                self._wake_in(max(soonest_ms - self._clock.now_ms(), 1))
            return
        if soonest_ms is not None:
            self._wake_in(max(soonest_ms - self._clock.now_ms(), 1))
        forgotten = self._take_forgotten() if incremental else []
        if incremental and not topics and not forgotten and not self._in_session:
            return  # everything waits, and the timer with it
        if incremental:
            self._session_epoch = self._session_epoch + 1 if self._session_epoch < 0x7FFFFFFF else 1
        request = self._request(topics, forgotten)
        generation = self._generation
        self._in_flight += 1
        self.fetches = number = self.fetches + 1
        config = self._manager.config
        try:
            channel.send(
                request,
                None,
                lambda response, error: self._answered(generation, number, cast("FetchResponse | None", response), error),
                config.replica_socket_timeout_ms + config.replica_fetch_wait_max_ms,
            )
        except (ConnectionLost, WireError) as error:
            self._drop_channel(str(error))
            self._wake_in(BACKOFF_MS_MIN)

    def _changed(self) -> tuple[dict[bytes, list[FetchRequest.FetchPartition]], int | None]:
        """What the leader's session does not know yet, by topic; and when the next partition's back-off ends."""
        now_ms = self._clock.now_ms()
        max_bytes = self._manager.config.replica_fetch_max_bytes
        topics: dict[bytes, list[FetchRequest.FetchPartition]] = {}
        soonest: int | None = None
        for (topic_id, index), state in self.states.items():
            if state.is_asking:
                continue
            if state.resume_ms > now_ms:
                soonest = state.resume_ms if soonest is None else min(soonest, state.resume_ms)
                continue
            held_ms = self._held_back_ms(state, now_ms)
            if held_ms:
                # Out of the leader's session, or it would send all the same.
                self._leave_session(state)
                state.resume_ms = now_ms + held_ms
                soonest = state.resume_ms if soonest is None else min(soonest, state.resume_ms)
                continue
            log = state.partition.log
            latest = log.latest_epoch
            position = (log.log_end_offset, state.epoch, -1 if latest is None else latest, log.log_start_offset)
            if state.sent == position:
                continue
            if state.sent is None:
                state.asked_in = self.fetches + 1
            state.sent = position
            self._in_session.add((topic_id, index))
            topics.setdefault(topic_id, []).append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=position[1],
                    fetch_offset=position[0],
                    last_fetched_epoch=position[2],
                    log_start_offset=position[3],
                    partition_max_bytes=max_bytes,
                )
            )
        return topics, soonest

    def _held_back_ms(self, state: FetchState, now_ms: int) -> int:
        """How long a throttled replica that is not in sync has to wait (follower.replication.throttled.*); 0 = it need not."""
        throttles = self._manager.replicas.throttles
        if throttles is None or not throttles.follower.is_active:
            return 0
        partition = state.partition
        if self._manager.replicas.broker_id in partition.isr or not throttles.follower.applies_to(partition.topic, partition.index):
            return 0
        return throttles.follower.wait_ms(now_ms)

    def _take_forgotten(self) -> list[FetchRequest.ForgottenTopic]:
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            state = self.states.get((topic_id, index))
            if (topic_id, index) in self._in_session and (state is None or state.sent is None):
                self._in_session.discard((topic_id, index))
                forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        return [FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in forgotten.items()]

    def _request(
        self, topics: dict[bytes, list[FetchRequest.FetchPartition]], forgotten: list[FetchRequest.ForgottenTopic]
    ) -> FetchRequest:
        config = self._manager.config
        # What joins while a fetch is parked can be told to a session only, so the one that asks for a session is not parked.
        wait_ms = config.replica_fetch_wait_max_ms if self._is_answered else 0
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._manager.replicas.broker_id, replica_epoch=self._manager.broker_epoch()
            ),
            max_wait_ms=wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
            forgotten_topics_data=forgotten,
        )

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answered(self, generation: int, number: int, response: FetchResponse | None, error: Exception | None) -> None:
        if generation != self._generation or self._closed:
            return
        self._in_flight -= 1
        if response is None:
            logger.info("the connection to leader broker %d broke: %s", self.leader_id, error)
            self._manager.lost_leaders.add(self.leader_id)
            self._drop_channel(str(error))
            self._wake_in(BACKOFF_MS_MIN)
            return
        if response.error_code:
            code = ErrorCode(response.error_code)
            logger.info("broker %d refuses the fetch session: %s", self.leader_id, code.name)
            self._reset_session()
            self._wake_in(BACKOFF_MS_MIN)
            return
        if self._session_id == 0:
            self._session_id, self._session_epoch = response.session_id, 0
        self._is_answered = True
        for topic in response.responses:
            for data in topic.partitions:
                state = self.states.get((topic.topic_id, data.partition_index))
                if state is not None and state.sent is not None and state.asked_in <= number:
                    self._process(state, data)
        if self._session_id == 0:  # the leader keeps no session for us: the next fetch names everything again
            self._in_session.clear()
            for state in self.states.values():
                state.sent = None
        if self._in_flight == 0:
            self._fetch()

    def _process(self, state: FetchState, data: FetchResponse.PartitionData) -> None:
        partition = state.partition
        if partition.leader is not None or partition.leader_epoch != state.epoch:
            return
        code = ErrorCode(data.error_code)
        try:
            if code is not ErrorCode.NONE:
                self._failed(state, code)
            elif data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0:
                self._truncate(state, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            else:
                self._append(state, data)
                state.backoff_ms = 0
        except StorageError as error:
            logger.error("%s: stopped following: %s", partition, error)
            state.is_asking = True
            self._leave_session(state)
        except ApiError as error:
            logger.warning("%s: what broker %d sent cannot be appended: %s", partition, self.leader_id, error)
            self._delay(state)

    def _append(self, state: FetchState, data: FetchResponse.PartitionData) -> None:
        partition = state.partition
        log = partition.log
        records = data.records
        if records is not None and len(cast(memoryview, records)):
            view = cast(memoryview, records)
            throttles = self._manager.replicas.throttles
            if throttles is not None and throttles.follower.applies_to(partition.topic, partition.index):
                throttles.follower.record(len(view), self._clock.now_ms())
            self._manager.replicas.replication_bytes_in += len(view)
            skip = _already_present(view, log.log_end_offset)
            try:
                log.append_as_follower(view[skip:] if skip else view, state.epoch)
            except UnexpectedAppendOffset as error:
                logger.warning("%s: %s", partition, error)
                self._delay(state)
                return
        state.leader_high_watermark = data.high_watermark
        if log.update_high_watermark(min(data.high_watermark, log.log_end_offset)):
            self._manager.replicas.fetches.wake(partition.key)
        if data.log_start_offset > log.log_start_offset:
            log.increment_log_start_offset(min(data.log_start_offset, log.high_watermark))

    def _truncate(self, state: FetchState, leader_epoch: int, leader_end_offset: int) -> None:
        partition = state.partition
        log = partition.log
        found = truncation_for(
            leader_epoch,
            leader_end_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            end_offset_for=lambda epoch: tuple(log.end_offset_for_epoch(epoch)),  # type: ignore[arg-type,return-value]
        )
        before = log.log_end_offset
        if found.offset < log.high_watermark:
            logger.warning(
                "%s: in epoch %d truncating below the high watermark %d to %d: the leader lost committed records (unclean election?)",
                partition, state.epoch, log.high_watermark, found.offset,
            )  # fmt: skip
        log.truncate_to(found.offset, self._clock.wall_ms())
        partition.count_truncation("diverging_epoch", before - log.log_end_offset)
        logger.info(
            "%s: in epoch %d truncated from %d to %d, because epoch %d ends at %d on leader broker %d (%d were never committed)",
            partition, state.epoch, before, log.log_end_offset, leader_epoch, leader_end_offset, self.leader_id,
            before - log.log_end_offset,
        )  # fmt: skip
        self._manager.replicas.fetches.wake(partition.key)

    def _failed(self, state: FetchState, code: ErrorCode) -> None:
        partition = state.partition
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            state.is_asking = True
            self._leave_session(state)
            task = asyncio.ensure_future(self._find_offset(state))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            logger.info("%s: epoch %d is fenced; waiting for metadata", partition, state.epoch)
            self._delay(state, self._manager.config.replica_fetch_backoff_ms)
            return
        if code not in _WAIT_AND_RETRY:
            logger.warning("%s: broker %d answers a fetch with %s", partition, self.leader_id, code.name)
        self._delay(state)

    def _delay(self, state: FetchState, backoff_ms: int | None = None) -> None:
        state.backoff_ms = self._next_backoff(state.backoff_ms) if backoff_ms is None else backoff_ms
        state.resume_ms = self._clock.now_ms() + state.backoff_ms
        self._leave_session(state)
        self._wake_in(state.backoff_ms)

    async def _find_offset(self, state: FetchState) -> None:
        """This log ends beyond the leader's, or before the leader's begins (AbstractFetcherThread.fetchOffsetAndTruncate)."""
        partition = state.partition
        log = partition.log
        try:
            latest = await self._ask_offset(state, LATEST_TIMESTAMP)
            if latest < log.log_end_offset:
                logger.warning(
                    "%s: in epoch %d truncated from %d to %d, because leader broker %d ends there",
                    partition, state.epoch, log.log_end_offset, latest, self.leader_id,
                )  # fmt: skip
                before = log.log_end_offset
                log.truncate_to(latest, self._clock.wall_ms())
                partition.count_truncation("out_of_range", before - log.log_end_offset)
            else:
                earliest = await self._ask_offset(state, EARLIEST_TIMESTAMP)
                if earliest > log.log_end_offset:
                    logger.warning(
                        "%s: in epoch %d truncated wholly, because leader broker %d begins at %d and this log ends at %d before",
                        partition, state.epoch, self.leader_id, earliest, log.log_end_offset,
                    )  # fmt: skip
                    held = log.log_end_offset - log.log_start_offset
                    log.truncate_fully_and_start_at(earliest, self._clock.wall_ms())
                    partition.count_truncation("start_moved", held)
                elif earliest > log.log_start_offset:
                    log.update_high_watermark(max(log.high_watermark, earliest))
                    log.increment_log_start_offset(earliest)
        except (ApiError, ConnectionError, TimeoutError, StorageError) as error:
            logger.info("%s: cannot find where to fetch from: %s", partition, error)
            self._delay(state)
        finally:
            state.is_asking = False
            state.sent = None
        self.wake()

    async def _ask_offset(self, state: FetchState, timestamp: int) -> int:
        channel = self._channel
        if channel is None:
            raise ConnectionLost("not connected")
        partition = state.partition
        request = ListOffsetsRequest(
            replica_id=self._manager.replicas.broker_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition.index, current_leader_epoch=state.epoch, timestamp=timestamp
                        )
                    ],
                )
            ],
        )
        response = cast(ListOffsetsResponse, await channel.request(request))
        answer: Any = response.topics[0].partitions[0]
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        if partition.leader_epoch != state.epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        return cast(int, answer.offset)


def _already_present(view: memoryview, log_end_offset: int) -> int:
    """Bytes of leading whole batches that end before `log_end_offset`: a second fetch in flight may bring them again."""
    position, end = 0, len(view)
    while position + 61 <= end:
        base = int.from_bytes(view[position : position + 8], "big", signed=True)
        last = base + int.from_bytes(view[position + 23 : position + 27], "big", signed=True)
        if last >= log_end_offset:
            break
        size = int.from_bytes(view[position + 8 : position + 12], "big", signed=True) + 12
        if size <= 12 or position + size > end:
            break
        position += size
    return position
