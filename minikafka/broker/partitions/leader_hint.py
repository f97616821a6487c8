"""Names the leader in responses of brokers that do not lead, so that a client need not ask for metadata (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.core.metadata.image import MetadataImage, TopicImage
    from minikafka.wire.messages.fetch import FetchResponse
    from minikafka.wire.messages.produce import ProduceResponse


def name_leader(
    image: MetadataImage,
    topic: TopicImage | None,
    index: int,
    listener: str,
    answer: ProduceResponse.PartitionProduceResponse | FetchResponse.PartitionData,
    response: ProduceResponse | FetchResponse,
    *,
    with_endpoint: bool = True,
) -> None:
    """Name the partition's leader in `answer`, and once in `response` its address on `listener`, if both are known."""
    registration = None if topic is None else topic.partitions.get(index)
    if registration is None or registration.leader < 0:
        return
    kind: Any = type(response)
    answer.current_leader = kind.LeaderIdAndEpoch(leader_id=registration.leader, leader_epoch=registration.leader_epoch)
    broker = image.brokers.get(registration.leader)
    endpoint = None if broker is None else broker.listeners.get(listener)
    if broker is None or endpoint is None or not with_endpoint:
        return
    endpoints: list[Any] = response.node_endpoints
    if all(node.node_id != broker.broker_id for node in endpoints):
        endpoints.append(kind.NodeEndpoint(node_id=broker.broker_id, host=endpoint[0], port=endpoint[1], rack=broker.rack))
