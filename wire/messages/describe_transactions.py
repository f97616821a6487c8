"""DescribeTransactions (API key 65)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string


class DescribeTransactionsRequest(Request, api_key=65, versions="0", flexible="0+", listeners=("broker",)):
    """DescribeTransactionsRequest, versions 0."""

    transactional_ids: list[str] = field(array(string), "0+")


class _TopicData(Struct):
    topic: str = field(string, "0+", map_key=True)
    partitions: list[int] = field(array(int32), "0+")


class _TransactionState(Struct):
    error_code: int = field(int16, "0+")
    transactional_id: str = field(string, "0+")
    transaction_state: str = field(string, "0+")
    transaction_timeout_ms: int = field(int32, "0+")
    transaction_start_time_ms: int = field(int64, "0+")
    producer_id: int = field(int64, "0+")
    producer_epoch: int = field(int16, "0+")
    topics: list[_TopicData] = field(array(_TopicData), "0+")


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    """DescribeTransactionsResponse, versions 0."""

    TopicData: TypeAlias = _TopicData
    TransactionState: TypeAlias = _TransactionState

    throttle_time_ms: int = field(int32, "0+")
    transaction_states: list[_TransactionState] = field(array(_TransactionState), "0+")
