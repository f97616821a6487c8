"""Delegation tokens as records: lifetimes, who may change them, and what is left when they expire."""

from __future__ import annotations

import random
from typing import Any

import pytest

from minikafka.core.controller.config import ControllerConfig
from minikafka.core.controller.state import ControllerState
from minikafka.core.controller.tokens import INT64_MAX, PRINCIPALS_BYTES_MAX, REMOVALS_MAX, TokenControl, TokenRequest, TokenSweep
from minikafka.core.metadata.image import METADATA_VERSION, MetadataImage
from minikafka.core.metadata.versions import DELEGATION_TOKENS
from minikafka.steps import at_once
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from minikafka.wire.records.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

NOW, DAY, WEEK = 1_000_000, 86_400_000, 604_800_000


class World:
    def __init__(self, **config: Any) -> None:
        self.state = ControllerState(MetadataImage(), 0)
        settings = ControllerConfig(cluster_id="c", **{"delegation_tokens_enable": True, **config})
        self.control = TokenControl(settings, self.state, random.Random(1))

    def ask(self, request: Any, requester: str = "User:alice", now_ms: int = NOW, token_id: str | None = None) -> Any:
        result = self.control.handle(TokenRequest(request, requester, now_ms, token_id))
        if result.records:
            at_once(self.state.replay(result.records, self.state.next_offset))
        return result.response

    def create(
        self, lifetime_ms: int = -1, owner: str | None = None, renewer_type: str = "User", owner_type: str | None = "User",
        renewer: str = "renewer", **more: Any,
    ) -> Any:  # fmt: skip
        kind = CreateDelegationTokenRequest
        renewers = [kind.CreatableRenewers(principal_type=renewer_type, principal_name=renewer)]
        request = kind(owner_principal_name=owner, renewers=renewers, max_lifetime_ms=lifetime_ms)
        request.owner_principal_type = None if owner is None else owner_type
        return self.ask(request, **more)

    def renew(self, token_id: str | None, period_ms: int = -1, **more: Any) -> tuple[int, int]:
        response = self.ask(RenewDelegationTokenRequest(hmac=b"", renew_period_ms=period_ms), token_id=token_id, **more)
        return response.error_code, response.expiry_timestamp_ms

    def expire(self, token_id: str | None, period_ms: int = -1, **more: Any) -> tuple[int, int]:
        response = self.ask(ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=period_ms), token_id=token_id, **more)
        return response.error_code, response.expiry_timestamp_ms

    @property
    def tokens(self) -> dict[str, DelegationTokenRecord]:
        return self.state.image.delegation_tokens


def test_a_token_names_its_owner_its_requester_and_its_renewers() -> None:
    world = World()
    response = world.create(owner="bob")
    assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")
    token = world.tokens[response.token_id]
    assert (token.owner, token.requester, token.renewers) == ("User:bob", "User:alice", ["User:renewer"])
    assert (token.issue_timestamp, token.expiration_timestamp, token.max_timestamp) == (NOW, NOW + DAY, NOW + WEEK)


@pytest.mark.parametrize(
    ("lifetime_ms", "expiry", "most"),
    [(-1, NOW + DAY, NOW + WEEK), (0, NOW + DAY, NOW + WEEK), (5, NOW + 5, NOW + 5), (10 * WEEK, NOW + DAY, NOW + WEEK)],
)
def test_a_client_may_ask_for_a_shorter_life_but_for_no_longer_one(lifetime_ms: int, expiry: int, most: int) -> None:
    response = World().create(lifetime_ms)
    assert (response.expiry_timestamp_ms, response.max_timestamp_ms) == (expiry, most)


def test_times_end_with_the_largest_number() -> None:
    world = World(delegation_token_max_lifetime_ms=INT64_MAX, delegation_token_expiry_time_ms=INT64_MAX)
    response = world.create(INT64_MAX)
    assert (response.expiry_timestamp_ms, response.max_timestamp_ms) == (INT64_MAX, INT64_MAX)
    assert world.renew(response.token_id) == (0, INT64_MAX)
    assert world.expire(response.token_id, INT64_MAX) == (0, INT64_MAX)


def test_owner_and_renewers_may_renew_a_token_within_its_life() -> None:
    world = World()
    token_id = world.create(owner="bob").token_id
    assert world.renew(token_id, requester="User:alice") == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert world.renew(token_id, requester="User:bob", now_ms=NOW + 10) == (0, NOW + 10 + DAY)
    assert world.renew(token_id, 7, requester="User:renewer") == (0, NOW + 7)
    assert world.tokens[token_id].expiration_timestamp == NOW + 7
    assert world.renew(token_id, requester="User:bob", now_ms=NOW + 8) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)


def test_no_renewal_goes_beyond_the_end_of_the_token() -> None:
    world = World()
    token_id = world.create(DAY + 5).token_id
    assert world.renew(token_id, now_ms=NOW + 10) == (0, NOW + DAY + 5)


def test_a_token_that_is_expired_at_once_is_removed() -> None:
    world = World()
    token_id = world.create().token_id
    assert world.expire(token_id, requester="User:mallory") == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert world.expire(token_id) == (0, NOW)
    assert not world.tokens
    assert world.expire(token_id) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert world.renew(None) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_a_token_may_be_given_an_earlier_end() -> None:
    world = World()
    token_id = world.create().token_id
    assert world.expire(token_id, 100) == (0, NOW + 100)
    assert world.expire(token_id, 100, now_ms=NOW + 101) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert world.expire(token_id, now_ms=NOW + 101) == (0, NOW + 101)


def test_only_users_renew() -> None:
    world = World()
    assert world.create(renewer_type="Group").error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not world.tokens


@pytest.mark.parametrize("owner_type", ["Foo", "user", "", None])
def test_only_users_own(owner_type: str | None) -> None:
    """Who logs in with a token is a user: rights to create tokens of `Foo:admin` made one `User:admin`."""
    world = World()
    assert world.create(owner="admin", owner_type=owner_type).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not world.tokens


def test_what_users_keep_in_the_metadata_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.core.controller.tokens.TOKENS_OF_OWNER_MAX", 3)
    world = World()
    assert [world.create(lifetime_ms=5).error_code for _ in range(4)] == [0, 0, 0, ErrorCode.POLICY_VIOLATION]
    assert world.create(owner="bob").error_code == 0, "other owners have their own"
    assert world.create(now_ms=NOW + 6).error_code == 0, "expired tokens do not count"
    longest = PRINCIPALS_BYTES_MAX - len("User:carol")
    assert world.create(owner="carol", renewer="r" * (longest + 1)).error_code == ErrorCode.POLICY_VIOLATION
    assert world.create(owner="carol", renewer="r" * longest).error_code == 0


def test_without_a_secret_or_with_old_metadata_there_are_no_tokens() -> None:
    assert World(delegation_tokens_enable=False).create().error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    old = World()
    old.state.image.features[METADATA_VERSION] = DELEGATION_TOKENS - 1
    assert old.create().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert old.renew("x")[0] == old.expire("x")[0] == ErrorCode.UNSUPPORTED_VERSION


def test_expired_tokens_are_removed_some_at_once() -> None:
    world = World()
    count = REMOVALS_MAX + 5
    ids = [world.create(lifetime_ms=5, owner=f"o{number % 2}").token_id for number in range(count)]
    kept = world.create().token_id
    assert world.control.sweep(TokenSweep(NOW + 5)).records == []
    first = world.control.sweep(TokenSweep(NOW + 6))
    assert first.response is True
    assert all(isinstance(record, RemoveDelegationTokenRecord) for record in first.records)
    at_once(world.state.replay(first.records, world.state.next_offset))
    second = world.control.sweep(TokenSweep(NOW + 6))
    assert second.response is False
    at_once(world.state.replay(second.records, world.state.next_offset))
    assert list(world.tokens) == [kept]
    assert {record.token_id for record in [*first.records, *second.records]} == set(ids)
