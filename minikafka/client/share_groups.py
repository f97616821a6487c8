"""Admin requests for share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minikafka.addresses import host_port
from minikafka.client.errors import refusal
from minikafka.client.group import UNSETTLED_COORDINATOR, at_coordinator
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest

if TYPE_CHECKING:
    from minikafka.client.cluster import BrokerInfo
    from minikafka.client.maintenance import Maintenance

Partition = tuple[str, int]
TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group. `coordinator`: (host:port, node id). `members`: (member id, epoch, client id, host, topic -> partitions)."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    coordinator: tuple[str, int]
    members: list[tuple[str, int, str, str, dict[str, list[int]]]]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """A group's share-partition start offset; `lag` -1: unknown."""

    start_offset: int
    leader_epoch: int
    lag: int


def _only_group(response: Any) -> Any:
    return response.groups[0]


class ShareGroupAdmin:
    """Sends requests to the coordinators of share groups over an admin's connections. All methods raise BrokerError."""

    def __init__(self, admin: Maintenance) -> None:
        self._cluster = admin.cluster

    async def _ask(self, group_id: str, request: Any, what: str, result_of: Callable[[Any], Any]) -> tuple[BrokerInfo, Any]:
        """The coordinator, and the part of its response that has the group's error."""

        async def ask(coordinator: BrokerInfo) -> tuple[BrokerInfo, Any]:
            channel = await self._cluster.channel_to(coordinator.node_id)
            result = result_of(await channel.request(request, None, TIMEOUT_MS))
            if result.error_code:
                raise refusal(result.error_code, f"{what} {group_id}", result.error_message)
            return coordinator, result

        return await at_coordinator(self._cluster, group_id, ask, TIMEOUT_MS)

    async def describe(self, group_id: str) -> ShareGroupDescription:
        """A group with its members."""
        request = ShareGroupDescribeRequest(group_ids=[group_id])
        coordinator, group = await self._ask(group_id, request, "share group", _only_group)
        members = [
            (
                member.member_id, member.member_epoch, member.client_id, member.client_host,
                {topic.topic_name: list(topic.partitions) for topic in member.assignment.topic_partitions},
            )
            for member in group.members
        ]  # fmt: skip
        where = (host_port(coordinator.host, coordinator.port), coordinator.node_id)
        return ShareGroupDescription(group_id, group.group_state, group.group_epoch, group.assignment_epoch, where, members)

    async def offsets(self, group_id: str) -> dict[Partition, ShareOffset]:
        """The group's start offset of each partition."""
        kind = DescribeShareGroupOffsetsRequest
        wanted = kind.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        _, group = await self._ask(group_id, kind(groups=[wanted]), "offsets of share group", _only_group)
        return {
            (topic.topic_name, p.partition_index): ShareOffset(p.start_offset, p.leader_epoch, p.lag)
            for topic in group.topics
            for p in topic.partitions
            if not p.error_code
        }

    async def alter_offsets(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Set the start offsets of a group without members."""
        kind = AlterShareGroupOffsetsRequest
        topics: dict[str, list[Any]] = {}
        for (topic, index), offset in offsets.items():
            partition = kind.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            topics.setdefault(topic, []).append(partition)
        wanted = [kind.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows) for name, rows in topics.items()]

        def checked(response: Any) -> Any:
            for answer in response.responses:
                for p in answer.partitions:
                    if p.error_code:
                        raise refusal(p.error_code, f"altering {answer.topic_name}-{p.partition_index} of share group {group_id}")
            return response

        await self._ask(group_id, kind(group_id=group_id, topics=wanted), "altering offsets of share group", checked)

    async def delete_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Delete a group's offsets of whole topics. Returns the result of each topic."""
        kind = DeleteShareGroupOffsetsRequest
        wanted = [kind.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        what = "deleting offsets of share group"

        def checked(response: Any) -> Any:
            unsettled = [answer.error_code for answer in response.responses if answer.error_code in UNSETTLED_COORDINATOR]
            if unsettled:
                raise refusal(unsettled[0], f"{what} {group_id}")
            return response

        _, response = await self._ask(group_id, kind(group_id=group_id, topics=wanted), what, checked)
        return {answer.topic_name: ErrorCode(answer.error_code) for answer in response.responses}
