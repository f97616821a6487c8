"""DescribeDelegationToken (API key 41)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, bytes_, int16, int32, int64, string


class _DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(string, "0+")
    principal_name: str = field(string, "0+")


class DescribeDelegationTokenRequest(Request, api_key=41, versions="1-3", flexible="2+", listeners=("broker", "controller")):
    """DescribeDelegationTokenRequest, versions 1-3."""

    DescribeDelegationTokenOwner: TypeAlias = _DescribeDelegationTokenOwner

    owners: list[_DescribeDelegationTokenOwner] | None = field(array(_DescribeDelegationTokenOwner), "0+", nullable="0+")


class _DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(string, "0+")
    principal_name: str = field(string, "0+")


class _DescribedDelegationToken(Struct):
    principal_type: str = field(string, "0+")
    principal_name: str = field(string, "0+")
    token_requester_principal_type: str = field(string, "3+")
    token_requester_principal_name: str = field(string, "3+")
    issue_timestamp: int = field(int64, "0+")
    expiry_timestamp: int = field(int64, "0+")
    max_timestamp: int = field(int64, "0+")
    token_id: str = field(string, "0+")
    hmac: bytes = field(bytes_, "0+")
    renewers: list[_DescribedDelegationTokenRenewer] = field(array(_DescribedDelegationTokenRenewer), "0+")


class DescribeDelegationTokenResponse(Response, api_key=41, versions="1-3", flexible="2+"):
    """DescribeDelegationTokenResponse, versions 1-3."""

    DescribedDelegationTokenRenewer: TypeAlias = _DescribedDelegationTokenRenewer
    DescribedDelegationToken: TypeAlias = _DescribedDelegationToken

    error_code: int = field(int16, "0+")
    tokens: list[_DescribedDelegationToken] = field(array(_DescribedDelegationToken), "0+")
    throttle_time_ms: int = field(int32, "0+")
