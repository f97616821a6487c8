"""The APIs of streams groups at their coordinator (KIP-1071): StreamsGroupHeartbeat and StreamsGroupDescribe.

StreamsGroupTopologyDescriptionUpdate (KIP-1331) is answered as by an Apache Kafka broker without a plug-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.broker.coordinators.group_requests import GROUP_OPERATIONS, client_of
from minikafka.broker.partitions.partition import INTERNAL_TOPICS
from minikafka.core.group.config import STREAMS
from minikafka.core.group.streams.checks import check_size
from minikafka.core.topic_name import topic_name_fault
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from minikafka.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.coordinators.group_coordinator import GroupHost
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.quorum.metadata_log import MetadataHost

STREAMS_VERSION = "streams.version"
#: StreamsGroupDescribeResponse.TopologyDescriptionStatus.
NOT_STORED = 1


class StreamsGroupHandlers:
    """Translates between the wire and the shards.

    Answers UNSUPPORTED_VERSION while the feature `streams.version` is 0, and if `group.coordinator.rebalance.protocols` does not list
    `streams`.
    """

    def __init__(self, config: BrokerConfig, groups: GroupHost, metadata: MetadataHost, environment: Environment) -> None:
        self._is_enabled = STREAMS in config.group_coordinator_rebalance_protocols
        self._groups = groups
        self._metadata = metadata
        self._clock = environment.clock

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve these APIs on a broker listener."""
        dispatcher.register(StreamsGroupHeartbeatRequest, self.heartbeat, is_served=self._is_served)
        dispatcher.register(StreamsGroupDescribeRequest, self.describe, is_served=self._is_served)
        dispatcher.register(StreamsGroupTopologyDescriptionUpdateRequest, self.update_description, is_served=self._is_served)

    def _is_served(self) -> bool:
        return self._is_enabled and self._metadata.image.features.get(STREAMS_VERSION, 0) >= 1

    def heartbeat(self, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse | None:
        """Answer when the change, if any, is committed."""
        if not self._is_served():
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        try:
            check_topic_names(topology_topics(request))
            index, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.detail)
        shard.streams_heartbeat(context, request, client_of(context), self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def describe(self, context: RequestContext, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
        """Describe streams groups. Groups of other types are GROUP_ID_NOT_FOUND."""
        response = StreamsGroupDescribeResponse(groups=[self._describe(group_id) for group_id in request.group_ids])
        for group in response.groups if request.include_authorized_operations else ():
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        for group in response.groups if request.include_topology_description else ():
            if not group.error_code:
                group.topology_description_status = NOT_STORED
        return response

    def update_description(
        self, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
    ) -> StreamsGroupTopologyDescriptionUpdateResponse:
        """Refuse the description: storing it takes a plug-in, which is a Java class. Members are never asked for one."""
        kind = StreamsGroupTopologyDescriptionUpdateResponse
        if not self._is_served():
            return kind(error_code=ErrorCode.UNSUPPORTED_VERSION)
        message = "The broker has no streams group topology description plugin configured."
        return kind(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=message)

    def _describe(self, group_id: str) -> StreamsGroupDescribeResponse.DescribedGroup:
        try:
            if not self._is_served():
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            return self._groups.shard(group_id)[1].streams.describe(group_id)
        except ApiError as error:
            message = error.message if error.code is ErrorCode.GROUP_ID_NOT_FOUND else None
            return StreamsGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error.code, error_message=message)


def topology_topics(request: StreamsGroupHeartbeatRequest) -> list[str]:
    """Names of all topics of the topology in a heartbeat. Raises STREAMS_INVALID_TOPOLOGY when it is too large."""
    if request.topology is not None:
        check_size(request.topology)
    names: dict[str, None] = {}
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        names.update(dict.fromkeys(subtopology.source_topics))
        names.update(dict.fromkeys(subtopology.repartition_sink_topics))
        names.update(dict.fromkeys(topic.name for topic in subtopology.repartition_source_topics))
        names.update(dict.fromkeys(topic.name for topic in subtopology.state_changelog_topics))
    return list(names)


def check_topic_names(names: list[str]) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY for Kafka's internal topics and for invalid names."""
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        message = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    invalid = [name for name in names if topic_name_fault(name) is not None]
    if invalid:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names.")
