"""TxnOffsetCommit: which of its offsets can be stored, and the answer for the others."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from minikafka.core.group.offsets import CommittedOffset
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.offset_commit import OffsetCommitResponse
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

#: Resolves a committed topic: name and id, or the error when the cluster does not have the partition.
TopicResolver = Callable[[str, bytes, int], "tuple[str, bytes] | ErrorCode"]
Commits = list[tuple[str, int, CommittedOffset]]
PartitionResult = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


#: The first version of TxnOffsetCommit with topic ids instead of names. Its clients support the errors of consumer groups (KIP-1319).
IDS_VERSION = 6


def refused_commits(request: TxnOffsetCommitRequest, code: ErrorCode, resolve: TopicResolver) -> TxnOffsetCommitResponse:
    """The answer that refuses all partitions with `code`, those that do not exist with their own error."""
    return select_commits(request, code, resolve, 0, 0)[0]


def names_existing(request: TxnOffsetCommitRequest, resolve: TopicResolver) -> bool:
    """Whether any of its partitions exists."""
    return any(
        not isinstance(resolve(topic.name, topic.topic_id, partition.partition_index), ErrorCode)
        for topic in request.topics
        for partition in topic.partitions
    )


def select_commits(
    request: TxnOffsetCommitRequest, code: ErrorCode, resolve: TopicResolver, wall_ms: int, metadata_bytes_max: int
) -> tuple[TxnOffsetCommitResponse, Commits, list[PartitionResult]]:
    """Returns the answer, the commits to store, and the parts of the answer that belong to them. A `code` other than NONE refuses all
    partitions that there are. Topics without any come first, as KafkaApis answers."""
    commits: Commits = []
    pending: list[PartitionResult] = []
    topics: list[tuple[bool, TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]] = []
    for topic in request.topics:
        results: list[PartitionResult] = []
        exists = False
        for partition in topic.partitions:
            result = PartitionResult(partition_index=partition.partition_index)
            results.append(result)
            found = resolve(topic.name, topic.topic_id, partition.partition_index)
            metadata = partition.committed_metadata or ""
            exists = exists or not isinstance(found, ErrorCode)
            if isinstance(found, ErrorCode):
                result.error_code = found
            elif code is not ErrorCode.NONE:
                result.error_code = code
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
        kind = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
        topics.append((exists, kind(name=topic.name, topic_id=topic.topic_id, partitions=results)))
    topics.sort(key=itemgetter(0))
    return TxnOffsetCommitResponse(topics=[topic for _, topic in topics]), commits, pending


def is_too_long(response: OffsetCommitResponse | TxnOffsetCommitResponse) -> bool:
    """Whether some metadata were too long. The commit was allowed otherwise, so in Apache Kafka it has created the group."""
    refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
    return any(partition.error_code == refused for topic in response.topics for partition in topic.partitions)
