"""Stopped clusters written byte by byte, as Apache Kafka's brokers would have left them, by a small independent writer.

A cluster is a folder with one log directory per broker. The test's own changes are the only faults in it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from crc32c import crc32c

TIME_MS = 1_700_000_000_000
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
#: offset, length, epoch, magic, crc | attributes, last delta, first time, last time, producer id, producer epoch, sequence, count
HEAD, REST = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1


def varint(value: int) -> bytes:
    """A zigzag varint."""
    return unsigned((value << 1) ^ (value >> 63))


def unsigned(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value & ~0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def record(delta: int, key: bytes | None, value: bytes | None, time_delta: int = 0) -> bytes:
    """A record of a batch."""
    body = b"\0" + varint(time_delta) + varint(delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


@dataclass(slots=True)
class Batch:
    """A batch before it is bytes. `records`: (offset delta, key, value)."""

    base: int
    records: list[tuple[int, bytes | None, bytes | None]]
    epoch: int = 0
    time_ms: int = TIME_MS
    producer: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    attributes: int = 0
    last_delta: int = -1

    @property
    def span(self) -> int:
        """The offsets that it takes."""
        return (self.last_delta if self.last_delta >= 0 else self.records[-1][0]) + 1

    @property
    def last(self) -> int:
        return self.base + self.span - 1

    def encode(self) -> bytes:
        """Its bytes, CRC and all."""
        body = b"".join(record(*one) for one in self.records)
        rest = REST.pack(
            self.attributes, self.span - 1, self.time_ms, self.time_ms, self.producer, self.producer_epoch, self.sequence, len(self.records)
        )
        return HEAD.pack(self.base, 9 + len(rest) + len(body), self.epoch, 2, crc32c(rest + body)) + rest + body


def plain(base: int, count: int = 1, epoch: int = 0, text: str = "v", time_ms: int = TIME_MS) -> Batch:
    """Records without keys."""
    return Batch(base, [(delta, None, f"{text}{base + delta:08d}".encode()) for delta in range(count)], epoch, time_ms)


def marker(base: int, kind: int, producer: int, producer_epoch: int = 0, epoch: int = 0, coordinator_epoch: int = 0) -> Batch:
    """The end of a transaction."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch)
    return Batch(base, [(0, key, value)], epoch, TIME_MS, producer, producer_epoch, -1, TRANSACTIONAL | CONTROL)


def offset_index(batches: Sequence[Batch], base: int, every: int) -> bytes:
    """An entry for every `every`th batch behind the first, with its last offset (LogSegment.append)."""
    out, position = b"", 0
    for number, batch in enumerate(batches):
        if number and number % every == 0:
            out += struct.pack(">ii", batch.last - base, position)
        position += len(batch.encode())
    return out


def time_index(batches: Sequence[Batch], base: int, every: int) -> bytes:
    """An entry where the largest timestamp so far rose, beside the offset index's, and the one that closing a segment writes."""
    out, latest = b"", -1
    for number, batch in enumerate(batches):
        if number % every == 0 and batch.time_ms > latest:
            out, latest = out + struct.pack(">qi", batch.time_ms, batch.last - base), batch.time_ms
    newest = max(batches, key=lambda batch: batch.time_ms, default=None)
    if newest is not None and newest.time_ms > latest:
        out += struct.pack(">qi", newest.time_ms, newest.last - base)
    return out


def transaction_index(batches: Iterable[Batch]) -> bytes:
    """An entry for each aborted transaction: producer, first, last and last stable offset."""
    opened: dict[int, int] = {}
    out = b""
    for batch in batches:
        if batch.attributes & CONTROL and batch.producer >= 0:
            first = opened.pop(batch.producer, None)
            if batch.records[0][1] == struct.pack(">hh", 0, ABORT) and first is not None:
                out += struct.pack(">hqqqq", 0, batch.producer, first, batch.base, min([*opened.values(), batch.base + 1]))
        elif batch.attributes & TRANSACTIONAL:
            opened.setdefault(batch.producer, batch.base)
    return out


def producer_snapshot(batches: Iterable[Batch]) -> bytes:
    """The producers' states behind these batches (ProducerStateManager.writeSnapshot)."""
    states: dict[int, list[int]] = {}
    for batch in batches:
        if batch.producer < 0:
            continue
        state = states.setdefault(batch.producer, [0, -1, -1, 0, -1, -1, -1])
        state[4] = batch.time_ms
        if batch.attributes & CONTROL:
            if batch.producer_epoch > state[0]:  # a new epoch begins without batches
                state[1:4] = -1, -1, 0
            state[5], state[6] = struct.unpack(">i", (batch.records[0][2] or b"")[2:6])[0], -1
        else:
            state[1:4] = batch.sequence + batch.span - 1, batch.last, batch.span - 1
            if batch.attributes & TRANSACTIONAL and state[6] < 0:
                state[6] = batch.base
        state[0] = batch.producer_epoch
    rows = b"".join(struct.pack(">qhiqiqiq", producer, *state) for producer, state in sorted(states.items()))
    body = struct.pack(">i", len(states)) + rows
    return struct.pack(">hI", 1, crc32c(body)) + body


@dataclass(slots=True)
class Partition:
    """One partition on one broker. `bases`: where its segments begin."""

    name: str
    batches: list[Batch]
    bases: tuple[int, ...] = (0,)
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    topic_id: bytes = bytes(range(16))
    high_watermark: int | None = None
    log_start: int = 0
    index_every: int = 4

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else self.bases[0]

    def write(self, directory: Path, clean: bool = True) -> Path:
        """Write segments with indexes, snapshots, epochs and identity; returns the directory."""
        path = directory / self.name
        path.mkdir(parents=True)
        bounds = [*self.bases, 1 << 62]
        for base, following in pairwise(bounds):
            inside = [batch for batch in self.batches if base <= batch.base < following]
            stem = path / f"{base:020d}"
            stem.with_suffix(".log").write_bytes(b"".join(batch.encode() for batch in inside))
            stem.with_suffix(".index").write_bytes(offset_index(inside, base, self.index_every))
            stem.with_suffix(".timeindex").write_bytes(time_index(inside, base, self.index_every))
            preceding = [batch for batch in self.batches if batch.base < following]
            entries, size = transaction_index(preceding), 34
            mine = [entries[at : at + size] for at in range(0, len(entries), size)]
            mine = [one for one in mine if struct.unpack_from(">q", one, 18)[0] >= base]
            if mine:
                stem.with_suffix(".txnindex").write_bytes(b"".join(mine))
            if base > self.bases[0]:
                stem.with_suffix(".snapshot").write_bytes(producer_snapshot(b for b in self.batches if b.base < base))
        if clean and self.end > max(self.bases[0], self.log_start):
            (path / f"{self.end:020d}.snapshot").write_bytes(producer_snapshot(self.batches))
        (path / "leader-epoch-checkpoint").write_text(lines(f"{epoch} {start}" for epoch, start in self.epochs))
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(self.topic_id)}\n")
        return path


def uuid_text(value: bytes) -> str:
    """A UUID as Kafka writes it."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def lines(entries: Iterable[str]) -> str:
    """A checkpoint file."""
    kept = list(entries)
    return "\n".join(["0", str(len(kept)), *kept]) + "\n"


def directory_id(broker: int, number: int = 0) -> bytes:
    """The UUID of a broker's log directory."""
    return bytes([9, broker, number, *range(13)])


def write_broker(
    path: Path, broker: int, partitions: Sequence[Partition], metadata: bytes = b"", clean: bool = True, number: int = 0,
    cleaned: dict[str, int] | None = None,
) -> Path:  # fmt: skip
    """A log directory with its root files, the partitions and, where given, a copy of the metadata log."""
    path.mkdir(parents=True)
    (path / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={broker}\ndirectory.id={uuid_text(directory_id(broker, number))}\n"
    )
    if clean:
        (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    for one in partitions:
        one.write(path, clean)

    def line(one: Partition, offset: int) -> str:
        return " ".join([*one.name.rsplit("-", 1), str(offset)])

    offsets = [(one, one.end if one.high_watermark is None else one.high_watermark) for one in partitions]
    (path / "replication-offset-checkpoint").write_text(lines(line(one, offset) for one, offset in offsets if offset >= 0))
    (path / "recovery-point-offset-checkpoint").write_text(lines(line(one, one.end) for one in partitions))
    (path / "log-start-offset-checkpoint").write_text(lines(line(one, one.log_start) for one in partitions if one.log_start))
    if cleaned:
        (path / "cleaner-offset-checkpoint").write_text(lines(f"{name.rsplit('-', 1)[0]} {name.rsplit('-', 1)[1]} {offset}"
                                                              for name, offset in cleaned.items()))  # fmt: skip
    if metadata:
        target = path / "__cluster_metadata-0"
        target.mkdir()
        (target / f"{0:020d}.log").write_bytes(metadata)
        (target / "leader-epoch-checkpoint").write_text(lines(["1 0"]))
        (target / "quorum-state").write_text(json.dumps(quorum_state(1, 1)))
        (target / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(bytes(15) + bytes([1]))}\n")
    return path


def quorum_state(leader: int, epoch: int, voted: int = -1, place: bytes = bytes(16)) -> dict[str, object]:
    """QuorumStateData version 1."""
    return {"leaderId": leader, "leaderEpoch": epoch, "votedId": voted, "votedDirectoryId": uuid_text(place), "data_version": 1}


# ---- the controller's record ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MetadataLog:
    """Records of `__cluster_metadata`, one a batch, each a second after the one before."""

    values: list[bytes] = field(default_factory=list)
    controls: dict[int, bytes] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The log's bytes."""
        return b"".join(batch.encode() for batch in self.batches())

    def batches(self) -> list[Batch]:
        """The log's batches."""
        return [
            Batch(at, [(0, self.controls.get(at), value)], 1, TIME_MS + 1000 * at, attributes=CONTROL if at in self.controls else 0)
            for at, value in enumerate(self.values)
        ]

    def snapshot(self, values: Sequence[bytes] | None = None) -> bytes:
        """A snapshot of these records, or of the state that the log's records leave, and of the last voters (RecordsSnapshotWriter)."""
        held = lasting(value for at, value in enumerate(self.values) if at not in self.controls) if values is None else list(values)
        voters = [(1, self.controls[at], self.values[at]) for at in sorted(self.controls) if at < len(self.values)][-1:]
        head = Batch(0, [(0, struct.pack(">hh", 0, 3), struct.pack(">hq", 0, TIME_MS) + _tagged({})), *voters], 1, attributes=CONTROL)
        body = Batch(head.last + 1, [(delta, None, value) for delta, value in enumerate(held)], 1)
        foot = Batch(body.last + 1, [(0, struct.pack(">hh", 0, 4), struct.pack(">h", 0) + _tagged({}))], 1, attributes=CONTROL)
        return head.encode() + body.encode() + foot.encode()

    def voters(self, nodes: Sequence[int]) -> MetadataLog:
        """VotersRecord, a control record (KIP-853)."""
        each = b"".join(struct.pack(">i", node) + directory_id(node) + unsigned(1) + struct.pack(">hh", 0, 1) + _tagged({}) + _tagged({})
                        for node in nodes)  # fmt: skip
        self.controls[len(self.values)] = struct.pack(">hh", 0, 6)
        self.values.append(struct.pack(">h", 0) + unsigned(len(nodes) + 1) + each + _tagged({}))
        return self

    def broker(self, node: int, directories: int = 1) -> MetadataLog:
        """RegisterBrokerRecord version 3. Its epoch is its offset."""
        ids = b"".join(directory_id(node, number) for number in range(directories))
        tagged = _tagged({0: unsigned(directories + 1) + ids})
        body = struct.pack(">i?", node, False) + bytes([7, node, *range(14)]) + struct.pack(">q", len(self.values))
        return self._add(0, 3, body + b"\1\1\0\0\0" + tagged)

    def topic(self, name: str, topic_id: bytes) -> MetadataLog:
        """TopicRecord."""
        return self._add(2, 0, _text(name) + topic_id + _tagged({}))

    def partition(
        self, topic_id: bytes, replicas: Sequence[int], isr: Sequence[int], leader: int, leader_epoch: int = 0, number: int = 0,
        elr: Sequence[int] = (), adding: Sequence[int] = (), directories: Sequence[bytes] = (), removing: Sequence[int] = (),
        partition_epoch: int = 0,
    ) -> MetadataLog:  # fmt: skip
        """PartitionRecord version 2."""
        body = struct.pack(">i", number) + topic_id + _nodes(replicas) + _nodes(isr) + _nodes(removing) + _nodes(adding)
        body += struct.pack(">iii", leader, leader_epoch, partition_epoch) + unsigned(len(directories) + 1) + b"".join(directories)
        return self._add(3, 2, body + _tagged({1: _nodes(elr)} if elr else {}))

    def change(
        self, topic_id: bytes, number: int = 0, isr: Sequence[int] | None = None, leader: int | None = None,
        elr: Sequence[int] | None = None, recovering: bool | None = None, replicas: Sequence[int] | None = None,
        removing: Sequence[int] | None = None, adding: Sequence[int] | None = None,
    ) -> MetadataLog:  # fmt: skip
        """PartitionChangeRecord version 2."""
        tagged = {} if isr is None else {0: _nodes(isr)}
        tagged |= {} if leader is None else {1: struct.pack(">i", leader)}
        for tag, nodes in ((2, replicas), (3, removing), (4, adding)):
            tagged |= {} if nodes is None else {tag: _nodes(nodes)}
        tagged |= {} if recovering is None else {5: struct.pack(">b", recovering)}
        tagged |= {} if elr is None else {6: _nodes(elr)}
        return self._add(5, 2, struct.pack(">i", number) + topic_id + _tagged(tagged))

    def config(self, topic: str, option: str, value: str) -> MetadataLog:
        """ConfigRecord of a topic."""
        return self._add(4, 0, b"\x02" + _text(topic) + _text(option) + _text(value) + _tagged({}))

    def other(self, kind: int, body: bytes, version: int = 0) -> MetadataLog:
        """A record of any kind."""
        return self._add(kind, version, body)

    def remove(self, topic_id: bytes) -> MetadataLog:
        """RemoveTopicRecord."""
        return self._add(9, 0, topic_id + _tagged({}))

    def _add(self, kind: int, version: int, body: bytes) -> MetadataLog:
        self.values.append(unsigned(1) + unsigned(kind) + unsigned(version) + body)
        return self


def lasting(values: Iterable[bytes]) -> list[bytes]:
    """The records whose state later ones leave: of a setting the last, of a topic that was removed none."""
    kept: dict[bytes, bytes] = {}
    for value in values:
        kind, body = value[1], value[3:]
        if kind == 4:
            option = 1 + body[1]
            kept[value[: 3 + option + body[option]]] = value
        elif kind == 9:
            names = [one[3 : 3 + one[3]] for one in kept.values() if one[1] == 2 and one[3 + one[3] :][:16] == body[:16]]
            gone = {2: names[0] + body[:16], 4: b"\x02" + names[0]}
            kept = {
                key: one for key, one in kept.items()
                if not (one[1] in gone and one[3:].startswith(gone[one[1]])) and not (one[1] == 3 and one[7:23] == body[:16])
            }  # fmt: skip
        else:
            kept[value] = value
    return list(kept.values())


def _text(value: str) -> bytes:
    return unsigned(len(value) + 1) + value.encode()


def _nodes(values: Sequence[int]) -> bytes:
    return unsigned(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def _tagged(fields: dict[int, bytes]) -> bytes:
    parts = [unsigned(tag) + unsigned(len(data)) + data for tag, data in sorted(fields.items())]
    return unsigned(len(parts)) + b"".join(parts)
