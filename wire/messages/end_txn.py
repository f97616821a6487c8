"""EndTxn (API key 26)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import boolean, int16, int32, int64, string


class EndTxnRequest(Request, api_key=26, versions="0-5", flexible="3+", listeners=("broker",)):
    """EndTxnRequest, versions 0-5."""

    transactional_id: str = field(string, "0+")
    producer_id: int = field(int64, "0+")
    producer_epoch: int = field(int16, "0+")
    committed: bool = field(boolean, "0+")


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    """EndTxnResponse, versions 0-5."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    producer_id: int = field(int64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(int16, "5+", default=-1, ignorable=True)
