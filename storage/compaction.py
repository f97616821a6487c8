"""The rules of compaction: which records of a batch stay, by keys, tombstones, transactions and the last batch of each producer.

Rules: kafka.log.Cleaner, CleanedTransactionMetadata and MemoryRecords.filterTo of Apache Kafka 4.3; KIP-534 (delete
horizon). Pure: bytes and numbers in, bytes out, no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from minikafka.storage.batch_scan import marker_of
from minikafka.storage.types import AbortedTransaction
from minikafka.wire.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    LOG_OVERHEAD,
    OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    RecordBatch,
    refresh_crc,
)
from minikafka.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    LAST_DELTA,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Header,
)
from minikafka.wire.compression import CompressionType, compress
from minikafka.wire.record import Record, encode_record

#: Bytes that a key takes in the map, with its dictionary entry; limits the number of keys by log.cleaner.dedupe.buffer.size.
BYTES_PER_KEY = 160
_DIGEST_BYTES = 16

#: Producer id -> (last data offset or None, epoch).
LastRecords = Mapping[int, tuple[int | None, int]]


class OffsetMap:
    """Key -> its last offset, for records up to `latest_offset`. Keys of 16 bytes and more are kept as digests."""

    __slots__ = ("_keys_max", "_offsets", "latest_offset")

    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = max(keys_max, 1)
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def filled(self) -> float:
        """The share of `keys_max` in use, 0 to 1."""
        return len(self._offsets) / self._keys_max

    def put(self, key: bytes, offset: int) -> bool:
        """Note the offset of a key. False, and nothing is noted, if the map is full."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        offsets = self._offsets
        if len(offsets) >= self._keys_max and key not in offsets:
            return False
        offsets[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """The offset of a key, -1 if the map does not have it."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)


class CleanedTransactions:
    """Tracks, while a log is read in order, which batches belong to aborted transactions and which markers still have batches.

    `kept`: aborted transactions whose marker stays because some of their batches are still in the log. The caller takes the entries and
    clears the list after each segment.
    """

    __slots__ = ("_aborted", "_committed", "_ongoing", "_position", "kept")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset)
        self._position = 0
        self._committed: set[int] = set()
        #: By producer id: (aborted transaction, whether one of its batches was read).
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        self.kept: list[AbortedTransaction] = []

    def _reach(self, offset: int) -> None:
        aborted = self._aborted
        while self._position < len(aborted) and aborted[self._position].first_offset <= offset:
            entry = aborted[self._position]
            self._position += 1
            self._ongoing.setdefault(entry.producer_id, (entry, False))

    def may_discard(self, view: memoryview, position: int, header: Header) -> bool:
        """Whether a batch is obsolete: aborted data, or the marker of a transaction of which no batch is left."""
        attributes, producer_id = header[ATTRIBUTES], header[PRODUCER_ID]
        last_offset = header[BASE_OFFSET] + header[LAST_DELTA]
        self._reach(last_offset)
        if attributes & CONTROL_BIT:
            return self._may_discard_marker(view, position, header)
        if not attributes & TRANSACTIONAL_BIT:
            return False
        found = self._ongoing.get(producer_id)
        if found is None:
            self._committed.add(producer_id)
            return False
        aborted, _ = found
        self._ongoing[producer_id] = (aborted, True)
        return True

    def _may_discard_marker(self, view: memoryview, position: int, header: Header) -> bool:
        if header[COUNT] == 0:
            return True  # a marker that was emptied before
        producer_id = header[PRODUCER_ID]
        marker = marker_of(RecordBatch(view, position))
        if marker is None:
            return False
        is_abort, _, _ = marker
        if not is_abort:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        aborted, has_batches = self._ongoing.pop(producer_id, (None, False))
        if aborted is None or not has_batches:
            return True
        self.kept.append(aborted)
        return False


def map_batch(
    offsets: OffsetMap, transactions: CleanedTransactions, view: memoryview, position: int, header: Header, start_offset: int, size_max: int
) -> bool:
    """Note the keys of one batch from `start_offset` on. False if the map became full within the batch. Raises CorruptRecord, also for
    records of more than `size_max` bytes."""
    last_offset = header[BASE_OFFSET] + header[LAST_DELTA]
    is_aborted = transactions.may_discard(view, position, header)
    if not header[ATTRIBUTES] & CONTROL_BIT and not is_aborted:
        for record in RecordBatch(view, position).records(size_max):
            if record.key is None or record.offset < start_offset:
                continue
            if not offsets.put(record.key, record.offset):
                return False
            offsets.latest_offset = max(offsets.latest_offset, record.offset)
    if last_offset >= start_offset:
        offsets.latest_offset = max(offsets.latest_offset, last_offset)
    return True


class BatchFilter:
    """Decides what stays of each batch, in the order of the log. Times are wall-clock milliseconds. `round_end_offset` (exclusive) is the
    end of the mapped offsets, `size_max` the bound in bytes for the decompressed records of a batch."""

    __slots__ = ("_delete_retention_ms", "_last_records", "_now_ms", "_offsets", "_round_end_offset", "_size_max", "transactions")

    def __init__(
        self, offsets: OffsetMap, transactions: CleanedTransactions, last_records: LastRecords, *, now_ms: int, delete_retention_ms: int,
        size_max: int,
    ) -> None:  # fmt: skip
        self._offsets = offsets
        self._size_max = size_max
        self.transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._round_end_offset = offsets.latest_offset + 1

    def retained(self, view: memoryview, position: int, size: int, header: Header) -> bytes | bytearray | memoryview | None:
        """What stays of the batch: its bytes unchanged, a batch with fewer records or none, or None to drop it."""
        attributes = header[ATTRIBUTES]
        is_control = bool(attributes & CONTROL_BIT)
        horizon_ms = header[BASE_TIMESTAMP] if attributes & DELETE_HORIZON_BIT else None
        may_discard = self.transactions.may_discard(view, position, header)
        drops_records = may_discard and (not is_control or (horizon_ms is not None and horizon_ms <= self._now_ms))
        keeps_empty = self._is_last_of_producer(header) or header[BASE_OFFSET] + header[LAST_DELTA] + 1 == self._round_end_offset
        if drops_records or header[COUNT] == 0:
            return _emptied(header) if keeps_empty else None
        records = list(RecordBatch(view, position).records(self._size_max))
        kept = records if is_control else [record for record in records if self._is_kept(record, horizon_ms)]
        if not kept:
            return _emptied(header) if keeps_empty else None
        needs_horizon = horizon_ms is None and (
            (is_control and may_discard) or (not is_control and any(record.value is None for record in kept))
        )
        if len(kept) == len(records) and not needs_horizon:
            return view[position : position + size]
        return _rebuilt(header, kept, self._now_ms + self._delete_retention_ms if needs_horizon else horizon_ms)

    def _is_last_of_producer(self, header: Header) -> bool:
        """Whether the batch holds the producer's last sequence number, or its last epoch if it has no sequence. It is kept, so that the
        producer's state can be rebuilt from the log."""
        last = self._last_records.get(header[PRODUCER_ID]) if header[PRODUCER_ID] >= 0 else None
        if last is None:
            return False
        last_data_offset, epoch = last
        if last_data_offset is not None:
            return header[BASE_OFFSET] + header[LAST_DELTA] == last_data_offset
        return bool(header[ATTRIBUTES] & CONTROL_BIT) and header[PRODUCER_EPOCH] == epoch

    def _is_kept(self, record: Record, horizon_ms: int | None) -> bool:
        offsets = self._offsets
        if record.offset > offsets.latest_offset:
            return True
        if record.key is None:
            return False
        if record.offset < offsets.get(record.key):
            return False
        return record.value is not None or horizon_ms is None or self._now_ms < horizon_ms


def _emptied(header: Header) -> bytearray:
    """A batch of the header alone, as Kafka's DefaultRecordBatch.writeEmptyHeader writes it."""
    attributes = header[ATTRIBUTES] & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return _sealed(header, attributes, -1, header[MAX_TIMESTAMP], b"", 0)


def _rebuilt(header: Header, records: Sequence[Record], horizon_ms: int | None) -> bytearray:
    """The batch with only these records. Offsets, sequence and last offset stay; timestamps count from the delete horizon, if any."""
    base_offset, attributes = header[BASE_OFFSET], header[ATTRIBUTES] & ~DELETE_HORIZON_BIT
    base_timestamp, max_timestamp = records[0].timestamp, max(record.timestamp for record in records)
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
    body = b"".join(
        encode_record(record.offset - base_offset, record.timestamp - base_timestamp, record.key, record.value, record.headers)
        for record in records
    )
    packed = compress(CompressionType(attributes & CODEC_MASK), body)
    return _sealed(header, attributes, base_timestamp, max_timestamp, packed, len(records))


def _sealed(header: Header, attributes: int, base_timestamp: int, max_timestamp: int, body: bytes, count: int) -> bytearray:
    batch = bytearray(OVERHEAD)
    length = OVERHEAD - LOG_OVERHEAD + len(body)
    start, epoch, magic, delta = header[BASE_OFFSET], header[LEADER_EPOCH], header[MAGIC], header[LAST_DELTA]
    producer = header[PRODUCER_ID:COUNT]
    HEADER.pack_into(batch, 0, start, length, epoch, magic, 0, attributes, delta, base_timestamp, max_timestamp, *producer, count)
    batch += body
    refresh_crc(batch)
    return batch
