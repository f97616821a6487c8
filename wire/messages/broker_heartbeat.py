"""BrokerHeartbeat (API key 63)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import array, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Request, api_key=63, versions="0-2", flexible="0+", listeners=("controller",)):
    """BrokerHeartbeatRequest, versions 0-2."""

    broker_id: int = field(int32, "0+")
    broker_epoch: int = field(int64, "0+", default=-1)
    current_metadata_offset: int = field(int64, "0+")
    want_fence: bool = field(boolean, "0+")
    want_shut_down: bool = field(boolean, "0+")
    offline_log_dirs: list[bytes] = field(array(uuid), "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(array(uuid), "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Response, api_key=63, versions="0-2", flexible="0+"):
    """BrokerHeartbeatResponse, versions 0-2."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    is_caught_up: bool = field(boolean, "0+", default=False)
    is_fenced: bool = field(boolean, "0+", default=True)
    should_shut_down: bool = field(boolean, "0+")
