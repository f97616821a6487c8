"""CreateDelegationToken (API key 38)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, bytes_, int16, int32, int64, string


class _CreatableRenewers(Struct):
    principal_type: str = field(string, "0+")
    principal_name: str = field(string, "0+")


class CreateDelegationTokenRequest(Request, api_key=38, versions="1-3", flexible="2+", listeners=("broker", "controller")):
    """CreateDelegationTokenRequest, versions 1-3."""

    CreatableRenewers: TypeAlias = _CreatableRenewers

    owner_principal_type: str | None = field(string, "3+", nullable="3+")
    owner_principal_name: str | None = field(string, "3+", nullable="3+")
    renewers: list[_CreatableRenewers] = field(array(_CreatableRenewers), "0+")
    max_lifetime_ms: int = field(int64, "0+")


class CreateDelegationTokenResponse(Response, api_key=38, versions="1-3", flexible="2+"):
    """CreateDelegationTokenResponse, versions 1-3."""

    error_code: int = field(int16, "0+")
    principal_type: str = field(string, "0+")
    principal_name: str = field(string, "0+")
    token_requester_principal_type: str = field(string, "3+")
    token_requester_principal_name: str = field(string, "3+")
    issue_timestamp_ms: int = field(int64, "0+")
    expiry_timestamp_ms: int = field(int64, "0+")
    max_timestamp_ms: int = field(int64, "0+")
    token_id: str = field(string, "0+")
    hmac: bytes = field(bytes_, "0+")
    throttle_time_ms: int = field(int32, "0+")
