"""The controller's claims against the directories: is every assigned replica there, and does every in-sync one hold what is committed?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from minikafka.spark import metadata_history
from minikafka.spark.findings import ERROR, NOTE, WARNING, Finding, FindingList
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_copies import (
    CopyStates,
    compare_epochs,
    compare_snapshots,
    compare_with_logs,
    settled_image,
    snapshot_digests,
    snapshot_sums,
)
from minikafka.spark.metadata_fields import UnknownRecordError
from minikafka.spark.metadata_log import (
    METADATA_TOPIC,
    ClusterImage,
    PartitionClaim,
    read_trail,
)
from minikafka.spark.metadata_partitions import NO_DIRECTORY
from minikafka.spark.metadata_snapshots import check_snapshots
from minikafka.spark.metadata_trail import Trail
from minikafka.spark.metadata_whole import contradictions
from minikafka.spark.quorum import Node, agreed_ends, check_quorum, read_node, voters_of

GROUPS, TRANSACTIONS, SHARE_GROUPS = "__consumer_offsets", "__transaction_state", "__share_group_state"
COORDINATOR_TOPICS = frozenset({GROUPS, TRANSACTIONS, SHARE_GROUPS})
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


class Directory(Protocol):
    """The part of a log directory that this module uses."""

    path: str
    broker: str
    cluster_id: str
    directory_id: str
    clean: bool | None
    is_listed: bool
    high_watermark: dict[tuple[str, int], int] | None

    def named_partitions(self) -> dict[tuple[str, int], int]: ...


@dataclass(slots=True)
class MetadataCopy:
    """One copy of the metadata log: its image of the cluster (None if it cannot be read), digests of its snapshots by name, the node's
    quorum state, and findings about the copy."""

    broker: str
    path: str
    image: ClusterImage | None
    snapshots: dict[str, str]
    node: Node
    #: The sums of the snapshots' states, and the states of the log (metadata_trail).
    sums: dict[str, int] = field(default_factory=dict)
    trail: Trail = field(default_factory=Trail)
    findings: list[Finding] = field(default_factory=list)


def read_copy(directory: Directory) -> MetadataCopy | None:
    """Read the copy of the metadata log in a log directory; None if there is none. A damaged copy becomes findings."""
    path = os.path.join(directory.path, METADATA_DIRECTORY)
    if not os.path.isdir(path):
        return None
    copy = MetadataCopy(directory.broker, path, None, {}, Node(directory.broker, path))
    try:
        for finding in check_snapshots(path):
            _place(finding, (directory.broker,))
            copy.findings.append(finding)
        copy.image, copy.trail = read_trail(path, directory.broker)
    except (FormatError, OSError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        check = "not-compared" if isinstance(error, UnknownRecordError) else "metadata-log"
        finding = Finding(check, f"the copy of node {directory.broker} cannot be read: {text}", file=path)
        _place(finding, (directory.broker,))
        copy.findings.append(finding)
    try:
        os.listdir(path)
    except OSError as error:
        copy.node.unread = f"its directory cannot be read: {error.strerror}"
        return copy
    copy.snapshots, copy.sums = snapshot_digests(path), snapshot_sums(path)
    copy.node = read_node(directory.broker, path)
    if copy.image is not None:  # the log's last record may be one of the quorum, not of the cluster
        copy.image.epoch = max(copy.image.epoch, copy.node.epoch)
        copy.trail.end = max(copy.trail.end, copy.node.history.end)
    return copy


def agreed_image(directories: Sequence[Directory], copies: list[MetadataCopy], findings: FindingList) -> ClusterImage | None:
    """The cluster as the quorum has agreed on it; None if there is no copy. Problems in and between the copies become findings."""
    for copy in copies:
        for finding in copy.findings:
            findings.add(finding)
    snapshots = {copy.broker: copy.snapshots for copy in copies}
    for finding in (*compare_snapshots(snapshots), *compare_epochs(snapshots)):
        _place(finding, finding.brokers)
        findings.add(finding)
    voters = voters_of([copy.node for copy in copies])
    states = {copy.broker: CopyStates(copy.sums, copy.trail, copy.node.history) for copy in copies}
    for finding in compare_with_logs(states, voters):
        _place(finding, finding.brokers)
        findings.add(finding)
    for finding in check_quorum([copy.node for copy in copies], directories):
        findings.add(finding)
    images = [copy.image for copy in copies if copy.image is not None]
    image = settled_image(images, voters)
    if image is not None:
        _place_in_history(image, copies)
        for text in contradictions(image):
            finding = Finding("metadata-log", text)
            _place(finding, (image.node,))
            findings.add(finding)
    return image


def _place_in_history(image: ClusterImage, copies: list[MetadataCopy]) -> None:
    """Hold the image against the other copies: what they say of its past, and how far they got."""
    own = next(copy.node.history for copy in copies if copy.image is image)
    others = [(copy.image, own.shared_with(copy.node.history)) for copy in copies if copy.image is not None]
    metadata_history.complete(image, [(other, shared) for other, shared in others if other is not image])
    for other, shared in others:
        image.heard[other.node] = max((shared, other.last_ms), image.heard.get(other.node, (-1, -1)))
    image.agreed_to = agreed_ends([copy.node for copy in copies])


def _place(finding: Finding, brokers: tuple[str, ...]) -> None:
    finding.topic, finding.partition, finding.brokers = METADATA_TOPIC, 0, brokers


def policy_of(image: ClusterImage, topic: str) -> str:
    """Whether a cleaner may ever have removed records of a topic, by the metadata log: "compact", "delete" or "unknown".

    "delete" needs the topic's whole history. A topic that came from a snapshot may have had another policy before.
    """
    seen = policies_of(image, topic)
    if any("compact" in policy for policy in seen):
        return "compact"
    return "delete" if topic in image.topics.values() and topic not in image.from_snapshot else "unknown"


def policies_of(image: ClusterImage, topic: str) -> set[str]:
    """Every value that `cleanup.policy` had for a topic, or the brokers' default."""
    return image.policies.get(topic, {}).keys() | image.default_policies.keys()


def is_only_compacted(image: ClusterImage, topic: str) -> bool | None:
    """Whether a topic's cleanup.policy has always been "compact", so that only DeleteRecords moves its log start. None if that is true as
    far back as the metadata log goes. Apache Kafka's internal topics have this policy."""
    if image.policies.get(topic, {}).keys() != {"compact"}:
        return False
    return True if topic in image.policy_from_creation or topic in COORDINATOR_TOPICS else None


Missing = tuple[tuple[str, int], Finding]
#: How long a broker that is killed may have known of a new partition without a log of it; one that is stopped in order makes it.
NEW_LOG_MS, NEVER = 10_000, -1


def missing_replicas(
    image: ClusterImage | None, directories: list[Directory], present: set[tuple[str, int, str]], held: set[tuple[str, int]]
) -> Iterator[Missing]:
    """((topic, partition), finding) for every missing replica that the controller or a directory's checkpoints name, including replicas
    whose directories were not given. `held`: partitions of which somebody has records."""
    reported: set[tuple[str, int, str]] = set()
    logs = {(topic, partition) for topic, partition, _ in present}
    if image is not None:
        for key, claim in sorted(image.claims().items()):
            for found in _assigned(image, key, claim, directories, present, key in held, key in logs):
                reported.add((*key, found.brokers[0]))
                yield key, found
    yield from _named(image, directories, present | reported)


def _assigned(
    image: ClusterImage, key: tuple[str, int], claim: PartitionClaim, directories: list[Directory], present: set[tuple[str, int, str]],
    is_held: bool, is_anywhere: bool,
) -> Iterator[Finding]:  # fmt: skip
    """The replicas of one partition that are not there. `is_held`: somebody has records of it; `is_anywhere`: somebody has a log of it.

    Of a new partition without any log the time proves nothing: its brokers may have made the logs, taken records and lost everything. Only
    who never heard of it by its own copy of the metadata log cannot have had one.
    """
    given: dict[str, set[str]] = {}
    named: dict[str, int] = {}
    for directory in directories:
        if directory.cluster_id:
            given.setdefault(directory.broker, set()).add(directory.directory_id)
        if key in directory.named_partitions() and not _may_be_old(image, directory, key[0]):
            named[directory.broker] = max(named.get(directory.broker, 0), directory.named_partitions()[key])
    stopped = {directory.broker for directory in directories if directory.clean}
    told = [directory.high_watermark or {} for directory in directories if not _may_be_old(image, directory, key[0])]
    committed = max([line.get(key, 0) for line in told], default=0)
    is_unknown = is_held and not any(key in line for line in told)
    for number, broker in enumerate(claim.replicas):
        if (*key, broker) in present:
            continue
        role = "in sync" if broker in claim.isr else "an eligible leader" if broker in claim.elr else "a replica"
        says = f"the controller counts broker {broker} as {role} of {key[0]}-{key[1]}"
        if not _is_given(image, claim, number, given):
            yield Finding("not-compared", f"{says}, but its log directories were not given", *key, brokers=(broker,))
            continue
        text = f"{says}, but it has no log of it"
        if broker not in named and _is_new(image, claim, broker, committed, NEVER if broker in stopped else NEW_LOG_MS):
            text += "; it went down when the partition was new, "
            is_lost = not is_anywhere and not _is_new(image, claim, broker, committed, NEVER)
            is_open = is_lost or (is_unknown and broker in claim.complete)
            why = "and no broker has a log of it" if is_lost else "and nobody knows what was committed"
            text += why if is_open else "and nothing was committed that it acknowledged"
            level = WARNING if is_open else NOTE
        elif broker in claim.complete:
            level = ERROR
        elif named.get(broker, 0) > 0 or (broker not in claim.adding and (broker in claim.was_in_sync or broker in named)):
            text += f"; it once {f'had it up to offset {named[broker]} or further' if broker in named else 'was in sync'}"
            level = ERROR
        elif broker in claim.adding:
            level = NOTE
        else:
            level = WARNING
        yield Finding("replica-missing", text, *key, brokers=(broker,), level=level)


def _is_new(image: ClusterImage, claim: PartitionClaim, broker: str, committed: int, within_ms: int) -> bool:
    """Whether a broker may not have made its log yet: a new partition's replicas are in sync before they have anything.

    By its own copy of the metadata log it never heard of it, or went down soon after (`within_ms`), and it did not come into sync later.
    While it is in sync without a log, nothing can be committed.
    """
    if claim.created_ms < 0 or broker in claim.joined or (broker in claim.complete and committed > 0):
        return False
    return image.was_new_to(broker, claim.created_at, claim.created_ms, within_ms) is True


def _may_be_old(image: ClusterImage, directory: Directory, topic: str) -> bool:
    """Whether a killed broker's checkpoints may still be about an earlier topic of this name."""
    made = image.made_again.get(topic)
    return made is not None and directory.clean is False and image.was_new_to(directory.broker, *made, NEW_LOG_MS) is True


def _is_given(image: ClusterImage, claim: PartitionClaim, number: int, given: dict[str, set[str]]) -> bool:
    """Whether this replica's directory was given: the one that the claim names, else every directory of the broker."""
    broker = claim.replicas[number]
    if broker not in given:
        return False
    named = claim.directories[number] if number < len(claim.directories) else ""
    if named and named not in NO_DIRECTORY:
        return named in given[broker]
    registered = image.brokers.get(broker)
    return registered is None or set(registered.directories) <= given[broker]


def _named(image: ClusterImage | None, directories: list[Directory], present: set[tuple[str, int, str]]) -> Iterator[Missing]:
    """Partitions that a directory's high watermarks and recovery points name, but that are in none of its broker's directories.

    A checkpoint is written every few seconds and at a clean shutdown, so a crashed broker's may name a partition that was just deleted.
    """
    claims = {} if image is None else image.claims()
    for directory in directories:
        for key, offset in sorted(directory.named_partitions().items()) if directory.is_listed else ():
            if offset <= 0 or (*key, directory.broker) in present:
                continue
            if image is not None and (key not in claims or directory.broker not in claims[key].replicas):
                continue  # the topic or this replica of it was deleted
            text = f"the checkpoints of {directory.path} name {key[0]}-{key[1]} up to offset {offset}, but it has no log of it"
            level = ERROR if directory.clean else WARNING
            yield key, Finding("replica-missing", text, *key, brokers=(directory.broker,), level=level)


def _impossible(claim: PartitionClaim) -> Iterator[str]:
    """What no controller decides (PartitionChangeBuilder)."""
    if claim.leader not in {"-1", *claim.isr}:
        yield f"the controller counts broker {claim.leader} as the leader, but only {', '.join(claim.isr) or 'nobody'} as in sync"
    moved = (claim.adding, "replicas to be added"), (claim.removing, "replicas to be removed")
    for nodes, what in ((claim.isr, "in sync"), (claim.elr, "eligible leaders"), *moved):
        if others := [node for node in dict.fromkeys(nodes) if node not in claim.replicas]:
            yield f"the controller counts {', '.join(others)} as {what}, but the replicas are {', '.join(claim.replicas)}"
    for one, other, what in (
        (claim.isr, claim.elr, "in sync and as an eligible leader"), (claim.adding, claim.removing, "a replica to be added and removed"),
    ):  # fmt: skip
        if shared := [node for node in one if node in other]:
            yield f"the controller counts broker {shared[0]} as {what}"
    for nodes, what in moved:
        if nodes and set(claim.replicas) <= set(nodes):
            yield f"the controller counts all replicas, {', '.join(claim.replicas)}, as {what}"
    if claim.recovering and len(claim.isr) > 1:
        yield f"the controller counts {', '.join(claim.isr)} as in sync with a leader that has not recovered"
    for nodes, what in ((claim.replicas, "a replica"), (claim.isr, "in sync"), (claim.elr, "an eligible leader")):
        if twice := sorted({node for node in nodes if nodes.count(node) > 1}):
            yield f"the controller counts broker {twice[0]} as {what} twice"


def check_claim(claim: PartitionClaim, replicas: list[tuple[str, str, int, int, int]]) -> Iterator[Finding]:
    """The controller's claim on a partition agrees with its replicas: (broker, topic id, log end, high watermark or -1, newest epoch).

    No replica's high watermark exceeds the true one. So every in-sync replica must reach the largest high watermark of a replica that
    also has the records up to it.
    """
    for text in _impossible(claim):
        yield Finding("isr-claim", text, cause="the log has a record that no controller writes, or its records were changed")
    committed, knows = max(((min(high_watermark, end), broker) for broker, _, end, high_watermark, _ in replicas), default=(-1, ""))
    for broker, topic_id, end, _, epoch in replicas:
        if topic_id and claim.topic_id and topic_id != claim.topic_id:
            text = f"broker {broker}'s directory belongs to topic id {topic_id}, but the controller has topic id {claim.topic_id}"
            cause = "the topic was deleted and recreated while this broker was away, or the directory was copied from another cluster"
            yield Finding("topic-id", text, brokers=(broker,), cause=cause)
            continue
        if broker in claim.complete and end < committed:
            role = "in sync" if broker in claim.isr else "an eligible leader"
            text = f"the controller counts broker {broker} as {role}, but its log ends at {end}; "
            text += f"broker {knows} has committed up to {committed}"
            cause = "the replica lost its tail (unclean restart, replaced disk) but was not removed from the in-sync set"
            yield Finding("isr-claim", text, brokers=(broker,), offset=end, cause=cause)
        if epoch > claim.leader_epoch:
            text = f"broker {broker} has batches of leader epoch {epoch}, but the controller knows epochs only up to {claim.leader_epoch}"
            yield Finding("epoch-unknown", text, brokers=(broker,), cause="metadata was lost or rolled back after a leader wrote")
