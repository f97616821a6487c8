"""An admin client that talks to controllers only, for clusters whose brokers do not answer (KIP-919)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

from minikafka.addresses import host_port
from minikafka.client.cluster import METADATA_TIMEOUT_MS, BrokerInfo, Cluster
from minikafka.client.errors import ClientError, refusal
from minikafka.net.channel import Channel, UnsupportedVersion
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from minikafka.wire.messages.metadata import MetadataResponse

ENDPOINT_CONTROLLER = 2


class ControllerCluster(Cluster):
    """A Cluster whose nodes are the registered controllers. A request without a node id goes to the active controller."""

    async def any_channel(self) -> Channel:
        """A connection to the active controller, or to any that answers while the active one is unknown. Raises NoBrokers."""
        if self.controller_id in self.brokers:
            try:
                return await self.channel_to(self.controller_id)
            except (OSError, TimeoutError):
                self.controller_id = -1
        return await super().any_channel()

    async def refresh(self, topics: Iterable[str] | None = (), *, create: bool = False) -> MetadataResponse:
        """Request the list of controllers. Controllers do not describe topics: raises ClientError if any are requested."""
        if topics is None or list(topics):
            raise ClientError("controllers do not describe topics: ask a broker, with --bootstrap-server")
        channel = await self.any_channel()
        request = DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLER)
        try:
            answer = await channel.request(request, None, min(self.request_timeout_ms, METADATA_TIMEOUT_MS))
        except UnsupportedVersion as error:
            raise ClientError(f"{host_port(channel.host, channel.port)} is not a controller of Apache Kafka 3.7 or newer") from error
        except (TimeoutError, asyncio.CancelledError):
            channel.close("no answer in time")
            raise
        response = cast(DescribeClusterResponse, answer)
        if response.error_code:
            raise refusal(response.error_code, host_port(channel.host, channel.port), response.error_message)
        self.brokers = {b.broker_id: BrokerInfo(b.broker_id, b.host, b.port) for b in response.brokers}
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        return MetadataResponse(cluster_id=response.cluster_id, controller_id=response.controller_id)
