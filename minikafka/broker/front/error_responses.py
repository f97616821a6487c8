"""Error responses for requests that fail as a whole: every entry of the request gets the error."""

from __future__ import annotations

from typing import Any

from minikafka.broker.front.error_responses_data import BUILDERS
from minikafka.broker.front.error_responses_share import SHARE_BUILDERS
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from minikafka.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from minikafka.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from minikafka.wire.registry import api


def failure_response(request: Any, version: int, error: ApiError) -> Any:
    """The response to `request` with `error` at the top level, or, if the API has no top-level error, in every entry."""
    code, message = error.code, error.message
    builder = FAILURES.get(type(request))
    if builder is not None:
        return builder(request, version, code, message)
    api_spec = api(request.API_KEY)
    assert api_spec is not None
    response: Any = api_spec.response()
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = message
    return response


def top_error_response(kind: Any, error: ApiError) -> Any:
    """A response of type `kind` with `error` at the top level. Raises AssertionError if the type has no top-level error."""
    response = kind()
    if not hasattr(response, "error_code"):
        raise AssertionError(f"{kind.__name__} has no place for {error.code.name} at its top") from error
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response


def _create_topics(request: CreateTopicsRequest, version: int, code: ErrorCode, message: str | None) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(name=name, error_code=code, error_message=message)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


def _delete_topics(request: DeleteTopicsRequest, version: int, code: ErrorCode, message: str | None) -> DeleteTopicsResponse:
    topics = [(topic.name, topic.topic_id) for topic in request.topics] if version >= 6 else [(n, bytes(16)) for n in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
            for name, topic_id in topics
        ]
    )


def _create_partitions(request: CreatePartitionsRequest, version: int, code: ErrorCode, message: str | None) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _elect_leaders(request: ElectLeadersRequest, version: int, code: ErrorCode, message: str | None) -> ElectLeadersResponse:
    response = ElectLeadersResponse(error_code=code if version >= 1 else ErrorCode.NONE)
    for topic in request.topic_partitions or ():
        response.replica_election_results.append(
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
        )
    return response


def _incremental(
    request: IncrementalAlterConfigsRequest, version: int, code: ErrorCode, message: str | None
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=entry.resource_type, resource_name=entry.resource_name
            )
            for entry in request.resources
        ]
    )


def _alter_configs(request: AlterConfigsRequest, version: int, code: ErrorCode, message: str | None) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=entry.resource_type, resource_name=entry.resource_name
            )
            for entry in request.resources
        ]
    )


def _alter_quotas(request: AlterClientQuotasRequest, version: int, code: ErrorCode, message: str | None) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alter_users(
    request: AlterUserScramCredentialsRequest, version: int, code: ErrorCode, message: str | None
) -> AlterUserScramCredentialsResponse:
    kind = AlterUserScramCredentialsResponse
    names = dict.fromkeys([change.name for change in request.deletions] + [change.name for change in request.upsertions])
    return kind(results=[kind.AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message) for name in names])


def _describe_partitions(
    request: DescribeTopicPartitionsRequest, version: int, code: ErrorCode, message: str | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        ]
    )


FAILURES: dict[type, Any] = {
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    ElectLeadersRequest: _elect_leaders,
    IncrementalAlterConfigsRequest: _incremental,
    AlterConfigsRequest: _alter_configs,
    AlterClientQuotasRequest: _alter_quotas,
    AlterUserScramCredentialsRequest: _alter_users,
    DescribeTopicPartitionsRequest: _describe_partitions,
    **BUILDERS,
    **SHARE_BUILDERS,
}
