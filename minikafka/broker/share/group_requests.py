"""The APIs of share groups at their coordinator: ShareGroupHeartbeat, ShareGroupDescribe, and their start offsets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from minikafka.broker.coordinators.group_requests import GROUP_OPERATIONS, client_of
from minikafka.broker.share.settings import are_share_groups_enabled
from minikafka.core.group.config import SHARE
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from minikafka.broker.coordinators.group_coordinator import GroupHost
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.share.end_offsets import EndOffsets
    from minikafka.broker.share.persister import SharePersister

MEMBER_ID_MAX = 36
UNINITIALIZED = -1
_SIGN = 1 << 63
_Described = DescribeShareGroupOffsetsResponse
_Group = _Described.DescribeShareGroupOffsetsResponseGroup
_Topic = _Described.DescribeShareGroupOffsetsResponseTopic
_Partition = _Described.DescribeShareGroupOffsetsResponsePartition


def is_member_id(member_id: str | None) -> bool:
    """Whether this is a valid member id: 1 to 36 characters."""
    return member_id is not None and 0 < len(member_id) <= MEMBER_ID_MAX


class ShareGroupHandlers:
    """Translates between the wire and the shards. Answers UNSUPPORTED_VERSION while the feature `share.version` is 0."""

    def __init__(
        self, groups: GroupHost, metadata: MetadataHost, environment: Environment, persister: SharePersister, ends: EndOffsets
    ) -> None:
        self._groups = groups
        self._metadata = metadata
        self._clock = environment.clock
        self._persister = persister
        self._ends = ends

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve these APIs on a broker listener."""
        dispatcher.register(ShareGroupHeartbeatRequest, self.heartbeat, is_served=self._is_served)
        dispatcher.register(ShareGroupDescribeRequest, self.describe, is_served=self._is_served)
        dispatcher.register(DescribeShareGroupOffsetsRequest, self.describe_offsets, is_served=self._is_served)
        dispatcher.register(AlterShareGroupOffsetsRequest, self.alter_offsets, is_served=self._is_served)
        dispatcher.register(DeleteShareGroupOffsetsRequest, self.delete_offsets, is_served=self._is_served)

    def _is_served(self) -> bool:
        return are_share_groups_enabled(self._metadata.image)

    def heartbeat(self, context: RequestContext, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse | None:
        """Answer when the change, if any, is committed."""
        if not self._is_served():
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not is_member_id(request.member_id):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
        try:
            index, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return ShareGroupHeartbeatResponse(error_code=error.code)
        shard.shares.heartbeat(context, request, client_of(context), self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def describe(self, context: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
        """Describe share groups. Groups of other types are GROUP_ID_NOT_FOUND."""
        response = ShareGroupDescribeResponse(groups=[self._describe(group_id) for group_id in request.group_ids])
        for group in response.groups if request.include_authorized_operations else ():
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        return response

    def _describe(self, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
        try:
            if not self._is_served():
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            shard = self._groups.shard(group_id)[1]
            if shard.is_other(group_id, SHARE):
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
            return shard.shares.describe(group_id)
        except ApiError as error:
            message = error.message if error.code is ErrorCode.GROUP_ID_NOT_FOUND else None
            return ShareGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error.code, error_message=message)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def alter_offsets(self, context: RequestContext, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse | None:
        """Answer when the share coordinators have stored the new start offsets."""
        try:
            self._check(request.group_id)
            index, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.code.text)
        shard.shares.alter_offsets(context, request, self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def delete_offsets(self, context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse | None:
        """Answer when the share coordinators have deleted the state of the topics."""
        try:
            self._check(request.group_id)
            index, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.code.text)
        shard.shares.delete_offsets(context, request, self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def _check(self, group_id: str) -> None:
        if not self._is_served():
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)

    async def describe_offsets(
        self, context: RequestContext, request: DescribeShareGroupOffsetsRequest
    ) -> DescribeShareGroupOffsetsResponse:
        """Start offset and lag of each partition, from the share coordinators."""
        if not self._is_served():
            code = ErrorCode.UNSUPPORTED_VERSION
            return DescribeShareGroupOffsetsResponse(
                groups=[_Group(group_id=g.group_id, topics=[], error_code=code) for g in request.groups]
            )
        groups = await asyncio.gather(*(self._describe_group(group) for group in request.groups))
        return DescribeShareGroupOffsetsResponse(groups=list(groups))

    async def _describe_group(self, requested_group: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup) -> _Group:
        answer, image = _Group(group_id=requested_group.group_id, topics=[]), self._metadata.image
        topics: dict[bytes, list[int]] = {}
        unknown: list[_Topic] = []
        if requested_group.topics is None:
            try:
                group = self._groups.shard(requested_group.group_id)[1].shares.groups.get(requested_group.group_id)
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.code.text
                return answer
            initialized = {} if group is None else group.initialized
            topics = {topic_id: sorted(states.partitions) for topic_id, states in initialized.items() if topic_id in image.topics_by_id}
        else:
            for topic in requested_group.topics:
                found = image.topics_by_name.get(topic.topic_name)
                if found is not None:
                    topics.setdefault(found.topic_id, []).extend(topic.partitions)
                else:
                    partitions = [_Partition(partition_index=index, start_offset=UNINITIALIZED) for index in topic.partitions]
                    unknown.append(_Topic(topic_name=topic.topic_name, topic_id=bytes(16), partitions=partitions))
        answer.topics = [*await self._summaries(requested_group.group_id, topics), *unknown]
        return answer

    async def _summaries(self, group_id: str, topics: dict[bytes, list[int]]) -> list[_Topic]:
        kind = ReadShareGroupStateSummaryRequest
        requested: dict[bytes, list[Any]] = {
            topic_id: [kind.PartitionData(partition=index, leader_epoch=-1) for index in indexes] for topic_id, indexes in topics.items()
        }
        summaries = await self._persister.ask_all(kind, group_id, requested) if requested else {}
        with_lag = [key for key, summary in summaries.items() if _has_lag(summary)]
        ends = await self._ends.of(with_lag)
        answers = []
        for topic_id, indexes in topics.items():
            topic = self._metadata.image.topics_by_id.get(topic_id)
            partitions = [_described(index, summaries[topic_id, index], ends.get((topic_id, index))) for index in indexes]
            answers.append(_Topic(topic_name="" if topic is None else topic.name, topic_id=topic_id, partitions=partitions))
        return answers


def _has_lag(summary: Any) -> bool:
    return not summary.error_code and UNINITIALIZED not in (summary.start_offset, summary.delivery_complete_count)


def _described(index: int, summary: Any, end: tuple[ErrorCode, int] | None) -> _Partition:
    """The answer for one partition; `end` is None when its lag is unknown."""
    if summary.error_code:
        return _Partition(partition_index=index, start_offset=UNINITIALIZED, leader_epoch=0)
    if end is None:
        return _Partition(partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch)
    code, end_offset = end
    if code is not ErrorCode.NONE:
        return _Partition(partition_index=index, error_code=code, error_message=code.text)
    lag = _int64(end_offset - summary.start_offset - summary.delivery_complete_count)
    return _Partition(partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag)


def _int64(value: int) -> int:
    """The number as Java's long overflows: clients choose start offsets."""
    return (value + _SIGN) % (2 * _SIGN) - _SIGN
