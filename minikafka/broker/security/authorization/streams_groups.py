"""Guards of the APIs of streams groups, and of the creation of their internal topics (KafkaApis)."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import TYPE_CHECKING

from minikafka.broker.security.authorization.groups import DENIED, TOPIC_DENIED, are_visible, require_group
from minikafka.broker.security.authorization.guard import Guard, Verdict
from minikafka.broker.streams.group_requests import check_topic_names, topology_topics
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.core.group.streams.describe import SUBTOPOLOGIES_AT_ONCE
from minikafka.wire.errors import ApiError
from minikafka.wire.message import Request
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from minikafka.wire.messages.streams_group_topology_description_update import StreamsGroupTopologyDescriptionUpdateRequest

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority, AuthorizableContext

_HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


def heartbeat(authority: Authority, context: AuthorizableContext, request: StreamsGroupHeartbeatRequest) -> Verdict:
    """Needs READ on the group, and DESCRIBE on each topic of the topology."""
    require_group(authority, context, Operation.READ, request.group_id)
    names = topology_topics(request)
    check_topic_names(names)
    if names and len(authority.allowed_among(context, Operation.DESCRIBE, ResourceType.TOPIC, names)) < len(names):
        raise ApiError(TOPIC_DENIED)
    return None


def describe(authority: Authority, context: AuthorizableContext, request: StreamsGroupDescribeRequest) -> Generator[None, None, Verdict]:
    """Needs DESCRIBE on each group and on all topics of its topology."""
    allowed = authority.allowed_among(context, Operation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    kind = StreamsGroupDescribeResponse.DescribedGroup
    errors = [kind(group_id=group_id, error_code=DENIED) for group_id in request.group_ids if group_id not in allowed]
    request.group_ids = [group_id for group_id in request.group_ids if group_id in allowed]
    yield

    def merge(response: StreamsGroupDescribeResponse) -> Generator[None, None, StreamsGroupDescribeResponse]:
        groups = []
        for group in response.groups:
            names = yield from _described_topics(group)
            if not (yield from are_visible(authority, context, names, log=True)):
                group = kind(group_id=group.group_id, error_code=TOPIC_DENIED, error_message=_HIDDEN_TOPICS)
            elif request.include_authorized_operations and not group.error_code:
                group.authorized_operations = authority.operations(context, ResourceType.GROUP, group.group_id)
            groups.append(group)
        response.groups = [*errors, *groups]
        return response

    return merge


def _described_topics(group: StreamsGroupDescribeResponse.DescribedGroup) -> Generator[None, None, list[str]]:
    names: set[str] = set()
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    for number, subtopology in enumerate(subtopologies, 1):
        names.update(subtopology.source_topics, subtopology.repartition_sink_topics)
        names.update(topic.name for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics))
        if number % SUBTOPOLOGIES_AT_ONCE == 0:
            yield
    return sorted(names)


def uncreatable(authority: Authority | None, context: AuthorizableContext, names: Collection[str]) -> Collection[str]:
    """The topics that a principal may not create. It needs CREATE on the cluster, or on each topic."""
    if authority is None or authority.allows_on_cluster(context, Operation.CREATE, log=False):
        return ()
    allowed = authority.allowed_among(context, Operation.CREATE, ResourceType.TOPIC, list(names))
    return [name for name in names if name not in allowed]


def update_description(
    authority: Authority, context: AuthorizableContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> Verdict:
    """Needs READ on the group."""
    require_group(authority, context, Operation.READ, request.group_id)
    return None


STREAMS_GUARDS: Mapping[type[Request], Guard] = {
    StreamsGroupHeartbeatRequest: heartbeat,
    StreamsGroupDescribeRequest: describe,
    StreamsGroupTopologyDescriptionUpdateRequest: update_description,
}
