"""Delegation tokens (KIP-48) as records. Rules: Apache Kafka's DelegationTokenControlManager. The secret is not known here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from minikafka.core.controller.config import ControllerConfig, RandomSource
from minikafka.core.controller.state import ControllerState, Result
from minikafka.core.controller.topics import random_uuid
from minikafka.core.delegation_token import is_expired, may_change, wrong_type
from minikafka.core.metadata.image import METADATA_VERSION
from minikafka.core.metadata.versions import DELEGATION_TOKENS, NEWEST
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from minikafka.wire.records.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from minikafka.wire.uuid import uuid_to_text

INT64_MAX = 2**63 - 1
#: Expired tokens that are removed at once.
REMOVALS_MAX = 1000
#: Bounds on what users keep in the metadata: unexpired tokens of one owner, and the bytes of a token's principals. Apache Kafka has none.
TOKENS_OF_OWNER_MAX, PRINCIPALS_BYTES_MAX = 1000, 8 * 1024


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request about tokens, with what its host knows: the principal that asks, the time since 1970, and whose HMAC the request holds
    (None: no token's)."""

    request: Any
    requester: str
    now_ms: int
    token_id: str | None = None


@dataclass(frozen=True, slots=True)
class TokenSweep:
    """Asks to remove expired tokens. `now_ms`: since 1970."""

    now_ms: int


class TokenControl:
    """Creates, renews and removes delegation tokens. The caller has authorized the change."""

    def __init__(self, config: ControllerConfig, state: ControllerState, random: RandomSource) -> None:
        self._config = config
        self._state = state
        self._random = random
        self._methods: Mapping[type, Callable[[TokenRequest], Result]] = {
            CreateDelegationTokenRequest: self._create,
            RenewDelegationTokenRequest: self._renew,
            ExpireDelegationTokenRequest: self._expire,
        }

    def handle(self, asked: TokenRequest) -> Result:
        """CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken. The answer has no HMAC yet."""
        return self._methods[type(asked.request)](asked)

    def sweep(self, sweep: TokenSweep) -> Result:
        """Remove some of the expired tokens. The response says whether there may be more."""
        expired = (token for token in self._state.image.delegation_tokens.values() if is_expired(token, sweep.now_ms))
        records: list[Any] = [RemoveDelegationTokenRecord(token_id=token.token_id) for token in islice(expired, REMOVALS_MAX)]
        return Result(len(records) == REMOVALS_MAX, records, atomic=False)

    @property
    def _refusal(self) -> ErrorCode | None:
        if not self._config.delegation_tokens_enable:
            return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        if self._state.image.features.get(METADATA_VERSION, NEWEST) < DELEGATION_TOKENS:
            return ErrorCode.UNSUPPORTED_VERSION
        return None

    def _create(self, asked: TokenRequest) -> Result:
        request = asked.request
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}" if request.owner_principal_name else asked.requester
        response = CreateDelegationTokenResponse()
        response.principal_type, _, response.principal_name = owner.partition(":")
        response.token_requester_principal_type, _, response.token_requester_principal_name = asked.requester.partition(":")
        refusal = self._refusal
        if refusal is None:
            refusal = wrong_type(owner, request.renewers) or self._excess(owner, asked)
        if refusal is not None:
            response.error_code = refusal
            return Result(response)
        config, now_ms = self._config, asked.now_ms
        lifetime_ms = config.delegation_token_max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        token = DelegationTokenRecord(
            owner=owner,
            requester=str(asked.requester),
            renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
            issue_timestamp=now_ms,
            max_timestamp=_later(now_ms, lifetime_ms),
            token_id=self._new_id(),
        )
        token.expiration_timestamp = min(token.max_timestamp, _later(now_ms, config.delegation_token_expiry_time_ms))
        response.token_id = token.token_id
        response.issue_timestamp_ms = now_ms
        response.expiry_timestamp_ms = token.expiration_timestamp
        response.max_timestamp_ms = token.max_timestamp
        return Result(response, [token])

    def _excess(self, owner: str, asked: TokenRequest) -> ErrorCode | None:
        """Why the metadata must not keep this token."""
        tokens = self._state.image.delegation_tokens.values()
        owned = sum(token.owner == owner and not is_expired(token, asked.now_ms) for token in tokens)
        size = len(owner.encode()) + sum(len(renewer.principal_name.encode()) for renewer in asked.request.renewers)
        return ErrorCode.POLICY_VIOLATION if owned >= TOKENS_OF_OWNER_MAX or size > PRINCIPALS_BYTES_MAX else None

    def _new_id(self) -> str:
        while (token_id := uuid_to_text(random_uuid(self._random))) in self._state.image.delegation_tokens:
            pass
        return token_id

    def _renew(self, asked: TokenRequest) -> Result:
        token = self._token(asked)
        if isinstance(token, ErrorCode):
            return Result(RenewDelegationTokenResponse(error_code=token))
        if is_expired(token, asked.now_ms):
            return Result(RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED))
        if not may_change(token, asked.requester):
            return Result(RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
        period_ms = self._config.delegation_token_expiry_time_ms
        if asked.request.renew_period_ms > 0:
            period_ms = min(period_ms, asked.request.renew_period_ms)
        until_ms = min(token.max_timestamp, _later(asked.now_ms, period_ms))
        return Result(RenewDelegationTokenResponse(expiry_timestamp_ms=until_ms), [_expiring(token, until_ms)])

    def _expire(self, asked: TokenRequest) -> Result:
        token = self._token(asked)
        if isinstance(token, ErrorCode):
            return Result(ExpireDelegationTokenResponse(error_code=token))
        if not may_change(token, asked.requester):
            return Result(ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
        period_ms = asked.request.expiry_time_period_ms
        if period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Result(ExpireDelegationTokenResponse(expiry_timestamp_ms=asked.now_ms), [removal])
        if is_expired(token, asked.now_ms):
            return Result(ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED))
        until_ms = min(token.max_timestamp, _later(asked.now_ms, period_ms))
        return Result(ExpireDelegationTokenResponse(expiry_timestamp_ms=until_ms), [_expiring(token, until_ms)])

    def _token(self, asked: TokenRequest) -> DelegationTokenRecord | ErrorCode:
        """The token of a request, or why there is none."""
        refusal = self._refusal
        if refusal is not None:
            return refusal
        token = None if asked.token_id is None else self._state.image.delegation_tokens.get(asked.token_id)
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND if token is None else token


def _later(now_ms: int, duration_ms: int) -> int:
    return min(INT64_MAX, now_ms + duration_ms)


def _expiring(token: DelegationTokenRecord, until_ms: int) -> DelegationTokenRecord:
    """The token with another time of expiry."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=until_ms,
        token_id=token.token_id,
    )
