"""Less common admin requests: moving replicas, electing leaders, the metadata quorum, features, offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.client.admin import Admin
from minikafka.client.cluster import BrokerInfo
from minikafka.client.controllers import ENDPOINT_CONTROLLER, ControllerCluster
from minikafka.client.errors import BrokerError, refusal
from minikafka.client.group import UNSETTLED_COORDINATOR, at_coordinator
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_raft_voter import AddRaftVoterRequest
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_delete import OffsetDeleteRequest
from minikafka.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.messages.unregister_controller import UnregisterControllerRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest

Partition = tuple[str, int]
METADATA_TOPIC = "__cluster_metadata"
OFFSET_COMMIT_VERSION_MAX = 9


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one item of a request; `message` is the broker's, or else the standard text of the code."""

    code: ErrorCode
    message: str

    @property
    def is_good(self) -> bool:
        """Whether the item succeeded."""
        return self.code is ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is being reassigned: all its replicas, and those being added and removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


@dataclass(frozen=True, slots=True)
class FeatureState:
    """A feature: the versions that the broker supports, the finalized level (None = not finalized), and the epoch of that."""

    name: str
    min_version: int
    max_version: int
    level: int | None
    epoch: int


def _outcome(code: int, message: str | None = None) -> Outcome:
    error = ErrorCode(code)
    return Outcome(error, message or error.text)


class Maintenance(Admin):
    """An Admin with the requests that operators need now and then."""

    async def alter_reassignments(
        self, wanted: Mapping[Partition, list[int] | None], timeout_ms: int | None = None
    ) -> dict[Partition, Outcome]:
        """Give partitions these replicas; None cancels a move. Raises BrokerError if the whole request is refused, or if it names only one
        partition and that one is refused."""
        topics: dict[str, list[Any]] = {}
        for (topic, index), replicas in wanted.items():
            entry = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
            topics.setdefault(topic, []).append(entry)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms or self._timeout_ms,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=entries) for name, entries in topics.items()
            ],
        )
        response = await self._ask(request)
        if response.error_code:
            raise refusal(response.error_code, "moving replicas", response.error_message)
        found = {(t.name, p.partition_index): _outcome(p.error_code, p.error_message) for t in response.responses for p in t.partitions}
        if len(found) == 1:
            (topic, index), outcome = next(iter(found.items()))
            if not outcome.is_good and outcome.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                raise refusal(outcome.code, f"moving replicas of {topic}-{index}", outcome.message)
        return found

    async def list_reassignments(self, partitions: Iterable[Partition] | None = None) -> dict[Partition, Reassignment]:
        """The reassignments under way, of all partitions or of these. Raises BrokerError."""
        topics = None
        if partitions is not None:
            named: dict[str, list[int]] = {}
            for topic, index in partitions:
                named.setdefault(topic, []).append(index)
            topics = [
                ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in named.items()
            ]
        response = await self._ask(ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=topics))
        if response.error_code:
            raise refusal(response.error_code, "listing reassignments", response.error_message)
        return {
            (topic.name, p.partition_index): Reassignment(list(p.replicas), list(p.adding_replicas), list(p.removing_replicas))
            for topic in response.topics
            for p in topic.partitions
        }

    async def alter_log_dirs(self, node_id: int, places: Mapping[Partition, str]) -> dict[Partition, ErrorCode]:
        """Move replicas of a broker to these log directories of it. Returns the result of each partition: REPLICA_NOT_AVAILABLE if the
        broker does not have it yet, and will create it there. Raises BrokerError."""
        kind = AlterReplicaLogDirsRequest
        wanted: dict[str, dict[str, list[int]]] = {}
        for (topic, index), path in places.items():
            wanted.setdefault(path, {}).setdefault(topic, []).append(index)
        dirs = [
            kind.AlterReplicaLogDir(path=path, topics=[kind.AlterReplicaLogDirTopic(name=t, partitions=rows) for t, rows in topics.items()])
            for path, topics in wanted.items()
        ]
        response = await self._ask(kind(dirs=dirs), node_id=node_id)
        return {(t.topic_name, p.partition_index): ErrorCode(p.error_code) for t in response.results for p in t.partitions}

    async def elect(self, partitions: Iterable[Partition] | None, *, unclean: bool) -> dict[Partition, Outcome]:
        """Elect preferred (or unclean) leaders, for all partitions if None is given. Raises BrokerError if the whole request is refused."""
        wanted = None
        if partitions is not None:
            topics: dict[str, list[int]] = {}
            for topic, index in partitions:
                topics.setdefault(topic, []).append(index)
            wanted = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
        request = ElectLeadersRequest(election_type=1 if unclean else 0, topic_partitions=wanted, timeout_ms=self._timeout_ms)
        response = await self._ask(request)
        if response.error_code:
            raise refusal(response.error_code, "electing leaders")
        return {
            (topic.topic, p.partition_id): _outcome(p.error_code, p.error_message)
            for topic in response.replica_election_results
            for p in topic.partition_result
        }

    async def delete_records_of(self, wanted: Mapping[Partition, int]) -> dict[Partition, int | Outcome]:
        """Delete the records before an offset (-1 = the high watermark). Returns each partition's new low watermark, or its error."""
        found: dict[Partition, int | Outcome] = {}
        for (topic, index), offset in wanted.items():
            await self.cluster.leader(topic, index)  # a topic that does not exist ends the command
            try:
                found[(topic, index)] = await self._delete_records(topic, index, offset)
            except BrokerError as error:
                found[(topic, index)] = _outcome(error.code)
        return found

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members. Raises BrokerError."""

        async def ask(coordinator: BrokerInfo) -> None:
            response = await self._ask(DeleteGroupsRequest(groups_names=[group_id]), node_id=coordinator.node_id)
            answer = response.results[0]
            if answer.error_code:
                raise refusal(answer.error_code, f"deleting group {group_id}")

        await at_coordinator(self.cluster, group_id, ask, self._timeout_ms)

    async def commit_offsets(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Set the offsets of a group without members. Raises BrokerError for the first partition that is refused."""
        topics: dict[str, list[Any]] = {}
        for (topic, index), offset in offsets.items():
            entry = OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            topics.setdefault(topic, []).append(entry)
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

        async def ask(coordinator: BrokerInfo) -> None:
            response = await self._ask(request, OFFSET_COMMIT_VERSION_MAX, coordinator.node_id)
            for topic in response.topics:
                for p in topic.partitions:
                    if p.error_code:
                        raise refusal(p.error_code, f"setting the offset of {topic.name}-{p.partition_index} for group {group_id}")

        await at_coordinator(self.cluster, group_id, ask, self._timeout_ms)

    async def delete_offsets(self, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, ErrorCode]:
        """Delete a group's offsets. Returns the result of each partition. Raises BrokerError if the group is refused."""
        topics: dict[str, list[Any]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

        async def ask(coordinator: BrokerInfo) -> dict[Partition, ErrorCode]:
            response = await self._ask(request, node_id=coordinator.node_id)
            codes = {(t.name, p.partition_index): ErrorCode(p.error_code) for t in response.topics for p in t.partitions}
            unsettled = [code for code in codes.values() if code in UNSETTLED_COORDINATOR]
            if response.error_code or unsettled:
                raise refusal(response.error_code or unsettled[0], f"deleting offsets of group {group_id}")
            return codes

        return await at_coordinator(self.cluster, group_id, ask, self._timeout_ms)

    # -- quorum ----------------------------------------------------------------------------------------------------

    async def describe_quorum(self) -> Any:
        """DescribeQuorumResponse of the metadata log. Raises BrokerError."""
        topic = DescribeQuorumRequest.TopicData(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
        )
        response = await self._ask(DescribeQuorumRequest(topics=[topic]))
        code = response.error_code or response.topics[0].partitions[0].error_code
        if code:
            raise refusal(code, "the metadata quorum", getattr(response, "error_message", None))
        return response

    async def add_controller(self, cluster_id: str, node_id: int, directory_id: bytes, listeners: list[tuple[str, str, int]]) -> None:
        """Add a voter (KIP-853). Raises BrokerError."""
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self._timeout_ms,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[AddRaftVoterRequest.Listener(name=name, host=host, port=port) for name, host, port in listeners],
        )
        response = await self._ask(request)
        if response.error_code:
            raise refusal(response.error_code, f"adding controller {node_id}", response.error_message)

    async def remove_controller(self, cluster_id: str, node_id: int, directory_id: bytes) -> None:
        """Remove a voter (KIP-853). Raises BrokerError."""
        response = await self._ask(RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id))
        if response.error_code:
            raise refusal(response.error_code, f"removing controller {node_id}", response.error_message)

    # -- cluster ---------------------------------------------------------------------------------------------------

    async def describe_nodes(self, *, include_fenced: bool = False) -> Any:
        """DescribeClusterResponse. Raises BrokerError."""
        channel = await self.cluster.any_channel()
        request = DescribeClusterRequest()
        if isinstance(self.cluster, ControllerCluster):
            request.endpoint_type = ENDPOINT_CONTROLLER
        if include_fenced and channel.version_for(request) >= 2:
            request.include_fenced_brokers = True
        response = await self._ask(request)
        if response.error_code:
            raise refusal(response.error_code, "the cluster", response.error_message)
        return response

    async def unregister(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not return. Raises BrokerError."""
        response = await self._ask(UnregisterBrokerRequest(broker_id=broker_id))
        if response.error_code:
            raise refusal(response.error_code, f"unregistering broker {broker_id}", response.error_message)

    async def unregister_controller(self, controller_id: int) -> None:
        """Remove the registration of a controller that will not return (KIP-1312). Raises BrokerError."""
        response = await self._ask(UnregisterControllerRequest(controller_id=controller_id))
        if response.error_code:
            raise refusal(response.error_code, f"unregistering controller {controller_id}", response.error_message)

    async def api_versions(self, node_id: int | None = None) -> Any:
        """ApiVersionsResponse of a broker. Raises BrokerError."""
        request = ApiVersionsRequest(client_software_name="minikafka", client_software_version="0.1.0")
        response = await self._ask(request, node_id=node_id)
        if response.error_code:
            raise refusal(response.error_code, "API versions")
        return response

    async def features(self, node_id: int | None = None) -> list[FeatureState]:
        """Every feature that the broker supports, sorted by name."""
        response = await self.api_versions(node_id)
        levels = {entry.name: entry.max_version_level for entry in response.finalized_features}
        return [
            FeatureState(entry.name, entry.min_version, entry.max_version, levels.get(entry.name), response.finalized_features_epoch)
            for entry in sorted(response.supported_features, key=lambda entry: entry.name)
        ]

    async def update_features(self, levels: Mapping[str, int], *, upgrade_type: int = 1, dry_run: bool = False) -> dict[str, Outcome]:
        """Set features to levels (0 disables); `upgrade_type` 1 upgrade, 2 safe downgrade, 3 unsafe downgrade. Returns each result."""
        updates = [
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level in levels.items()
        ]
        response = await self._ask(UpdateFeaturesRequest(timeout_ms=self._timeout_ms, feature_updates=updates, validate_only=dry_run))
        if response.results:
            return {entry.feature: _outcome(entry.error_code, entry.error_message) for entry in response.results}
        return dict.fromkeys(levels, _outcome(response.error_code, response.error_message))
