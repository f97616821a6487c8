"""The group APIs: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch, and their admin side."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.coordinators.group_coordinator import GroupHost
from minikafka.core.group.classic import GroupState
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.checks import MEMBER_EPOCH_VERSION
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minikafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from minikafka.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minikafka.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from minikafka.wire.uuid import uuid_from_text

if TYPE_CHECKING:
    from minikafka.broker.coordinators.coordinator_host import CoordinatorHost
    from minikafka.broker.coordinators.transaction_coordinator import TransactionHost
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.group.coordinator import GroupShard

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
KEY_TYPE_SHARE = 2
#: The first version of FindCoordinator that asks for coordinators of share groups' state (KIP-932).
SHARE_VERSION_MIN = 6
#: OffsetCommit with topic ids instead of names.
COMMIT_IDS_VERSION = 10
#: All operations that an authorizer can grant on a group, as a bit set. Reported when there is no authorizer (KIP-430).
GROUP_OPERATIONS = 3400
OPERATIONS_VERSION_MIN = 3
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


class GroupHandlers:
    """Translates between the wire and the shards. A parked request is answered later through its context."""

    def __init__(
        self,
        groups: GroupHost,
        transactions: TransactionHost,
        metadata: MetadataHost,
        environment: Environment,
        shares: CoordinatorHost[Any],
    ) -> None:
        """`transactions`, `shares`: the coordinators of transactions and of share partitions."""
        self._groups = groups
        self._hosts: dict[int, CoordinatorHost[Any]] = {KEY_TYPE_GROUP: groups, KEY_TYPE_TRANSACTION: transactions, KEY_TYPE_SHARE: shares}
        self._metadata = metadata
        self._clock = environment.clock

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the group APIs on a broker listener."""
        dispatcher.register(FindCoordinatorRequest, self.find_coordinator)
        dispatcher.register(JoinGroupRequest, self.join_group)
        dispatcher.register(SyncGroupRequest, self.sync_group)
        dispatcher.register(HeartbeatRequest, self.heartbeat)
        dispatcher.register(LeaveGroupRequest, self.leave_group)
        dispatcher.register(OffsetCommitRequest, self.offset_commit)
        dispatcher.register(OffsetFetchRequest, self.offset_fetch)
        dispatcher.register(OffsetDeleteRequest, self.offset_delete)
        dispatcher.register(DescribeGroupsRequest, self.describe_groups)
        dispatcher.register(ListGroupsRequest, self.list_groups)
        dispatcher.register(DeleteGroupsRequest, self.delete_groups)

    # -- FindCoordinator -------------------------------------------------------------------------------------------

    async def find_coordinator(self, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        """One coordinator (v0-3) or one for each key (v4+, KIP-699)."""
        version = context.header.api_version
        batched = version >= 4
        keys = request.coordinator_keys if batched else [request.key]
        is_known = request.key_type != KEY_TYPE_SHARE or version >= SHARE_VERSION_MIN
        host = self._hosts.get(request.key_type) if is_known else None
        if keys and host is not None:
            await host.ensure_topic()
        found = [self._coordinator(host, key, request.key_type, context.listener) for key in keys]
        if batched:
            return FindCoordinatorResponse(coordinators=found)
        one = found[0]
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message if one.error_code else "NONE",
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _coordinator(
        self, host: CoordinatorHost[Any] | None, key: str, key_type: int, listener: str
    ) -> FindCoordinatorResponse.Coordinator:
        def failed(code: ErrorCode, message: str) -> FindCoordinatorResponse.Coordinator:
            return FindCoordinatorResponse.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)

        if host is None or (key_type == KEY_TYPE_SHARE and not _is_share_partition(key)):
            return failed(ErrorCode.INVALID_REQUEST, MALFORMED)
        leader = None if host.is_in_doubt(key) else host.topic.leader_of(key)
        broker = None if leader is None else self._metadata.image.brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(listener)
        if broker is None or endpoint is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return failed(code, code.text)
        return FindCoordinatorResponse.Coordinator(key=key, node_id=broker.broker_id, host=endpoint[0], port=endpoint[1], error_message="")

    # -- membership ------------------------------------------------------------------------------------------------

    def join_group(self, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
        """Parked until the join phase of the group ends."""
        if not request.group_id:
            return _join_error(context, request, ErrorCode.INVALID_GROUP_ID)
        try:
            index, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return _join_error(context, request, error.code)
        shard.join(context, request, client_of(context), self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def sync_group(self, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | None:
        """Parked until the leader's assignment is committed."""
        try:
            index, shard = self._shard_of(request.group_id)
        except ApiError as error:
            return SyncGroupResponse(error_code=error.code)
        shard.sync(context, request, client_of(context), self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answered at once."""
        try:
            index, shard = self._shard_of(request.group_id)
        except ApiError as error:
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
        response = shard.heartbeat(request, self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return response

    def leave_group(self, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | None:
        """Answered through the effects. The other members learn of the departure from their heartbeats."""
        try:
            index, shard = self._shard_of(request.group_id)
        except ApiError as error:
            return LeaveGroupResponse(error_code=error.code)
        shard.leave(context, request, context.header.api_version, self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def _shard_of(self, group_id: str) -> tuple[int, GroupShard]:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return self._groups.shard(group_id)

    # -- offsets ---------------------------------------------------------------------------------------------------

    def offset_commit(self, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
        """Answered when all in-sync replicas have the commit. The empty group id is allowed (KIP-289)."""
        try:
            index, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return _commit_error(request, error.code)
        version = context.header.api_version
        resolve = self._groups.resolve_topic_id if version >= COMMIT_IDS_VERSION else self._groups.resolve_topic
        shard.commit(context, request, version, resolve, self._clock.now_ms())
        self._groups.run_effects(index, shard)
        return None

    def offset_fetch(self, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """One group (v0-7) or several (v8+, KIP-709); a null topic list asks for all topics."""
        if context.header.api_version >= 8:
            return OffsetFetchResponse(groups=[self._fetch_group(context, group, request.require_stable) for group in request.groups])
        try:
            _, shard = self._groups.shard(request.group_id)
        except ApiError as error:
            return self._fetch_error_v7(context, request, error.code)
        requested = None if request.topics is None else [(t.name, t.partition_indexes) for t in request.topics]
        response = OffsetFetchResponse(topics=[])
        for name, indexes in self._requested_topics(shard, request.group_id, requested):
            partitions = []
            for index in indexes:
                is_unstable = request.require_stable and shard.offsets.is_open(request.group_id, name, index)
                committed = None if is_unstable else shard.offsets.get(request.group_id, name, index)
                partitions.append(
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE,
                        partition_index=index,
                        committed_offset=-1 if committed is None else committed.offset,
                        committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
                        metadata="" if committed is None else committed.metadata,
                    )
                )
            response.topics.append(OffsetFetchResponse.OffsetFetchResponseTopic(name=name, partitions=partitions))
        return response

    @staticmethod
    def _fetch_error_v7(context: RequestContext, request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
        if context.header.api_version >= 2:
            return OffsetFetchResponse(error_code=code)
        topics = [
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
        return OffsetFetchResponse(topics=topics)

    @staticmethod
    def _requested_topics(shard: GroupShard, group_id: str, topics: list[tuple[str, list[int]]] | None) -> list[tuple[str, list[int]]]:
        if topics is not None:
            return topics
        every: dict[str, list[int]] = {}
        for topic, index in shard.offsets.of_group(group_id):
            every.setdefault(topic, []).append(index)
        return list(every.items())

    def _fetch_group(
        self, context: RequestContext, group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, topics=[])
        try:
            _, shard = self._groups.shard(group.group_id)
            if context.header.api_version >= MEMBER_EPOCH_VERSION:
                shard.check_fetch(group.group_id, group.member_id, group.member_epoch)
        except ApiError as error:
            answer.error_code = error.code
            return answer
        by_id = context.header.api_version >= 10
        named: list[tuple[str, bytes | None, list[int]]]
        image = self._metadata.image
        if group.topics is None:
            named = [(name, None, indexes) for name, indexes in self._requested_topics(shard, group.group_id, None)]
        elif by_id:
            named = []
            for topic in group.topics:
                found = image.topics_by_id.get(topic.topic_id)
                named.append(("" if found is None else found.name, topic.topic_id, topic.partition_indexes))
            # In the order of Apache Kafka: topics with unknown ids come last.
            named.sort(key=lambda entry: not entry[0])
        else:
            named = [(topic.name, None, topic.partition_indexes) for topic in group.topics]

        def fetched(requested: tuple[str, bytes | None, list[int]]) -> OffsetFetchResponse.OffsetFetchResponseTopics:
            name, topic_id, indexes = requested
            if topic_id is None:
                existing = image.topics_by_name.get(name)
                topic_id = existing.topic_id if existing is not None else b"\0" * 16
            one = partial(_fetched, shard, group.group_id, name, unknown_topic_id=by_id and not name, require_stable=require_stable)
            return OffsetFetchResponse.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=lazy_list(indexes, one))

        if by_id:
            named = [requested for requested in named if requested[1] is not None or requested[0] in image.topics_by_name]
        answer.topics = lazy_list(named, fetched)
        return answer

    def offset_delete(self, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
        """OffsetDelete (KIP-496): answered when the tombstones are committed."""
        requested = [(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
        resolve = self._groups.resolve_topic
        existing = [key for key in requested if not isinstance(resolve(key[0], bytes(16), key[1]), ErrorCode)]
        try:
            index, shard = self._shard_of(request.group_id)
            results = shard.check_delete_offsets(request.group_id, existing)
        except ApiError as error:
            return OffsetDeleteResponse(error_code=error.code, topics=[])

        def done(code: ErrorCode) -> None:
            topics = [
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponse.OffsetDeleteResponsePartition(
                            partition_index=p.partition_index,
                            error_code=results.get((topic.name, p.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            context.respond(OffsetDeleteResponse(error_code=code, topics=topics))

        allowed = [key for key, code in results.items() if code is ErrorCode.NONE]
        self._groups.run_steps(index, shard, shard.delete_offsets(request.group_id, allowed, done))
        return None

    # -- admin -----------------------------------------------------------------------------------------------------

    def describe_groups(self, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Describe classic groups. A missing group is Dead, with GROUP_ID_NOT_FOUND from v6 on (KIP-1043)."""
        response = DescribeGroupsResponse(groups=[self._describe(context, group_id) for group_id in request.groups])
        if context.header.api_version >= OPERATIONS_VERSION_MIN and request.include_authorized_operations:
            for group in response.groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return response

    def _describe(self, context: RequestContext, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        described = DescribeGroupsResponse.DescribedGroup(group_id=group_id)
        try:
            _, shard = self._groups.shard(group_id)
        except ApiError as error:
            described.error_code = error.code
            return described
        group = shard.groups.get(group_id)
        if group is None:
            is_other = any(group_id in groups for groups in (shard.consumers.groups, shard.shares.groups, shard.streams.groups))
            described.group_state = GroupState.DEAD.value
            if context.header.api_version >= 6:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."
            return described
        stable = group.state is GroupState.STABLE
        described.group_state = group.state.value
        described.protocol_type = group.protocol_type or ""
        described.protocol_data = (group.protocol_name or "") if stable else ""
        kind, protocol_name = DescribeGroupsResponse.DescribedGroupMember, group.protocol_name
        described.members = lazy_list(
            group.members.values(),
            lambda member: kind(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_for(protocol_name) if stable else b"",
                member_assignment=member.assignment,
            ),
        )
        return described

    def list_groups(self, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups that this broker coordinates, filtered by state (v4+) and type (v5+)."""
        try:
            shards = self._groups.shards()
        except ApiError as error:
            return ListGroupsResponse(error_code=error.code)
        # Apache Kafka spells the state NotReady differently in this filter.
        states = {state.lower().replace("_", "") for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        found = [listed for shard in shards for listed in shard.listed()]
        if states or types:
            found = [one for one in found if (not states or one[2].lower() in states) and (not types or one[3] in types)]
        return ListGroupsResponse(groups=lazy_list(found, _listed))

    def delete_groups(self, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
        """Delete empty groups; answered when all tombstones are committed."""
        results = [DeleteGroupsResponse.DeletableGroupResult(group_id=name) for name in dict.fromkeys(request.groups_names)]
        waiting = len(results)

        def done(result: DeleteGroupsResponse.DeletableGroupResult, code: ErrorCode) -> None:
            nonlocal waiting
            result.error_code = code
            waiting -= 1
            if waiting == 0:
                context.respond(DeleteGroupsResponse(results=results))

        if not results:
            return DeleteGroupsResponse(results=[])
        for result in results:
            try:
                index, shard = self._groups.shard(result.group_id)
                work = shard.delete_group(result.group_id, lambda code, result=result: done(result, code))  # type: ignore[misc]
            except ApiError as error:
                done(result, error.code)
                continue
            self._groups.run_steps(index, shard, work)
        return None


def _listed(found: tuple[str, str, str, str]) -> ListGroupsResponse.ListedGroup:
    group_id, protocol_type, state, kind = found
    return ListGroupsResponse.ListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind)


def _fetched(
    shard: GroupShard, group_id: str, name: str, index: int, *, unknown_topic_id: bool, require_stable: bool
) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
    if require_stable and not unknown_topic_id and shard.offsets.is_open(group_id, name, index):
        return OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    committed = shard.offsets.get(group_id, name, index)
    if unknown_topic_id or committed is None:
        return OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.UNKNOWN_TOPIC_ID if unknown_topic_id else ErrorCode.NONE,
        )
    return OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _is_share_partition(key: str) -> bool:
    """Whether a key has the form of a share partition's: group, topic id and partition."""
    group_id, topic_id, partition = (*key.rsplit(":", 2), "", "")[:3]
    try:
        uuid_from_text(topic_id)
    except ValueError:
        return False
    return bool(group_id.strip()) and partition.isdecimal()


def client_of(context: RequestContext) -> Client:
    """The sender of a request, as the coordinators see it."""
    header = context.header
    host = context.connection.peer_host
    return Client(client_id=header.client_id or "", host=f"/{host}", version=header.api_version)


def _join_error(context: RequestContext, request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    protocol_name = None if context.header.api_version >= 7 else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol_name, member_id=request.member_id)


def _commit_error(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
