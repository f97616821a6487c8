"""The delegation token APIs (KIP-48), on brokers and on controllers.

Brokers describe tokens, and pass changes on to the active controller. Checks are in Kafka's order: allowTokenRequests of KafkaApis and
ControllerApis, the authorizer, DelegationTokenControlManager. The APIs are served even without delegation.token.secret.key, as in Kafka:
some clients derive a broker's version from its list of APIs (franz-go's kversion).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.front.turns import in_steps
from minikafka.broker.supervise import Ends
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.core.controller.tokens import TokenRequest, TokenSweep
from minikafka.core.delegation_token import TokenPrincipal, concerns, wrong_type
from minikafka.net.network import ANONYMOUS
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from minikafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.admin.tokens import DelegationTokens
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.broker.quorum.controller_host import ControllerHost
    from minikafka.core.metadata.image import MetadataImage
    from minikafka.wire.records.metadata_records import DelegationTokenRecord

PLAINTEXT, SSL = 0, 1
#: Time of a token that is refused by Apache Kafka before its controller decides.
NO_TIME = -1
REQUESTER_VERSION_MIN = 3


class Authorizer(Protocol):
    """Decides whether a principal may perform an operation."""

    def allows(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str, /, *, log: bool = True) -> bool:
        """Whether the request's principal may perform the operation."""


class _Handlers:
    def __init__(self, config: BrokerConfig, authorizer: Authorizer | None, tokens: DelegationTokens) -> None:
        self._config = config
        self._authorizer = authorizer
        self._tokens = tokens

    def _allows(self, context: Any, operation: Operation, kind: ResourceType, name: str, *, log: bool = True) -> bool:
        return self._authorizer is None or self._authorizer.allows(context, operation, kind, name, log=log)

    def _is_open_to(self, context: Any) -> bool:
        """Whether a client may ask about tokens: it has authenticated, but not with a token. The broker has judged the connection of a
        client whose request it forwards."""
        if isinstance(context.principal, TokenPrincipal):
            return False
        if context.is_forwarded:
            return True
        protocol = self._config.protocol_of(context.listener)
        return not (protocol == PLAINTEXT or (protocol == SSL and context.principal == ANONYMOUS))

    def _refused_creation(self, context: Any, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse | None:
        owner = owner_of(context, request)
        error = ErrorCode.NONE
        if not self._is_open_to(context):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif owner != context.principal and not self._allows(context, Operation.CREATE_TOKENS, ResourceType.USER, owner):
            error = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif not context.is_forwarded:
            error = wrong_type(owner, request.renewers) or ErrorCode.NONE
        return creation_refused(context, request, error) if error else None


def owner_of(context: Any, request: CreateDelegationTokenRequest) -> str:
    """The owner of the token that a client asks for: the client, unless the request says otherwise."""
    if not request.owner_principal_name:
        return str(context.principal)
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def creation_refused(context: Any, request: CreateDelegationTokenRequest, error: ErrorCode) -> CreateDelegationTokenResponse:
    """The answer to a refused creation: it names the owner and, from version 3 on, who asks."""
    response = CreateDelegationTokenResponse(error_code=error)
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
    response.principal_type, _, response.principal_name = owner_of(context, request).partition(":")
    if context.api_version >= REQUESTER_VERSION_MIN:
        response.token_requester_principal_type, _, response.token_requester_principal_name = context.principal.partition(":")
    return response


class DelegationTokenHandlers(_Handlers):
    """The APIs on a broker's listeners."""

    def __init__(
        self,
        config: BrokerConfig,
        authorizer: Authorizer | None,
        tokens: DelegationTokens,
        image: Callable[[], MetadataImage],
        forwarder: Forwarder,
    ) -> None:
        super().__init__(config, authorizer, tokens)
        self._image = image
        self._forwarder = forwarder

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(CreateDelegationTokenRequest, self.create)
        dispatcher.register(RenewDelegationTokenRequest, self.renew)
        dispatcher.register(ExpireDelegationTokenRequest, self.expire)
        dispatcher.register(DescribeDelegationTokenRequest, self.describe)

    async def create(self, context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
        """CreateDelegationToken; this broker knows the token before the client gets it."""
        refused = self._refused_creation(context, request)
        if refused is not None:
            return refused
        response: CreateDelegationTokenResponse = await self._forwarder.forward(context, request)
        if not response.error_code:
            await self._forwarder.until(lambda image: response.token_id in image.delegation_tokens)
        return response

    async def renew(self, context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
        """RenewDelegationToken; this broker knows the new time before the client does."""
        if not self._is_open_to(context):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
        response: RenewDelegationTokenResponse = await self._forwarder.forward(context, request)
        if not response.error_code:
            await self._until_expires_at(bytes(request.hmac), response.expiry_timestamp_ms)
        return response

    async def expire(self, context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
        """ExpireDelegationToken; this broker has dropped the token, or knows the new time, before the client gets its answer."""
        if not self._is_open_to(context):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
        response: ExpireDelegationTokenResponse = await self._forwarder.forward(context, request)
        if not response.error_code:
            await self._until_expires_at(bytes(request.hmac), response.expiry_timestamp_ms)
        return response

    async def _until_expires_at(self, hmac: bytes, expiry_ms: int) -> None:
        token_id = await self._tokens.id_of(hmac)

        def is_known(image: MetadataImage) -> bool:
            token = None if token_id is None else image.delegation_tokens.get(token_id)
            return token is None or token.expiration_timestamp == expiry_ms

        await self._forwarder.until(is_known)

    async def describe(self, context: RequestContext, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
        """DescribeDelegationToken: tokens of the given owners (None: of all) that concern the client or that it may describe."""
        error = ErrorCode.NONE
        if not self._is_open_to(context):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif not self._tokens.is_enabled:
            error = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        owners = None if request.owners is None else {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
        if error or owners == set():
            return DescribeDelegationTokenResponse(error_code=error, tokens=[])
        found = []
        async for token in in_steps(self._image().delegation_tokens.values()):
            if self._may_see(context, token, owners):
                found.append(described(token, self._tokens.hmac(token.token_id), context.api_version))
        return DescribeDelegationTokenResponse(error_code=error, tokens=found)

    def _may_see(self, context: RequestContext, token: DelegationTokenRecord, owners: set[str] | None) -> bool:
        if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            return False
        return (
            concerns(token, context.principal)
            or self._allows(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, log=False)
            or self._allows(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, log=False)
        )


def described(token: DelegationTokenRecord, hmac: bytes, version: int) -> DescribeDelegationTokenResponse.DescribedDelegationToken:
    """A token as DescribeDelegationToken answers it."""
    kind = DescribeDelegationTokenResponse
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":") if version >= REQUESTER_VERSION_MIN else ("", "", "")
    return kind.DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            kind.DescribedDelegationTokenRenewer(principal_type=renewer_type, principal_name=name)
            for renewer_type, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )


class ControllerTokenHandlers(_Handlers):
    """The APIs on a controller's listener, and the removal of tokens that have expired."""

    def __init__(
        self, config: BrokerConfig, authorizer: Authorizer | None, tokens: DelegationTokens, host: ControllerHost, environment: Environment
    ) -> None:
        super().__init__(config, authorizer, tokens)
        self._host = host
        self._environment = environment

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs, and begin to remove expired tokens."""
        dispatcher.register(CreateDelegationTokenRequest, self.create)
        dispatcher.register(RenewDelegationTokenRequest, self.change)
        dispatcher.register(ExpireDelegationTokenRequest, self.change)
        dispatcher.register(DescribeDelegationTokenRequest, self.describe)
        if self._tokens.is_enabled:
            self._environment.supervisor.start(self._sweep(), "the removal of expired delegation tokens")

    def create(self, context: Any, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse | None:
        """CreateDelegationToken."""
        refused = self._refused_creation(context, request)
        if refused is None:
            self._decide(context, request, None)
        return refused

    async def change(self, context: Any, request: Any) -> Any:
        """RenewDelegationToken and ExpireDelegationToken."""
        if not self._is_open_to(context):
            refused = failure_response(request, context.api_version, ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
            refused.expiry_timestamp_ms = NO_TIME
            return refused
        self._decide(context, request, await self._tokens.id_of(bytes(request.hmac)))
        return None

    def describe(self, context: Any, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
        """DescribeDelegationToken, which only brokers answer."""
        is_open = self._is_open_to(context)
        error = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED if is_open else ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return DescribeDelegationTokenResponse(error_code=error, tokens=[])

    def _decide(self, context: Any, request: Any, token_id: str | None) -> None:
        """Let the active controller decide. It answers when its decision is committed."""

        def respond(response: Any, error: ApiError | None) -> None:
            # The answer may be sent after the commit together with others; a failure here must not stop those.
            with self._host.supervisor.watching(f"an answer to {type(request).__name__}", ends=Ends("connection", context.close)):
                if error is None:
                    context.respond(self._completed(context, response))
                elif error.code is ErrorCode.NOT_CONTROLLER and context.is_forwarded:
                    context.not_controller()
                else:
                    context.respond(failure_response(request, context.api_version, error))

        asked = TokenRequest(request, context.principal, self._environment.clock.wall_ms(), token_id)
        self._host.handle(asked, context.api_version, respond)

    def _completed(self, context: Any, response: Any) -> Any:
        """The controller's answer with the HMAC of a new token, and without what the version has no field for."""
        if isinstance(response, CreateDelegationTokenResponse):
            if not response.error_code:
                response.hmac = self._tokens.hmac(response.token_id)
            if context.api_version < REQUESTER_VERSION_MIN:
                response.token_requester_principal_type = response.token_requester_principal_name = ""
        return response

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._config.delegation_token_expiry_check_interval_ms / 1000)
            has_more = True
            while has_more and self._host.is_active:
                has_more = False
                with suppress(ApiError):
                    has_more = await self._host.ask(TokenSweep(self._environment.clock.wall_ms()), 0)
