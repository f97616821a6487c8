"""SaslHandshake and SaslAuthenticate after authentication, which are illegal (ILLEGAL_SASL_STATE), and DescribeUserScramCredentials.

sasl_session.py serves the authentication itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from minikafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minikafka.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.quorum.metadata_log import MetadataHost

AFTER_AUTHENTICATION = "SaslAuthenticate request received after successful authentication"


class LateSaslHandlers:
    """Refuses SASL requests of clients that are already authenticated, or connected without SASL."""

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs, on any listener."""
        dispatcher.register(SaslHandshakeRequest, self.handshake)
        dispatcher.register(SaslAuthenticateRequest, self.authenticate)

    def handshake(self, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        """ILLEGAL_SASL_STATE: there is no mechanism to agree on."""
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])

    def authenticate(self, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        """ILLEGAL_SASL_STATE: the client already has a principal, possibly anonymous."""
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=AFTER_AUTHENTICATION)


class ScramHandlers:
    """Describes SCRAM credentials."""

    def __init__(self, metadata: MetadataHost) -> None:
        self._metadata = metadata

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the API."""
        dispatcher.register(DescribeUserScramCredentialsRequest, self.describe_credentials)

    def describe_credentials(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Mechanism and iterations of each credential of the requested users, or of all users (ScramImage.describe)."""
        kind = DescribeUserScramCredentialsResponse
        found: dict[str, list[DescribeUserScramCredentialsResponse.CredentialInfo]] = {}
        for (name, mechanism), record in self._metadata.image.scram.items():
            found.setdefault(name, []).append(kind.CredentialInfo(mechanism=mechanism, iterations=record.iterations))
        named = Counter(user.name for user in request.users or [])
        results = []
        for name in named or found:
            result = kind.DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=found.get(name, []))
            if named[name] > 1:
                result.error_code = ErrorCode.DUPLICATE_RESOURCE
                result.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                result.credential_infos = []
            elif name not in found:
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
            results.append(result)
        return kind(error_message=None, results=results)
