"""The rows of acl_rows.py for the APIs of share groups."""

from __future__ import annotations

from typing import Any

from helpers.acl_node import on_cluster
from helpers.acl_rows import CLUSTER_DENIED, GROUP_DENIED, TOPIC_DENIED, Row, group, needs, topic

from minikafka.core.authorizer.acl import Operation as Op
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest

_STATES: tuple[tuple[Any, str, dict[str, Any]], ...] = (
    (InitializeShareGroupStateRequest, "InitializeStateData", {"state_epoch": 1, "start_offset": 0}),
    (ReadShareGroupStateRequest, "ReadStateData", {"leader_epoch": 0}),
    (
        WriteShareGroupStateRequest, "WriteStateData",
        {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": []},
    ),
    (DeleteShareGroupStateRequest, "DeleteStateData", {}),
    (ReadShareGroupStateSummaryRequest, "ReadStateSummaryData", {"leader_epoch": 0}),
)  # fmt: skip


_DESCRIBED, _ALTERED, _DELETED = DescribeShareGroupOffsetsRequest, AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest
_BOTH = (*needs(GROUP_DENIED, group(Op.READ)), *needs(TOPIC_DENIED, topic(Op.READ)))


def _of_states(request: Any, kind: str, fields: dict[str, Any]) -> Row:
    def make(topic_id: bytes) -> Any:
        partition = request.PartitionData(partition=0, **fields)
        return request(group_id="g", topics=[getattr(request, kind)(topic_id=topic_id, partitions=[partition])])

    return Row(make, needs(CLUSTER_DENIED, on_cluster(Op.CLUSTER_ACTION)))


def _fetch(topic_id: bytes) -> ShareFetchRequest:
    partition = ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=[])
    return ShareFetchRequest(
        group_id="g", member_id="m", share_session_epoch=0, max_wait_ms=0, min_bytes=1, max_records=1, batch_size=1,
        share_acquire_mode=0, topics=[ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
        forgotten_topics_data=[],
    )  # fmt: skip


def _acknowledge(topic_id: bytes) -> ShareAcknowledgeRequest:
    """Of the session that `_fetch` has begun, and the last request of it."""
    partition = ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0, acknowledgement_batches=[])
    topics = [ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])]
    return ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=-1, topics=topics)


def _describe_offsets(_: bytes) -> DescribeShareGroupOffsetsRequest:
    wanted = _DESCRIBED.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])
    return _DESCRIBED(groups=[_DESCRIBED.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[wanted])])


def _alter_offsets(_: bytes) -> AlterShareGroupOffsetsRequest:
    offset = _ALTERED.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    return _ALTERED(group_id="g", topics=[_ALTERED.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[offset])])


def share_rows() -> dict[str, Row]:
    """All of share groups by name."""
    return {request.__name__.removesuffix("Request"): _of_states(request, kind, fields) for request, kind, fields in _STATES} | {
        "ShareFetch": Row(_fetch, _BOTH),
        "ShareAcknowledge": Row(_acknowledge, _BOTH),
        "ShareGroupHeartbeat": Row(
            lambda _: ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]),
            (*needs(GROUP_DENIED, group(Op.READ)), *needs(TOPIC_DENIED, topic(Op.DESCRIBE))),
        ),
        "ShareGroupDescribe": Row(
            lambda _: ShareGroupDescribeRequest(group_ids=["g"]), needs(GROUP_DENIED, group(Op.DESCRIBE))
        ),
        "DescribeShareGroupOffsets": Row(
            _describe_offsets, (*needs(GROUP_DENIED, group(Op.DESCRIBE)), *needs(TOPIC_DENIED, topic(Op.DESCRIBE)))
        ),
        "AlterShareGroupOffsets": Row(_alter_offsets, _BOTH),
        "DeleteShareGroupOffsets": Row(
            lambda _: _DELETED(group_id="g", topics=[_DELETED.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]),
            (*needs(GROUP_DENIED, group(Op.DELETE)), *needs(TOPIC_DENIED, topic(Op.READ))),
        ),
    }  # fmt: skip
