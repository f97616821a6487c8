"""Reads one partition for a fetch: epoch checks, divergence, follower progress, offset bounds, preferred replicas.

Rules: kafka.cluster.Partition.readRecords and kafka.server.ReplicaManager.readFromLog of Apache Kafka; KIP-320, KIP-392, KIP-595, KIP-903.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.core.fetch_session import FetchPartition
from minikafka.storage.cold_reads import Look, NotInMemory
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.core.metadata.image import MetadataImage
    from minikafka.storage.log import Log
    from minikafka.storage.slice import FileSlice
    from minikafka.storage.types import AbortedTransaction, OffsetPosition, ReadResult

CONSUMER = -1
READ_COMMITTED = 1
READ_UNCOMMITTED = 0
#: Aborted transactions whose markers are in what one read returns of a partition.
ABORTED_MAX = 2_000
#: Errors that a client can cause; all others count as failures of the broker (ReplicaManager.readFromLog).
EXPECTED_FAILURES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)  # fmt: skip


class FetchParams:
    """What all partitions of one fetch have in common."""

    __slots__ = (
        "broker_epoch", "by_id", "is_denied", "is_follower", "is_noted", "isolation", "listener", "may_read_follower", "rack", "replica_id",
    )  # fmt: skip

    def __init__(
        self,
        replica_id: int,
        broker_epoch: int,
        isolation: int,
        rack: str,
        *,
        by_id: bool,
        may_read_follower: bool,
        listener: str,
        is_denied: Callable[[str], bool] | None = None,
    ) -> None:
        """`is_denied`: given with an authorizer, tells whether a topic must not be read."""
        self.replica_id = replica_id
        #: Whether a broker fetches in order to replicate.
        self.is_follower = replica_id >= 0
        self.broker_epoch = broker_epoch
        self.isolation = isolation
        self.rack = rack
        self.by_id = by_id
        self.may_read_follower = may_read_follower
        self.listener = listener
        self.is_denied = is_denied
        #: Whether the leaders have recorded the follower's fetch offsets. They do so when the request arrives, not when it is answered.
        self.is_noted = False


class PartitionRead:
    """The result of reading one partition. `slice` is None when nothing was read; `diverging` is (epoch, end offset)."""

    __slots__ = (
        "aborted",
        "code",
        "diverging",
        "end",
        "high_watermark",
        "is_cold",
        "is_throttled",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "position",
        "preferred",
        "size",
        "slice",
        "wanted",
    )

    def __init__(self, wanted: FetchPartition, code: ErrorCode = ErrorCode.NONE) -> None:
        self.wanted = wanted
        self.code = code
        self.partition: Partition | None = None
        self.slice: FileSlice | None = None
        #: The number of bytes of records.
        self.size = 0
        #: Of the fetch offset, if it was looked for.
        self.position: OffsetPosition | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.diverging: tuple[int, int] | None = None
        self.aborted: list[Any] | None = None
        self.preferred = -1
        self.leader_epoch = -1
        self.end = -1
        self.is_throttled = False
        #: Whether the records must be read from the disk first.
        self.is_cold = False

    @property
    def settles(self) -> bool:
        """Whether the fetch must be answered now, however little it has read."""
        return self.code is not ErrorCode.NONE or self.diverging is not None or self.preferred >= 0

    def is_still_empty(self, params: FetchParams) -> bool:
        """Whether reading again would still find nothing. Updates the watermarks."""
        partition = self.partition
        if partition is None or self.slice is not None or self.settles or self.is_throttled or params.rack:
            return False
        log = partition.log
        if partition.leader is None or partition.leader_epoch != self.leader_epoch or log.failure is not None:
            return False
        offset, watermarks = self.wanted.fetch_offset, log.watermarks
        if not end_offset_of(partition, params) <= offset <= watermarks.log_end_offset or offset < watermarks.log_start_offset:
            return False
        partition.fetches += 1
        self.high_watermark = watermarks.high_watermark
        self.last_stable_offset = watermarks.last_stable_offset
        self.log_start_offset = watermarks.log_start_offset
        return True

    def took(self, found: ReadResult) -> None:
        """Keep what was read."""
        self.position = found.position
        if found.slice.size:
            self.slice, self.size, self.is_cold = found.slice, found.slice.size, found.is_cold

    def release(self) -> None:
        """Release the records because they will not be sent."""
        if self.slice is not None:
            self.slice.release()
            self.slice, self.size = None, 0


def end_offset_of(partition: Partition, params: FetchParams) -> int:
    """The end offset (exclusive): the log end for followers, the high watermark or last stable offset for consumers."""
    watermarks = partition.log.watermarks
    if params.replica_id >= 0:
        return watermarks.log_end_offset
    return watermarks.last_stable_offset if params.isolation == READ_COMMITTED else watermarks.high_watermark


def _check_replica(partition: Partition, params: FetchParams, wanted: FetchPartition) -> None:
    """Raises ApiError if the broker that fetches is no replica of the partition."""
    if params.replica_id >= 0 and partition.leader is not None and params.replica_id not in partition.leader.followers:
        # Who names the epoch knows of replicas that we have not heard of yet.
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH if wanted.leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER)


class PartitionReader:
    """Reads the partitions of this broker."""

    def __init__(self, replicas: ReplicaManager, is_rack_aware: bool) -> None:
        self._replicas = replicas
        self.is_rack_aware = is_rack_aware

    def read(
        self, wanted: FetchPartition, params: FetchParams, bytes_max: int, at_least_one: bool, now_ms: int, image: MetadataImage, look: Look
    ) -> PartitionRead:
        """Read one partition. Errors that the client causes are returned, not raised. Raises NotInMemory, with nothing counted."""
        if params.is_denied is not None and params.is_denied(wanted.topic):
            return PartitionRead(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        result = PartitionRead(wanted)
        try:
            self._read(result, wanted, params, bytes_max, at_least_one, now_ms, image, look)
        except ApiError as error:
            result.code = error.code
            if error.code not in EXPECTED_FAILURES and result.partition is not None:
                result.partition.fetches_failed += 1
        except StorageError:
            result.code = ErrorCode.KAFKA_STORAGE_ERROR
        if result.leader_epoch >= 0 and result.partition is not None:
            result.partition.fetches += 1
        return result

    def _read(
        self, result: PartitionRead, wanted: FetchPartition, params: FetchParams, bytes_max: int, at_least_one: bool, now_ms: int,
        image: MetadataImage, look: Look,
    ) -> None:  # fmt: skip
        if params.by_id and not wanted.topic:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._replicas.require(wanted.topic, wanted.topic_id if params.by_id else None, wanted.index)
        partition.check_epoch(wanted.leader_epoch)
        if partition.leader is None and (params.replica_id >= 0 or not params.may_read_follower):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        result.partition = partition
        _check_replica(partition, params, wanted)
        log = partition.log
        offset, watermarks = wanted.fetch_offset, log.watermarks
        result.leader_epoch = partition.leader_epoch
        if wanted.last_fetched_epoch >= 0 and self._diverges(result, wanted, log):
            pass
        elif not watermarks.log_start_offset <= offset <= watermarks.log_end_offset:
            # These errors may make a consumer jump to another offset and lose its position.
            is_in_doubt = params.replica_id < 0 and self._replicas.is_in_doubt(partition)
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_in_doubt else ErrorCode.OFFSET_OUT_OF_RANGE)
        elif params.replica_id >= 0 and not params.is_noted:
            partition.follower_fetched(params.replica_id, offset, wanted.log_start_offset, params.broker_epoch, now_ms)
        elif params.rack and self.is_rack_aware and partition.leader is not None:
            result.preferred = self._preferred_replica(partition, params, offset, image)
        result.high_watermark = watermarks.high_watermark
        result.last_stable_offset = watermarks.last_stable_offset
        result.log_start_offset = watermarks.log_start_offset
        if result.diverging is not None or result.preferred >= 0:
            return
        end = result.end = end_offset_of(partition, params)
        if params.replica_id >= 0 and self._replicas.throttles.leader.is_active:
            self._read_throttled(result, wanted, params, bytes_max, at_least_one, now_ms, look)
            return
        if offset > end and params.replica_id < 0 and partition.leader is None:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        is_committed = params.isolation == READ_COMMITTED and params.replica_id < 0
        if offset >= end:
            if log.failure is not None:  # as a read would say
                raise log.failure
            result.aborted = [] if is_committed else None
            return
        size_max = max(min(bytes_max, wanted.max_bytes), 0)
        with look:
            found = log.read(offset, size_max, end_offset=end, at_least_one=at_least_one)
            if is_committed:
                found = self._with_aborted(result, log, found, size_max, at_least_one)
        result.took(found)

    @staticmethod
    def _with_aborted(result: PartitionRead, log: Log, found: ReadResult, size_max: int, at_least_one: bool) -> ReadResult:
        """Look up the aborted transactions of what was read. If they are very many, read less: their writer decides how many there are in
        so many bytes. Only those that were open where the shorter read ends come on top. If not even the first batch fits, Apache Kafka
        does not look, and answers none instead of an empty list (ReplicaManager.readFromLog, firstEntryIncomplete)."""
        offset = result.wanted.fetch_offset
        if size_max and not found.slice.size:
            return found
        aborted: list[AbortedTransaction] = []
        if found.slice.size:
            try:
                aborted = log.aborted_transactions(offset, log.upper_bound_offset(found), ABORTED_MAX + 1)
            except NotInMemory:
                found.slice.release()
                raise
        if len(aborted) > ABORTED_MAX:
            found.slice.release()
            # The marker may be behind the last stable offset, if the transaction began before it.
            end = min(aborted[ABORTED_MAX - 1].last_offset + 1, result.end)
            found = log.read(offset, size_max, end_offset=end, at_least_one=at_least_one)
            aborted = log.aborted_transactions(offset, log.upper_bound_offset(found)) if found.slice.size else []
        result.aborted = aborted
        return found

    def _read_throttled(
        self, result: PartitionRead, wanted: FetchPartition, params: FetchParams, bytes_max: int, at_least_one: bool, now_ms: int,
        look: Look,
    ) -> None:  # fmt: skip
        """Read for a follower while replication is throttled. A replica that is throttled and not in sync gets nothing once the rate is
        used up. What it gets is counted (ReplicaManager.shouldLeaderThrottle)."""
        partition, quota = result.partition, self._replicas.throttles.leader
        assert partition is not None
        is_counted = quota.applies_to(partition.topic, partition.index)
        if is_counted and params.replica_id not in partition.isr and quota.wait_ms(now_ms) > 0:
            result.is_throttled = True
            return
        size_max = max(min(bytes_max, wanted.max_bytes), 0)
        with look:
            found = partition.log.read(wanted.fetch_offset, size_max, end_offset=result.end, at_least_one=at_least_one)
        result.took(found)
        if is_counted and result.size:
            quota.record(result.size, now_ms)

    @staticmethod
    def _diverges(result: PartitionRead, wanted: FetchPartition, log: Log) -> bool:
        """Whether the fetcher's last epoch ends elsewhere in this log, so that the fetcher must truncate (KIP-595)."""
        watermarks = log.watermarks
        if (
            wanted.last_fetched_epoch == log.epochs.latest
            and watermarks.log_start_offset <= wanted.fetch_offset <= watermarks.log_end_offset
        ):
            return False
        epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if wanted.fetch_offset < log.log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            result.diverging = (epoch, end_offset)
            return True
        return False

    def _preferred_replica(self, partition: Partition, params: FetchParams, offset: int, image: MetadataImage) -> int:
        """A replica in the consumer's rack that has the offset; -1 to stay with the leader (RackAwareReplicaSelector)."""
        leader = partition.leader
        assert leader is not None
        own = image.brokers.get(self._replicas.broker_id)
        if own is not None and own.rack == params.rack:
            return -1
        best, best_end = -1, -1
        for broker_id in leader.isr.committed:
            follower = leader.followers.get(broker_id)
            broker = image.brokers.get(broker_id)
            if follower is None or broker is None or broker.fenced or broker.rack != params.rack:
                continue
            if follower.log_end_offset >= offset >= follower.log_start_offset and follower.log_end_offset > best_end:
                best, best_end = broker_id, follower.log_end_offset
        return best
