"""The delegation token APIs of a node without `delegation.token.secret.key` (KIP-48): they answer that delegation tokens are disabled.

Kafka serves the APIs even without a key, and some clients derive a broker's version from its list of APIs (franz-go's kversion), so they
are served here too, by brokers and controllers. Checks are in Kafka's order: allowTokenRequests of KafkaApis and ControllerApis, the
authorizer, DelegationTokenControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.net.network import ANONYMOUS
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from minikafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext

PLAINTEXT, SSL = 0, 1


def _expiry(error: ErrorCode) -> int:
    """Expiry time of a missing token: -1 from Kafka's brokers; 0 from its controllers, which check first whether there is a key."""
    return 0 if error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else -1


REQUESTER_VERSION_MIN = 3


class Authorizer(Protocol):
    """Decides whether a principal may perform an operation."""

    def allows(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str, /) -> bool:
        """Whether the request's principal may perform the operation."""


class DelegationTokenHandlers:
    """Refuses requests, with the checks in Kafka's order."""

    def __init__(self, config: BrokerConfig, authorizer: Authorizer | None) -> None:
        self._config = config
        self._authorizer = authorizer

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(CreateDelegationTokenRequest, self.create)
        dispatcher.register(RenewDelegationTokenRequest, self.renew)
        dispatcher.register(ExpireDelegationTokenRequest, self.expire)
        dispatcher.register(DescribeDelegationTokenRequest, self.describe)

    def create(self, context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
        """CreateDelegationToken; the answer names the owner and the requester."""
        requester = context.principal.partition(":")[::2]
        owner = (request.owner_principal_type or "", request.owner_principal_name) if request.owner_principal_name else requester
        error = self._refusal(context)
        if error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
            if owner != requester and not self._may_create_for(context, ":".join(owner)):
                error = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            elif any(renewer.principal_type != "User" for renewer in request.renewers):
                error = ErrorCode.INVALID_PRINCIPAL_TYPE
        when = _expiry(error)
        # Older versions have no field for the requester.
        reported = requester if context.api_version >= REQUESTER_VERSION_MIN else ("", "")
        return CreateDelegationTokenResponse(
            error_code=error,
            principal_type=owner[0],
            principal_name=owner[1],
            token_requester_principal_type=reported[0],
            token_requester_principal_name=reported[1],
            issue_timestamp_ms=when,
            expiry_timestamp_ms=when,
            max_timestamp_ms=when,
        )

    def renew(self, context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
        """RenewDelegationToken."""
        error = self._refusal(context)
        return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_expiry(error))

    def expire(self, context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
        """ExpireDelegationToken."""
        error = self._refusal(context)
        return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_expiry(error))

    def describe(self, context: RequestContext, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
        """DescribeDelegationToken."""
        return DescribeDelegationTokenResponse(error_code=self._refusal(context), tokens=[])

    def _refusal(self, context: RequestContext) -> ErrorCode:
        """The error for a client: requests are not allowed without authentication; otherwise tokens are disabled. The broker has judged the
        connection of a client whose request it forwards."""
        if context.is_forwarded:
            return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        protocol = self._config.protocol_of(context.listener)
        if protocol == PLAINTEXT or (protocol == SSL and context.principal == ANONYMOUS):
            return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    def _may_create_for(self, context: RequestContext, owner: str) -> bool:
        return self._authorizer is None or self._authorizer.allows(context, Operation.CREATE_TOKENS, ResourceType.USER, owner)
