"""DeleteTopics (API key 20)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uuid


class _DeleteTopicState(Struct):
    name: str | None = field(string, "6+", nullable="6+", default=None)
    topic_id: bytes = field(uuid, "6+")


class DeleteTopicsRequest(Request, api_key=20, versions="1-6", flexible="4+", listeners=("broker", "controller")):
    """DeleteTopicsRequest, versions 1-6."""

    DeleteTopicState: TypeAlias = _DeleteTopicState

    topics: list[_DeleteTopicState] = field(array(_DeleteTopicState), "6+")
    topic_names: list[str] = field(array(string), "0-5", ignorable=True)
    timeout_ms: int = field(int32, "0+")


class _DeletableTopicResult(Struct):
    name: str | None = field(string, "0+", nullable="6+", map_key=True)
    topic_id: bytes = field(uuid, "6+", ignorable=True)
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, api_key=20, versions="1-6", flexible="4+"):
    """DeleteTopicsResponse, versions 1-6."""

    DeletableTopicResult: TypeAlias = _DeletableTopicResult

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    responses: list[_DeletableTopicResult] = field(array(_DeletableTopicResult), "0+")
