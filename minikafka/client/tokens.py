"""Admin requests for delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minikafka.client.admin import Admin
from minikafka.client.errors import refusal
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from minikafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are written as "User:alice", times are milliseconds since 1970. `hmac` suffices to log in as the owner."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expiry_ms: int
    max_ms: int

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id}, {self.owner})"


class TokenAdmin(Admin):
    """An Admin that manages delegation tokens."""

    async def create_token(self, renewers: Sequence[str] = (), owner: str | None = None, max_lifetime_ms: int = -1) -> DelegationToken:
        """Create a token of the owner, who is this client unless given. -1: the longest life that brokers allow. Raises BrokerError."""
        kind = CreateDelegationTokenRequest
        parts = [renewer.partition(":") for renewer in renewers]
        owner_type, _, owner_name = (owner or "").partition(":")
        request = kind(
            owner_principal_type=owner_type if owner else None,
            owner_principal_name=owner_name if owner else None,
            renewers=[kind.CreatableRenewers(principal_type=renewer_type, principal_name=name) for renewer_type, _, name in parts],
            max_lifetime_ms=max_lifetime_ms,
        )
        answer = await self._ask(request)
        if answer.error_code:
            raise refusal(answer.error_code, "creating a delegation token", None)
        of = _named(answer.principal_type, answer.principal_name)
        return DelegationToken(
            answer.token_id,
            bytes(answer.hmac),
            of,
            f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
            if answer.token_requester_principal_name
            else of,
            tuple(renewers),
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    async def renew_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token live for another period; -1: as long as brokers allow. Returns when it expires. Raises BrokerError."""
        answer = await self._ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
        if answer.error_code:
            raise refusal(answer.error_code, "renewing a delegation token", None)
        return int(answer.expiry_timestamp_ms)

    async def expire_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """End a token after a period; -1: now. Returns when it expires. Raises BrokerError."""
        answer = await self._ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
        if answer.error_code:
            raise refusal(answer.error_code, "ending a delegation token", None)
        return int(answer.expiry_timestamp_ms)

    async def describe_tokens(self, owners: Sequence[str] | None = None) -> list[DelegationToken]:
        """The tokens of owners or renewers (None: of all) that this client may see. Raises BrokerError."""
        kind = DescribeDelegationTokenRequest
        asked = None
        if owners is not None:
            parts = [owner.partition(":") for owner in owners]
            asked = [kind.DescribeDelegationTokenOwner(principal_type=owner_type, principal_name=name) for owner_type, _, name in parts]
        answer = await self._ask(kind(owners=asked))
        if answer.error_code:
            raise refusal(answer.error_code, "describing delegation tokens", None)
        return [
            DelegationToken(
                token.token_id,
                bytes(token.hmac),
                _named(token.principal_type, token.principal_name),
                _named(token.token_requester_principal_type, token.token_requester_principal_name)
                or _named(token.principal_type, token.principal_name),
                tuple(_named(renewer.principal_type, renewer.principal_name) for renewer in token.renewers),
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
            )
            for token in answer.tokens
        ]


def _named(principal_type: str, name: str) -> str:
    """The principal as text; empty if there is none, as for the requester in old versions."""
    return f"{principal_type}:{name}" if name else ""
