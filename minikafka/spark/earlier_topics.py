"""Topics that were deleted and created again under the same name: separates the logs and checkpoints of the earlier topic.

Checkpoints name partitions by topic and number, not by topic id, and are written every few seconds or minutes. A broker that is killed
before that leaves lines of the earlier topic next to the log of the later one. A broker that was away all the time has the earlier log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeVar

from minikafka.counted import counted
from minikafka.spark.directories import LogDirectory
from minikafka.spark.findings import NOTE, Finding, FindingList
from minikafka.spark.metadata_log import METADATA_TOPIC, ClusterImage, PartitionClaim

CHECKPOINTS_WRITTEN_WITHIN_MS = 120_000  # log.flush.start.offset.checkpoint.interval.ms is the longest, a minute
UNBOUNDED = (1 << 63) - 1


class Segment(Protocol):
    """The part of a segment that this module uses."""

    base_offset: int


class Replica(Protocol):
    """The part of a replica that this module uses."""

    topic: str
    partition: int
    broker: str
    node: str
    path: str
    clean: bool | None
    topic_id: str
    high_watermark: int
    has_high_watermark: bool
    recovery_point: int | None
    log_start: int
    start_point: int
    findings: FindingList

    @property
    def segments(self) -> Sequence[Segment]: ...


Held = TypeVar("Held", bound=Replica)


def forget_earlier_topics(
    replicas: dict[tuple[str, int], list[Held]], directories: list[LogDirectory], findings: FindingList, image: ClusterImage
) -> set[tuple[str, int, str]]:
    """Set logs of earlier topics aside, and ignore checkpoint lines that may belong to one.

    Returns (topic, partition, broker) of logs that were set aside and that the later topic does not rely on.
    """
    ids, claims = image.topic_ids(), image.claims()
    aside: set[tuple[str, int, str]] = set()
    by_path = {os.path.normpath(directory.path): directory for directory in directories}
    for key, copies in list(replicas.items()):
        if key[0] == METADATA_TOPIC or key[0] not in ids:
            continue
        for replica in list(copies):
            directory = by_path[os.path.normpath(os.path.dirname(replica.path))]
            if replica.topic_id != ids[key[0]] and image.removed.get(replica.topic_id) == key[0]:
                _forget_lines(directory, key)
                copies.remove(replica)
                if key in claims and replica.node not in claims[key].complete:
                    aside.add((*key, replica.node))
                text = f"{replica.path} belongs to an earlier topic {key[0]} (id {replica.topic_id}), which was deleted"
                findings.add(Finding("stray-replica", text, *key, brokers=(replica.broker,), file=replica.path))
            elif _may_be_old(image, replica):
                _without_lines(replica, _forget_lines(directory, key))
        if not copies:
            del replicas[key]
    return aside


def _may_be_old(image: ClusterImage, replica: Replica) -> bool:
    """Whether its checkpoint lines may be older than the topic: the broker was killed soon after the topic was created."""
    made = image.made_again.get(replica.topic)
    if made is None or replica.clean is not False:
        return False
    return image.was_new_to(replica.node, *made, CHECKPOINTS_WRITTEN_WITHIN_MS) is not False


def _forget_lines(directory: LogDirectory, key: tuple[str, int]) -> list[str]:
    """Remove the partition's checkpoint lines, and return the names of those that existed."""
    checkpoints = ("high_watermark", "recovery_point", "log_start")
    return [name for name in checkpoints if (getattr(directory, name) or {}).pop(key, None) is not None]


def _without_lines(replica: Replica, lines: list[str]) -> None:
    if not lines:
        return
    replica.has_high_watermark, replica.high_watermark = False, UNBOUNDED
    replica.recovery_point, replica.log_start, replica.start_point = None, replica.segments[0].base_offset, -1
    text = f"its {', '.join(name.replace('_', ' ') for name in lines)} may belong to the deleted topic of that name: ignored"
    finding = Finding("checkpoint-bounds", text, replica.topic, replica.partition, (replica.broker,), file=replica.path, level=NOTE)
    replica.findings.add(finding)


def never_was(image: ClusterImage, replica: Replica, claim: PartitionClaim | None, topic_id: str) -> str:
    """Why the controller's record cannot explain a stray replica: then metadata were lost, or the directory comes from elsewhere. "" if it
    can. What a snapshot left out may have existed; partitions are never taken from a topic."""
    if replica.topic_id in image.removed or (not replica.topic_id and replica.topic in image.removed_names):
        return ""
    is_known = topic_id != "" and replica.topic_id in {"", topic_id}
    if not is_known:
        return f"the controller never knew its topic id {replica.topic_id or '(none)'}" if image.is_whole else ""
    if claim is None:
        return f"the topic has {counted(image.size_of(replica.topic), 'partition')}, and none was ever taken from a topic"
    if replica.node in claim.ever or replica.topic in image.from_snapshot:
        return ""
    return f"broker {replica.node} was never assigned a replica of it"
