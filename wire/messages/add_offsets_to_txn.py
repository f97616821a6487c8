"""AddOffsetsToTxn (API key 25)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, api_key=25, versions="0-4", flexible="3+", listeners=("broker",)):
    """AddOffsetsToTxnRequest, versions 0-4."""

    transactional_id: str = field(string, "0+")
    producer_id: int = field(int64, "0+")
    producer_epoch: int = field(int16, "0+")
    group_id: str = field(string, "0+")


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    """AddOffsetsToTxnResponse, versions 0-4."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
