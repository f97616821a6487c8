"""DescribeCluster (API key 60)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Request, api_key=60, versions="0-2", flexible="0+", listeners=("broker", "controller")):
    """DescribeClusterRequest, versions 0-2."""

    include_cluster_authorized_operations: bool = field(boolean, "0+")
    endpoint_type: int = field(int8, "1+", default=1)
    include_fenced_brokers: bool = field(boolean, "2+")


class _DescribeClusterBroker(Struct):
    broker_id: int = field(int32, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(int32, "0+")
    rack: str | None = field(string, "0+", nullable="0+", default=None)
    is_fenced: bool = field(boolean, "2+")


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    """DescribeClusterResponse, versions 0-2."""

    DescribeClusterBroker: TypeAlias = _DescribeClusterBroker

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    endpoint_type: int = field(int8, "1+", default=1)
    cluster_id: str = field(string, "0+")
    controller_id: int = field(int32, "0+", default=-1)
    brokers: list[_DescribeClusterBroker] = field(array(_DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = field(int32, "0+", default=-2147483648)
