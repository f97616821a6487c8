"""The cluster's past, if the copy of the metadata log that tells its present begins with a snapshot, and another one goes further back.

A snapshot has the state, and nothing of what was before: topics that were deleted, policies, elections, the replicas that ever were.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minikafka.spark.metadata_log import ClusterImage, PartitionClaim


def complete(image: ClusterImage, others: Iterable[tuple[ClusterImage, int]]) -> None:
    """Add what the copy with the longest past says of the time before this one begins. `others`: with the offset up to which both have the
    same records."""
    older = [other for other, shared in others if other.begin < image.begin <= shared]
    longest = min(older, key=lambda other: other.begin, default=None)
    if longest is not None:
        _add_topics(image, longest)
        image.partitions |= {
            key: _with_past(claim, longest.partitions[key], image.begin)
            for key, claim in image.partitions.items() if key in longest.partitions
        }  # fmt: skip
        image.begin, image.is_whole = longest.begin, longest.is_whole


def _add_topics(image: ClusterImage, older: ClusterImage) -> None:
    image.removed = {topic_id: name for topic_id, name in older.removed.items() if topic_id not in image.topics} | image.removed
    image.removed_names |= set(image.removed.values())
    image.default_policies = _before(image.begin, older.default_policies) | image.default_policies
    for topic_id, name in image.topics.items():
        if older.topics.get(topic_id) != name:
            continue
        image.policies[name] = _before(image.begin, older.policies.get(name, {})) | image.policies.get(name, {})
        if name in older.made_again:
            image.made_again.setdefault(name, older.made_again[name])
        if name in older.policy_from_creation:
            image.policy_from_creation.add(name)
        if name not in older.from_snapshot:
            image.from_snapshot.discard(name)


def _before(offset: int, said: dict[str, int]) -> dict[str, int]:
    return {setting: at for setting, at in said.items() if at < offset}


def _with_past(claim: PartitionClaim, older: PartitionClaim, begin: int) -> PartitionClaim:
    past = tuple(election for election in older.elections if election.offset < begin)
    return replace(
        claim, elections=past + tuple(election for election in claim.elections if election.offset >= begin),
        was_in_sync=claim.was_in_sync | older.was_in_sync, ever=claim.ever | older.ever, joined=claim.joined | older.joined,
        created_at=older.created_at, created_ms=older.created_ms,
    )  # fmt: skip
