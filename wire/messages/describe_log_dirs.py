"""DescribeLogDirs (API key 35)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, int64, string


class _DescribableLogDirTopic(Struct):
    topic: str = field(string, "0+", map_key=True)
    partitions: list[int] = field(array(int32), "0+")


class DescribeLogDirsRequest(Request, api_key=35, versions="1-5", flexible="2+", listeners=("broker",)):
    """DescribeLogDirsRequest, versions 1-5."""

    DescribableLogDirTopic: TypeAlias = _DescribableLogDirTopic

    topics: list[_DescribableLogDirTopic] | None = field(array(_DescribableLogDirTopic), "0+", nullable="0+")


class _DescribeLogDirsPartition(Struct):
    partition_index: int = field(int32, "0+")
    partition_size: int = field(int64, "0+")
    offset_lag: int = field(int64, "0+")
    is_future_key: bool = field(boolean, "0+")


class _DescribeLogDirsTopic(Struct):
    name: str = field(string, "0+")
    partitions: list[_DescribeLogDirsPartition] = field(array(_DescribeLogDirsPartition), "0+")


class _DescribeLogDirsResult(Struct):
    error_code: int = field(int16, "0+")
    log_dir: str = field(string, "0+")
    topics: list[_DescribeLogDirsTopic] = field(array(_DescribeLogDirsTopic), "0+")
    total_bytes: int = field(int64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(int64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(boolean, "5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Response, api_key=35, versions="1-5", flexible="2+"):
    """DescribeLogDirsResponse, versions 1-5."""

    DescribeLogDirsPartition: TypeAlias = _DescribeLogDirsPartition
    DescribeLogDirsTopic: TypeAlias = _DescribeLogDirsTopic
    DescribeLogDirsResult: TypeAlias = _DescribeLogDirsResult

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "3+", ignorable=True)
    results: list[_DescribeLogDirsResult] = field(array(_DescribeLogDirsResult), "0+")
