"""The audit's own reader of `__cluster_metadata` and its snapshots, which yield an image of topics, partitions and brokers.

A record is: unsigned varint frame version (1), unsigned varint type, unsigned varint version, then flexible fields (KIP-631; the
metadata schemas of Apache Kafka 4.3). Record types that the audit does not need are skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from minikafka.counted import counted
from minikafka.spark import metadata_state
from minikafka.spark.logformat import CONTROL_BIT, Batches, FormatError, SegmentReader, parse_segment_name, walk
from minikafka.spark.metadata_controls import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    SNAPSHOT_HEADER,
    Controls,
    check_control,
    check_snapshot_controls,
    kind_of,
)
from minikafka.spark.metadata_fields import Fields, UnknownRecordError
from minikafka.spark.metadata_partitions import MIGRATING, TRANSACTION_KINDS, Transactions, is_recovering, keep_past, places_of
from minikafka.spark.metadata_registrations import (
    Registration,
    changed,
    check_epoch,
    check_registered,
    check_requested,
    known_broker,
    registration,
)
from minikafka.spark.metadata_topics import add_topic, known_topic, pop_topic
from minikafka.spark.metadata_trail import EntryName, Trail, TrailWriter
from minikafka.spark.records import decode_records
from minikafka.spark.regular_files import open_regular

METADATA_TOPIC = "__cluster_metadata"
SNAPSHOT_NAME = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
SNAPSHOT_BYTES_MAX = 1 << 30
REGISTER_BROKER, UNREGISTER_BROKER, TOPIC, PARTITION, CONFIG, PARTITION_CHANGE, REMOVE_TOPIC = 0, 1, 2, 3, 4, 5, 9
FENCE_BROKER, UNFENCE_BROKER, BROKER_CHANGE = 7, 8, 17
CLEAR_ELR = 28
#: NoOp, the state of a migration from ZooKeeper, which no snapshot of Kafka 4 holds, and metadata transactions (replay_log).
ZOOKEEPER_MIGRATION = 21
WITHOUT_EFFECT = (20, ZOOKEEPER_MIGRATION, *TRANSACTION_KINDS)
#: The newest version of each record. Nobody can read a newer one, or a record of another type, who does not know it.
VERSIONS_MAX = {
    REGISTER_BROKER: 4, UNREGISTER_BROKER: 0, TOPIC: 0, PARTITION: 2, CONFIG: 0, PARTITION_CHANGE: 2, REMOVE_TOPIC: 0, BROKER_CHANGE: 3,
    CLEAR_ELR: 0, FENCE_BROKER: 0, UNFENCE_BROKER: 0, **dict.fromkeys((*metadata_state.TYPES, *WITHOUT_EFFECT), 0),
}  # fmt: skip
#: Types of records that a snapshot is made of (MetadataImage.write).
IN_SNAPSHOTS = {REGISTER_BROKER, TOPIC, PARTITION, CONFIG, ZOOKEEPER_MIGRATION, *metadata_state.TYPES} - metadata_state.REMOVALS
#: {tag: the first version of the record that has it}.
PARTITION_TAGS, PARTITION_CHANGE_TAGS = {0: 0, 1: 2, 2: 2}, {6: 2, 7: 2, 8: 1}
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_TOPIC, _PARTITION, _BROKER, _OTHER = "topic", "partition", "broker", "other"


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """The election of a leader that was neither in sync nor eligible, so records that only other replicas held are lost (KIP-966).

    `offset`: offset of the record in the metadata log (-1: only in a snapshot). `timestamp_ms`: of its batch. `isr` and `elr`: the in-sync
    and eligible replicas before the election.
    """

    leader: str
    leader_epoch: int
    offset: int
    timestamp_ms: int
    isr: tuple[str, ...] = ()
    elr: tuple[str, ...] = ()


@dataclass(slots=True)
class PartitionClaim:
    """The controller's record of one partition. Node ids are text, as in reports.

    `adding`, `removing`: replicas that a reassignment in progress adds and removes. `was_in_sync`: every replica that has been in sync
    since the history begins, `ever`: every replica. `proposed`: in sync or eligible by records that no majority of the quorum holds yet.
    `created_at`, `created_ms`: offset and time of the record that made it, -1 if the history does not tell; all its replicas are in sync
    then. `joined`: those that came into sync later, with what the leader had.
    """

    topic_id: str
    replicas: tuple[str, ...]
    isr: tuple[str, ...]
    leader: str
    leader_epoch: int
    partition_epoch: int
    directories: tuple[str, ...] = ()
    elr: tuple[str, ...] = ()
    adding: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()
    recovering: bool = False
    was_in_sync: frozenset[str] = frozenset()
    elections: tuple[UncleanElection, ...] = ()
    ever: frozenset[str] = frozenset()
    proposed: tuple[str, ...] = ()
    created_at: int = -1
    created_ms: int = -1
    joined: frozenset[str] = frozenset()
    last_known_elr: tuple[str, ...] = ()

    @property
    def complete(self) -> tuple[str, ...]:
        """The replicas that must hold everything below the high watermark: in-sync replicas and eligible leader replicas (KIP-966)."""
        return tuple(dict.fromkeys(self.isr + self.elr + self.proposed))


@dataclass(slots=True)
class ClusterImage:
    """The state after all records below `end_offset`, from the copy in `path`. Its history begins at `begin`."""

    path: str = ""
    node: str = ""
    begin: int = 0
    end_offset: int = 0
    epoch: int = -1
    topics: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionClaim] = field(default_factory=dict)
    brokers: dict[str, Registration] = field(default_factory=dict)
    #: Each cleanup.policy that a topic had, and the offset of the record that says so.
    policies: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Topics that had a cleanup.policy of their own from their creation on.
    policy_from_creation: set[str] = field(default_factory=set)
    #: The topic whose partitions come next: records of its configuration stand between its own and theirs.
    creating: str = ""
    default_policies: dict[str, int] = field(default_factory=dict)
    #: Ids of topics that were deleted, with their names; where and when topics were made whose names had belonged to others.
    removed: dict[str, str] = field(default_factory=dict)
    removed_names: set[str] = field(default_factory=set)
    made_again: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: When the last record was written. Of each node whose copy was read: how far it holds the same records, and when its last was written.
    last_ms: int = -1
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: How far each copy holds what the quorum has agreed on, by its path.
    agreed_to: dict[str, int] = field(default_factory=dict)
    from_snapshot: set[str] = field(default_factory=set)
    #: Made from all records since the first, so that every topic that ever was is known.
    is_whole: bool = False
    #: What the last records changed, if anybody asks (metadata_trail).
    touched: set[EntryName] | None = None
    #: Everything else that the record says; see metadata_state.
    state: metadata_state.State = field(default_factory=dict)

    def claims(self) -> dict[tuple[str, int], PartitionClaim]:
        """{(topic, partition): claim}."""
        return {(self.topics[key[0]], key[1]): claim for key, claim in self.partitions.items() if key[0] in self.topics}

    def size_of(self, topic: str) -> int:
        """The number of partitions of a topic."""
        ids = {topic_id for topic_id, name in self.topics.items() if name == topic}
        return sum(key[0] in ids for key in self.partitions)

    def was_new_to(self, node: str, at: int, at_ms: int, within_ms: int) -> bool | None:
        """Whether a node never heard of the record at this offset and time, or heard of nothing that was written later than `within_ms`
        behind it. None if no copy of the node's was read."""
        reach, last_ms = self.heard.get(node, (-1, -1))
        return None if last_ms < 0 else reach <= at or (within_ms >= 0 and last_ms - at_ms <= within_ms)

    def topic_ids(self) -> dict[str, str]:
        return {name: topic_id for topic_id, name in self.topics.items()}

    def entry_names(self) -> Iterator[EntryName]:
        """The name of each entry of the state that snapshots hold (metadata_trail)."""
        for kind, entries in ((_TOPIC, self.topics), (_PARTITION, self.partitions), (_BROKER, self.brokers), (_OTHER, self.state)):
            yield from ((kind, name) for name in entries)

    def entry(self, name: EntryName) -> object:
        """The value of an entry; None if there is none."""
        kind, key = name
        if kind == _TOPIC:
            return self.topics.get(key)
        if kind == _PARTITION:
            claim = self.partitions.get(key)
            return None if claim is None else state_of(claim)
        return self.brokers[key].state if kind == _BROKER and key in self.brokers else self.state.get(key) if kind == _OTHER else None

    def touch(self, kind: str, *keys: object) -> None:
        """Note that a record concerns these entries."""
        if self.touched is not None:
            self.touched.update((kind, key) for key in keys)


def apply_record(image: ClusterImage, value: bytes, offset: int = -1, timestamp_ms: int = -1) -> int:
    """Apply one metadata record, stored at `offset`. Returns its type. Raises FormatError."""
    fields = Fields(value)
    frame = fields.varint()
    if frame != 1:
        raise FormatError(f"a metadata record has the unknown frame version {frame}")
    kind, version = fields.varint(), fields.varint()
    if kind not in VERSIONS_MAX:
        raise UnknownRecordError(f"a metadata record has the unknown type {kind}")
    if version > VERSIONS_MAX[kind]:
        raise UnknownRecordError(f"a metadata record of type {kind} has the unknown version {version}")
    image.touch(_OTHER, *metadata_state.note(image.state, kind, Fields(value, fields.position)))
    if kind == metadata_state.PRODUCER_IDS:
        check_requested(image.brokers, Fields(value, fields.position))
    if kind == TOPIC:
        name = image.creating = fields.string()
        topic_id = fields.uuid()
        add_topic(image, topic_id, name)
        image.touch(_TOPIC, topic_id)
        if name in image.removed_names:
            image.made_again[name] = offset, timestamp_ms
        fields.tagged()
    elif kind == REMOVE_TOPIC:
        _remove_topic(image, fields.uuid())
        fields.tagged()
    elif kind == PARTITION:
        image.creating = ""
        _partition(image, fields, version, offset, timestamp_ms)
    elif kind == PARTITION_CHANGE:
        _partition_change(image, fields, version, offset, timestamp_ms)
    elif kind == CONFIG:
        _config(image, fields, offset)
    elif kind in {REGISTER_BROKER, BROKER_CHANGE, UNREGISTER_BROKER, FENCE_BROKER, UNFENCE_BROKER}:
        _of_broker(image, kind, fields, version, offset)
    elif kind == CLEAR_ELR:
        _clear_elr(image, fields.string())
        fields.tagged()
    elif kind in WITHOUT_EFFECT:
        fields.integer(kind == ZOOKEEPER_MIGRATION), fields.tagged()
    if kind not in metadata_state.TYPES:
        fields.finish()
    return kind


def _config(image: ClusterImage, fields: Fields, offset: int) -> None:
    resource, name, option, setting = fields.integer(1), fields.string(), fields.string(), fields.nullable_string()
    fields.tagged()
    if resource == TOPIC_RESOURCE and name not in image.names:
        raise FormatError(f"{option} is set for the unknown topic {name}")
    if resource == TOPIC_RESOURCE and option == "cleanup.policy":
        image.policies.setdefault(name, {}).setdefault(setting or "", offset)
        if name == image.creating:
            image.policy_from_creation.add(name)
    elif resource == BROKER_RESOURCE and option == "log.cleanup.policy":
        image.default_policies.setdefault(setting or "", offset)


def _of_broker(image: ClusterImage, kind: int, fields: Fields, version: int, offset: int) -> None:
    node = str(fields.integer(4))
    image.touch(_BROKER, node)
    if kind == REGISTER_BROKER:
        new = registration(fields, version)
        check_epoch(node, new, offset)
        _register(image, node, new)
        return
    before = known_broker(image.brokers, node, fields.integer(8))
    if kind == BROKER_CHANGE:
        _register(image, node, changed(before, fields, version))
        return
    fields.tagged()
    if kind == UNREGISTER_BROKER:
        del image.brokers[node]
    else:
        image.brokers[node] = replace(before, is_fenced=kind == FENCE_BROKER)


def _register(image: ClusterImage, node: str, new: Registration) -> None:
    check_registered(image.brokers, node, new)
    image.brokers[node] = new


def _clear_elr(image: ClusterImage, topic: str) -> None:
    """No replica of the topic, or of any one, is an eligible leader any more (KIP-966). This is a change of the partition as any other
    (TopicDelta.maybeClearElr)."""
    if topic and topic not in image.names:
        raise FormatError(f"eligible leaders of the unknown topic {topic} are cleared")
    for key, claim in image.partitions.items():
        if (claim.elr or claim.last_known_elr) and topic in {"", image.topics.get(key[0])}:
            claim.elr = claim.last_known_elr = ()
            claim.partition_epoch += 1
            image.touch(_PARTITION, key)


def _remove_topic(image: ClusterImage, topic_id: str) -> None:
    name = image.removed[topic_id] = pop_topic(image, topic_id)
    image.removed_names.add(name)
    image.touch(_TOPIC, topic_id)
    image.touch(_OTHER, *metadata_state.forget_topic(image.state, name))
    image.policies.pop(name, None)
    image.policy_from_creation.discard(name)
    image.from_snapshot.discard(name)
    for key in [key for key in image.partitions if key[0] == topic_id]:
        del image.partitions[key]
        image.touch(_PARTITION, key)


def _partition(image: ClusterImage, fields: Fields, version: int, offset: int, timestamp_ms: int) -> None:
    number, topic_id = fields.integer(4), fields.uuid()
    known_topic(image, topic_id, f"partition {number}")
    replicas, isr, removing, adding = fields.nodes(), fields.nodes(), fields.nodes(), fields.nodes()
    leader, leader_epoch, partition_epoch = fields.integer(4), fields.integer(4), fields.integer(4)
    directories = places_of(replicas, (), (), fields.uuids() if version >= 1 else ())
    tagged = fields.tagged(PARTITION_TAGS, version)
    elr, last_known_elr = (tagged[tag].nodes_or(()) if tag in tagged else () for tag in (1, 2))
    recovering = 0 in tagged and is_recovering(tagged[0].integer(1))
    elections = (UncleanElection(str(leader), leader_epoch, -1, -1),) if recovering else ()
    claim = PartitionClaim(
        topic_id, replicas, isr, str(leader), leader_epoch, partition_epoch, directories, elr, adding, removing, recovering,
        frozenset(isr + elr), elections, frozenset(replicas + adding), created_at=offset, created_ms=timestamp_ms,
        last_known_elr=last_known_elr,
    )  # fmt: skip
    keep_past(claim, image.partitions.get((topic_id, number)))
    image.partitions[topic_id, number] = claim
    image.touch(_PARTITION, (topic_id, number))


def _partition_change(image: ClusterImage, fields: Fields, version: int, offset: int, timestamp_ms: int) -> None:
    """A change of leader raises the leader epoch, every change the partition epoch (PartitionRegistration.merge)."""
    number, topic_id = fields.integer(4), fields.uuid()
    claim = image.partitions.get((topic_id, number))
    if claim is None:
        raise FormatError(f"a change of partition {number} of the unknown topic {topic_id}")
    tagged = fields.tagged(PARTITION_CHANGE_TAGS, version)
    before = claim.isr, claim.elr, claim.recovering
    if 0 in tagged:
        claim.isr = tagged[0].nodes_or(claim.isr)
    replicas = claim.replicas
    if 2 in tagged:
        claim.replicas = tagged[2].nodes_or(claim.replicas)
    if 3 in tagged:
        claim.removing = tagged[3].nodes_or(claim.removing)
    if 4 in tagged:
        claim.adding = tagged[4].nodes_or(claim.adding)
    if 5 in tagged:
        claim.recovering = is_recovering(tagged[5].integer(1), claim.recovering)
    if 6 in tagged:
        claim.elr = tagged[6].nodes_or(claim.elr)
    if 7 in tagged:
        claim.last_known_elr = tagged[7].nodes_or(claim.last_known_elr)
    said = tagged[8].uuids_or(()) if 8 in tagged else ()
    claim.directories = places_of(claim.replicas, replicas, claim.directories, said)
    if 1 in tagged:
        claim.leader = str(tagged[1].integer(4))
        claim.leader_epoch += 1
        _note_election(claim, *before, offset, timestamp_ms)
    claim.joined |= frozenset(claim.isr) - frozenset(before[0])
    claim.was_in_sync |= frozenset(claim.isr + claim.elr)
    claim.ever |= frozenset(claim.replicas + claim.adding)
    claim.partition_epoch += 1
    image.touch(_PARTITION, (topic_id, number))


def _note_election(
    claim: PartitionClaim, isr: tuple[str, ...], elr: tuple[str, ...], was_recovering: bool, offset: int, timestamp_ms: int
) -> None:
    """Record an unclean election. It marks the new leader as recovering (KIP-704). If a leader is already recovering, another unclean
    election shows only by the elected replica.

    When a reassignment ends, the new leader may join the in-sync replicas in the same record; that election is clean.
    """
    again = was_recovering and claim.leader != "-1" and claim.leader not in isr + elr
    if again or (claim.recovering and not was_recovering):
        claim.elections += (UncleanElection(claim.leader, claim.leader_epoch, offset, timestamp_ms, isr, elr),)


def snapshots_of(path: str) -> list[tuple[int, int, str]]:
    """(end offset, epoch, file name) of the finished snapshots in a metadata partition directory, oldest first. A name with a number that
    is too large is none (startup.mistaken_snapshots)."""
    found = [(int(match[1]), int(match[2]), name) for name in os.listdir(path) if (match := SNAPSHOT_NAME.match(name))]
    return sorted(one for one in found if one[0] < 1 << 63 and one[1] < 1 << 31)


def snapshot_values(path: str) -> list[bytes]:
    """The metadata records of a snapshot file. Raises FormatError for CRCs, cuts, gaps, or a missing header or footer."""
    return _snapshot(path)[1]


def _snapshot(path: str) -> tuple[int, list[bytes]]:
    """(time of the last record that the snapshot stands for, its records). Raises FormatError."""
    with open_regular(path) as file:
        data = memoryview(file.read(SNAPSHOT_BYTES_MAX + 1))
    if len(data) > SNAPSHOT_BYTES_MAX:
        raise FormatError(f"it is larger than {SNAPSHOT_BYTES_MAX} bytes, the most that the audit reads")
    batches, used, _ = walk(data)
    if used != len(data):
        raise FormatError(f"{len(data) - used} bytes after its last whole batch")
    if len(batches) == 0:
        raise FormatError("it is empty")
    bad = np.flatnonzero(batches.header["crc"].astype(np.uint32) != batches.crc)
    if len(bad):
        raise FormatError(f"the batch at byte {int(batches.position[bad[0]])} has a wrong CRC")
    _without_gaps(batches)
    values: list[bytes] = []
    kinds: list[int] = []
    time_ms = -1
    for is_control, key, value in _records(batches):
        kind = kind_of(key) if is_control else -1
        if kind == SNAPSHOT_HEADER and not kinds:
            time_ms = int.from_bytes(value[2:10], "big", signed=True)
        elif kind in {KRAFT_VERSION, KRAFT_VOTERS}:
            check_control(key, value)
        kinds.append(kind)
        values += [] if is_control else [value]
    check_snapshot_controls(kinds)
    return time_ms, values


def _without_gaps(batches: Batches) -> None:
    """A snapshot's records are counted from 0. Raises FormatError."""
    due = np.concatenate(([0], batches.last_offset[:-1] + 1))
    if len(wrong := np.flatnonzero(batches.base_offset != due)):
        at = wrong[0]
        raise FormatError(f"its batch at byte {batches.position[at]} begins at record {batches.base_offset[at]}, not {due[at]}")


def _records(batches: Batches) -> Iterator[tuple[bool, bytes, bytes]]:
    records, wrong = decode_records(batches)
    if wrong:
        raise FormatError(next(iter(wrong.values())))
    control = (batches.header["attributes"] & CONTROL_BIT) != 0
    for index in range(len(records)):
        yield bool(control[records.batch[index]]), records.key(index) or b"", records.value(index) or b""


def log_values(path: str, begin: int, end: int = 1 << 62) -> Iterator[tuple[int, int, int, bytes]]:
    """(offset, epoch, timestamp of the batch, record) of the metadata log in a partition directory, for offsets in [begin, end), without
    control records.

    Stops silently at a truncated tail. Raises FormatError for records that do not decode.
    """
    bases = begins_of(path)
    controls = Controls()
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= begin:
            continue
        with open_regular(os.path.join(path, f"{base:020d}.log")) as file:
            for batches in SegmentReader(file.fileno(), os.fstat(file.fileno()).st_size):
                control = (batches.header["attributes"] & CONTROL_BIT) != 0
                chosen = np.flatnonzero((batches.last_offset >= begin) & (batches.base_offset < end))
                records, wrong = decode_records(batches, chosen)
                if wrong:
                    raise FormatError(next(iter(wrong.values())))
                for index in range(len(records)):
                    offset, header = int(records.offset[index]), batches.header[records.batch[index]]
                    if control[records.batch[index]]:
                        controls.check(records.key(index) or b"", records.value(index) or b"", int(header["epoch"]))
                    elif begin <= offset < end:
                        yield offset, int(header["epoch"]), int(header["max_timestamp"]), records.value(index) or b""


def begins_of(path: str) -> list[int]:
    """Base offsets of the segments in a metadata partition directory, ascending."""
    return sorted(parsed[0] for name in os.listdir(path) if (parsed := parse_segment_name(name)) and parsed[1] == "log")


def replay_log(image: ClusterImage, path: str, begin: int, end: int = 1 << 62, trail: TrailWriter | None = None) -> None:
    """Apply the log's records in [begin, end). A metadata transaction is applied when it ends (KIP-868). `trail` follows."""
    transactions = Transactions()
    for offset, epoch, timestamp_ms, value in log_values(path, begin, end):
        image.end_offset, image.epoch, image.last_ms = offset + 1, epoch, timestamp_ms
        for held in transactions.take(value, offset, timestamp_ms):
            apply_record(image, *held)
        if trail is not None:
            trail.note(offset + 1)


def from_snapshot(path: str, name: str) -> ClusterImage:
    """The image of one snapshot alone. Raises FormatError."""
    image = ClusterImage(path)
    image.last_ms, values = _snapshot(os.path.join(path, name))
    kinds = [apply_record(image, value) for value in values]
    if set(kinds) & set(TRANSACTION_KINDS):
        raise FormatError("it has a metadata transaction")
    if changing := set(kinds) - IN_SNAPSHOTS:
        raise FormatError(f"it has a record of type {min(changing)}, which changes what others say")
    image.begin = image.end_offset = int(name[:20])
    if later := [node for node, one in image.brokers.items() if one.epoch >= image.end_offset]:
        raise FormatError(f"broker {later[0]} is registered in an epoch that begins behind its end")
    held = sum(1 for _ in image.entry_names())
    if held < len(kinds) - kinds.count(ZOOKEEPER_MIGRATION) and image.end_offset > 0:
        raise FormatError(f"of its {counted(len(kinds), 'record')} some say again what others say")
    image.epoch = int(name[21:31])
    image.from_snapshot = set(image.topics.values())
    image.policy_from_creation = set()
    return image


def read_image(path: str, node: str) -> ClusterImage:
    """The newest state of the copy in `path`, with all history that the log still has. Raises FormatError, OSError."""
    return read_trail(path, node)[0]


def read_trail(path: str, node: str) -> tuple[ClusterImage, Trail]:
    """The newest state of the copy in `path`, and the states on the way there. Raises FormatError, OSError.

    The history shows a topic's former cleanup policies and which elections were unclean, so the log is replayed from its beginning. If the
    log ends before the newest snapshot, the snapshot's state is used.
    """
    newest = _newest_snapshot(path)
    try:
        image, trail = _from_the_beginning(path)
    except (FormatError, FileNotFoundError):
        if newest is None:
            raise
        image = None  # check_snapshots and the audit of the log itself report this
    if image is None or (newest is not None and newest.end_offset > image.end_offset):
        assert newest is not None
        image, trail = newest, _followed(newest, path)
    image.path, image.node = path, node
    return image, trail


def _followed(image: ClusterImage, path: str) -> Trail:
    """Apply what the log has behind the image's end, and return the states on the way."""
    writer = TrailWriter(image, image.end_offset)
    replay_log(image, path, image.end_offset, trail=writer)
    return writer.finish(image.end_offset)


def _newest_snapshot(path: str) -> ClusterImage | None:
    for _, _, name in reversed(snapshots_of(path)):
        with contextlib.suppress(FormatError, FileNotFoundError):  # check_snapshots reports this
            return from_snapshot(path, name)
    return None


def _from_the_beginning(path: str) -> tuple[ClusterImage, Trail]:
    """The image replayed from the log's first record, or from the oldest snapshot that the log continues."""
    begin = min(begins_of(path), default=0)
    image = ClusterImage(path)
    if begin > 0:
        held = [name for end, _, name in snapshots_of(path) if end >= begin]
        if not held:
            raise FormatError(f"the log begins at {begin} and no snapshot holds the earlier state")
        image = from_snapshot(path, held[0])
    trail = _followed(image, path)
    image.is_whole = begin == 0 < image.end_offset
    return image, trail


def state_of(claim: PartitionClaim) -> tuple[object, ...]:
    """What a snapshot keeps of a partition."""
    places = claim.directories or (MIGRATING,) * len(claim.replicas)
    return (
        claim.topic_id, claim.replicas, claim.isr, claim.elr, claim.leader, claim.leader_epoch, claim.adding, claim.removing,
        claim.recovering, places, claim.partition_epoch, claim.last_known_elr,
    )  # fmt: skip
