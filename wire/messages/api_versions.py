"""ApiVersions (API key 18)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Request, api_key=18, versions="0-5", flexible="3+", listeners=("broker", "controller")):
    """ApiVersionsRequest, versions 0-5."""

    client_software_name: str = field(string, "3+", ignorable=True)
    client_software_version: str = field(string, "3+", ignorable=True)
    cluster_id: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)
    node_id: int = field(int32, "5+", default=-1, ignorable=True)


class _ApiVersion(Struct):
    api_key: int = field(int16, "0+", map_key=True)
    min_version: int = field(int16, "0+")
    max_version: int = field(int16, "0+")


class _SupportedFeatureKey(Struct):
    name: str = field(string, "3+", map_key=True)
    min_version: int = field(int16, "3+")
    max_version: int = field(int16, "3+")


class _FinalizedFeatureKey(Struct):
    name: str = field(string, "3+", map_key=True)
    max_version_level: int = field(int16, "3+")
    min_version_level: int = field(int16, "3+")


class ApiVersionsResponse(Response, api_key=18, versions="0-5", flexible="3+"):
    """ApiVersionsResponse, versions 0-5."""

    ApiVersion: TypeAlias = _ApiVersion
    SupportedFeatureKey: TypeAlias = _SupportedFeatureKey
    FinalizedFeatureKey: TypeAlias = _FinalizedFeatureKey

    error_code: int = field(int16, "0+")
    api_keys: list[_ApiVersion] = field(array(_ApiVersion), "0+")
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    supported_features: list[_SupportedFeatureKey] = field(array(_SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = field(int64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[_FinalizedFeatureKey] = field(array(_FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field(boolean, "3+", default=False, tag=3, ignorable=True)
