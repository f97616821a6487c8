"""Odd requests, which the differential test drew: what Apache Kafka 4.4 answers to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers.live_node import broker_port, live_node

from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.describe_acls import DescribeAclsRequest
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.list_transactions import ListTransactionsRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
NO_OPERATIONS = -(1 << 31)
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_odd_requests(tmp_path: Path) -> None:
    async with live_node(tmp_path, AUTHORIZED) as node:
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="test")
        topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b")]
        await channel.request(CreateTopicsRequest(topics=topics, timeout_ms=5000))
        await _fetch(channel)
        await _describe_quorum(channel)
        await _describe_topics(channel)
        await _acls(channel)
        await _coordinators(channel)
        listed: Any = await channel.request(ListTransactionsRequest(state_filters=["x", "Empty", "x"]), 1)
        assert listed.unknown_state_filters == ["x"]
        channel.close()


async def _fetch(channel: Channel) -> None:
    """What names an unknown topic is not read, and has an empty list of aborted transactions; a wrong offset has none. A broker that is
    no replica is told so before its offset is looked at."""
    kind = FetchRequest

    async def fetched(topic: str, offset: int, isolation: int, replica_id: int = -1) -> tuple[ErrorCode, Any]:
        part = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
        request = kind(
            replica_id=replica_id, max_bytes=1000, isolation_level=isolation, session_epoch=-1,
            topics=[kind.FetchTopic(topic=topic, partitions=[part])],
        )  # fmt: skip
        answer: Any = await channel.request(request, 12)
        data = answer.responses[0].partitions[0]
        return ErrorCode(data.error_code), data.aborted_transactions

    for isolation in (0, 1):
        assert await fetched("none", 0, isolation) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        assert await fetched("a", 9, isolation) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
        assert await fetched("a", 0, isolation) == (ErrorCode.NONE, [] if isolation else None)
    assert await fetched("a", 9, 0, replica_id=7) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


async def _describe_quorum(channel: Channel) -> None:
    """The metadata log is described if nothing else is named."""
    kind = DescribeQuorumRequest

    async def described(*wanted: tuple[str, int]) -> list[ErrorCode]:
        topics = [kind.TopicData(topic_name=name, partitions=[kind.PartitionData(partition_index=index)]) for name, index in wanted]
        answer: Any = await channel.request(kind(topics=topics), 2)
        return [ErrorCode(partition.error_code) for topic in answer.topics for partition in topic.partitions]

    metadata, unknown = ("__cluster_metadata", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await described(metadata) == [ErrorCode.NONE]
    assert await described(metadata, ("a", 0)) == await described(metadata, metadata) == [unknown, unknown]


async def _describe_topics(channel: Channel) -> None:
    """A cursor must be at one of the topics. Who is refused is not told what he may do."""
    kind = DescribeTopicPartitionsRequest
    topics = [kind.TopicRequest(name="b")]
    for cursor, code in (("a", ErrorCode.INVALID_REQUEST), ("b", ErrorCode.NONE)):
        request = kind(topics=topics, response_partition_limit=10, cursor=kind.Cursor(topic_name=cursor, partition_index=0))
        answer: Any = await channel.request(request, 0)
        found = answer.topics[0]
        assert found.error_code == code and (found.topic_authorized_operations == NO_OPERATIONS) == (code is not ErrorCode.NONE)


async def _acls(channel: Channel) -> None:
    """There are no ACLs of types that only a newer broker knows; 0 is no type. An ACL is for a host."""
    kind = CreateAclsRequest
    acl = {"resource_type": 2, "resource_name": "a", "resource_pattern_type": 3, "operation": 3, "permission_type": 3}
    creations = [kind.AclCreation(principal="User:u", host=host, **acl) for host in ("", "*")]
    created: Any = await channel.request(kind(creations=creations), 3)
    assert [result.error_code for result in created.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    for resource_type, expected in ((1, (0, 1)), (99, (0, 0)), (0, (ErrorCode.INVALID_REQUEST, 0))):
        any_name = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        asked = DescribeAclsRequest(resource_type_filter=resource_type, pattern_type_filter=1, operation=1, permission_type=1, **any_name)
        answer: Any = await channel.request(asked, 3)
        assert (answer.error_code, len(answer.resources)) == expected


async def _coordinators(channel: Channel) -> None:
    """The state of share groups has coordinators from version 6 on. A pattern that is none is the last fault of a heartbeat. A session's
    time-out is looked at before the group."""
    kind, key = FindCoordinatorRequest, "g:AAAAAAAAAAAAAAAAAAAAAQ:0"
    refused: Any = await channel.request(kind(key_type=2, coordinator_keys=[key]), 5)
    assert [found.error_code for found in refused.coordinators] == [ErrorCode.INVALID_REQUEST]
    await channel.request(kind(key_type=0, coordinator_keys=["g"]), 6)

    async def beaten(**fields: Any) -> ErrorCode:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=1000, topic_partitions=[], subscribed_topic_regex="(", **fields
        )
        while (answer := await channel.request(request, 1)).error_code in (ErrorCode.NOT_COORDINATOR, LOADING):  # type: ignore[attr-defined]
            await asyncio.sleep(0.02)
        return ErrorCode(answer.error_code)  # type: ignore[attr-defined]

    assert await beaten(member_epoch=0, rack_id="") == ErrorCode.INVALID_REQUEST
    assert await beaten(member_epoch=0, server_assignor="none") == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert await beaten(member_epoch=-1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await beaten(member_epoch=0) == ErrorCode.INVALID_REGULAR_EXPRESSION

    share = ShareGroupHeartbeatRequest(group_id="s", member_id="m", subscribed_topic_names=["a"])
    while (joined := await channel.request(share, 1)).error_code == LOADING:  # type: ignore[attr-defined]
        await asyncio.sleep(0.02)
    assert joined.error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m", rebalance_timeout_ms=1000, topic_partitions=[], subscribed_topic_names=["a"]
    )
    while (joined := await channel.request(consumer, 1)).error_code == LOADING:  # type: ignore[attr-defined]
        await asyncio.sleep(0.02)
    assert joined.error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    unheard = JoinGroupRequest(group_id="c", session_timeout_ms=1, rebalance_timeout_ms=1)
    assert (await channel.request(unheard, 5)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT  # type: ignore[attr-defined]
    for timeout_ms, code in ((10_000_000, ErrorCode.INVALID_SESSION_TIMEOUT), (30_000, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)):
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range")]
        join = JoinGroupRequest(group_id="s", session_timeout_ms=timeout_ms, rebalance_timeout_ms=1, protocols=protocols)
        assert (await channel.request(join, 5)).error_code == code  # type: ignore[attr-defined]
