"""The snapshots of a copy of the metadata log against the log itself."""

from __future__ import annotations

import os
from collections.abc import Iterator

from minikafka.addresses import host_port
from minikafka.spark.findings import Finding
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_fields import UnknownRecordError
from minikafka.spark.metadata_log import (
    ClusterImage,
    PartitionClaim,
    begins_of,
    from_snapshot,
    replay_log,
    snapshots_of,
    state_of,
)
from minikafka.spark.metadata_partial import contradictions
from minikafka.spark.metadata_registrations import Registration


def check_snapshots(path: str) -> Iterator[Finding]:
    """Check that each snapshot of a copy is readable and, if the log reaches back far enough, equals the log replayed up to its end."""
    earlier: ClusterImage | None = None
    start = min(begins_of(path), default=0)
    for end, _, name in snapshots_of(path):
        file = os.path.join(path, name)
        try:
            image = from_snapshot(path, name)
            if start > 0 and (earlier is None or earlier.end_offset < start):
                earlier = image
                for text in contradictions(image, path, start):
                    yield Finding("metadata-snapshot", text, offset=end, file=file)
                continue
            replayed = ClusterImage(path) if earlier is None or start == 0 else earlier
            replay_log(replayed, path, replayed.end_offset, end)
        except FormatError as error:
            check = "not-compared" if isinstance(error, UnknownRecordError) else "metadata-snapshot"
            yield Finding(check, str(error), offset=end, file=file)
            continue
        except FileNotFoundError:
            continue  # an old snapshot that its node removed just now
        is_empty = not replayed.topics and not replayed.state
        if end > 0 and replayed.end_offset < end - 1 and is_empty and (image.topics or image.state):
            earlier = image  # the log does not reach this far (a node that began with FetchSnapshot)
            continue
        for text in differences(image, replayed):
            yield Finding("metadata-snapshot", text, offset=end, file=file)
        earlier = image


def differences(snapshot: ClusterImage, log: ClusterImage, most: int = 5) -> list[str]:
    """The differences between a snapshot and the log up to its end, as text."""
    found = []
    left, right = snapshot.claims(), log.claims()
    for topic in sorted(snapshot.topic_ids().keys() ^ log.topic_ids().keys()):
        found.append(f"topic {topic} exists {_only_in(topic in snapshot.topic_ids())}")
    for key in sorted(left.keys() | right.keys()):
        one, two = left.get(key), right.get(key)
        if one is None or two is None:
            if (key[0] in snapshot.topic_ids()) == (key[0] in log.topic_ids()):
                found.append(f"{key[0]}-{key[1]} exists {_only_in(one is not None)}")
        elif state_of(one) != state_of(two):
            found.append(f"{key[0]}-{key[1]} has {_claim_text(one)} in the snapshot, and {_claim_text(two)} by the log")
    for broker in sorted(snapshot.brokers.keys() | log.brokers.keys()):
        mine, theirs = snapshot.brokers.get(broker), log.brokers.get(broker)
        if (None if mine is None else mine.state) != (None if theirs is None else theirs.state):
            found.append(f"broker {broker} has {_broker_text(mine)} in the snapshot, and {_broker_text(theirs)} by the log")
    for name in sorted(snapshot.state.keys() | log.state.keys()) if snapshot.end_offset else ():
        if snapshot.state.get(name) != log.state.get(name):
            is_in_both = name in snapshot.state and name in log.state
            where = "is not the same in the snapshot as by the log" if is_in_both else f"exists {_only_in(name in snapshot.state)}"
            found.append(f"the {' '.join(name)} {where}")
    return found[:most]


def _only_in(is_in_snapshot: bool) -> str:
    return "in the snapshot, but not by the log" if is_in_snapshot else "by the log, but not in the snapshot"


def _broker_text(broker: Registration | None) -> str:
    if broker is None:
        return "no registration"
    states = ", fenced" * broker.is_fenced + ", shutting down" * broker.is_shutting_down
    listeners = ", ".join(f"{name}://{host_port(str(host), str(port))}" for name, host, port, _ in broker.endpoints)
    text = f"epoch {broker.epoch}, incarnation {broker.incarnation}{states}, listeners {listeners or '-'}, rack {broker.rack or '-'}"
    return text + f", the log directories {', '.join(sorted(broker.directories)) or '-'}"


def _claim_text(claim: PartitionClaim) -> str:
    said = f"replicas {','.join(claim.replicas)} in sync {','.join(claim.isr) or 'none'} leader {claim.leader} epoch {claim.leader_epoch}"
    said += f" partition epoch {claim.partition_epoch}"
    return f"{said} directories {','.join(claim.directories) or '-'} of topic {claim.topic_id}"
