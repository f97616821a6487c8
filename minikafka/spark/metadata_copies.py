"""Copies of the metadata log against each other: their snapshots, and which copy says what the quorum has agreed on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence

from minikafka.spark.findings import Finding
from minikafka.spark.logformat import FormatError
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


def compare_with_logs(sums: dict[str, dict[str, int]], trails: dict[str, Trail]) -> Iterator[Finding]:
    """Check that each node's snapshots hold what the other nodes' logs say up to there. `sums`: {node: snapshot_sums}."""
    for node, named in sorted(sums.items()):
        for name, state in sorted(named.items()):
            end = int(name[:20])
            others = sorted(other for other, trail in trails.items() if other != node and trail.at(end) not in {None, state})
            if others:
                text = f"snapshot {name} of node {node} holds another state than the logs of node {' '.join(others)} say"
                yield Finding("metadata-snapshot", text, brokers=(node,), offset=end)


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
