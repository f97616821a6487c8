"""WriteTxnMarkers (API key 27)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, int64, string


class _WritableTxnMarkerTopic(Struct):
    name: str = field(string, "0+")
    partition_indexes: list[int] = field(array(int32), "0+")


class _WritableTxnMarker(Struct):
    producer_id: int = field(int64, "0+")
    producer_epoch: int = field(int16, "0+")
    transaction_result: bool = field(boolean, "0+")
    topics: list[_WritableTxnMarkerTopic] = field(array(_WritableTxnMarkerTopic), "0+")
    coordinator_epoch: int = field(int32, "0+")
    transaction_version: int = field(int8, "2+", ignorable=True)


class WriteTxnMarkersRequest(Request, api_key=27, versions="1-2", flexible="1+", listeners=("broker",)):
    """WriteTxnMarkersRequest, versions 1-2."""

    WritableTxnMarkerTopic: TypeAlias = _WritableTxnMarkerTopic
    WritableTxnMarker: TypeAlias = _WritableTxnMarker

    markers: list[_WritableTxnMarker] = field(array(_WritableTxnMarker), "0+")


class _WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")


class _WritableTxnMarkerTopicResult(Struct):
    name: str = field(string, "0+")
    partitions: list[_WritableTxnMarkerPartitionResult] = field(array(_WritableTxnMarkerPartitionResult), "0+")


class _WritableTxnMarkerResult(Struct):
    producer_id: int = field(int64, "0+")
    topics: list[_WritableTxnMarkerTopicResult] = field(array(_WritableTxnMarkerTopicResult), "0+")


class WriteTxnMarkersResponse(Response, api_key=27, versions="1-2", flexible="1+"):
    """WriteTxnMarkersResponse, versions 1-2."""

    WritableTxnMarkerPartitionResult: TypeAlias = _WritableTxnMarkerPartitionResult
    WritableTxnMarkerTopicResult: TypeAlias = _WritableTxnMarkerTopicResult
    WritableTxnMarkerResult: TypeAlias = _WritableTxnMarkerResult

    markers: list[_WritableTxnMarkerResult] = field(array(_WritableTxnMarkerResult), "0+")
