"""TxnOffsetCommit: which of its offsets can be stored, and the answer for the others."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.core.group.offsets import CommittedOffset
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

#: Resolves a committed topic: name and id, or None when the cluster does not have the partition.
TopicResolver = Callable[[str, bytes, int], "tuple[str, bytes] | None"]
Commits = list[tuple[str, int, CommittedOffset]]
PartitionResult = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


#: The first version of TxnOffsetCommit with topic ids instead of names. Its clients support the errors of consumer groups (KIP-1319).
IDS_VERSION = 6


def select_commits(
    request: TxnOffsetCommitRequest, code: ErrorCode, resolve: TopicResolver, wall_ms: int, metadata_bytes_max: int
) -> tuple[TxnOffsetCommitResponse, Commits, list[PartitionResult]]:
    """Returns the answer, the commits to store, and the parts of the answer that belong to them. A `code` other than NONE refuses all."""
    commits: Commits = []
    pending: list[PartitionResult] = []
    response = TxnOffsetCommitResponse(topics=[])
    for topic in request.topics:
        results: list[PartitionResult] = []
        kind = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
        response.topics.append(kind(name=topic.name, topic_id=topic.topic_id, partitions=results))
        for partition in topic.partitions:
            result = PartitionResult(partition_index=partition.partition_index)
            results.append(result)
            found = resolve(topic.name, topic.topic_id, partition.partition_index)
            metadata = partition.committed_metadata or ""
            if code is not ErrorCode.NONE:
                result.error_code = code
            elif found is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > metadata_bytes_max:
                result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                pending.append(result)
                committed = CommittedOffset(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_wall_ms=wall_ms,
                    topic_id=found[1],
                )
                commits.append((found[0], partition.partition_index, committed))
    return response, commits, pending
