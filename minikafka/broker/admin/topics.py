"""Administration of topics and partitions on brokers. Requests are forwarded to the active controller, and answered when this broker has
applied the change too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from minikafka.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.core.metadata.image import MetadataImage


class TopicHandlers:
    """CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders and reassignments on a broker listener."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(CreateTopicsRequest, self.create_topics)
        dispatcher.register(DeleteTopicsRequest, self.delete_topics)
        dispatcher.register(CreatePartitionsRequest, self.create_partitions)
        for request in (ElectLeadersRequest, AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest):
            dispatcher.register(request, self.forward)

    async def forward(self, context: RequestContext, request: Any) -> Any:
        """Forward the request to the active controller."""
        return await self._forwarder.forward(context, request)

    async def create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """CreateTopics; new topics are in this broker's metadata before the client gets its answer."""
        response: CreateTopicsResponse = await self._forwarder.forward(context, request)
        if not request.validate_only:
            created = [topic.name for topic in response.topics if topic.error_code == ErrorCode.NONE]
            await self._until(created, lambda image: all(name in image.topics_by_name for name in created))
        return response

    async def delete_topics(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """DeleteTopics."""
        response: DeleteTopicsResponse = await self._forwarder.forward(context, request)
        gone = [topic.name for topic in response.responses if topic.error_code == ErrorCode.NONE and topic.name is not None]
        await self._until(gone, lambda image: all(name not in image.topics_by_name for name in gone))
        return response

    async def create_partitions(self, context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """CreatePartitions."""
        response: CreatePartitionsResponse = await self._forwarder.forward(context, request)
        if not request.validate_only:
            good = [result.name for result in response.results if result.error_code == ErrorCode.NONE]
            wanted = {topic.name: topic.count for topic in request.topics if topic.name in good}

            def are_applied(image: MetadataImage) -> bool:
                found = image.topics_by_name
                return all(name not in found or len(found[name].partitions) >= count for name, count in wanted.items())

            await self._until(list(wanted), are_applied)
        return response

    async def _until(self, names: list[str], condition: Callable[[MetadataImage], bool]) -> None:
        if names:
            await self._forwarder.until(condition)
