"""Error answers shared by the ordinary and the fast path of Produce."""

from __future__ import annotations

from minikafka.storage.validation import RefusedRecords
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.produce import ProduceResponse

ACKS_ALL = -1
TOPIC_ID_VERSION_MIN = 13

PartitionAnswer = ProduceResponse.PartitionProduceResponse


def fail(answer: PartitionAnswer, code: ErrorCode, message: str | None = None) -> None:
    """Turn an answer into one with an error and without an offset."""
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def refuse(answer: PartitionAnswer, error: ApiError) -> None:
    """Like `fail`, with the error's message and, if single records are the reason, their errors (KIP-467)."""
    fail(answer, error.code, error.message if error.message != error.code.text else None)
    if isinstance(error, RefusedRecords):
        kind = ProduceResponse.BatchIndexAndErrorMessage
        answer.record_errors = [kind(batch_index=index, batch_index_error_message=reason) for index, reason in error.record_errors]
