"""SaslHandshake and SaslAuthenticate on a listener without SASL: both come too late (ILLEGAL_SASL_STATE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.errors import ErrorCode
from wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from minikafka.broker.dispatch import Dispatcher, RequestContext

AFTER_AUTHENTICATION = "SaslAuthenticate request received after successful authentication"


class SaslHandlers:
    """Answers of a PLAINTEXT listener."""

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve on any listener."""
        dispatcher.register(SaslHandshakeRequest, self.handshake)
        dispatcher.register(SaslAuthenticateRequest, self.authenticate)

    def handshake(self, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        """There is no mechanism to agree on."""
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])

    def authenticate(self, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        """Every client is known to be anonymous already."""
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=AFTER_AUTHENTICATION)
