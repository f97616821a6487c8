"""AddPartitionsToTxn (API key 24)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, int64, string


class _AddPartitionsToTxnTopic(Struct):
    name: str = field(string, "0+", map_key=True)
    partitions: list[int] = field(array(int32), "0+")


class _AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(string, "4+", map_key=True)
    producer_id: int = field(int64, "4+")
    producer_epoch: int = field(int16, "4+")
    verify_only: bool = field(boolean, "4+", default=False)
    topics: list[_AddPartitionsToTxnTopic] = field(array(_AddPartitionsToTxnTopic), "4+")


class AddPartitionsToTxnRequest(Request, api_key=24, versions="0-5", flexible="3+", listeners=("broker",)):
    """AddPartitionsToTxnRequest, versions 0-5."""

    AddPartitionsToTxnTopic: TypeAlias = _AddPartitionsToTxnTopic
    AddPartitionsToTxnTransaction: TypeAlias = _AddPartitionsToTxnTransaction

    transactions: list[_AddPartitionsToTxnTransaction] = field(array(_AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = field(string, "0-3")
    v3_and_below_producer_id: int = field(int64, "0-3")
    v3_and_below_producer_epoch: int = field(int16, "0-3")
    v3_and_below_topics: list[_AddPartitionsToTxnTopic] = field(array(_AddPartitionsToTxnTopic), "0-3")


class _AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(int32, "0+", map_key=True)
    partition_error_code: int = field(int16, "0+")


class _AddPartitionsToTxnTopicResult(Struct):
    name: str = field(string, "0+", map_key=True)
    results_by_partition: list[_AddPartitionsToTxnPartitionResult] = field(array(_AddPartitionsToTxnPartitionResult), "0+")


class _AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(string, "4+", map_key=True)
    topic_results: list[_AddPartitionsToTxnTopicResult] = field(array(_AddPartitionsToTxnTopicResult), "4+")


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    """AddPartitionsToTxnResponse, versions 0-5."""

    AddPartitionsToTxnPartitionResult: TypeAlias = _AddPartitionsToTxnPartitionResult
    AddPartitionsToTxnTopicResult: TypeAlias = _AddPartitionsToTxnTopicResult
    AddPartitionsToTxnResult: TypeAlias = _AddPartitionsToTxnResult

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "4+", ignorable=True)
    results_by_transaction: list[_AddPartitionsToTxnResult] = field(array(_AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: list[_AddPartitionsToTxnTopicResult] = field(array(_AddPartitionsToTxnTopicResult), "0-3")
