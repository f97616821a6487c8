"""The APIs of the consumer group protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.broker.coordinators.group_requests import GROUP_OPERATIONS, client_of
from minikafka.core.group.config import CONSUMER
from minikafka.core.group.consumer.checks import check_heartbeat
from minikafka.core.pattern import InvalidPattern
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.coordinators.consumer_groups import TopicPatterns
    from minikafka.broker.coordinators.group_coordinator import GroupHost
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.quorum.metadata_log import MetadataHost

GROUP_VERSION = "group.version"


class ConsumerGroupHandlers:
    """Translates between the wire and the shards. A broker refuses both APIs while the feature `group.version` is 0, or if its
    `group.coordinator.rebalance.protocols` does not list the consumer protocol."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: GroupHost,
        patterns: TopicPatterns,
        metadata: MetadataHost,
        environment: Environment,
        heavy_work: HeavyWork,
    ) -> None:
        self._is_enabled = CONSUMER in config.group_coordinator_rebalance_protocols
        self._assignors = tuple(config.group_consumer_assignors)
        self._groups = groups
        self._patterns = patterns
        self._metadata = metadata
        self._clock = environment.clock
        self._heavy_work = heavy_work

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve both APIs on a broker listener."""
        dispatcher.register(ConsumerGroupHeartbeatRequest, self.heartbeat, is_served=self._is_served)
        dispatcher.register(ConsumerGroupDescribeRequest, self.describe, is_served=self._is_served)

    def _is_served(self) -> bool:
        return self._is_enabled and self._metadata.image.features.get(GROUP_VERSION, 0) >= 1

    def heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
        """Answered when the changes are committed. A regular expression is first checked in a thread."""
        if not self._is_served():
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if request.subscribed_topic_regex:
            self._heavy_work.start(self._check_pattern(context, request), "the check of a pattern", context.connection)
            return None
        return self._heartbeat(context, request)

    async def _check_pattern(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
        pattern = request.subscribed_topic_regex or ""
        try:
            await self._patterns.check(pattern)
        except InvalidPattern as error:
            if self._is_refused(context, request) or request.member_epoch < 0:
                # For another fault, which counts first; and who leaves is not asked what he wants.
                self._answer(context, self._heartbeat(context, request))
                return
            message = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
            context.respond(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, error_message=message))
            return
        self._answer(context, self._heartbeat(context, request))

    def _is_refused(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> bool:
        try:
            check_heartbeat(request, context.api_version, self._assignors)
        except ApiError:
            return True
        return False

    @staticmethod
    def _answer(context: RequestContext, answer: ConsumerGroupHeartbeatResponse | None) -> None:
        if answer is not None:
            context.respond(answer)

    def _heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
        try:
            index, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code)
        shard.consumer_heartbeat(context, request, client_of(context), self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def describe(self, context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        """Describe groups of the consumer protocol; any other group is GROUP_ID_NOT_FOUND."""
        response = ConsumerGroupDescribeResponse(groups=[self._describe(group_id) for group_id in request.group_ids])
        for group in response.groups if request.include_authorized_operations else ():
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        return response

    def _describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        try:
            if not self._is_served():
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            shard = self._groups.shard(group_id)[1]
            if shard.is_other(group_id, CONSUMER):
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            return shard.consumers.describe(group_id)
        except ApiError as error:
            message = error.message if error.code is ErrorCode.GROUP_ID_NOT_FOUND else None
            return ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error.code, error_message=message)
