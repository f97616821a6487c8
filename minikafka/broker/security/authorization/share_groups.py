"""Guards of the APIs of share groups (KafkaApis)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.security.authorization.cluster import on_cluster
from minikafka.broker.security.authorization.groups import (
    DENIED,
    TOPIC_DENIED,
    describing,
    may_describe_topic,
    require_group,
    require_topics,
)
from minikafka.broker.security.authorization.guard import Guard, Verdict
from minikafka.broker.security.authorization.topics import split
from minikafka.broker.share.group_requests import is_member_id
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.wire.message import Request
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority, AuthorizableContext


def read_group(authority: Authority, context: AuthorizableContext, request: Any) -> Verdict:
    """Needs READ on the group, if the request names one."""
    if request.group_id is not None:
        require_group(authority, context, Operation.READ, request.group_id)
    return None


def heartbeat(authority: Authority, context: AuthorizableContext, request: ShareGroupHeartbeatRequest) -> Verdict:
    """Needs READ on the group, and DESCRIBE on each subscribed topic. The handler refuses a bad member id, which counts before topics."""
    require_group(authority, context, Operation.READ, request.group_id)
    if is_member_id(request.member_id):
        require_topics(authority, context, Operation.DESCRIBE, request.subscribed_topic_names)
    return None


def _topics_of_members(group: ShareGroupDescribeResponse.DescribedGroup) -> Iterable[str]:
    return (topic.topic_name for member in group.members for topic in member.assignment.topic_partitions)


describe = describing(ShareGroupDescribeResponse.DescribedGroup, _topics_of_members)


def describe_offsets(authority: Authority, context: AuthorizableContext, request: DescribeShareGroupOffsetsRequest) -> Verdict:
    """Needs DESCRIBE on each group and topic. A request for all topics gets the permitted ones."""
    kind = DescribeShareGroupOffsetsResponse
    allowed = authority.allowed_among(context, Operation.DESCRIBE, ResourceType.GROUP, [group.group_id for group in request.groups])
    refused = [
        kind.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=[], error_code=DENIED)
        for group in request.groups
        if group.group_id not in allowed
    ]
    request.groups = [group for group in request.groups if group.group_id in allowed]
    errors: dict[str, list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]] = {}
    partition = kind.DescribeShareGroupOffsetsResponsePartition
    for group in request.groups:
        if group.topics is None:
            continue
        group.topics, bad = split(authority, context, Operation.DESCRIBE, group.topics, lambda topic: topic.topic_name)
        errors[group.group_id] = [
            kind.DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=bytes(16),
                partitions=[
                    partition(partition_index=index, start_offset=-1, error_code=TOPIC_DENIED, error_message=TOPIC_DENIED.text)
                    for index in topic.partitions
                ],
            )
            for topic in bad
        ]

    def merge(response: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        may_describe = may_describe_topic(authority)
        for answer in response.groups:
            if answer.group_id in errors:
                answer.topics = [*answer.topics, *errors[answer.group_id]]
            else:
                answer.topics = [topic for topic in answer.topics if may_describe(context, topic.topic_name)]
        response.groups = [*refused, *response.groups]
        return response

    return merge


def alter_offsets(authority: Authority, context: AuthorizableContext, request: AlterShareGroupOffsetsRequest) -> Verdict:
    """Needs READ on the group and on each topic."""
    require_group(authority, context, Operation.READ, request.group_id)
    request.topics, bad = split(authority, context, Operation.READ, request.topics, lambda topic: topic.topic_name)
    kind = AlterShareGroupOffsetsResponse
    errors = [
        kind.AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=bytes(16),
            partitions=[
                kind.AlterShareGroupOffsetsResponsePartition(
                    partition_index=p.partition_index, error_code=TOPIC_DENIED, error_message=TOPIC_DENIED.text
                )
                for p in topic.partitions
            ],
        )
        for topic in bad
    ]
    if errors and not request.topics:
        return kind(responses=errors)

    def merge(response: AlterShareGroupOffsetsResponse) -> AlterShareGroupOffsetsResponse:
        if not response.error_code:
            response.responses = [*response.responses, *errors]
        return response

    return merge if errors else None


def delete_offsets(authority: Authority, context: AuthorizableContext, request: DeleteShareGroupOffsetsRequest) -> Verdict:
    """Needs DELETE on the group and READ on each topic."""
    require_group(authority, context, Operation.DELETE, request.group_id)
    request.topics, bad = split(authority, context, Operation.READ, request.topics, lambda topic: topic.topic_name)
    kind = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
    errors = [kind(topic_name=topic.topic_name, error_code=TOPIC_DENIED, error_message=TOPIC_DENIED.text) for topic in bad]
    if errors and not request.topics:
        return DeleteShareGroupOffsetsResponse(responses=errors)

    def merge(response: DeleteShareGroupOffsetsResponse) -> DeleteShareGroupOffsetsResponse:
        if not response.error_code:
            response.responses = [*errors, *response.responses]
        return response

    return merge if errors else None


#: The APIs of the share coordinator are for brokers only.
SHARE_GUARDS: Mapping[type[Request], Guard] = {
    **dict.fromkeys(
        (
            InitializeShareGroupStateRequest, ReadShareGroupStateRequest, WriteShareGroupStateRequest, DeleteShareGroupStateRequest,
            ReadShareGroupStateSummaryRequest,
        ),
        on_cluster(Operation.CLUSTER_ACTION),
    ),
    # Topics are authorized when they are fetched (security/authorization/data_plane.py).
    **dict.fromkeys((ShareFetchRequest, ShareAcknowledgeRequest), read_group),
    ShareGroupHeartbeatRequest: heartbeat,
    ShareGroupDescribeRequest: describe,
    DescribeShareGroupOffsetsRequest: describe_offsets,
    AlterShareGroupOffsetsRequest: alter_offsets,
    DeleteShareGroupOffsetsRequest: delete_offsets,
}  # fmt: skip
