"""The rows of acl_rows.py for the APIs of share groups."""

from __future__ import annotations

from typing import Any

from helpers.acl_node import on_cluster
from helpers.acl_rows import CLUSTER_DENIED, Row, needs

from minikafka.core.authorizer.acl import Operation as Op
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest

_STATES: tuple[tuple[Any, str, dict[str, Any]], ...] = (
    (InitializeShareGroupStateRequest, "InitializeStateData", {"state_epoch": 1, "start_offset": 0}),
    (ReadShareGroupStateRequest, "ReadStateData", {"leader_epoch": 0}),
    (
        WriteShareGroupStateRequest, "WriteStateData",
        {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": []},
    ),
    (DeleteShareGroupStateRequest, "DeleteStateData", {}),
    (ReadShareGroupStateSummaryRequest, "ReadStateSummaryData", {"leader_epoch": 0}),
)  # fmt: skip


def share_rows() -> dict[str, Row]:
    def states(request: Any, kind: str, fields: dict[str, Any]) -> Row:
        def make(topic_id: bytes) -> Any:
            partition = request.PartitionData(partition=0, **fields)
            return request(group_id="g", topics=[getattr(request, kind)(topic_id=topic_id, partitions=[partition])])

        return Row(make, needs(CLUSTER_DENIED, on_cluster(Op.CLUSTER_ACTION)))

    return {request.__name__.removesuffix("Request"): states(request, kind, fields) for request, kind, fields in _STATES}
