"""The fast path of repeated Fetch requests of consumers without a session, which differ only in their offsets.

Such a client (for example librdkafka) names all its partitions in each request. The bytes around the offsets are the key of a template,
which the declared messages decoded and encoded once, as in `produce_fast_path`. A fetch takes the ordinary path if it would have to wait,
or meets an error, a leader change, aborted transactions, another rack or records that are not in memory. In that case the fast path has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.fast_path import MISSES_MAX, Counted, Permits, TemplateFastPath, remember
from minikafka.net.socket_writer import SENDFILE_BYTES_MIN
from minikafka.storage.cold_reads import Look, NotInMemory
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError
from minikafka.wire.frame import encode_request, encode_response
from minikafka.wire.message import Piece
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.varint import unsigned_varint

if TYPE_CHECKING:
    from minikafka.broker.front.fast_path import Refer
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.net.network import Connection
    from minikafka.storage.slice import FileSlice

VERSION_MIN = 11
FLEXIBLE_VERSION_MIN = 12
TOPIC_ID_VERSION_MIN = 13
REPLICA_STATE_VERSION_MIN = 15
NO_SESSION_EPOCH = -1
CONSUMER = -1
PARTITIONS_MAX = 64
TEMPLATES_MAX = 64
LAYOUTS_MAX = 16
#: Longer requests, of some hundred partitions, get no template.
TEMPLATE_BYTES_MAX = 16 * 1024
_OFFSET = Struct(">q")
_LENGTH = Struct(">i")
_FRAME = Struct(">ii")
_VERSION = Struct(">h")
_NO_SESSION = b"\xff\xff\xff\xff"
_WATERMARKS = Struct(">qqq")
_MARK = 0x5EA7_0FF5_0000_0000
_RECORDS_MARK = b"\x5e\xa7\x0f\xf5"
_EPOCH_MARK = 0x5EA7_0FF5
#: What is not in memory is for the ordinary path.
_LOOK = Look()
_LENGTHS = [bytes([size]) for size in range(128)]


class _Layout:
    """The positions of the offsets in frames of one length."""

    __slots__ = ("between", "offset_positions")

    def __init__(self, offset_positions: list[int], size: int) -> None:
        self.offset_positions = offset_positions
        starts = [8, *(position_of_offset + 8 for position_of_offset in offset_positions)]
        self.between = [slice(0, 4), *(slice(start, end) for start, end in zip(starts, [*offset_positions, size], strict=True))]

    def key(self, frame: memoryview) -> bytes:
        """All bytes but the correlation id and the offsets."""
        return b"".join([frame[part] for part in self.between])


class _Part:
    """One partition of a template: its part of the request, and the bytes of its response before and after the watermarks."""

    __slots__ = ("before", "between", "bytes_max", "key", "leader_epoch")

    def __init__(self, key: tuple[object, int], wanted: FetchRequest.FetchPartition, before: bytes, between: bytes) -> None:
        self.key = key
        self.bytes_max = max(wanted.partition_max_bytes, 0)
        self.leader_epoch = wanted.current_leader_epoch
        self.before = before
        self.between = between


class _Template:
    """A request and its response without the numbers that vary."""

    __slots__ = ("by_id", "bytes_max", "is_committed", "is_flexible", "min_bytes", "parts", "tail", "waits")

    def __init__(self, request: FetchRequest, version: int, fetch_bytes_max: int) -> None:
        self.by_id = version >= TOPIC_ID_VERSION_MIN
        self.is_flexible = version >= FLEXIBLE_VERSION_MIN
        self.is_committed = request.isolation_level == 1
        self.bytes_max = min(request.max_bytes, fetch_bytes_max)
        self.min_bytes = request.min_bytes
        self.waits = request.max_wait_ms > 0
        response = FetchResponse()
        wanted: list[tuple[tuple[object, int], FetchRequest.FetchPartition]] = []
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                number = _MARK + len(wanted)
                data = FetchResponse.PartitionData(
                    partition_index=partition.partition, high_watermark=number, last_stable_offset=number, log_start_offset=number,
                    aborted_transactions=[] if self.is_committed else None, preferred_read_replica=-1, records=_RECORDS_MARK,
                )  # fmt: skip
                answers.append(data)
                wanted.append(((topic.topic_id if self.by_id else topic.topic, partition.partition), partition))
            response.responses.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        frame = b"".join(bytes(piece) for piece in encode_response(response, version, 0))  # type: ignore[arg-type]
        self.parts: list[_Part] = []
        at = 8
        for number, (key, asked) in enumerate(wanted):
            placeholders = frame.index(_WATERMARKS.pack(_MARK + number, _MARK + number, _MARK + number), at)
            records = frame.index(_RECORDS_MARK, placeholders + _WATERMARKS.size)
            length = records - (1 if self.is_flexible else 4)
            self.parts.append(_Part(key, asked, frame[at:placeholders], frame[placeholders + _WATERMARKS.size : length]))
            at = records + len(_RECORDS_MARK)
        self.tail = frame[at:]


class FetchFastPath(TemplateFastPath):
    """The templates of one connection."""

    __slots__ = ("_fetch_bytes_max", "_is_rack_aware", "_layouts", "_templates")

    def __init__(
        self,
        replicas: ReplicaManager,
        fetch_bytes_max: int,
        is_rack_aware: bool,
        entry: Counted,
        refer: Refer,
        permits: Permits | None = None,
    ) -> None:
        super().__init__(replicas, entry, refer, permits)
        self._fetch_bytes_max = fetch_bytes_max
        self._is_rack_aware = is_rack_aware
        self._layouts: dict[int, _Layout] = {}
        self._templates: dict[bytes, _Template] = {}

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """Serve a request that matches a template and can be answered in full now. Returns False, with nothing changed, otherwise."""
        layout = self._layouts.get(len(frame))
        template = None if layout is None else self._templates.get(layout.key(frame))
        if layout is None or template is None:
            if self._misses < MISSES_MAX:
                self._learn(frame)
            return False
        slices: list[FileSlice] = []
        try:
            pieces = self._read(template, layout, frame, slices)
        except (ApiError, StorageError, OSError, NotInMemory):
            pieces = None
        if pieces is None:
            for piece in slices:
                piece.release()
            return False
        self._counts[frame[3]] += 1
        connection.finish(connection.begin(), pieces)
        return True

    def _read(self, template: _Template, layout: _Layout, frame: memoryview, slices: list[FileSlice]) -> list[Piece] | None:
        """The pieces of the response; None if the fetch must take the ordinary path. The caller then releases `slices`. Raises OSError."""
        replicas = self._replicas
        found: Mapping[tuple[Any, int], Partition] = replicas.partitions_by_id if template.by_id else replicas.partitions
        bytes_left = template.bytes_max
        pieces: list[Piece] = []
        counts: list[tuple[Partition, int]] = []
        run, size, gathered = b"", 4, 0
        with _LOOK:
            for part, position_of_offset in zip(template.parts, layout.offset_positions, strict=True):
                partition = found.get(part.key)
                if partition is None or partition.leader is None or part.leader_epoch not in (-1, partition.leader_epoch):
                    return None
                log = partition.log
                (offset,) = _OFFSET.unpack_from(frame, position_of_offset)
                watermarks = log.watermarks
                high_watermark, stable = watermarks.high_watermark, watermarks.last_stable_offset
                end = stable if template.is_committed else high_watermark
                read = log.read(offset, min(bytes_left, part.bytes_max), end_offset=end, at_least_one=not gathered)
                count = (piece := read.slice).size
                run += part.before + _WATERMARKS.pack(high_watermark, stable, watermarks.log_start_offset) + part.between
                if template.is_flexible:
                    run += _LENGTHS[count + 1] if count < 127 else unsigned_varint(count + 1)
                else:
                    run += _LENGTH.pack(count)
                if count:
                    slices.append(piece)
                    if read.is_cold or (template.is_committed and log.aborted_transactions(offset, log.upper_bound_offset(read), 1)):
                        return None
                    gathered += count
                    bytes_left = max(bytes_left - count, 0)
                    pieces += (run, piece)
                    size += len(run) + count
                    run = b""
                elif template.is_committed and offset < end:  # a batch that does not fit
                    return None
                counts.append((partition, count))
        if gathered < template.min_bytes and template.waits:
            return None
        if gathered < SENDFILE_BYTES_MIN:
            pieces[1::2] = _taken(slices)
        # Count only here: the ordinary path counts its own fetches.
        for partition, count in counts:
            partition.fetches += 1
            partition.bytes_out += count
        run += template.tail
        pieces.append(run)
        (correlation_id,) = _LENGTH.unpack_from(frame, 4)
        pieces[0] = _FRAME.pack(size + len(run), correlation_id) + pieces[0]  # type: ignore[operator]
        return pieces

    def forget(self) -> None:
        """Forget every template."""
        super().forget()
        self._layouts.clear()
        self._templates.clear()

    def _learn(self, frame: memoryview) -> None:
        """Remember the template of a request that may be repeated."""
        if _has_session(frame):
            self._misses += 1
            return
        decoded = self._decode(frame, FetchRequest, VERSION_MIN)
        if decoded is None:
            return
        version, header, _, request, _ = decoded
        if not self._is_simple(request, version):
            return
        offset_positions = _offset_positions(request, version, header.client_id, frame)
        if offset_positions is None or len(frame) > TEMPLATE_BYTES_MAX:
            return
        self._keep(len(frame), len(offset_positions))
        layout = remember(self._layouts, len(frame), _Layout(offset_positions, len(frame)), LAYOUTS_MAX)
        remember(self._templates, layout.key(frame), _Template(request, version, self._fetch_bytes_max), TEMPLATES_MAX)
        self._misses = 0

    def _is_simple(self, request: FetchRequest, version: int) -> bool:
        replica_id = request.replica_state.replica_id if version >= REPLICA_STATE_VERSION_MIN else request.replica_id
        partitions = [partition for topic in request.topics for partition in topic.partitions]
        return (
            replica_id == CONSUMER
            and request.session_id == 0
            and request.session_epoch == NO_SESSION_EPOCH
            and not request.forgotten_topics_data
            and not (request.rack_id and self._is_rack_aware)
            and 0 < len(partitions) <= PARTITIONS_MAX
            and len({(t.topic_id, t.topic, p.partition) for t in request.topics for p in t.partitions}) == len(partitions)
            and all(partition.last_fetched_epoch == -1 and partition.fetch_offset >= 0 for partition in partitions)
        )


def _taken(slices: list[FileSlice]) -> list[bytes]:
    """The bytes of slices, which are released. Raises OSError."""
    taken = []
    for piece in slices:
        taken.append(piece.read())
        piece.release()
    return taken


def _has_session(frame: memoryview) -> bool:
    """Whether the session epoch, read at its usual position, names a session. A cheap guess: False proves nothing."""
    (version,) = _VERSION.unpack_from(frame, 2)
    if not VERSION_MIN <= version <= FetchRequest.MAX_VERSION:
        return False
    at = max(int.from_bytes(frame[8:10], "big", signed=True), 0) + _session_epoch_at(version)
    return len(frame) >= at + 4 and frame[at : at + 4] != _NO_SESSION


@cache
def _session_epoch_at(version: int) -> int:
    """The position of the session epoch in a request of a client without a name."""
    written = encode_request(FetchRequest(session_epoch=_EPOCH_MARK), version, 0, "")
    return b"".join(bytes(piece) for piece in written)[4:].index(_LENGTH.pack(_EPOCH_MARK))  # type: ignore[arg-type]


def _offset_positions(request: FetchRequest, version: int, client_id: str | None, frame: memoryview) -> list[int] | None:
    """The positions of the partitions' offsets in the frame; None if the frame is not encoded as this broker would encode it."""
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    (correlation_id,) = _LENGTH.unpack_from(frame, 4)

    def written() -> bytes:
        return b"".join(bytes(piece) for piece in encode_request(request, version, correlation_id, client_id))[4:]  # type: ignore[arg-type]

    if written() != frame:
        return None
    offsets = [partition.fetch_offset for partition in partitions]
    for number, partition in enumerate(partitions):
        partition.fetch_offset = _MARK + number
    marked = written()
    for partition, offset in zip(partitions, offsets, strict=True):
        partition.fetch_offset = offset
    return [marked.index(_OFFSET.pack(_MARK + number)) for number in range(len(partitions))]
