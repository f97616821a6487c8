"""Guards of Metadata, and of the APIs about topics, partitions and configurations (KafkaApis, ControllerApis, ConfigHelper)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.broker.admin.metadata import PARTITIONS_PER_RESPONSE_MAX, cursor_fault_of
from minikafka.broker.partitions.partition import INTERNAL_TOPICS
from minikafka.broker.security.authorization.guard import Guard, GuardAtOnce, Merge, Verdict
from minikafka.core.authorizer.acl import CLUSTER_NAME, Operation, ResourceType
from minikafka.core.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from minikafka.wire.errors import ErrorCode
from minikafka.wire.lazy_list import filter_elements, map_elements
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from minikafka.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from minikafka.wire.messages.delete_records import DeleteRecordsResponse
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from minikafka.wire.messages.describe_configs import DescribeConfigsResponse
from minikafka.wire.messages.describe_producers import DescribeProducersResponse
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from minikafka.wire.messages.list_offsets import ListOffsetsResponse
from minikafka.wire.messages.metadata import MetadataRequest, MetadataResponse
from minikafka.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority, AuthorizableContext

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
METADATA_IDS_VERSION_MIN = 12
METADATA_OPERATIONS_VERSION_MIN, METADATA_CLUSTER_OPERATIONS_VERSION_MAX = 8, 10
DELETE_BY_ID_VERSION_MIN = 6
#: Names checked in one turn.
STEP_NAMES = 256
METADATA_TOPIC = "__cluster_metadata"
_ZERO_ID = bytes(16)
Item = TypeVar("Item")


def split(
    authority: Authority,
    context: AuthorizableContext,
    operation: Operation,
    items: Iterable[Item],
    name_of: Callable[[Item], str | None],
    *,
    log: bool = True,
) -> tuple[list[Item], list[Item]]:
    """(allowed entries, denied entries). An entry whose name is None is allowed: its topic does not exist, as the handler reports."""
    items = list(items)
    names = {name for name in map(name_of, items) if name is not None}
    allowed = authority.allowed_among(context, operation, ResourceType.TOPIC, names, log=log)
    good: list[Item] = []
    bad: list[Item] = []
    for item in items:
        name = name_of(item)
        (good if name is None or name in allowed else bad).append(item)
    return good, bad


# -- Metadata ------------------------------------------------------------------------------------------------------


def metadata(authority: Authority, context: AuthorizableContext, request: MetadataRequest) -> Verdict:
    """Needs DESCRIBE on each topic. A denied topic looks the same whether it exists or not. Creating a missing topic needs CREATE."""
    version, topics = context.api_version, request.topics
    if topics is None or (version == 0 and not topics):

        def filtered(response: MetadataResponse) -> MetadataResponse:
            describe, kind = Operation.DESCRIBE, ResourceType.TOPIC
            response.topics = filter_elements(
                response.topics, lambda topic: authority.allows(context, describe, kind, topic.name or "", log=False)
            )
            return _with_operations(authority, context, request, response)

        return filtered
    by_id = any(topic.topic_id != _ZERO_ID or topic.name is None for topic in topics)
    if version < METADATA_IDS_VERSION_MIN and by_id:
        return None
    if by_id:
        # Names are ignored if there are ids (KafkaApis.handleTopicMetadataRequest).
        topics = [
            MetadataRequest.MetadataRequestTopic(topic_id=t.topic_id, name=None) for t in topics if t.topic_id != _ZERO_ID or t.name is None
        ]
    image = authority.image
    good, bad = split(authority, context, Operation.DESCRIBE, topics, lambda topic: topic_name(image, topic.name, topic.topic_id))
    errors = [
        MetadataResponse.MetadataResponseTopic(
            error_code=DENIED, name=topic.name, topic_id=topic.topic_id if topic.name is None else _ZERO_ID, is_internal=False
        )
        for topic in bad
    ]
    not_created = _may_not_create(authority, context, request, [topic.name for topic in good if topic.name is not None])
    for name in not_created:
        internal = name in INTERNAL_TOPICS
        errors.append(MetadataResponse.MetadataResponseTopic(error_code=DENIED, name=name, topic_id=_ZERO_ID, is_internal=internal))
    request.topics = [topic for topic in good if topic.name not in not_created]
    nothing_left = not request.topics

    def merge(response: MetadataResponse) -> MetadataResponse:
        if nothing_left:
            response.topics = []  # in version 0 an empty list requests all topics
        _with_operations(authority, context, request, response)
        response.topics = [*response.topics, *errors]
        return response

    return merge


def topic_name(image: MetadataImage, name: str | None, topic_id: bytes) -> str | None:
    """The topic's name, looked up by id if it is not given; None for an unknown id."""
    if name:
        return name
    found = image.topics_by_id.get(topic_id)
    return None if found is None else found.name


def _may_not_create(authority: Authority, context: AuthorizableContext, request: MetadataRequest, names: list[str]) -> dict[str, None]:
    if not (request.allow_auto_topic_creation and authority.creates_topics):
        return {}
    missing = [name for name in names if name not in authority.image.topics_by_name]
    if not missing or authority.allows_on_cluster(context, Operation.CREATE, log=False):
        return {}
    creatable = authority.allowed_among(context, Operation.CREATE, ResourceType.TOPIC, missing)
    return dict.fromkeys(name for name in missing if name not in creatable)


def _with_operations(
    authority: Authority, context: AuthorizableContext, request: MetadataRequest, response: MetadataResponse
) -> MetadataResponse:
    version = context.api_version
    if version < METADATA_OPERATIONS_VERSION_MIN:
        return response

    def with_operations(topic: MetadataResponse.MetadataResponseTopic) -> MetadataResponse.MetadataResponseTopic:
        topic = copy(topic)
        if topic.name is not None:
            topic.topic_authorized_operations = authority.operations(context, ResourceType.TOPIC, topic.name)
        return topic

    if request.include_topic_authorized_operations:
        # Copies, because requests share the handler's topics.
        response.topics = map_elements(response.topics, with_operations)
    if version <= METADATA_CLUSTER_OPERATIONS_VERSION_MAX and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(authority, context)
    return response


def cluster_operations(authority: Authority, context: AuthorizableContext) -> int:
    """The principal's operations on the cluster; none without DESCRIBE on it."""
    if not authority.allows_on_cluster(context, Operation.DESCRIBE):
        return 0
    return authority.operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def describe_topic_partitions(
    authority: Authority, context: AuthorizableContext, request: DescribeTopicPartitionsRequest
) -> Generator[None, None, Verdict]:
    """Needs DESCRIBE on each topic. Denied topics are removed before paging, because the end of a page would reveal them."""
    kind = DescribeTopicPartitionsResponse
    cursor = request.cursor
    if cursor is not None and cursor_fault_of(request, cursor):
        return None
    start = "" if cursor is None else cursor.topic_name
    errors = []
    if request.topics:
        good, bad = split(authority, context, Operation.DESCRIBE, request.topics, lambda topic: topic.name)
        errors = [
            kind.DescribeTopicPartitionsResponseTopic(error_code=DENIED, name=name, topic_id=_ZERO_ID)
            for name in sorted({topic.name for topic in bad})
            if name >= start
        ]
        request.topics = good
    else:
        names = yield from _of_one_page(authority, context, start, request.response_partition_limit)
        request.topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    if not request.topics:
        return kind(topics=errors)

    def with_operations(topic: Any) -> Any:
        topic.topic_authorized_operations = authority.operations(context, ResourceType.TOPIC, topic.name or "")
        return topic

    def merge(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        response.topics = map_elements(response.topics, with_operations)
        if errors:
            response.topics = [*response.topics, *errors]
        return response

    return merge


def _of_one_page(authority: Authority, context: AuthorizableContext, start: str, partitions_max: int) -> Generator[None, None, list[str]]:
    """Permitted topics from `start` on, sorted by name: as many as fit into one answer, and the first one of the next."""
    topics = authority.image.topics_by_name
    found: list[str] = []
    left = max(1, min(partitions_max, PARTITIONS_PER_RESPONSE_MAX))
    for number, name in enumerate(sorted(name for name in topics if name >= start), 1):
        if authority.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name, log=False):
            found.append(name)
            if left <= 0:
                break
            # The first topic may have answered some partitions before: do not count it.
            left -= 0 if name == start else len(topics[name].partitions)
        if number % STEP_NAMES == 0:
            yield
    return [name for name in found if name in authority.image.topics_by_name]


# -- partitions ----------------------------------------------------------------------------------------------------


def _of_topics(operation: Operation, refuse: Callable[[Any], Any], answers: str = "topics", name: str = "name") -> GuardAtOnce:
    """A guard of requests about topics: needs `operation` on each topic.

    A denied topic is answered with `refuse(topic)` in the response's list `answers`. `name`: the field with the topic's name.
    """

    def guard(authority: Authority, context: AuthorizableContext, request: Any) -> Verdict:
        request.topics, bad = split(authority, context, operation, request.topics, lambda topic: getattr(topic, name))
        return _adding(answers, [refuse(topic) for topic in bad])

    return guard


def _no_offsets(topic: Any) -> Any:
    kind = ListOffsetsResponse
    denied = [kind.ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=DENIED) for p in topic.partitions]
    return kind.ListOffsetsTopicResponse(name=topic.name, partitions=denied)


def _no_epochs(topic: Any) -> Any:
    kind = OffsetForLeaderEpochResponse
    denied = [kind.EpochEndOffset(partition=p.partition, error_code=DENIED) for p in topic.partitions]
    return kind.OffsetForLeaderTopicResult(topic=topic.topic, partitions=denied)


def _no_deletion(topic: Any) -> Any:
    kind = DeleteRecordsResponse
    denied = [
        kind.DeleteRecordsPartitionResult(partition_index=p.partition_index, low_watermark=-1, error_code=DENIED) for p in topic.partitions
    ]
    return kind.DeleteRecordsTopicResult(name=topic.name, partitions=denied)


def _no_producers(topic: Any) -> Any:
    kind = DescribeProducersResponse
    denied = [
        kind.PartitionResponse(partition_index=index, error_code=DENIED, error_message=DENIED.text) for index in topic.partition_indexes
    ]
    return kind.TopicResponse(name=topic.name, partitions=denied)


list_offsets = _of_topics(Operation.DESCRIBE, _no_offsets)
delete_records = _of_topics(Operation.DELETE, _no_deletion)
describe_producers = _of_topics(Operation.READ, _no_producers)
_consumers_epochs = _of_topics(Operation.DESCRIBE, _no_epochs, name="topic")


def offset_for_leader_epoch(authority: Authority, context: AuthorizableContext, request: OffsetForLeaderEpochRequest) -> Verdict:
    """Brokers need CLUSTER_ACTION, consumers DESCRIBE on each topic (KIP-320)."""
    if authority.allows_on_cluster(context, Operation.CLUSTER_ACTION, log=False):
        return None
    return _consumers_epochs(authority, context, request)


def _adding(name: str, entries: list[Any]) -> Merge | None:
    """A merge that appends entries to a list of the response; None without entries."""
    if not entries:
        return None

    def merge(response: Any) -> Any:
        setattr(response, name, [*getattr(response, name), *entries])
        return response

    return merge


# -- topics, on the controller -------------------------------------------------------------------------------------


def create_topics(authority: Authority, context: AuthorizableContext, request: CreateTopicsRequest) -> Verdict:
    """Needs CREATE on the cluster or on each topic. The answer has a topic's configuration if the principal may describe it (KIP-525)."""
    counts = Counter(topic.name for topic in request.topics)
    single = [name for name, count in counts.items() if count == 1 and name != METADATA_TOPIC]
    denied: set[str] = set()
    if not authority.allows_on_cluster(context, Operation.CREATE, log=False):
        denied = set(single) - authority.allowed_among(context, Operation.CREATE, ResourceType.TOPIC, single)
    described = authority.allowed_among(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, single, log=False)
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    errors = [
        CreateTopicsResponse.CreatableTopicResult(name=name, error_code=DENIED, error_message="Authorization failed.")
        for name in single
        if name in denied
    ]

    def merge(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in response.topics:
            if not topic.error_code and topic.name not in described:
                topic.topic_config_error_code = DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics += errors
        return response

    return merge


def create_partitions(authority: Authority, context: AuthorizableContext, request: CreatePartitionsRequest) -> Verdict:
    """Needs ALTER on each topic."""
    request.topics, bad = split(authority, context, Operation.ALTER, request.topics, lambda topic: topic.name)
    kind = CreatePartitionsResponse.CreatePartitionsTopicResult
    return _adding("results", [kind(name=name, error_code=DENIED, error_message=None) for name in {topic.name: None for topic in bad}])


def delete_topics(newest: Callable[[], MetadataImage]) -> Guard:
    """Needs DELETE on the cluster or on each topic. The answer does not reveal the name of a topic that the principal may not describe.

    `newest`: returns the image on which the controller decides.
    """

    def guard(authority: Authority, context: AuthorizableContext, request: DeleteTopicsRequest) -> Verdict:
        if authority.allows_on_cluster(context, Operation.DELETE, log=False):
            return None
        image = newest()
        is_by_id = context.api_version >= DELETE_BY_ID_VERSION_MIN
        wanted = [(t.name, t.topic_id) for t in request.topics] if is_by_id else [(name, _ZERO_ID) for name in request.topic_names]
        names = {key: topic_name(image, *key) for key in wanted}
        real = {name for name in names.values() if name is not None}
        describable = authority.allowed_among(context, Operation.DESCRIBE, ResourceType.TOPIC, real)
        deletable = authority.allowed_among(context, Operation.DELETE, ResourceType.TOPIC, real)

        def is_left(asked: str | None, name: str | None) -> bool:
            """Whether the handler answers: what is missing is unknown to whoever may describe it."""
            if name is None or not asked:
                return name is None or name in deletable
            return name in describable and (name in deletable or name not in image.topics_by_name)

        good = {key for key, name in names.items() if is_left(key[0], name)}
        if is_by_id:
            request.topics = [topic for topic in request.topics if (topic.name, topic.topic_id) in good]
        else:
            request.topic_names = [name for name in request.topic_names if (name, _ZERO_ID) in good]
        errors = []
        for (name, topic_id), real_name in names.items():
            if (name, topic_id) not in good:
                shown = name or (real_name if real_name in describable else None)
                kind = DeleteTopicsResponse.DeletableTopicResult
                errors.append(kind(name=shown, topic_id=topic_id, error_code=DENIED, error_message=DENIED.text))
        return _adding("responses", errors)

    return guard


# -- configurations ------------------------------------------------------------------------------------------------

_CONFIGURED = {
    RESOURCE_TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    RESOURCE_GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    RESOURCE_BROKER: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    RESOURCE_BROKER_LOGGER: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    RESOURCE_CLIENT_METRICS: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}


def _refusal(authority: Authority, context: AuthorizableContext, operation: Operation, resource: Any) -> ErrorCode | None:
    """The error if the principal may not access the configuration of a resource, or None. The handler refuses unknown resource types."""
    found = _CONFIGURED.get(resource.resource_type)
    if found is None:
        return None
    resource_type, code = found
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else resource.resource_name
    if resource.resource_type == RESOURCE_BROKER_LOGGER and operation is Operation.ALTER_CONFIGS:
        operation = Operation.CLUSTER_ACTION
    return None if authority.allows(context, operation, resource_type, name) else code


def _of_resources(operation: Operation, kind: Any, answers: str) -> Guard:
    """A guard of requests about configurations: needs `operation` on each topic and group, and on the cluster for other resources.

    `kind`: the class of the entries of the response's list `answers`.
    """

    def guard(authority: Authority, context: AuthorizableContext, request: Any) -> Verdict:
        good, errors = [], []
        for resource in request.resources:
            code = _refusal(authority, context, operation, resource)
            if code is None:
                good.append(resource)
                continue
            errors.append(
                kind(error_code=code, error_message=code.text, resource_type=resource.resource_type, resource_name=resource.resource_name)
            )
        request.resources = good
        return _adding(answers, errors)

    return guard


describe_configs = _of_resources(Operation.DESCRIBE_CONFIGS, DescribeConfigsResponse.DescribeConfigsResult, "results")


def alter_configs(response_class: Any) -> Guard:
    """The guard of AlterConfigs and IncrementalAlterConfigs."""
    return _of_resources(Operation.ALTER_CONFIGS, response_class.AlterConfigsResourceResponse, "responses")
