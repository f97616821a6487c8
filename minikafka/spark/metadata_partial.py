"""What a log that begins in the midst of the history says of the snapshot that it leads up to.

A node removes the log before its oldest snapshot in whole segments, so that some of the records that the snapshot stands for remain. They
do not make the snapshot, but what they say last of an entry stands in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from minikafka.spark import metadata_state
from minikafka.spark.metadata_fields import Fields
from minikafka.spark.metadata_log import (
    BROKER_CHANGE,
    CLEAR_ELR,
    FENCE_BROKER,
    PARTITION,
    PARTITION_CHANGE,
    REGISTER_BROKER,
    REMOVE_TOPIC,
    TOPIC,
    UNFENCE_BROKER,
    UNREGISTER_BROKER,
    ClusterImage,
    apply_record,
    log_values,
    state_of,
)
from minikafka.spark.metadata_partitions import ABORT_TRANSACTION, BEGIN_TRANSACTION, END_TRANSACTION

_OF_BROKERS = {REGISTER_BROKER, UNREGISTER_BROKER, FENCE_BROKER, UNFENCE_BROKER, BROKER_CHANGE}
Key = tuple[str, int]


@dataclass(slots=True)
class Partial:
    """What some records say, of a history whose beginning is unknown. `image`: topics, partitions and brokers that they speak of; `loose`:
    partitions that were made before, whose epochs are unknown. `state`: the other entries, None for those that are gone."""

    snapshot: ClusterImage
    image: ClusterImage = field(default_factory=ClusterImage)
    loose: set[Key] = field(default_factory=set)
    state: dict[metadata_state.Name, bytes | None] = field(default_factory=dict)
    gone_topics: set[str] = field(default_factory=set)
    gone_brokers: set[str] = field(default_factory=set)

    def take(self, value: bytes) -> None:
        """Apply one record. Raises FormatError."""
        fields = Fields(value, 1)
        kind, _ = fields.varint(), fields.varint()
        said = metadata_state.said(kind, Fields(value, fields.position))
        if said is not None:
            self.state[said[0]] = said[1]
        elif kind in _OF_BROKERS:
            self._of_broker(kind, fields, value)
        elif kind == TOPIC:
            self._topic(fields.string(), value)
        elif kind == REMOVE_TOPIC:
            self._remove(fields.uuid())
        elif kind in {PARTITION, PARTITION_CHANGE}:
            number, topic_id = fields.integer(4), fields.uuid()
            if kind == PARTITION_CHANGE:
                self._seed(topic_id, number)
            if self._knows(topic_id) and (kind == PARTITION or (topic_id, number) in self.image.partitions):
                apply_record(self.image, value)
        elif kind == CLEAR_ELR:
            name = fields.string()
            for topic_id, number in self.snapshot.partitions:
                if name in {"", self.snapshot.topics[topic_id]}:
                    self._seed(topic_id, number)
            if not name or name in self.image.names:
                apply_record(self.image, value)

    def _topic(self, name: str, value: bytes) -> None:
        """A topic is made: what its name had before went with an earlier one."""
        if name in self.image.names:
            self._remove(self.image.names[name])
        self._forget_settings(name)
        apply_record(self.image, value)

    def _remove(self, topic_id: str) -> None:
        self.gone_topics.add(topic_id)
        name = self.image.topics.pop(topic_id, "")
        self.image.names.pop(name, None)
        self._forget_settings(name)
        for key in [key for key in self.image.partitions if key[0] == topic_id]:
            del self.image.partitions[key]

    def _forget_settings(self, topic: str) -> None:
        for name in [name for name in self.state if _topic_of(name) == topic]:
            del self.state[name]

    def _knows(self, topic_id: str) -> bool:
        if topic_id not in self.image.topics and topic_id in self.snapshot.topics:
            self.image.topics[topic_id] = name = self.snapshot.topics[topic_id]
            self.image.names[name] = topic_id
        return topic_id in self.image.topics

    def _seed(self, topic_id: str, number: int) -> None:
        """Begin with the partition as the snapshot has it, unless it was made by a record that remains: what no record says is right."""
        key = topic_id, number
        if key not in self.image.partitions and key in self.snapshot.partitions and self._knows(topic_id):
            self.loose.add(key)
            self.image.partitions[key] = replace(self.snapshot.partitions[key])

    def _of_broker(self, kind: int, fields: Fields, value: bytes) -> None:
        node = str(fields.integer(4))
        brokers, known = self.image.brokers, self.snapshot.brokers
        if kind == REGISTER_BROKER:
            self.gone_brokers.discard(node)
            brokers.pop(node, None)
            apply_record(self.image, value)
            return
        epoch = fields.integer(8)
        if kind == UNREGISTER_BROKER:
            self.gone_brokers.add(node)
            brokers.pop(node, None)
            return
        if node not in brokers and node in known and known[node].epoch == epoch:
            brokers[node] = known[node]
        if node in brokers and brokers[node].epoch == epoch:
            apply_record(self.image, value)

    def contradictions(self) -> Iterator[str]:
        """What the snapshot says otherwise."""
        snapshot = self.snapshot
        for topic_id, name in sorted(self.image.topics.items()):
            if snapshot.topics.get(topic_id) != name:
                yield f"topic {name} is not in the snapshot, but the log has made it"
        for topic_id in sorted(self.gone_topics & snapshot.topics.keys()):
            yield f"topic {snapshot.topics[topic_id]} is in the snapshot, but the log has removed it"
        for key, claim in sorted(self.image.partitions.items()):
            held = snapshot.partitions.get(key)
            ours, theirs = state_of(claim), None if held is None else state_of(held)
            if theirs is not None and key in self.loose:
                ours, theirs = (_without_epochs(one) for one in (ours, theirs))
            if key[0] in snapshot.topics and ours != theirs:
                yield f"{snapshot.topics[key[0]]}-{key[1]} is not the same in the snapshot as the log's last change left it"
        for node, broker in sorted(self.image.brokers.items()):
            if node not in snapshot.brokers or snapshot.brokers[node].state != broker.state:
                yield f"broker {node} is not the same in the snapshot as the log's last record of it says"
        for node in sorted(self.gone_brokers & snapshot.brokers.keys()):
            yield f"broker {node} is in the snapshot, but the log has removed it"
        for entry, value in sorted(self.state.items()):
            topic = _topic_of(entry)
            if (not topic or topic in snapshot.names) and snapshot.state.get(entry) != value:
                yield f"the {' '.join(entry)} is not the same in the snapshot as the log's last record of it says"


def _topic_of(name: metadata_state.Name) -> str:
    """The topic of which this entry is a setting."""
    return name[2] if name[:2] == ("setting", str(metadata_state.TOPIC_RESOURCE)) else ""


def _without_epochs(state: tuple[object, ...]) -> tuple[object, ...]:
    """The state of a partition (state_of) without its leader epoch and partition epoch."""
    return state[:5] + state[6:10] + state[11:]


def contradictions(snapshot: ClusterImage, path: str, begin: int, most: int = 5) -> list[str]:
    """What the log's records in [begin, the snapshot's end) say otherwise. Raises FormatError.

    If the log begins inside of a metadata transaction that was given up, what it said before had no effect."""
    found = Partial(snapshot)
    held: list[bytes] | None = None
    for _, _, _, value in log_values(path, begin, snapshot.end_offset):
        kind = value[1] if len(value) > 1 else -1
        if kind == BEGIN_TRANSACTION:
            held = []
        elif kind in {END_TRANSACTION, ABORT_TRANSACTION}:
            if held is None and kind == ABORT_TRANSACTION:
                found = Partial(snapshot)
            for one in held if held and kind == END_TRANSACTION else ():
                found.take(one)
            held = None
        elif held is not None:
            held.append(value)
        else:
            found.take(value)
    return [text for text, _ in zip(found.contradictions(), range(most), strict=False)]
