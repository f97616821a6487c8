"""Copies of the metadata log against each other: their snapshots, and which copy says what the quorum has agreed on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from minikafka.spark.findings import Finding
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_epochs import EpochHistory
from minikafka.spark.metadata_log import ClusterImage, from_snapshot, snapshot_values, snapshots_of
from minikafka.spark.metadata_trail import Trail, sum_of


def settled_image(images: Sequence[ClusterImage], voters: Iterable[str]) -> ClusterImage | None:
    """The cluster by the records that a majority of the voters holds, and so may have been committed: brokers act on nothing else. Without
    knowledge of the voters, or of enough of their copies, it is the image that reaches furthest. None if there is no copy.

    What the copies beyond it propose may still be committed, if one of them wins an election. So a replica that is in sync by either must
    be complete: a leader waits for it until a record that drops it is committed, and takes one in only if it is complete.
    """
    ordered = sorted(images, key=lambda image: (image.epoch, image.end_offset), reverse=True)
    newest = next(iter(ordered), None)
    names: set[str] = set(voters)
    of_voters: dict[str, ClusterImage] = {}
    for image in ordered:
        if image.node in names:
            of_voters.setdefault(image.node, image)
    rank = len(names) // 2 + 1 - (len(names) - len(of_voters))
    if newest is None or rank < 1 or len(of_voters) < rank:
        return newest
    settled = list(of_voters.values())[rank - 1]
    for key, claim in settled.partitions.items():
        claim.proposed = tuple(dict.fromkeys(
            node for image in of_voters.values() if (image.epoch, image.end_offset) > (settled.epoch, settled.end_offset)
            for other in [image.partitions.get(key)] if other is not None for node in other.isr + other.elr
        ))  # fmt: skip
    return settled


def snapshot_digests(path: str) -> dict[str, str]:
    """{name: digest of its records, independent of their order} of a copy's readable snapshots."""
    found = {}
    for _, _, name in snapshots_of(path):
        with contextlib.suppress(FormatError, OSError):
            found[name] = _digest(b"\0".join(sorted(snapshot_values(os.path.join(path, name)))))
    return found


def snapshot_sums(path: str) -> dict[str, int]:
    """{name: sum of the state} of a copy's readable snapshots, but for the one with which a node is formatted."""
    found = {}
    for end, _, name in snapshots_of(path):
        if end > 0:
            with contextlib.suppress(FormatError, OSError):
                found[name] = sum_of(from_snapshot(path, name))
    return found


@dataclass(frozen=True, slots=True)
class CopyStates:
    """What one copy says of the state at an offset: the sums of its snapshots' states by name, the states of its log, its epochs."""

    sums: dict[str, int]
    trail: Trail
    history: EpochHistory


def compare_with_logs(copies: dict[str, CopyStates], voters: Collection[str]) -> Iterator[Finding]:
    """Check that each node's snapshots hold what the logs say up to there.

    A snapshot holds only what is committed. A log with an older epoch before the snapshot's end has records there that a leader wrote, but
    not to a majority; so it says nothing about the snapshot, and few voters have such a log.
    """
    for node, copy in sorted(copies.items()):
        for name, state in sorted(copy.sums.items()):
            end, epoch = int(name[:20]), int(name[21:31])
            at = {other: epoch_there for other, one in sorted(copies.items()) if (epoch_there := one.history.before(end)) is not None}
            alike = [other for other in at if other != node and at[other] == epoch]
            others = [other for other in alike if copies[other].trail.at(end) not in {None, state}]
            if others:
                yield _of_another_state(copies, alike, others, name, node)
            older = {other for other in at if at[other] < epoch and other in voters}
            is_of_minority = not voters or len(older) < len(voters) // 2 + 1
            wrong = [other for other in at if at[other] > epoch or (at[other] < epoch and (other == node or not is_of_minority))]
            if wrong:
                text = f"snapshot {name} of node {node} is of epoch {epoch}, but before its end the log of node "
                text += ", ".join(f"{other} has epoch {at[other]}" for other in wrong)
                yield Finding("metadata-snapshot", text, brokers=(node,), offset=end)


def _of_another_state(copies: dict[str, CopyStates], alike: list[str], others: list[str], name: str, node: str) -> Finding:
    """A snapshot and logs of other nodes contradict each other: what fewer nodes say is wrong, else the snapshot."""
    end, state = int(name[:20]), copies[node].sums[name]
    agreeing = {node, *(other for other in copies if state in {copies[other].sums.get(name), copies[other].trail.at(end)})} - set(others)
    if len(agreeing) > len(others):
        text = f"the log of node {' '.join(others)} says another state before offset {end} than node {' '.join(sorted(agreeing))}"
        return Finding("metadata-log", text, brokers=tuple(others), offset=end)
    text = f"snapshot {name} of node {node} holds another state than the logs of node {' '.join(others)} say"
    return Finding("metadata-snapshot", text, brokers=(node,), offset=end)


def compare_epochs(copies: dict[str, dict[str, str]]) -> Iterator[Finding]:
    """Check that snapshots that end at one offset bear the same epoch in their names: it is that of the record before."""
    named: dict[int, dict[str, list[str]]] = {}
    for node, digests in sorted(copies.items()):
        for name in digests:
            named.setdefault(int(name[:20]), {}).setdefault(name[21:31], []).append(node)
    for end, epochs in sorted(named.items()):
        if len(epochs) > 1:
            fewest = min(epochs.values(), key=len)
            text = ", ".join(f"{int(epoch)} on node {' '.join(nodes)}" for epoch, nodes in epochs.items())
            text = f"the snapshot at {end} is of epoch {text}"
            yield Finding("metadata-snapshot", text, brokers=tuple(fewest), offset=end)


def compare_snapshots(copies: dict[str, dict[str, str]]) -> Iterator[Finding]:
    """Check that snapshots of the same name hold the same records on all nodes, in any order. `copies`: {node: snapshot_digests}."""
    named: dict[str, dict[str, list[str]]] = {}
    for node, digests in sorted(copies.items()):
        for name, digest in digests.items():
            named.setdefault(name, {}).setdefault(digest, []).append(node)
    for name, contents in sorted(named.items()):
        if len(contents) > 1:
            fewest = min(contents.values(), key=len)
            text = f"snapshot {name} differs: " + " against ".join("node " + " ".join(nodes) for nodes in contents.values())
            yield Finding("metadata-snapshot", text, brokers=tuple(fewest), offset=int(name[:20]))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
