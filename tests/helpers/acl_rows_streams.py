"""The rows of acl_rows.py for the APIs of streams groups."""

from __future__ import annotations

from helpers.acl_rows import GROUP_DENIED, TOPIC_DENIED, Row, group, needs, topic
from helpers.streams_group_world import subtopology, topology

from minikafka.core.authorizer.acl import Operation as Op
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from minikafka.wire.messages.streams_group_topology_description_update import StreamsGroupTopologyDescriptionUpdateRequest


def streams_rows() -> dict[str, Row]:
    def join(_: bytes) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, endpoint_information_epoch=0, rebalance_timeout_ms=1000,
            topology=topology(subtopology("0", "t")), active_tasks=[], standby_tasks=[], warmup_tasks=[], process_id="p",
        )  # fmt: skip

    return {
        "StreamsGroupHeartbeat": Row(join, (*needs(GROUP_DENIED, group(Op.READ)), *needs(TOPIC_DENIED, topic(Op.DESCRIBE)))),
        "StreamsGroupDescribe": Row(
            # The group that the row before has made.
            lambda _: StreamsGroupDescribeRequest(group_ids=["g"]),
            (*needs(GROUP_DENIED, group(Op.DESCRIBE)), *needs(TOPIC_DENIED, topic(Op.DESCRIBE))),
        ),
        "StreamsGroupTopologyDescriptionUpdate": Row(
            lambda _: StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id="m"), needs(GROUP_DENIED, group(Op.READ))
        ),
    }
