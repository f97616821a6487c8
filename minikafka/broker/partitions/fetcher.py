"""Follower fetching: one fetcher for each (leader broker, fetcher id), one connection, one incremental fetch session.

`minikafka.core.partition.follower` decides what to fetch and interprets the responses; this module does the I/O. The records of a response
are appended straight from the receive buffer, and the next fetch is sent in the same turn of the loop, unless there is much to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from minikafka.broker.log_flush import flush, sync_cut, truncate, truncate_fully
from minikafka.broker.partitions.counted_flushes import sync_followed
from minikafka.broker.partitions.partition import Partition, PartitionEvents
from minikafka.broker.supervise import Ends
from minikafka.core.partition.follower import BACKOFF_MS_MIN, EXPECTED_ERRORS, FetchPlan, FollowedPartition, Follower, Key, Step
from minikafka.core.partition.truncation import OutOfRange, is_beyond_leader, out_of_range, truncation_for
from minikafka.net.channel import CONNECT_TIMEOUT_MS, Channel, ConnectionLost, UnsupportedVersion
from minikafka.storage.errors import LogClosed, ResourceShortage, StorageError, UnexpectedAppendOffset
from minikafka.wire.batch import LOG_OVERHEAD, OVERHEAD
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from minikafka.broker.partitions.replication import Replication

logger = logging.getLogger("minikafka.fetcher")

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
#: After more partitions of an answer, the next fetch is sent in a turn of its own: it may name as many.
ANSWERED_AT_ONCE = 256
#: Of a batch: base offset, length, last offset delta.
_PLACE = Struct(">qi11xi")


class Fetcher:
    """Fetches from one leader; `follower` decides what."""

    def __init__(
        self, replication: Replication, events: PartitionEvents, on_reach: Callable[[int, bool], None], leader_id: int, fetcher_id: int
    ) -> None:
        """`on_reach(leader, is_reachable)` is called when a connection is made or breaks."""
        self.key = (leader_id, fetcher_id)
        self.leader_id = leader_id
        self.partitions: dict[Key, Partition] = {}
        self.follower = Follower(replication.broker_id, replication.throttles.follower, replication.config.replica_fetch_backoff_ms)
        self._replication = replication
        self._config = replication.config
        self._events = events
        self._on_reach = on_reach
        self._clock = replication.environment.clock
        self._supervisor = replication.environment.supervisor
        self._channel: Channel | None = None
        self._endpoint: tuple[str, int] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connect_backoff_ms = 0
        #: The timer and its due time.
        self._timer: tuple[asyncio.TimerHandle, int] | None = None
        self._closed = False
        #: Partitions of answers that have not been handled yet; nothing is fetched meanwhile.
        self._left: deque[tuple[FetchPlan, Key, FetchResponse.PartitionData]] = deque()
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: Partitions that are synced for flush.messages; nothing is fetched meanwhile.
        self._syncing: set[FollowedPartition] = set()

    # -- partitions ------------------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Fetch a partition from the end of its local log."""
        self.partitions[(partition.topic_id, partition.index)] = partition
        self.follower.add(partition)
        if partition.log.is_sync_due:
            self._sync_counted(self.follower.partitions[(partition.topic_id, partition.index)], partition)

    def remove(self, partition: Partition) -> None:
        """Leave a partition out of the next fetch and drop its part of the fetch in flight."""
        key = (partition.topic_id, partition.index)
        self.partitions.pop(key, None)
        self.follower.remove(key)

    def wake(self) -> None:
        """Send a fetch if there is something to fetch."""
        if self._closed:
            return
        if self._channel is None or self._channel.closed:
            self._connect()
        else:
            self._fetch()

    # -- connection ------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = self._supervisor.start(self._open(), f"connecting to broker {self.leader_id}")

    async def _open(self) -> None:
        broker = self._replication.metadata.image.brokers.get(self.leader_id)
        endpoint = None if broker is None else broker.listeners.get(self._config.inter_broker_listener)
        if endpoint is None:
            self._retry_connect("its address is not known")
            return
        host, port = endpoint[0], endpoint[1]
        try:
            channel = await Channel.open(
                self._replication.environment.network,
                host,
                port,
                client_id=f"broker-{self._replication.broker_id}-fetcher-{self.key[1]}",
                # Kafka's followers, too, give a connection less time to open (socket.connection.setup.timeout.ms) than a fetch.
                timeout_ms=min(self._config.replica_socket_timeout_ms, CONNECT_TIMEOUT_MS),
                security=self._replication.security,
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
        self._on_reach(self.leader_id, True)
        self.follower.disconnected()
        self._fetch()

    def _retry_connect(self, reason: str) -> None:
        if self._closed:
            return
        if self._connect_backoff_ms == 0:
            logger.info("cannot fetch from broker %d yet: %s", self.leader_id, reason)
        self._connect_backoff_ms = self.follower.next_backoff_ms(self._connect_backoff_ms)
        self._wake_at(self._clock.now_ms() + self._connect_backoff_ms)

    def _wake_at(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._timer[1] <= due_ms:
                return
            self._timer[0].cancel()
        delay_s = max(due_ms - self._clock.now_ms(), 1) / 1000
        self._timer = self._supervisor.call_later(delay_s, f"fetching from broker {self.leader_id}", self._on_timer), due_ms

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    def leader_changed(self) -> None:
        """The leader registered again. Reconnect if its address changed, skip back-offs, and drop the session with its earlier process."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        broker = self._replication.metadata.image.brokers.get(self.leader_id)
        endpoint = None if broker is None else broker.listeners.get(self._config.inter_broker_listener)
        if self._channel is not None and endpoint is not None and self._endpoint != (endpoint[0], endpoint[1]):
            self._drop_channel("the leader has another address")
        self._connect_backoff_ms = 0
        self.follower.leader_changed()
        self.wake()

    def _drop_channel(self, reason: str) -> None:
        channel, self._channel = self._channel, None
        self._left.clear()
        self.follower.disconnected()
        if channel is not None:
            channel.close(reason)

    def close(self, reason: str) -> None:
        """Stop the fetcher."""
        self._closed = True
        if self._timer is not None:
            self._timer[0].cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for task in self._tasks:
            task.cancel()
        self._drop_channel(reason)

    # -- requests --------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        channel = self._channel
        if channel is None or channel.closed or self._closed or self._left or self._syncing:
            return
        plan = self.follower.next_fetch(self._clock.now_ms())
        if self.follower.wake_ms is not None:
            self._wake_at(self.follower.wake_ms)
        if plan is None:
            return
        config = self._config
        try:
            channel.send(
                self._request(plan),
                None,
                partial(self._take_answer, plan),
                config.replica_socket_timeout_ms + config.replica_fetch_wait_max_ms,
            )
        except (ConnectionLost, UnsupportedVersion, WireError) as error:
            self._drop_channel(str(error))
            self._wake_at(self._clock.now_ms() + BACKOFF_MS_MIN)

    def _request(self, plan: FetchPlan) -> FetchRequest:
        config, wait_ms_max = self._config, plan.wait_ms_max
        if wait_ms_max is None:
            wait_ms_max = config.replica_fetch_wait_max_ms
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        for (topic_id, index), (fetch_offset, leader_epoch, last_fetched_epoch, log_start_offset) in plan.positions:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=fetch_offset,
                    last_fetched_epoch=last_fetched_epoch,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                )
            )
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in plan.forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self._replication.broker_id, replica_epoch=self._replication.broker_epoch()),
            max_wait_ms=wait_ms_max,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[FetchRequest.ForgottenTopic(topic_id=key, partitions=indexes) for key, indexes in forgotten.items()],
        )

    # -- responses -------------------------------------------------------------------------------------------------

    def _take_answer(self, plan: FetchPlan, response: FetchResponse | None, error: Exception | None) -> None:
        try:
            self._answered(plan, response, error)
        except Exception as problem:
            self._supervisor.caught(f"following broker {self.leader_id}", problem, Ends("connection", self._begin_anew))

    def _begin_anew(self, reason: str) -> None:
        """Start again with a new connection, from the ends of the logs."""
        self._drop_channel(reason)
        self._wake_at(self._clock.now_ms() + self._config.replica_fetch_backoff_ms)

    def _answered(self, plan: FetchPlan, response: FetchResponse | None, error: Exception | None) -> None:
        if self._closed or not self.follower.is_current(plan):
            return
        if response is None:
            logger.info("the connection to leader broker %d broke: %s", self.leader_id, error)
            self._on_reach(self.leader_id, False)
            self._drop_channel(str(error))
            self._wake_at(self._clock.now_ms() + BACKOFF_MS_MIN)
            return
        code = ErrorCode(response.error_code) if response.error_code else ErrorCode.NONE
        if not self.follower.answered(plan, code, response.session_id):
            logger.info("broker %d rejected the fetch session: %s", self.leader_id, code.name)
            self._wake_at(self._clock.now_ms() + BACKOFF_MS_MIN)
            return
        is_busy = bool(self._left)
        for topic in response.responses:
            for data in topic.partitions:
                self._left.append((plan, (topic.topic_id, data.partition_index), data))
        if is_busy:
            self._keep_records()
        else:
            self._take_some()
            if self._left:
                self._keep_records()

    def _keep_records(self) -> None:
        """Some records are appended in a later turn, when others have been received."""
        if self._channel is not None:
            self._channel.keep_frame()

    def _take_some(self) -> None:
        """Handle answered partitions until this turn's share is used up: each may begin a segment. Then fetch on."""
        left, now_ms, is_long = self._left, self._clock.now_ms(), len(self._left) > ANSWERED_AT_ONCE
        is_over = self._replication.environment.shares.begin() if len(left) > 1 else None
        while left:
            self._take(*left.popleft(), now_ms)
            if left and (is_over is None or is_over()):
                self._supervisor.call_soon(f"following broker {self.leader_id}", self._take_more)
                return
        self.follower.finished()
        if is_long:
            self._supervisor.call_soon(f"following broker {self.leader_id}", self._take_more)
        else:
            self._fetch()

    def _take_more(self) -> None:
        try:
            if self._left:
                self._take_some()
            else:
                self._fetch()
        except Exception as problem:
            self._supervisor.caught(f"following broker {self.leader_id}", problem, Ends("connection", self._begin_anew))

    def _take(self, plan: FetchPlan, key: Key, data: FetchResponse.PartitionData, now_ms: int) -> None:
        """Handle the part of a response that concerns one partition."""
        follower = self.follower
        followed = follower.followed(plan, key)
        if followed is None:
            return
        partition, code = self.partitions[key], ErrorCode(data.error_code) if data.error_code else ErrorCode.NONE
        diverging = data.diverging_epoch
        step = follower.step(followed, code, now_ms, is_diverging=diverging.end_offset >= 0 or diverging.epoch >= 0)
        try:
            if step is Step.APPEND:
                self._append(followed, partition, data)
            elif step is Step.TRUNCATE:
                follower.syncing(followed)
                cut = self._truncate(partition, followed.leader_epoch, diverging.epoch, diverging.end_offset)
                self._start(self._go_on_behind(cut, followed, partition), f"truncating {partition}")
            elif step is Step.LOCATE:
                self._start(self._locate(followed, partition), f"looking for the offset of {partition}")
            elif code is ErrorCode.FENCED_LEADER_EPOCH:
                logger.info("%s: epoch %d is fenced; waiting for metadata", partition, followed.leader_epoch)
            elif code not in EXPECTED_ERRORS:
                logger.warning("%s: broker %d answers a fetch with %s", partition, self.leader_id, code.name)
        except ResourceShortage as error:
            logger.warning("%s: trying again: %s", partition, error)
            follower.refused(followed, now_ms)
        except StorageError as error:
            logger.error("%s: stopped following: %s", partition, error)
            follower.failed(followed)
        except (ApiError, UnexpectedAppendOffset) as error:
            logger.warning("%s: cannot append the records of broker %d: %s", partition, self.leader_id, error)
            follower.refused(followed, now_ms)

    def _append(self, followed: FollowedPartition, partition: Partition, data: FetchResponse.PartitionData) -> None:
        """Raises StorageError, UnexpectedAppendOffset, ApiError."""
        log, watermarks = partition.log, partition.log.watermarks
        view: memoryview | None = data.records  # type: ignore[assignment]
        if view is not None and len(view):
            quota = self._replication.throttles.follower
            if quota.is_active and quota.applies_to(partition.topic, partition.index):
                quota.record(len(view), self._clock.now_ms())
            self._events.replicated(partition, len(view))
            skip = _already_present(view, watermarks.log_end_offset)
            if skip:
                view = view[skip:]
            if log.must_sync_first(view, -1):
                # Nobody else appends, so the same records come again to a log that need not be synced.
                self.follower.syncing(followed)
                sync = flush(log, self._replication.environment.run_blocking)
                self._start(self._go_on_behind(sync, followed, partition), f"flushing {partition} before a roll")
                return
            log.append_as_follower(view, followed.leader_epoch)
        followed.leader_high_watermark = data.high_watermark
        if watermarks.move_high_watermark(min(data.high_watermark, watermarks.log_end_offset)):
            self._events.high_watermark_moved(partition)
        if data.log_start_offset > watermarks.log_start_offset:
            log.increment_log_start_offset(min(data.log_start_offset, log.high_watermark))
        self.follower.appended(followed)
        if log.is_sync_due:
            self._sync_counted(followed, partition)

    def _sync_counted(self, followed: FollowedPartition, partition: Partition) -> None:
        """Sync the log as flush.messages asks. The next fetch waits, because it tells the leader that the records are here. It waits for
        all partitions, as in Kafka: a fetch without this one would be parked, and a leader may answer one request at a time."""
        self.follower.syncing(followed)
        self._syncing.add(followed)
        self._start(self._sync_first(followed, partition), f"syncing {partition} for flush.messages")

    async def _sync_first(self, followed: FollowedPartition, partition: Partition) -> None:
        is_followed, fetch_others = self._is_followed(partition, followed.leader_epoch), partial(self._wait_no_more, followed)
        try:
            sync = sync_followed(partition.log, self._replication.environment, is_followed, fetch_others)
            await self._go_on_behind(sync, followed, partition)
        finally:
            fetch_others()

    def _wait_no_more(self, followed: FollowedPartition) -> None:
        """The partition is synced, or that takes longer: others need not wait for it."""
        self._syncing.discard(followed)
        self.wake()

    async def _truncate(self, partition: Partition, leader_epoch: int, diverging_epoch: int, leader_end_offset: int) -> None:
        """Truncate what diverges from the leader of `leader_epoch`. Raises StorageError, ApiError(CORRUPT_MESSAGE)."""
        log = partition.log
        found = truncation_for(
            diverging_epoch,
            leader_end_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            end_offset_for=lambda epoch: tuple(log.end_offset_for_epoch(epoch)),  # type: ignore[arg-type,return-value]
        )
        before = log.log_end_offset
        if found.offset < log.high_watermark:
            logger.warning(
                "%s: in epoch %d truncating below the high watermark %d to %d: the leader lost committed records (unclean election?)",
                partition, partition.leader_epoch, log.high_watermark, found.offset,
            )  # fmt: skip
        if not await self._truncate_log(partition, leader_epoch, found.offset):
            return
        partition.count_truncation("diverging_epoch", before - log.log_end_offset)
        logger.info(
            "%s: in epoch %d truncated from %d to %d, because epoch %d ends at %d on leader broker %d (%d were never committed)",
            partition, leader_epoch, before, log.log_end_offset, diverging_epoch, leader_end_offset, self.leader_id,
            before - log.log_end_offset,
        )  # fmt: skip
        await self._sync_cut(partition)

    async def _truncate_log(self, partition: Partition, leader_epoch: int, offset: int) -> bool:
        """False if this leader is not followed any more, or the log is closed. Raises StorageError, ApiError(CORRUPT_MESSAGE)."""
        run_blocking = self._replication.environment.run_blocking
        return await truncate(partition.log, offset, self._clock.wall_ms, run_blocking, self._is_followed(partition, leader_epoch))

    def _is_followed(self, partition: Partition, leader_epoch: int) -> Callable[[], bool]:
        """Says whether the replica still follows this leader in that epoch, with the same log."""
        log, key = partition.log, (partition.topic_id, partition.index)
        return lambda: (
            partition.leader_epoch == leader_epoch
            and partition.log is log
            and log.failure is None
            and self.partitions.get(key) is partition
        )

    async def _sync_cut(self, partition: Partition) -> None:
        """Raises StorageError."""
        await sync_cut(partition.log, self._replication.environment.run_blocking)
        await self._events.cut_is_synced(partition)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._supervisor.start(work, name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _go_on_behind(self, sync: Coroutine[Any, Any, None], followed: FollowedPartition, partition: Partition) -> None:
        """Truncate or sync the log before fetching on: the next append would wait for it."""
        is_synced = True
        try:
            await sync
        except (ResourceShortage, ApiError) as error:
            logger.warning("%s: trying again: %s", partition, error)
            is_synced = False
        except StorageError as error:
            # A log that a move between directories has replaced meanwhile is closed: the copy goes on where it ends.
            if not isinstance(error, LogClosed) or partition.log.failure is not None:
                logger.error("%s: stopped following: %s", partition, error)
                self.follower.failed(followed)
                return
        self.follower.located(followed, self._clock.now_ms(), is_found=is_synced)
        self.wake()

    async def _locate(self, followed: FollowedPartition, partition: Partition) -> None:
        """This log ends after the leader's or before the leader's start: find the fetch offset
        (AbstractFetcherThread.fetchOffsetAndTruncate)."""
        is_found = False
        try:
            await self._bring_in_line(partition, followed.leader_epoch)
            is_found = True
        except (ApiError, ConnectionError, TimeoutError, UnsupportedVersion, StorageError) as error:
            logger.info("%s: cannot find where to fetch from: %s", partition, error)
        finally:
            self.follower.located(followed, self._clock.now_ms(), is_found=is_found)
        self.wake()

    async def _bring_in_line(self, partition: Partition, leader_epoch: int) -> None:
        log = partition.log
        leader_end = await self._ask_offset(partition, leader_epoch, LATEST_TIMESTAMP)
        if is_beyond_leader(leader_end, log_end_offset=log.log_end_offset):
            logger.warning(
                "%s: in epoch %d truncated from %d to %d, because leader broker %d ends there",
                partition, leader_epoch, log.log_end_offset, leader_end, self.leader_id,
            )  # fmt: skip
            before = log.log_end_offset
            if await self._truncate_log(partition, leader_epoch, leader_end):
                partition.count_truncation("out_of_range", before - log.log_end_offset)
                await self._sync_cut(partition)
            return
        leader_start = await self._ask_offset(partition, leader_epoch, EARLIEST_TIMESTAMP)
        # Others count on the records of a replica that is in sync.
        lost = log.watermarks.lost if self._replication.broker_id not in partition.isr else None
        found = out_of_range(leader_start, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset, lost=lost)
        if found is OutOfRange.START_ANEW:
            logger.warning(
                "%s: in epoch %d truncated completely: the log of leader broker %d begins at %d, and this log had offsets %d to %d",
                partition, leader_epoch, self.leader_id, leader_start, log.log_start_offset, log.log_end_offset,
            )  # fmt: skip
            held = log.log_end_offset - log.log_start_offset
            run_blocking, is_followed = self._replication.environment.run_blocking, self._is_followed(partition, leader_epoch)
            if await truncate_fully(log, leader_start, self._clock.wall_ms, run_blocking, is_followed):
                partition.count_truncation("start_moved", held)
                await self._sync_cut(partition)
        elif found is OutOfRange.MOVE_START:
            log.update_high_watermark(max(log.high_watermark, leader_start))
            log.increment_log_start_offset(leader_start)
        log.accept_loss()

    async def _ask_offset(self, partition: Partition, leader_epoch: int, timestamp: int) -> int:
        channel = self._channel
        if channel is None:
            raise ConnectionLost("not connected")
        request = ListOffsetsRequest(
            replica_id=self._replication.broker_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition.index, current_leader_epoch=leader_epoch, timestamp=timestamp
                        )
                    ],
                )
            ],
        )
        response = cast(ListOffsetsResponse, await channel.request(request))
        answer: Any = response.topics[0].partitions[0]
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        if partition.leader_epoch != leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        return cast(int, answer.offset)


def _already_present(view: memoryview, log_end_offset: int) -> int:
    """The size of the leading batches that end before `log_end_offset`. A second fetch in flight may deliver them again."""
    position, end = 0, len(view)
    while position + OVERHEAD <= end:
        base, length, delta = _PLACE.unpack_from(view, position)
        size = length + LOG_OVERHEAD
        if base + delta >= log_end_offset or size <= LOG_OVERHEAD or position + size > end:
            break
        position += size
    return position
