"""Guards of the group APIs and of FindCoordinator (KafkaApis)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from minikafka.broker.coordinators.group_requests import KEY_TYPE_GROUP, KEY_TYPE_SHARE, KEY_TYPE_TRANSACTION
from minikafka.broker.front.error_responses_data import GROUPS_VERSION_MIN, KEYS_VERSION_MIN, refused_commit, refused_coordinator
from minikafka.broker.security.authorization.guard import Guard, Verdict
from minikafka.broker.security.authorization.topics import STEP_NAMES, split, topic_name
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import filter_elements
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minikafka.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from minikafka.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minikafka.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority, AuthorizableContext

DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OPERATIONS_VERSION_MIN = 3
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
_COORDINATED = {
    KEY_TYPE_GROUP: (ResourceType.GROUP, DENIED),
    KEY_TYPE_TRANSACTION: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def require_group(authority: Authority, context: AuthorizableContext, operation: Operation, group_id: str) -> None:
    """Raises ApiError GROUP_AUTHORIZATION_FAILED unless the principal may perform the operation on the group."""
    if not authority.allows(context, operation, ResourceType.GROUP, group_id):
        raise ApiError(DENIED)


def require_topics(authority: Authority, context: AuthorizableContext, operation: Operation, names: Iterable[str] | None) -> None:
    """Raises ApiError TOPIC_AUTHORIZATION_FAILED unless the principal may perform the operation on all topics."""
    wanted = list(dict.fromkeys(names or ()))
    if wanted and len(authority.allowed_among(context, operation, ResourceType.TOPIC, wanted)) < len(wanted):
        raise ApiError(TOPIC_DENIED)


def of_group(operation: Operation) -> Guard:
    """A guard of requests about one group (`group_id`): needs `operation` on it."""

    def guard(authority: Authority, context: AuthorizableContext, request: Any) -> Verdict:
        require_group(authority, context, operation, request.group_id)
        return None

    return guard


def find_coordinator(authority: Authority, context: AuthorizableContext, request: FindCoordinatorRequest) -> Verdict:
    """Needs DESCRIBE on each group or transactional id. Only brokers may find share coordinators."""
    if request.key_type == KEY_TYPE_SHARE:
        authority.require_on_cluster(context, Operation.CLUSTER_ACTION)
    if request.key_type not in _COORDINATED:
        return None
    resource_type, code = _COORDINATED[request.key_type]
    if context.api_version < KEYS_VERSION_MIN:
        if not authority.allows(context, Operation.DESCRIBE, resource_type, request.key):
            raise ApiError(code)
        return None
    allowed = authority.allowed_among(context, Operation.DESCRIBE, resource_type, request.coordinator_keys)
    errors = [refused_coordinator(key, code, code.text) for key in request.coordinator_keys if key not in allowed]
    request.coordinator_keys = [key for key in request.coordinator_keys if key in allowed]
    if not request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=errors)

    def merge(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        response.coordinators = [*response.coordinators, *errors]
        return response

    return merge if errors else None


# -- offsets -------------------------------------------------------------------------------------------------------


def offset_commit(authority: Authority, context: AuthorizableContext, request: OffsetCommitRequest) -> Verdict:
    """Needs READ on the group and on each topic."""
    require_group(authority, context, Operation.READ, request.group_id)
    image = authority.image
    request.topics, bad = split(
        authority, context, Operation.READ, request.topics, lambda topic: topic_name(image, topic.name, topic.topic_id)
    )
    if not bad:
        return None
    errors = [refused_commit(topic, TOPIC_DENIED) for topic in bad]
    if not request.topics:
        return OffsetCommitResponse(topics=errors)

    def merge(response: OffsetCommitResponse) -> OffsetCommitResponse:
        response.topics = [*response.topics, *errors]
        return response

    return merge


def offset_fetch(authority: Authority, context: AuthorizableContext, request: OffsetFetchRequest) -> Verdict:
    """Needs DESCRIBE on each group and topic. A request for all topics gets the permitted ones."""
    if context.api_version < GROUPS_VERSION_MIN:
        return _offset_fetch_of_one(authority, context, request)
    kind = OffsetFetchResponse
    image = authority.image
    refused: list[OffsetFetchResponse.OffsetFetchResponseGroup] = []
    errors: dict[str, list[OffsetFetchResponse.OffsetFetchResponseTopics]] = {}
    filtered: set[str] = set()
    groups = []
    for group in request.groups:
        if not authority.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            refused.append(kind.OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=DENIED))
            continue
        groups.append(group)
        if group.topics is None:
            filtered.add(group.group_id)
            continue
        group.topics, bad = split(
            authority, context, Operation.DESCRIBE, group.topics, lambda topic: topic_name(image, topic.name, topic.topic_id)
        )
        errors[group.group_id] = [
            kind.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_DENIED)
                    for index in topic.partition_indexes
                ],
            )
            for topic in bad
        ]
    request.groups = groups

    def merge(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for answer in response.groups:
            if answer.error_code:
                continue
            if answer.group_id in filtered:
                answer.topics = filter_elements(answer.topics, lambda topic: _describes(authority, context, topic.name))
            else:
                answer.topics = [*answer.topics, *errors.get(answer.group_id, ())]
        response.groups = [*response.groups, *refused]
        return response

    return merge


def _describes(authority: Authority, context: AuthorizableContext, topic: str) -> bool:
    return authority.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic, log=False)


def _offset_fetch_of_one(authority: Authority, context: AuthorizableContext, request: OffsetFetchRequest) -> Verdict:
    kind = OffsetFetchResponse
    require_group(authority, context, Operation.DESCRIBE, request.group_id)
    if request.topics is None:

        def filtered(response: OffsetFetchResponse) -> OffsetFetchResponse:
            response.topics = [topic for topic in response.topics if _describes(authority, context, topic.name)]
            return response

        return filtered
    request.topics, bad = split(authority, context, Operation.DESCRIBE, request.topics, lambda topic: topic.name)
    errors = [
        kind.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                kind.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_DENIED)
                for index in topic.partition_indexes
            ],
        )
        for topic in bad
    ]

    def merge(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if not response.error_code:
            response.topics = [*response.topics, *errors]
        return response

    return merge if errors else None


def may_describe_topic(authority: Authority | None) -> Callable[[AuthorizableContext, str], bool]:
    """The test whether a request's principal may describe a topic."""
    if authority is None:
        return lambda context, name: True
    return lambda context, name: _describes(authority, context, name)


def offset_delete(authority: Authority, context: AuthorizableContext, request: OffsetDeleteRequest) -> Verdict:
    """Needs DELETE on the group and READ on each topic."""
    kind = OffsetDeleteResponse
    require_group(authority, context, Operation.DELETE, request.group_id)
    request.topics, bad = split(authority, context, Operation.READ, request.topics, lambda topic: topic.name)
    errors = [
        kind.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                kind.OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=TOPIC_DENIED) for p in topic.partitions
            ],
        )
        for topic in bad
    ]

    def merge(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not response.error_code:
            response.topics = [*response.topics, *errors]
        return response

    return merge if errors else None


# -- consumer groups (KIP-848) -------------------------------------------------------------------------------------


def heartbeat(authority: Authority, context: AuthorizableContext, request: ConsumerGroupHeartbeatRequest) -> Verdict:
    """Needs READ on the group, and DESCRIBE on each topic that is subscribed by name."""
    require_group(authority, context, Operation.READ, request.group_id)
    require_topics(authority, context, Operation.DESCRIBE, request.subscribed_topic_names)
    return None


def describing(kind: Callable[..., Any], topics_of: Callable[[Any], Iterable[str]], hidden: str = HIDDEN_TOPICS) -> Guard:
    """A guard of requests that describe groups: needs DESCRIBE on each group and on all its topics.

    `kind` makes a described group. `hidden` is the error message for a group with topics that the principal may not describe.
    """

    def guard(authority: Authority, context: AuthorizableContext, request: Any) -> Generator[None, None, Verdict]:
        allowed = authority.allowed_among(context, Operation.DESCRIBE, ResourceType.GROUP, request.group_ids)
        errors = [kind(group_id=group_id, error_code=DENIED) for group_id in request.group_ids if group_id not in allowed]
        request.group_ids = [group_id for group_id in request.group_ids if group_id in allowed]
        yield

        def merge(response: Any) -> Generator[None, None, Any]:
            groups = []
            for group in response.groups:
                if not (yield from are_visible(authority, context, topics_of(group))):
                    group = kind(group_id=group.group_id, error_code=TOPIC_DENIED, error_message=hidden)
                elif request.include_authorized_operations and not group.error_code:
                    group.authorized_operations = authority.operations(context, ResourceType.GROUP, group.group_id)
                groups.append(group)
            response.groups = [*errors, *groups]
            return response

        return merge

    return guard


def are_visible(
    authority: Authority, context: AuthorizableContext, topics: Iterable[str], *, log: bool = False
) -> Generator[None, None, bool]:
    """Whether the principal may describe all topics. Checks a bounded number of them between two yields."""
    seen: set[str] = set()
    for number, name in enumerate(topics, 1):
        if name not in seen:
            seen.add(name)
            if not authority.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name, log=log):
                return False
        if number % STEP_NAMES == 0:
            yield
    return True


def _topics_of_members(group: ConsumerGroupDescribeResponse.DescribedGroup) -> Iterable[str]:
    """The topics of all members' assignments, current and target."""
    assignments = [held for member in group.members for held in (member.assignment, member.target_assignment)]
    return (topic.topic_name for held in assignments for topic in held.topic_partitions)


consumer_group_describe = describing(ConsumerGroupDescribeResponse.DescribedGroup, _topics_of_members)


# -- groups --------------------------------------------------------------------------------------------------------


def describe_groups(authority: Authority, context: AuthorizableContext, request: DescribeGroupsRequest) -> Verdict:
    """Needs DESCRIBE on each group. Adds the authorized operations if requested (KIP-430)."""
    allowed = authority.allowed_among(context, Operation.DESCRIBE, ResourceType.GROUP, request.groups)
    kind = DescribeGroupsResponse.DescribedGroup
    errors = [kind(group_id=group_id, error_code=DENIED) for group_id in request.groups if group_id not in allowed]
    request.groups = [group_id for group_id in request.groups if group_id in allowed]
    tells = context.api_version >= OPERATIONS_VERSION_MIN and request.include_authorized_operations

    def merge(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        for group in response.groups if tells else ():
            if not group.error_code:
                group.authorized_operations = authority.operations(context, ResourceType.GROUP, group.group_id)
        response.groups = [*errors, *response.groups]
        return response

    return merge if errors or tells else None


def list_groups(authority: Authority, context: AuthorizableContext, request: ListGroupsRequest) -> Verdict:
    """With DESCRIBE on the cluster, lists all groups; otherwise, those that the principal may describe."""
    if authority.allows_on_cluster(context, Operation.DESCRIBE, log=False):
        return None

    def merge(response: ListGroupsResponse) -> ListGroupsResponse:
        describe, kind = Operation.DESCRIBE, ResourceType.GROUP
        response.groups = filter_elements(
            response.groups, lambda group: authority.allows(context, describe, kind, group.group_id, log=False)
        )
        return response

    return merge


def delete_groups(authority: Authority, context: AuthorizableContext, request: DeleteGroupsRequest) -> Verdict:
    """Needs DELETE on each group."""
    allowed = authority.allowed_among(context, Operation.DELETE, ResourceType.GROUP, request.groups_names)
    kind = DeleteGroupsResponse.DeletableGroupResult
    errors = [kind(group_id=name, error_code=DENIED) for name in dict.fromkeys(request.groups_names) if name not in allowed]
    request.groups_names = [name for name in request.groups_names if name in allowed]

    def merge(response: DeleteGroupsResponse) -> DeleteGroupsResponse:
        response.results = [*response.results, *errors]
        return response

    return merge if errors else None
