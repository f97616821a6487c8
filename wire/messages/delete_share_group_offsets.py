"""DeleteShareGroupOffsets (API key 92)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uuid


class _DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(string, "0+")


class DeleteShareGroupOffsetsRequest(Request, api_key=92, versions="0", flexible="0+", listeners=("broker",)):
    """DeleteShareGroupOffsetsRequest, versions 0."""

    DeleteShareGroupOffsetsRequestTopic: TypeAlias = _DeleteShareGroupOffsetsRequestTopic

    group_id: str = field(string, "0+")
    topics: list[_DeleteShareGroupOffsetsRequestTopic] = field(array(_DeleteShareGroupOffsetsRequestTopic), "0+")


class _DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(string, "0+")
    topic_id: bytes = field(uuid, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Response, api_key=92, versions="0", flexible="0+"):
    """DeleteShareGroupOffsetsResponse, versions 0."""

    DeleteShareGroupOffsetsResponseTopic: TypeAlias = _DeleteShareGroupOffsetsResponseTopic

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    responses: list[_DeleteShareGroupOffsetsResponseTopic] = field(array(_DeleteShareGroupOffsetsResponseTopic), "0+")
