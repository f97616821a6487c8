"""The rules of delegation tokens (KIP-48) that controllers and brokers share."""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING

from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest
    from minikafka.wire.records.metadata_records import DelegationTokenRecord

#: Principals are written as type and name.
USER_TYPE = "User"


class TokenPrincipal(str):
    """A principal that authenticated with a delegation token. It equals the same principal with a password, and has the same rights and
    quotas, but it may not ask about tokens."""

    __slots__ = ()


class TokenSecret:
    """delegation.token.secret.key, the same on every node: the key of each token's HMAC, which is the token's password."""

    def __init__(self, secret_key: str) -> None:
        self._key = secret_key.encode()

    def hmac(self, token_id: str) -> bytes:
        """HMAC-SHA-512 of the token's id, 64 bytes."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def password(self, token_id: str) -> str:
        """The HMAC as clients send it: in base64, as a SCRAM password."""
        return base64.b64encode(self.hmac(token_id)).decode()


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether the token has ended. `now_ms`: since 1970."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def wrong_type(owner: str, renewers: Iterable[CreateDelegationTokenRequest.CreatableRenewers]) -> ErrorCode | None:
    """INVALID_PRINCIPAL_TYPE unless all are users. Apache Kafka looks at the renewers only, but who logs in with a token is User: and the
    owner's name, whatever the owner's type: so rights to create tokens of one type gave those of another."""
    are_users = owner.startswith(f"{USER_TYPE}:") and all(renewer.principal_type == USER_TYPE for renewer in renewers)
    return None if are_users else ErrorCode.INVALID_PRINCIPAL_TYPE


def may_change(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether the principal may renew the token and end it."""
    return principal == token.owner or principal in token.renewers


def concerns(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether the principal owns the token, has asked for it or may renew it (TokenInformation.ownerOrRenewer)."""
    return may_change(token, principal) or principal == token.requester
