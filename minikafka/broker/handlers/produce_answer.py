"""Answers of Produce that its two ways have in common."""

from __future__ import annotations

from wire.errors import ErrorCode
from wire.messages.produce import ProduceResponse

ACKS_ALL = -1
TOPIC_ID_VERSION_MIN = 13

PartitionAnswer = ProduceResponse.PartitionProduceResponse


def fail(answer: PartitionAnswer, code: ErrorCode, message: str | None = None) -> None:
    """Turn an answer into one that names an error and no offset."""
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
