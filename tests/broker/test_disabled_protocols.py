"""With an authorizer, who may do nothing learns of a disabled group protocol that it is disabled, as from Apache Kafka 4.4 (KafkaApis)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.acl_node import acl_node, allow, channel_of, error_codes, set_acls

from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Request
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from minikafka.wire.messages.streams_group_topology_description_update import StreamsGroupTopologyDescriptionUpdateRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest

DISABLED, DENIED, INVALID = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST
MEMBER = "A" * 22
_Offsets = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
#: What a member, and who asks about groups, may send, by group type.
REQUESTS: dict[str, list[Request]] = {
    "consumer": [
        ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=MEMBER, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        ),
        ConsumerGroupDescribeRequest(group_ids=["g"]),
    ],
    "streams": [
        StreamsGroupHeartbeatRequest(
            group_id="g", member_id=MEMBER, rebalance_timeout_ms=1000, active_tasks=[], standby_tasks=[], warmup_tasks=[],
            topology=StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[]),
        ),
        StreamsGroupDescribeRequest(group_ids=["g"]),
        StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id=MEMBER),
    ],
    "share": [
        ShareGroupHeartbeatRequest(group_id="g", member_id=MEMBER, subscribed_topic_names=["t"]),
        ShareGroupDescribeRequest(group_ids=["g"]),
        ShareFetchRequest(group_id="g", member_id=MEMBER, topics=[], forgotten_topics_data=[]),
        ShareAcknowledgeRequest(group_id="g", member_id=MEMBER, topics=[]),
        DescribeShareGroupOffsetsRequest(groups=[_Offsets(group_id="g", topics=None)]),
        AlterShareGroupOffsetsRequest(group_id="g", topics=[]),
        DeleteShareGroupOffsetsRequest(group_id="g", topics=[]),
    ],
}  # fmt: skip


async def codes_of(channel: Any, requests: list[Request]) -> list[list[int]]:
    return [error_codes(await channel.request(request)) for request in requests]


@pytest.mark.parametrize("kind", ["consumer", "streams"])
async def test_a_protocol_that_the_broker_does_not_name_is_disabled_for_everybody(tmp_path: Path, kind: str) -> None:
    async with acl_node(tmp_path, group_coordinator_rebalance_protocols="classic") as node:
        alice = await channel_of(node, "alice")
        assert await codes_of(alice, REQUESTS[kind]) == [[DISABLED]] * len(REQUESTS[kind])
        alice.close()


async def test_share_groups_are_disabled_for_everybody_by_their_feature(tmp_path: Path) -> None:
    async with acl_node(tmp_path) as node:
        admin, alice = await channel_of(node, "admin"), await channel_of(node, "alice")
        assert await codes_of(alice, REQUESTS["share"]) == [[DENIED]] * len(REQUESTS["share"])
        level = UpdateFeaturesRequest.FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
        response: Any = await admin.request(UpdateFeaturesRequest(feature_updates=[level]))
        assert response.error_code == ErrorCode.NONE
        assert await node.metadata.wait_until(lambda image: not image.features.get("share.version"), 5000)
        assert await codes_of(alice, REQUESTS["share"]) == [[DISABLED]] * len(REQUESTS["share"])
        admin.close()
        alice.close()


async def test_a_bad_member_id_counts_before_topics(tmp_path: Path) -> None:
    async with acl_node(tmp_path) as node:
        set_acls(node, [allow(ResourceType.GROUP, "g", Operation.READ)])
        alice = await channel_of(node, "alice")
        beats: list[Request] = [
            ShareGroupHeartbeatRequest(group_id="g", member_id=member_id, subscribed_topic_names=["t"]) for member_id in ("A" * 37, MEMBER)
        ]
        assert await codes_of(alice, beats) == [[INVALID], [ErrorCode.TOPIC_AUTHORIZATION_FAILED]]
        alice.close()


@pytest.mark.parametrize("kind", list(REQUESTS))
async def test_who_has_no_permission_is_refused_where_the_protocol_is_enabled(tmp_path: Path, kind: str) -> None:
    async with acl_node(tmp_path) as node:
        alice = await channel_of(node, "alice")
        assert await codes_of(alice, REQUESTS[kind]) == [[DENIED]] * len(REQUESTS[kind])
        alice.close()
