"""DescribeCluster, on brokers and on controllers; UpdateFeatures, UnregisterBroker, client quotas, ListConfigResources on brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.broker.admin.metadata import CLUSTER_OPERATIONS, controller_for_clients
from minikafka.core.controller.quotas import CLIENT_ID, IP, USER
from minikafka.core.metadata.image import (
    METADATA_VERSION,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    QuotaEntity,
)
from minikafka.core.metadata.versions import NEWEST, REGISTERED_CONTROLLERS
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.message import Request
from minikafka.wire.messages.add_raft_voter import AddRaftVoterRequest
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest
from minikafka.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from minikafka.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.messages.unregister_controller import UnregisterControllerRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_host import RaftHost

_FORWARDED: tuple[type[Request], ...] = (
    UpdateFeaturesRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    DescribeQuorumRequest,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
)

ENDPOINT_BROKER, ENDPOINT_CONTROLLER = 1, 2
_ENDPOINT_NAMES = {ENDPOINT_BROKER: "BROKER", ENDPOINT_CONTROLLER: "CONTROLLER"}
MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2
_MATCH_NAMES = {MATCH_EXACT: "EXACT", MATCH_DEFAULT: "DEFAULT", MATCH_ANY: "SPECIFIED"}


def _wrong_endpoint(here: int, wanted: int) -> DescribeClusterResponse:
    expected = _ENDPOINT_NAMES.get(wanted)
    if expected is None:
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=f"Unsupported endpoint type {wanted}")
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        error_message=f"The request was sent to an endpoint of type {_ENDPOINT_NAMES[here]}, but we wanted an endpoint of type {expected}",
    )


class ClusterHandlers:
    """Cluster-wide description and administration on a broker listener."""

    def __init__(self, config: BrokerConfig, metadata: MetadataHost, forwarder: Forwarder, cluster_id: str) -> None:
        self._config = config
        self._metadata = metadata
        self._forwarder = forwarder
        self._cluster_id = cluster_id

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(DescribeClusterRequest, self.describe_cluster)
        dispatcher.register(DescribeClientQuotasRequest, self.describe_client_quotas)
        dispatcher.register(ListConfigResourcesRequest, self.list_config_resources)
        for request in _FORWARDED:
            dispatcher.register(request, self.forward)

    async def forward(self, context: RequestContext, request: Any) -> Any:
        """Forward the request to the active controller."""
        return await self._forwarder.forward(context, request)

    def describe_cluster(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """DescribeCluster (KIP-700, KIP-919): the brokers that have the client's listener."""
        if request.endpoint_type != ENDPOINT_BROKER:
            return _wrong_endpoint(ENDPOINT_BROKER, request.endpoint_type)
        image, listener = self._metadata.image, context.listener
        response = DescribeClusterResponse(
            cluster_id=self._cluster_id, controller_id=controller_for_clients(image, self._config.node_id), endpoint_type=ENDPOINT_BROKER
        )
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.broker_id):
            endpoint = broker.listeners.get(listener)
            if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
                continue
            response.brokers.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.broker_id, host=endpoint[0], port=endpoint[1], rack=broker.rack, is_fenced=broker.fenced
                )
            )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def list_config_resources(self, context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
        """ListConfigResources (KIP-1142); version 0 lists only subscriptions to client metrics."""
        image = self._metadata.image
        wanted = list(request.resource_types) if context.api_version >= 1 else [RESOURCE_CLIENT_METRICS]
        supported = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)
        if not wanted:
            wanted = list(supported)
        if any(kind not in supported for kind in wanted):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
        names: dict[int, list[str]] = {
            RESOURCE_BROKER_LOGGER: brokers,
            RESOURCE_BROKER: brokers,
            RESOURCE_TOPIC: list(image.topics_by_name),
            RESOURCE_CLIENT_METRICS: [name for kind, name in image.configs if kind == RESOURCE_CLIENT_METRICS],
            RESOURCE_GROUP: [name for kind, name in image.configs if kind == RESOURCE_GROUP],
        }
        found = [(name, kind) for kind, resources in names.items() if kind in wanted for name in resources]
        listed = ListConfigResourcesResponse.ConfigResource
        return ListConfigResourcesResponse(
            config_resources=lazy_list(found, lambda entry: listed(resource_name=entry[0], resource_type=entry[1]))
        )

    def describe_client_quotas(self, context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        """DescribeClientQuotas (KIP-546)."""
        components = request.components
        try:
            _check_filter(components)
        except ApiError as error:
            return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
        quotas = self._metadata.image.client_quotas
        found = (
            list(quotas.items())
            if not (components or request.strict)
            else [(entity, values) for entity, values in quotas.items() if _matches(entity, components, request.strict)]
        )
        return DescribeClientQuotasResponse(error_message="", entries=lazy_list(found, _described_quotas))


def _check_filter(components: list[DescribeClientQuotasRequest.ComponentData]) -> None:
    """Raises ApiError for the first invalid component: INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown entity type
    (`ClientQuotasImage` of Kafka)."""
    kinds: set[str] = set()
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in kinds:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in {USER, CLIENT_ID, IP}:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in _MATCH_NAMES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        specified = f"Request specified MATCH_TYPE_{_MATCH_NAMES[match_type]}"
        if match_type == MATCH_EXACT and component.match is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{specified}, but set match string to null.")
        if match_type != MATCH_EXACT and component.match is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{specified}, but also specified a match string.")
        kinds.add(kind)
    if IP in kinds and len(kinds) > 1:
        message = "IP filter component should not be used with user or clientId filter component."
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid entity filter component combination. {message}")


def _described_quotas(found: tuple[QuotaEntity, dict[str, float]]) -> DescribeClientQuotasResponse.EntryData:
    kind = DescribeClientQuotasResponse
    entity, values = found
    return kind.EntryData(
        entity=[kind.EntityData(entity_type=type_, entity_name=name) for type_, name in entity],
        values=[kind.ValueData(key=key, value=value) for key, value in values.items()],
    )


def _matches(entity: QuotaEntity, components: list[DescribeClientQuotasRequest.ComponentData], strict: bool) -> bool:
    parts = dict(entity)
    for component in components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if component.match_type == MATCH_EXACT and name != component.match:
            return False
        if component.match_type == MATCH_DEFAULT and name is not None:
            return False
    return not strict or len(parts) == len(components)


class ControllerClusterHandlers:
    """DescribeCluster on a controller listener: the registered controllers (KIP-919)."""

    def __init__(self, metadata: MetadataHost, raft: RaftHost, cluster_id: str) -> None:
        self._metadata = metadata
        self._raft = raft
        self._cluster_id = cluster_id

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the API."""
        dispatcher.register(DescribeClusterRequest, self.describe_cluster)

    def describe_cluster(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """DescribeCluster for controllers. UNSUPPORTED_VERSION while they do not register, or an admin client would ask until it gives up
        (ControllerApis.handleDescribeCluster)."""
        if self._metadata.image.features.get(METADATA_VERSION, NEWEST) < REGISTERED_CONTROLLERS:
            message = "Direct-to-controller communication is not supported with the current MetadataVersion."
            return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=message)
        if request.endpoint_type != ENDPOINT_CONTROLLER:
            return _wrong_endpoint(ENDPOINT_CONTROLLER, request.endpoint_type)
        leader = self._raft.leader_id
        response = DescribeClusterResponse(
            cluster_id=self._cluster_id, controller_id=-1 if leader is None else leader, endpoint_type=ENDPOINT_CONTROLLER
        )
        for controller in sorted(self._metadata.image.controllers.values(), key=lambda controller: controller.controller_id):
            endpoint = controller.listeners.get(context.listener)
            if endpoint is not None:
                response.brokers.append(
                    DescribeClusterResponse.DescribeClusterBroker(broker_id=controller.controller_id, host=endpoint[0], port=endpoint[1])
                )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response
