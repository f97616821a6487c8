"""Error responses for share group requests that fail as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest, InitializeShareGroupStateResponse
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from minikafka.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse

Builder = Callable[[Any, int, ErrorCode, "str | None"], Any]


def _of_states(response: Any, result: Any) -> Builder:
    """Give every share partition the error."""

    def build(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
        def failed(index: int) -> Any:
            return response.PartitionResult(partition=index, error_code=code, error_message=message or code.text)

        topics = [(topic.topic_id, [failed(p.partition) for p in topic.partitions]) for topic in request.topics]
        return response(results=[result(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics])

    return build


SHARE_BUILDERS: Mapping[type, Builder] = {
    InitializeShareGroupStateRequest: _of_states(
        InitializeShareGroupStateResponse, InitializeShareGroupStateResponse.InitializeStateResult
    ),
    ReadShareGroupStateRequest: _of_states(ReadShareGroupStateResponse, ReadShareGroupStateResponse.ReadStateResult),
    WriteShareGroupStateRequest: _of_states(WriteShareGroupStateResponse, WriteShareGroupStateResponse.WriteStateResult),
    DeleteShareGroupStateRequest: _of_states(DeleteShareGroupStateResponse, DeleteShareGroupStateResponse.DeleteStateResult),
    ReadShareGroupStateSummaryRequest: _of_states(
        ReadShareGroupStateSummaryResponse, ReadShareGroupStateSummaryResponse.ReadStateSummaryResult
    ),
}
