"""Snapshots of the metadata log: `%020d-%010d.checkpoint` and bootstrap.checkpoint (Kafka's RecordsSnapshotWriter and -Reader).

A file is a sequence of batches with offsets from 0: a control batch with SNAPSHOT_HEADER (and, in dynamic quorums, kraft version and
voters), the records, and a control batch with SNAPSHOT_FOOTER. Without the footer it is incomplete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator
from typing import Any

from minikafka.core.raft.types import Endpoint, OffsetAndEpoch, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterSet
from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps, at_once, paced
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import FileSystem, write_all
from minikafka.wire.batch import RecordBatch, build_batch, iterate_batches
from minikafka.wire.control import ControlType, control_batch, control_record, control_type, decode_control
from minikafka.wire.errors import CorruptRecord, WireError
from minikafka.wire.record import Record
from minikafka.wire.records.client_records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord
from minikafka.wire.records.frame import decode_metadata_record, encode_metadata_record, metadata_record_type

SUFFIX = ".checkpoint"
PART = ".checkpoint.part"
BOOTSTRAP = "bootstrap.checkpoint"
BATCH_BYTES_MAX = 4 << 20
#: Records decoded in one step.
STEP_RECORDS = 256
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def file_name(snapshot: OffsetAndEpoch) -> str:
    """The file name, from end offset (exclusive) and epoch."""
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> OffsetAndEpoch | None:
    found = _NAME.fullmatch(name)
    return OffsetAndEpoch(int(found[1]), int(found[2])) if found else None


def voters_message(voters: VoterSet) -> VotersRecord:
    """The content of the KRaftVoters control record."""
    return VotersRecord(
        voters=[
            VotersRecord.Voter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[VotersRecord.Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
                k_raft_version_feature=VotersRecord.KRaftVersionFeature(
                    min_supported_version=voter.version_min, max_supported_version=voter.version_max
                ),
            )
            for voter in voters.voters()
        ]
    )


def voters_of(message: VotersRecord) -> VoterSet:
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, bytes(voter.voter_directory_id)),
            tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in message.voters
    )


def version_record(kraft_version: int, wall_ms: int) -> Record:
    """The KRAFT_VERSION control record."""
    return control_record(ControlType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=kraft_version), wall_ms)


def voters_record(voters: VoterSet, wall_ms: int) -> Record:
    """The KRAFT_VOTERS control record."""
    return control_record(ControlType.KRAFT_VOTERS, voters_message(voters), wall_ms)


def control_changes(batch: RecordBatch) -> tuple[list[tuple[int, VoterSet]], list[tuple[int, int]]]:
    """Voter sets and kraft versions in a control batch: [(offset, value)]."""
    voters: list[tuple[int, VoterSet]] = []
    versions: list[tuple[int, int]] = []
    for record in batch.records():
        kind = control_type(record)
        if kind is ControlType.KRAFT_VOTERS:
            voters.append((record.offset, voters_of(decode_control(record))))  # type: ignore[arg-type]
        elif kind is ControlType.KRAFT_VERSION:
            versions.append((record.offset, decode_control(record).k_raft_version))  # type: ignore[union-attr]
    return voters, versions


def framed(record: Any) -> bytes:
    """The framed value of a metadata record; bytes are returned unchanged."""
    return bytes(record) if isinstance(record, (bytes, bytearray, memoryview)) else encode_metadata_record(record)


def encode_snapshot(
    records: Iterable[Any],
    *,
    epoch: int,
    wall_ms: int,
    last_timestamp_ms: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytes]:
    """The file, batch by batch. `records`: metadata messages or framed values; `last_timestamp_ms`: the timestamp of the last record
    covered."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp_ms)
    control = [control_record(ControlType.SNAPSHOT_HEADER, header, wall_ms)]
    if kraft_version > 0 and voters is not None:
        control += [version_record(kraft_version, wall_ms), voters_record(voters, wall_ms)]
    yield bytes(control_batch(control, base_offset=0, partition_leader_epoch=epoch))
    offset = len(control)
    pending: list[Record] = []
    size = 0
    for record in records:
        value = framed(record)
        if size + len(value) > BATCH_BYTES_MAX and pending:
            yield bytes(build_batch(pending, base_offset=offset, partition_leader_epoch=epoch))
            offset += len(pending)
            pending, size = [], 0
        pending.append(Record(0, wall_ms, None, value))
        size += len(value) + 16
    if pending:
        yield bytes(build_batch(pending, base_offset=offset, partition_leader_epoch=epoch))
        offset += len(pending)
    footer = control_record(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), wall_ms)
    yield bytes(control_batch([footer], base_offset=offset, partition_leader_epoch=epoch))


def write_snapshot_file(filesystem: FileSystem, path: str, pieces: Iterable[bytes]) -> int:
    """Write `<path>.part`, sync it, rename it, and sync the directory. Returns the size. Raises OSError."""
    part = path + ".part"
    if filesystem.exists(part):
        filesystem.unlink(part)
    file = filesystem.open(part, create=True)
    position = 0
    try:
        for piece in pieces:
            write_all(file, piece, position)
            position += len(piece)
        file.fsync()
    finally:
        file.close()
    filesystem.rename(part, path)
    filesystem.fsync_dir(os.path.dirname(path) or ".")
    return position


@dataclass(slots=True)
class SnapshotContent:
    """A snapshot's content: voters (None if it names none), kraft version, and the messages of the metadata records."""

    last_timestamp_ms: int
    kraft_version: int
    voters: VoterSet | None
    records: list[Any]

    @property
    def voters_of_version(self) -> VoterSet | None:
        """The voters, unless they are those of a static quorum."""
        return self.voters if self.kraft_version > 0 else None


def decode_snapshot(data: bytes, *, with_records: bool = True) -> SnapshotContent:
    """Decode a file. Raises CorruptFile for anything but one complete snapshot."""
    return at_once(decoding_snapshot(data, with_records=with_records))


def decoding_snapshot(data: bytes, *, with_records: bool = True, types: Container[int] | None = None) -> Steps[SnapshotContent]:
    """As `decode_snapshot`, in steps. `types`: leave out records of other types."""
    content = SnapshotContent(-1, 0, None, [])
    is_begun = is_ended = False
    end = 0
    try:
        for (batch, record), is_step in paced(_batches_and_records(data, with_records=with_records), STEP_RECORDS):
            if is_step:
                yield
            if record is None:
                if is_ended:
                    raise CorruptFile("batches follow the snapshot's footer")
                if end and not is_begun:
                    raise CorruptFile("the snapshot has no header")
                end += batch.size_in_bytes
                continue
            if not batch.is_control:
                if types is None or metadata_record_type(record.value or b"") in types:
                    content.records.append(decode_metadata_record(record.value or b""))
                continue
            kind = control_type(record)
            message: Any = decode_control(record)
            if kind is ControlType.SNAPSHOT_HEADER:
                is_begun = True
                content.last_timestamp_ms = message.last_contained_log_timestamp
            elif kind is ControlType.SNAPSHOT_FOOTER:
                is_ended = True
            elif kind is ControlType.KRAFT_VERSION:
                content.kraft_version = message.k_raft_version
            elif kind is ControlType.KRAFT_VOTERS:
                content.voters = voters_of(message)
    except (WireError, CorruptRecord) as error:
        raise CorruptFile(f"the snapshot is not valid: {error}") from error
    if not is_begun or not is_ended or end != len(data):
        raise CorruptFile(f"the snapshot is cut short: no {'footer' if is_begun else 'header'}")
    return content


def _batches_and_records(data: bytes, *, with_records: bool) -> Iterator[tuple[RecordBatch, Record | None]]:
    """Each batch, without a record, and then its records."""
    for batch in iterate_batches(data):
        batch.check()
        yield batch, None
        if batch.is_control or with_records:
            for record in batch.records():
                yield batch, record


def read_snapshot(filesystem: FileSystem, path: str, *, with_records: bool = True) -> SnapshotContent:
    """Read a snapshot. Raises CorruptFile, which names the file, and OSError."""
    try:
        return decode_snapshot(filesystem.read(path), with_records=with_records)
    except CorruptFile as error:
        raise CorruptFile(f"{path}: {error}") from error
