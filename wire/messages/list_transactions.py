"""ListTransactions (API key 66)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string


class ListTransactionsRequest(Request, api_key=66, versions="0-2", flexible="0+", listeners=("broker",)):
    """ListTransactionsRequest, versions 0-2."""

    state_filters: list[str] = field(array(string), "0+")
    producer_id_filters: list[int] = field(array(int64), "0+")
    duration_filter: int = field(int64, "1+", default=-1)
    transactional_id_pattern: str | None = field(string, "2+", nullable="2+", default=None)


class _TransactionState(Struct):
    transactional_id: str = field(string, "0+")
    producer_id: int = field(int64, "0+")
    transaction_state: str = field(string, "0+")


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    """ListTransactionsResponse, versions 0-2."""

    TransactionState: TypeAlias = _TransactionState

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    unknown_state_filters: list[str] = field(array(string), "0+")
    transaction_states: list[_TransactionState] = field(array(_TransactionState), "0+")
