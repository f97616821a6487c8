"""Configuration APIs of brokers. A broker describes configurations and alters its own loggers; the controller alters all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.broker.admin import broker_loggers
from minikafka.broker.admin.config_descriptions import ConfigDescriptions
from minikafka.broker.partitions.cordons import ALL
from minikafka.core.authorizer.acl import CLUSTER_NAME, Operation, ResourceType
from minikafka.core.controller.configs import APPEND, CORDONED_LOG_DIRS, SET, check_entries
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from minikafka.broker.admin.delegation_tokens import Authorizer
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.forwarding import Forwarder


class ConfigHandlers:
    """The configuration APIs on a broker listener."""

    def __init__(
        self, config: BrokerConfig, descriptions: ConfigDescriptions, forwarder: Forwarder, authorizer: Authorizer | None = None
    ) -> None:
        """`authorizer`: the controller authorizes what is forwarded; changes of loggers are this broker's own."""
        self._authorizer = authorizer
        self._config = config
        self._descriptions = descriptions
        self._forwarder = forwarder

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the three APIs."""
        self._descriptions.register(dispatcher)
        dispatcher.register(IncrementalAlterConfigsRequest, self.alter)
        dispatcher.register(AlterConfigsRequest, self.alter)

    async def alter(self, context: RequestContext, request: Any) -> Any:
        """IncrementalAlterConfigs and AlterConfigs; this broker applies the change before the client gets its answer."""
        own: list[Any] = []
        is_incremental = isinstance(request, IncrementalAlterConfigsRequest)
        if is_incremental:
            own += self._alter_loggers(context, request)
        own += self._refused_cordons(request)
        if own and not request.resources:
            return (IncrementalAlterConfigsResponse if is_incremental else AlterConfigsResponse)(responses=own)
        response = await self._forwarder.forward(context, request)
        response.responses += own
        if not request.validate_only:
            wanted = self._settled(request, response)
            await self._forwarder.until(lambda image: all(image.config(*res).get(key) == value for res, key, value in wanted))
        return response

    def _alter_loggers(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]:
        """Alter this process's loggers and remove them from the request (Kafka's ConfigAdminManager.preprocess)."""
        answers = []
        for resource in [one for one in request.resources if one.resource_type == RESOURCE_BROKER_LOGGER]:
            answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            changes = [(entry.name, entry.config_operation, entry.value) for entry in resource.configs]
            try:
                check_entries(changes)
                if self._authorizer is not None and not self._authorizer.allows(
                    context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
                ):
                    raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                broker_loggers.check_broker_id(resource.resource_name, self._config.node_id)
                broker_loggers.alter(changes, validate_only=request.validate_only)
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        request.resources = [one for one in request.resources if one.resource_type != RESOURCE_BROKER_LOGGER]
        return answers

    def _refused_cordons(self, request: IncrementalAlterConfigsRequest | AlterConfigsRequest) -> list[Any]:
        """Answer changes that cordon directories which this broker does not have, and remove them from the request: the controller does
        not know the paths."""
        kind = IncrementalAlterConfigsResponse if isinstance(request, IncrementalAlterConfigsRequest) else AlterConfigsResponse
        answers: list[Any] = []
        key = (RESOURCE_BROKER, str(self._config.node_id))
        resources: list[Any] = request.resources
        for resource in [one for one in resources if (one.resource_type, one.resource_name) == key]:
            named = [
                path.strip()
                for entry in resource.configs
                if entry.name == CORDONED_LOG_DIRS and getattr(entry, "config_operation", SET) in (SET, APPEND)
                for path in (entry.value or "").split(",")
            ]
            unknown = [path for path in named if path not in ("", ALL) and path.rstrip("/") not in self._config.directories]
            if unknown:
                resources.remove(resource)
                answers.append(
                    kind.AlterConfigsResourceResponse(
                        resource_type=resource.resource_type, resource_name=resource.resource_name, error_code=ErrorCode.INVALID_REQUEST,
                        error_message=f"{CORDONED_LOG_DIRS} names {', '.join(unknown)}, not in log.dirs",
                    )
                )  # fmt: skip
        return answers

    @staticmethod
    def _settled(request: Any, response: Any) -> list[tuple[tuple[int, str], str, str | None]]:
        """The values to expect in the metadata: (resource, name, value) of each plain assignment that succeeded."""
        good = {(entry.resource_type, entry.resource_name) for entry in response.responses if entry.error_code == ErrorCode.NONE}
        settled = []
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            for entry in resource.configs if key in good else ():
                if getattr(entry, "config_operation", 0) <= 1:
                    settled.append((key, entry.name, entry.value if getattr(entry, "config_operation", 0) == 0 else None))
        return settled
