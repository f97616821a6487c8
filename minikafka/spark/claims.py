"""The controller's claims against the directories: is every assigned replica there, and does every in-sync one hold what is committed?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

from minikafka.spark.findings import ERROR, NOTE, Finding, FindingList
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_log import (
    METADATA_TOPIC,
    NO_DIRECTORY,
    ClusterImage,
    PartitionClaim,
    check_snapshots,
    compare_snapshots,
    read_image,
)

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


class Directory(Protocol):
    """What is needed of a log directory here."""

    path: str
    broker: str
    cluster_id: str
    directory_id: str


def newest_image(directories: list[Directory], findings: FindingList) -> ClusterImage | None:
    """The furthest of all copies of the metadata log under the directories; None without one. Bad copies become findings."""
    images: list[ClusterImage] = []
    copies: dict[str, str] = {}
    for directory in directories:
        path = os.path.join(directory.path, METADATA_DIRECTORY)
        if not os.path.isdir(path):
            continue
        copies[directory.broker] = path
        try:
            for finding in check_snapshots(path):
                _place(finding, (directory.broker,))
                findings.add(finding)
            images.append(read_image(path, directory.broker))
        except (FormatError, OSError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            finding = Finding("metadata-log", f"the copy of node {directory.broker} cannot be read: {text}", file=path)
            _place(finding, (directory.broker,))
            findings.add(finding)
    for finding in compare_snapshots(copies):
        _place(finding, finding.brokers)
        findings.add(finding)
    return max(images, key=lambda image: (image.epoch, image.end_offset), default=None)


def _place(finding: Finding, brokers: tuple[str, ...]) -> None:
    finding.topic, finding.partition, finding.brokers = METADATA_TOPIC, 0, brokers


def missing_replicas(
    image: ClusterImage, directories: list[Directory], present: set[tuple[str, int, str]], topics: set[str]
) -> Iterator[tuple[tuple[str, int], Finding]]:
    """((topic, partition), finding) for every replica that should lie in one of the directories and does not.

    A broker with a directory that was not given is left out unless the claim names the directory.
    """
    given: dict[str, set[str]] = {}
    for directory in directories:
        if directory.cluster_id:
            given.setdefault(directory.broker, set()).add(directory.directory_id)
    for key, claim in sorted(image.claims().items()):
        if topics and key[0] not in topics:
            continue
        for number, broker in enumerate(claim.replicas):
            if broker not in given or (*key, broker) in present:
                continue
            named = claim.directories[number] if number < len(claim.directories) else ""
            if named and named not in NO_DIRECTORY:
                expected = named in given[broker]
            else:
                expected = set(image.brokers.get(broker, ())) <= given[broker]
            if expected:
                in_sync = broker in claim.complete
                says = f"the controller counts broker {broker} as {'in sync' if in_sync else 'a replica'}"
                text = f"{says} of {key[0]}-{key[1]}, but it has no log of it"
                yield key, Finding("replica-missing", text, *key, brokers=(broker,), level=ERROR if in_sync else NOTE)


def check_claim(claim: PartitionClaim, replicas: list[tuple[str, str, int, int, int]]) -> Iterator[Finding]:
    """The claim on one partition against its replicas: (broker, topic id, log end, high watermark or -1, newest epoch in the log).

    Any replica's high watermark is at most the true one, so every in-sync replica must reach the largest that a replica has the
    records for.
    """
    committed, knows = max(((min(mark, end), broker) for broker, _, end, mark, _ in replicas), default=(-1, ""))
    for broker, topic_id, end, _, epoch in replicas:
        if topic_id and claim.topic_id and topic_id != claim.topic_id:
            text = f"broker {broker}'s directory belongs to topic id {topic_id}, the controller knows the topic as {claim.topic_id}"
            cause = "the topic was deleted and created again while this broker was away, or the directory was copied from another cluster"
            yield Finding("topic-id", text, brokers=(broker,), cause=cause)
            continue
        if broker in claim.complete and end < committed:
            role = "in sync" if broker in claim.isr else "an eligible leader"
            text = f"the controller counts broker {broker} as {role}, but its log ends at {end}; "
            text += f"broker {knows} has committed up to {committed}"
            cause = "the replica lost its tail (unclean restart, disk replaced) and was not taken out of the in-sync set"
            yield Finding("isr-claim", text, brokers=(broker,), offset=end, cause=cause)
        if epoch > claim.leader_epoch:
            text = f"broker {broker} has batches of leader epoch {epoch}, the controller knows epochs up to {claim.leader_epoch}"
            yield Finding("epoch-unknown", text, brokers=(broker,), cause="metadata was lost or rolled back after a leader had written")
