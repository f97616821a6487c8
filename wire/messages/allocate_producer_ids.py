"""AllocateProducerIds (API key 67)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import int16, int32, int64


class AllocateProducerIdsRequest(Request, api_key=67, versions="0", flexible="0+", listeners=("controller",)):
    """AllocateProducerIdsRequest, versions 0."""

    broker_id: int = field(int32, "0+")
    broker_epoch: int = field(int64, "0+", default=-1)


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    """AllocateProducerIdsResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    producer_id_start: int = field(int64, "0+")
    producer_id_len: int = field(int32, "0+")
