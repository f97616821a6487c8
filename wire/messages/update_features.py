"""UpdateFeatures (API key 57)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, string


class _FeatureUpdateKey(Struct):
    feature: str = field(string, "0+", map_key=True)
    max_version_level: int = field(int16, "0+")
    allow_downgrade: bool = field(boolean, "0")
    upgrade_type: int = field(int8, "1+", default=1)


class UpdateFeaturesRequest(Request, api_key=57, versions="0-2", flexible="0+", listeners=("broker", "controller")):
    """UpdateFeaturesRequest, versions 0-2."""

    FeatureUpdateKey: TypeAlias = _FeatureUpdateKey

    timeout_ms: int = field(int32, "0+", default=60000)
    feature_updates: list[_FeatureUpdateKey] = field(array(_FeatureUpdateKey), "0+")
    validate_only: bool = field(boolean, "1+", default=False)


class _UpdatableFeatureResult(Struct):
    feature: str = field(string, "0+", map_key=True)
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")


class UpdateFeaturesResponse(Response, api_key=57, versions="0-2", flexible="0+"):
    """UpdateFeaturesResponse, versions 0-2."""

    UpdatableFeatureResult: TypeAlias = _UpdatableFeatureResult

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    results: list[_UpdatableFeatureResult] = field(array(_UpdatableFeatureResult), "0-1", ignorable=True)
