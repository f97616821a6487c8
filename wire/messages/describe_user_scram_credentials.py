"""DescribeUserScramCredentials (API key 50)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class _UserName(Struct):
    name: str = field(string, "0+")


class DescribeUserScramCredentialsRequest(Request, api_key=50, versions="0", flexible="0+", listeners=("broker", "controller")):
    """DescribeUserScramCredentialsRequest, versions 0."""

    UserName: TypeAlias = _UserName

    users: list[_UserName] | None = field(array(_UserName), "0+", nullable="0+")


class _CredentialInfo(Struct):
    mechanism: int = field(int8, "0+")
    iterations: int = field(int32, "0+")


class _DescribeUserScramCredentialsResult(Struct):
    user: str = field(string, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    credential_infos: list[_CredentialInfo] = field(array(_CredentialInfo), "0+")


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    """DescribeUserScramCredentialsResponse, versions 0."""

    CredentialInfo: TypeAlias = _CredentialInfo
    DescribeUserScramCredentialsResult: TypeAlias = _DescribeUserScramCredentialsResult

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    results: list[_DescribeUserScramCredentialsResult] = field(array(_DescribeUserScramCredentialsResult), "0+")
