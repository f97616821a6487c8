"""Administration: topics, configurations, offsets, groups, leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from minikafka.addresses import host_port
from minikafka.client.cluster import BrokerInfo, Cluster, PartitionInfo, TopicInfo, ask_controllers
from minikafka.client.controllers import ControllerCluster
from minikafka.client.errors import BrokerError, ClientError, refusal
from minikafka.client.group import UNSETTLED_COORDINATOR, at_coordinator
from minikafka.client.group_descriptions import GroupDescription, classic_group, consumer_group
from minikafka.client.leaders import at_leader
from minikafka.client.repeating import repeat_until_settled
from minikafka.core.scram import SCRAM_MECHANISMS
from minikafka.net.channel import UnsupportedVersion
from minikafka.net.network import Network
from minikafka.wire.errors import ErrorCode, NotEncodable
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_records import DeleteRecordsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minikafka.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
SPECIAL_TIMESTAMPS = {"latest": -1, "earliest": -2, "max-timestamp": -3}
#: The last version of DeleteTopics that identifies topics by name only.
DELETE_TOPICS_VERSION_MAX = 5
OFFSET_FETCH_VERSION_MAX = 7
TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; `elr` and `last_known_elr` are empty if the cluster does not report them (KIP-966). `leader` -1: there is none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] = field(default_factory=list)
    last_known_elr: list[int] = field(default_factory=list)
    offline: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic, partitions in order of index."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionDescription]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerInfo]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One property; `source` is Kafka's number (1 topic, 2 broker, 3 cluster default, 4 static, 5 default, 7 client metrics, 8 group);
    `synonyms` are (source, name, value) of every place that sets the property, in order of precedence."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[int, str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """One result of ListOffsets; `timestamp` in milliseconds since 1970, -1 if the response carries none."""

    offset: int
    timestamp: int
    leader_epoch: int


class Admin:
    """Describes and changes a cluster. Use as `async with Admin(bootstrap)`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "minikafka-admin",
        timeout_ms: int = TIMEOUT_MS,
        network: Network | None = None,
        security: Mapping[str, str] | ClientSecurity | None = None,
    ) -> None:
        """`security`: Kafka's client properties (security.protocol, ssl.*, sasl.*). Raises ClientError."""
        make = ControllerCluster if ask_controllers.get() else Cluster
        self.cluster = make(bootstrap, client_id=client_id, request_timeout_ms=timeout_ms, network=network, security=security)
        self._timeout_ms = timeout_ms

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect. Raises NoBrokers."""
        await self.cluster.refresh([])

    async def close(self) -> None:
        """Disconnect."""
        await self.cluster.close()

    async def _ask(self, request: Any, version_max: int | None = None, node_id: int | None = None, *, timeout_ms: int | None = None) -> Any:
        channel = await (self.cluster.any_channel() if node_id is None else self.cluster.channel_to(node_id))
        try:
            return await channel.request(request, channel.version_for(request, version_max), timeout_ms or self._timeout_ms)
        except UnsupportedVersion as error:
            raise ClientError(str(error)) from error
        except NotEncodable as error:
            raise ClientError(f"{host_port(channel.host, channel.port)} cannot take the request: {error}") from error

    # -- cluster and topics ----------------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """Id, controller and brokers."""
        await self.cluster.refresh([])
        brokers = sorted(self.cluster.brokers.values(), key=lambda broker: broker.node_id)
        return ClusterDescription(self.cluster.cluster_id or "", self.cluster.controller_id, brokers)

    async def list_topics(self, *, with_internal: bool = True) -> list[str]:
        """The names of all topics, sorted."""
        response = await self.cluster.refresh(None)
        return sorted(t.name or "" for t in response.topics if with_internal or not t.is_internal)

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Topics sorted by name; all of them for None. Raises BrokerError for a name that does not exist."""
        channel = await self.cluster.any_channel()
        if names is not None and not list(names):
            return []
        if not channel.supports(DescribeTopicPartitionsRequest.API_KEY):
            return await self._describe_by_metadata(names)
        found: dict[str, TopicDescription] = {}
        wanted = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names] if names is not None else []
        if names is None:
            wanted = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in await self.list_topics()]
            if not wanted:
                return []
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None
        while True:
            response = await self._ask(DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=2000, cursor=cursor))
            for topic in response.topics:
                if topic.error_code:
                    raise refusal(topic.error_code, f"topic {topic.name}")
                partitions = [
                    PartitionDescription(
                        p.partition_index, p.leader_id, p.leader_epoch, list(p.replica_nodes), list(p.isr_nodes),
                        list(p.eligible_leader_replicas or []), list(p.last_known_elr or []), list(p.offline_replicas),
                    )
                    for p in topic.partitions
                ]  # fmt: skip
                described = found.get(topic.name)
                if described is not None:
                    described.partitions.extend(partitions)
                else:
                    found[topic.name] = TopicDescription(topic.name, topic.topic_id, topic.is_internal, partitions)
            if response.next_cursor is None:
                break
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
            )
        for entry in found.values():
            entry.partitions.sort(key=lambda p: p.index)
        return [found[name] for name in sorted(found)]

    async def _describe_by_metadata(self, names: Iterable[str] | None) -> list[TopicDescription]:
        wanted = None if names is None else list(names)
        response = await self.cluster.refresh(wanted)
        described = []
        for topic in sorted(response.topics, key=lambda t: t.name or ""):
            if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                raise refusal(topic.error_code, f"topic {topic.name}")
            partitions = [
                PartitionDescription(
                    p.partition_index,
                    p.leader_id,
                    p.leader_epoch,
                    list(p.replica_nodes),
                    list(p.isr_nodes),
                    offline=list(p.offline_replicas),
                )
                for p in sorted(topic.partitions, key=lambda p: p.partition_index)
            ]
            described.append(TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, partitions))
        return described

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignments: Mapping[int, list[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        wait: bool = True,
    ) -> None:
        """Create a topic; -1 means the cluster's default. With `wait`, return when every partition has a leader. If an attempt gets no
        response, it is repeated; if the topic then exists exactly as requested, the call succeeds. Raises BrokerError."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in sorted((assignments or {}).items())
            ],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
        )

        async def ask(broker_ms: int, wait_ms: int) -> tuple[ErrorCode, str | None]:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=broker_ms, validate_only=validate_only)
            answer = (await self._ask(request, timeout_ms=wait_ms)).topics[0]
            return ErrorCode(answer.error_code), answer.error_message

        async def is_done(code: ErrorCode) -> bool | None:
            return not validate_only and code is ErrorCode.TOPIC_ALREADY_EXISTS and await self._matches_request(topic)

        await repeat_until_settled(ask, is_done, self._timeout_ms, f"creating topic {name}")
        if wait and not validate_only:
            await self._wait_for_leaders(name)

    async def _matches_request(self, topic: CreateTopicsRequest.CreatableTopic) -> bool | None:
        """Whether the existing topic is what this request asks for; None while the broker has not yet learned of the topic."""
        found = await self._partitions_now(topic.name)
        if not found:
            return None
        assigned = {entry.partition_index: list(entry.broker_ids) for entry in topic.assignments}
        is_placed = {p.index: list(p.replicas) for p in found} == assigned if assigned else (
            topic.num_partitions in (-1, len(found))
            and all(topic.replication_factor in (-1, len(p.replicas)) for p in found)
        )  # fmt: skip
        if not is_placed or not topic.configs:
            return is_placed
        wanted = {entry.name: entry.value for entry in topic.configs}
        try:
            entries = await self.describe_configs(TOPIC, topic.name, list(wanted))
        except BrokerError:
            return False  # this user may not describe it
        return {entry.name: entry.value for entry in entries} == wanted

    async def _topic_now(self, name: str) -> TopicInfo | None:
        """A topic as one broker describes it now; None if the broker has none of that name."""
        self.cluster.topics.pop(name, None)
        await self.cluster.refresh([name])
        return self.cluster.topics.get(name)

    async def _partitions_now(self, name: str) -> list[PartitionInfo]:
        topic = await self._topic_now(name)
        return [] if topic is None else topic.partitions

    async def _topic_id_now(self, name: str) -> bytes | None:
        topic = await self._topic_now(name)
        return None if topic is None or not any(topic.topic_id) else topic.topic_id

    async def _wait_for_leaders(self, name: str) -> None:
        async def led() -> bool | None:
            await self.cluster.refresh([name])
            topic = self.cluster.topics.get(name)
            return True if topic is not None and topic.partitions and all(p.leader >= 0 for p in topic.partitions) else None

        await self.cluster.retry(led, self._timeout_ms)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. If an attempt gets no response, it is repeated; if the topic is then gone, the call succeeds. Raises
        BrokerError."""
        deleted_id: bytes | None = None

        async def ask(broker_ms: int, wait_ms: int) -> tuple[ErrorCode, str | None]:
            nonlocal deleted_id
            topic_id = await self._topic_id_now(name)
            if deleted_id and topic_id and topic_id != deleted_id:
                return ErrorCode.NONE, None  # a new topic has taken the name: it must not be deleted
            deleted_id = deleted_id or topic_id
            answer = await self._ask_to_delete(name, deleted_id, broker_ms, wait_ms)
            code = ErrorCode(answer.error_code)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code is ErrorCode.UNKNOWN_TOPIC_ID else code, answer.error_message

        async def is_done(code: ErrorCode) -> bool:
            return code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        await repeat_until_settled(ask, is_done, self._timeout_ms, f"deleting topic {name}")
        self.cluster.topics.pop(name, None)

    async def _ask_to_delete(self, name: str, topic_id: bytes | None, broker_ms: int, wait_ms: int) -> Any:
        """Delete by topic id if brokers support that: a broker with old metadata may still resolve the name to the deleted topic."""
        channel = await self.cluster.any_channel()
        if topic_id is not None and channel.version_for(DeleteTopicsRequest) > DELETE_TOPICS_VERSION_MAX:
            topic = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
            return (await self._ask(DeleteTopicsRequest(topics=[topic], timeout_ms=broker_ms), timeout_ms=wait_ms)).responses[0]
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=broker_ms)
        return (await self._ask(request, DELETE_TOPICS_VERSION_MAX, timeout_ms=wait_ms)).responses[0]

    async def create_partitions(self, name: str, count: int) -> None:
        """Grow a topic to `count` partitions. If an attempt gets no response, it is repeated; if the topic then has that many, the call
        succeeds. Raises BrokerError."""
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)

        async def ask(broker_ms: int, wait_ms: int) -> tuple[ErrorCode, str | None]:
            answer = (await self._ask(CreatePartitionsRequest(topics=[topic], timeout_ms=broker_ms), timeout_ms=wait_ms)).results[0]
            return ErrorCode(answer.error_code), answer.error_message

        async def is_done(code: ErrorCode) -> bool | None:
            if code is not ErrorCode.INVALID_PARTITIONS:
                return False
            now = len(await self._partitions_now(name))
            return None if now < count else now == count

        await repeat_until_settled(ask, is_done, self._timeout_ms, f"adding partitions to {name}")
        self.cluster.forget(name)

    async def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] | None, *, unclean: bool = False
    ) -> dict[tuple[str, int], ErrorCode]:
        """Elect preferred (or unclean) leaders, for all partitions if None is given. Returns the outcome of each partition."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions or []:
            topics.setdefault(topic, []).append(index)
        wanted = (
            None
            if partitions is None
            else [ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
        )
        response = await self._ask(
            ElectLeadersRequest(election_type=1 if unclean else 0, topic_partitions=wanted, timeout_ms=self._timeout_ms)
        )
        if response.error_code:
            raise refusal(response.error_code, "electing leaders")
        return {(t.topic, p.partition_id): ErrorCode(p.error_code) for t in response.replica_election_results for p in t.partition_result}

    # -- configurations --------------------------------------------------------------------------------------------

    async def describe_configs(self, resource_type: int, name: str, keys: list[str] | None = None) -> list[ConfigEntry]:
        """Properties of a topic (2), broker (4), client-metrics subscription (16) or group (32), or the levels of a broker's loggers (8).
        Raises BrokerError."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        response = await self._ask(request, node_id=self._own_broker(resource_type, name))
        answer = response.results[0]
        if answer.error_code:
            raise refusal(answer.error_code, f"configuration of {name}", answer.error_message)
        return [
            ConfigEntry(
                c.name, c.value, c.config_source, c.read_only, c.is_sensitive, tuple((s.source, s.name, s.value) for s in c.synonyms)
            )
            for c in answer.configs
        ]

    async def alter_configs(self, resource_type: int, name: str, changes: Iterable[tuple[str, str, str | None]]) -> None:
        """Apply (operation, property, value) changes; operations are set, delete, append, subtract. Raises BrokerError."""
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=OPERATIONS[operation], value=value)
            for operation, key, value in changes
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        node_id = self._own_broker(resource_type, name) if resource_type == BROKER_LOGGER else None
        response = await self._ask(IncrementalAlterConfigsRequest(resources=[resource]), node_id=node_id)
        answer = response.responses[0]
        if answer.error_code:
            raise refusal(answer.error_code, f"changing the configuration of {name}", answer.error_message)

    def _own_broker(self, resource_type: int, name: str) -> int | None:
        """The broker to ask about its own static properties and loggers, which only it can report; None: any broker."""
        is_own = resource_type in (BROKER, BROKER_LOGGER) and name.isdigit() and not isinstance(self.cluster, ControllerCluster)
        return int(name) if is_own else None

    # -- users -----------------------------------------------------------------------------------------------------

    async def describe_scram_credentials(self, users: Iterable[str] = ()) -> dict[str, dict[str, int]]:
        """user -> mechanism -> iterations; for all users if none is named. Raises BrokerError for a user without credentials."""
        kind = DescribeUserScramCredentialsRequest
        named = [kind.UserName(name=name) for name in users]
        response = await self._ask(kind(users=named or None))
        if response.error_code:
            raise refusal(response.error_code, "describing users", response.error_message)
        found = {}
        for result in response.results:
            if result.error_code:
                raise refusal(result.error_code, f"user {result.user}", result.error_message)
            found[result.user] = {_scram_name(info.mechanism): info.iterations for info in result.credential_infos}
        return found

    async def set_scram_credential(self, user: str, mechanism: str, *, password: str, salt: bytes, iterations: int) -> None:
        """Set a user's password for SCRAM-SHA-256 or SCRAM-SHA-512; only the salted password is sent. Raises BrokerError."""
        scram = SCRAM_MECHANISMS[mechanism]
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user,
            mechanism=scram.number,
            iterations=iterations,
            salt=salt,
            salted_password=scram.salted_password(password.encode(), salt, iterations) if iterations > 0 else b"",
        )
        await self._alter_user(user, AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    async def delete_scram_credential(self, user: str, mechanism: str) -> None:
        """Remove a user's password. Raises BrokerError when there is none."""
        kind = AlterUserScramCredentialsRequest
        deletion = kind.ScramCredentialDeletion(name=user, mechanism=SCRAM_MECHANISMS[mechanism].number)
        await self._alter_user(user, kind(deletions=[deletion]))

    async def _alter_user(self, user: str, request: AlterUserScramCredentialsRequest) -> None:
        for result in (await self._ask(request)).results:
            if result.error_code:
                raise refusal(result.error_code, f"changing the credentials of user {user}", result.error_message)

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def list_offsets(self, wanted: Mapping[tuple[str, int], str | int]) -> dict[tuple[str, int], ListedOffset]:
        """Offsets at "latest", "earliest", "max-timestamp" or at milliseconds since 1970. Raises BrokerError, TimeoutError."""
        keys = list(wanted)
        answers = await asyncio.gather(*(self._list_offset(topic, index, wanted[(topic, index)]) for topic, index in keys))
        return dict(zip(keys, answers, strict=True))

    async def _list_offset(self, topic: str, index: int, when: str | int) -> ListedOffset:
        timestamp = SPECIAL_TIMESTAMPS[when] if isinstance(when, str) else when

        async def ask(leader: int) -> ListedOffset:
            partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])])
            answer = (await self._ask(request, node_id=leader)).topics[0].partitions[0]
            if answer.error_code:
                raise refusal(answer.error_code, f"offsets of {topic}-{index}")
            return ListedOffset(answer.offset, answer.timestamp, answer.leader_epoch)

        return await at_leader(self.cluster, topic, index, ask)

    async def delete_records(self, wanted: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Delete the records before an offset (-1 = the high watermark). Returns the new low watermarks. Raises BrokerError."""
        return {(topic, index): await self._delete_records(topic, index, offset) for (topic, index), offset in wanted.items()}

    async def _delete_records(self, topic: str, index: int, offset: int) -> int:
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=self._timeout_ms
        )

        async def ask(leader: int) -> int:
            answer = (await self._ask(request, node_id=leader)).topics[0].partitions[0]
            if answer.error_code:
                raise refusal(answer.error_code, f"deleting records of {topic}-{index}")
            return int(answer.low_watermark)

        return await at_leader(self.cluster, topic, index, ask, self._timeout_ms)

    async def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> dict[int, Any]:
        """DescribeLogDirs of each broker."""
        await self.cluster.refresh([])
        chosen = list(brokers) if brokers is not None else sorted(self.cluster.brokers)
        return {node_id: await self._ask(DescribeLogDirsRequest(topics=None), node_id=node_id) for node_id in chosen}

    # -- groups ----------------------------------------------------------------------------------------------------

    async def list_groups(self) -> list[tuple[str, str, str]]:
        """(group id, protocol type, state) of every group, sorted by id. Raises BrokerError."""
        return [(group_id, protocol_type, state) for group_id, protocol_type, state, _ in await self.list_groups_with_types()]

    async def list_groups_with_types(self) -> list[tuple[str, str, str, str]]:
        """(group id, protocol type, state, type: classic, consumer, share or streams) of every group, sorted by id. Raises BrokerError."""
        await self.cluster.refresh([])
        found: dict[str, tuple[str, str, str, str]] = {}
        for node_id in sorted(self.cluster.brokers):
            for group in await self.cluster.retry(partial(self._groups_of, node_id), self._timeout_ms):
                found[group.group_id] = (group.group_id, group.protocol_type, group.group_state, group.group_type or "classic")
        return [found[name] for name in sorted(found)]

    async def _groups_of(self, node_id: int) -> list[Any] | None:
        """The groups that a broker coordinates; None while it reads their log."""
        response = await self._ask(ListGroupsRequest(), node_id=node_id)
        code = ErrorCode(response.error_code)
        if code in UNSETTLED_COORDINATOR:
            return None
        if code:
            raise refusal(code, f"groups of broker {node_id}")
        return list(response.groups)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """A group with its members, of the classic or the consumer protocol. Raises BrokerError."""
        return await at_coordinator(self.cluster, group_id, partial(self._describe_group, group_id), self._timeout_ms)

    async def _describe_group(self, group_id: str, coordinator: BrokerInfo) -> GroupDescription:
        response = await self._ask(DescribeGroupsRequest(groups=[group_id]), node_id=coordinator.node_id)
        group = response.groups[0]
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == "Dead":
            found = await self._consumer_group(group_id, coordinator)
            if found is not None:
                return found
        if group.error_code:
            raise refusal(group.error_code, f"group {group_id}", group.error_message)
        return classic_group(group, coordinator)

    async def _consumer_group(self, group_id: str, coordinator: BrokerInfo) -> GroupDescription | None:
        """A group of the consumer protocol (KIP-848); None if there is none, or if the broker does not support the protocol."""
        channel = await self.cluster.channel_to(coordinator.node_id)
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        try:
            version = channel.version_for(request, None)
        except UnsupportedVersion:
            return None
        response: Any = await channel.request(request, version, self._timeout_ms)
        group = response.groups[0]
        if group.error_code in UNSETTLED_COORDINATOR:
            raise refusal(group.error_code, f"group {group_id}", group.error_message)
        return None if group.error_code else consumer_group(group, coordinator)

    async def group_offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        """All committed offsets of a group. Raises BrokerError."""
        return {partition: offset for partition, (offset, _) in (await self.group_offsets_and_epochs(group_id)).items()}

    async def group_offsets_and_epochs(self, group_id: str) -> dict[tuple[str, int], tuple[int, int]]:
        """All committed offsets of a group as (offset, leader epoch); epoch -1: unknown. Raises BrokerError."""

        async def ask(coordinator: BrokerInfo) -> dict[tuple[str, int], tuple[int, int]]:
            response = await self._ask(OffsetFetchRequest(group_id=group_id, topics=None), OFFSET_FETCH_VERSION_MAX, coordinator.node_id)
            if response.error_code:
                raise BrokerError(ErrorCode(response.error_code), f"offsets of group {group_id}")
            return {
                (topic.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch)
                for topic in response.topics
                for p in topic.partitions
                if p.committed_offset >= 0
            }

        return await at_coordinator(self.cluster, group_id, ask, self._timeout_ms)


def _scram_name(number: int) -> str:
    return next((name for name, mechanism in SCRAM_MECHANISMS.items() if mechanism.number == number), f"mechanism {number}")
