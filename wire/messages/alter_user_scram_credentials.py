"""AlterUserScramCredentials (API key 51)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, bytes_, int8, int16, int32, string


class _ScramCredentialDeletion(Struct):
    name: str = field(string, "0+")
    mechanism: int = field(int8, "0+")


class _ScramCredentialUpsertion(Struct):
    name: str = field(string, "0+")
    mechanism: int = field(int8, "0+")
    iterations: int = field(int32, "0+")
    salt: bytes = field(bytes_, "0+")
    salted_password: bytes = field(bytes_, "0+")


class AlterUserScramCredentialsRequest(Request, api_key=51, versions="0", flexible="0+", listeners=("broker", "controller")):
    """AlterUserScramCredentialsRequest, versions 0."""

    ScramCredentialDeletion: TypeAlias = _ScramCredentialDeletion
    ScramCredentialUpsertion: TypeAlias = _ScramCredentialUpsertion

    deletions: list[_ScramCredentialDeletion] = field(array(_ScramCredentialDeletion), "0+")
    upsertions: list[_ScramCredentialUpsertion] = field(array(_ScramCredentialUpsertion), "0+")


class _AlterUserScramCredentialsResult(Struct):
    user: str = field(string, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    """AlterUserScramCredentialsResponse, versions 0."""

    AlterUserScramCredentialsResult: TypeAlias = _AlterUserScramCredentialsResult

    throttle_time_ms: int = field(int32, "0+")
    results: list[_AlterUserScramCredentialsResult] = field(array(_AlterUserScramCredentialsResult), "0+")
