"""Partitions that coordinators' records name, held against the metadata and against each other: of topics, tasks, share groups' states.

The number of partitions of a topic never falls, so a coordinator never knew more of them than there are. A share group counts a partition's
state as initialized after the share coordinator has written it, and no longer before it is removed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from minikafka.counted import counted
from minikafka.spark.claims import GROUPS, SHARE_GROUPS, policies_of
from minikafka.spark.coordinator_log import home_of
from minikafka.spark.findings import WARNING, Finding
from minikafka.spark.group_records import STATES_OF_SHARES, Values, kind_of, named_partitions
from minikafka.spark.metadata_log import ClusterImage
from minikafka.spark.metadata_state import TOPIC_RESOURCE

Key = tuple[str, int]
DIGEST_BYTES = 8
_BEYOND = ": the metadata's end is missing, or no coordinator wrote this record"


@dataclass(slots=True)
class Named:
    """What one coordinator partition names. `topics`: {topic id: (largest partition, offset of the record, group)}. `tasks`: {topics that
    are read together: (largest task, offset)}. `initialized`: {group: {topic id: partitions whose state there must be}}. `states`: digests
    of the share partitions with a state, packed."""

    topics: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    tasks: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)
    initialized: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    states: bytes = b""

    def add(self, offset: int, group: str, topic_id: str, number: int) -> None:
        """Add a partition that a record names."""
        self.topics[topic_id] = max((number, offset, group), self.topics.get(topic_id, (-1, -1, "")))

    def add_record(self, offset: int, key: bytes, group: str, found: Values) -> None:
        """Add a record of a group, whose fields were read."""
        for topic_id, number in named_partitions(kind_of(key), found):
            self.add(offset, group, topic_id, number)

    def add_latest(self, key: bytes, group: str, found: Values) -> None:
        """Add a record of a group that no other replaced."""
        if kind_of(key) == STATES_OF_SHARES:
            self.initialized[group] = {one["id"]: one["partitions"] for one in found["initialized"]}

    def add_tasks(self, more: Mapping[tuple[str, ...], tuple[int, int]]) -> None:
        """Add tasks of other groups."""
        for topics, task in more.items():
            self.tasks[topics] = max(task, self.tasks.get(topics, (-1, -1)))

    def digests(self) -> Iterator[bytes]:
        """The digests of the states."""
        return (self.states[at : at + DIGEST_BYTES] for at in range(0, len(self.states), DIGEST_BYTES))


def digest_of(share_partition: str) -> bytes:
    """The digest of a share partition's name (SharePartitionKey)."""
    return hashlib.blake2b(share_partition.encode(), digest_size=DIGEST_BYTES).digest()


def beyond(image: ClusterImage | None, named: Mapping[Key, Named]) -> Iterator[Finding]:
    """Partitions and tasks that there are not, of topics that there are. Deleted topics do not count, nor do topics that may have had an
    earlier life under their name, where a record says only the name."""
    if image is None:
        return
    sizes = Counter(topic_id for topic_id, _ in image.partitions)
    ids = image.topic_ids()
    lasting = ids.keys() - image.made_again.keys() - image.from_snapshot
    for key, one in sorted(named.items()):
        for topic_id, (number, offset, group) in sorted(one.topics.items()):
            if topic_id in image.topics and number >= sizes[topic_id]:
                text = f"a record of group {group} names partition {number} of {image.topics[topic_id]}, which has {sizes[topic_id]} by the"
                yield Finding("not-compared", f"{text} metadata that was given{_BEYOND}", *key, offset=offset, level=WARNING)
        for topics, (number, offset) in sorted(one.tasks.items()):
            largest = max(sizes[ids[topic]] for topic in topics) if lasting >= set(topics) else number + 1
            if number >= largest:
                text = f"a record names task {number} of a subtopology that has {counted(largest, 'task')}, as it reads "
                text += ", ".join(topics[:9])
                yield Finding("not-compared", text + _BEYOND, *key, offset=offset, level=WARNING)


def lost_states(image: ClusterImage | None, named: Mapping[Key, Named], is_read: Collection[Key]) -> Iterator[Finding]:
    """Share partitions without the state that their group counts as initialized, if all partitions with states were read (`is_read`).

    An unclean election may have taken the state, or brought back what the group said before. Who deletes the topic or its old records wants
    that."""
    claims = {} if image is None else {key: claim for key, claim in image.claims().items() if key[0] in {SHARE_GROUPS, GROUPS}}
    homes = {key for key in claims if key[0] == SHARE_GROUPS}
    if image is None or not homes or not homes <= set(is_read) or SHARE_GROUPS in image.made_again or _is_deleting(image):
        return
    known = {found for one in named.values() for found in one.digests()}
    level = WARNING if any(claim.elections for claim in claims.values()) else ""
    for one in named.values():
        for group, topics in sorted(one.initialized.items()):
            for topic_id, numbers in sorted(topics.items()):
                names = [f"{group}:{topic_id}:{number}" for number in numbers if topic_id in image.topics]
                if lost := [name for name in names if digest_of(name) not in known]:
                    text = f"share group {group} counts the state of partition {lost[0].rpartition(':')[2]} of {image.topics[topic_id]} as "
                    home = home_of(lost[0], len(homes))
                    yield Finding("share-state", text + "initialized, but it is gone", SHARE_GROUPS, home, level=level)


def _is_deleting(image: ClusterImage) -> bool:
    """Whether the states may be deleted by age. Coordinators make the topic with unlimited retention."""
    retention = image.state.get(("setting", str(TOPIC_RESOURCE), SHARE_GROUPS, "retention.ms"))
    return policies_of(image, SHARE_GROUPS) != {"compact"} and retention != b"-1"
