"""The quorum's APIs on the controller listener: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, DescribeQuorum and the
changes of the voter set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from minikafka.broker.environment import Environment
from minikafka.broker.front.dispatch import Dispatcher, RequestContext
from minikafka.broker.quorum import raft_wire
from minikafka.broker.quorum.raft_host import RaftHost
from minikafka.broker.quorum.raft_log import CorruptMetadata
from minikafka.core.raft import messages as m
from minikafka.core.raft.leading import named_high_watermark
from minikafka.core.raft.progress import ReplicaProgress
from minikafka.core.raft.roles import Leader
from minikafka.core.raft.types import Endpoint, ReplicaKey
from minikafka.net.network import Connection
from minikafka.storage.errors import StorageError
from minikafka.storage.log_dir import METADATA_TOPIC
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from minikafka.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from minikafka.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from minikafka.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from minikafka.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from minikafka.wire.messages.vote import VoteRequest, VoteResponse

RESPONSES: dict[type, Any] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
}


class RaftHandlers:
    """Answers the replicas of the metadata log. Every answer waits until what it promises is durable."""

    def __init__(self, raft: RaftHost, environment: Environment) -> None:
        self._raft = raft
        self._wall_ms = environment.clock.wall_ms
        self._now_ms = environment.clock.now_ms
        self._cold_reads = environment.cold_reads
        #: Connection -> the callback that answers its latest fetch.
        self._fetches: dict[Connection, Callable[[m.Reply], None]] = {}

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve all these APIs on a controller listener and none on a broker listener: brokers forward DescribeQuorum to the controller."""
        for request in (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest):
            dispatcher.register(request, self.replica_request)
        dispatcher.register(FetchRequest, self.fetch)
        dispatcher.register(FetchSnapshotRequest, self.replica_request)
        dispatcher.register(DescribeQuorumRequest, self.describe_quorum)
        dispatcher.register(AddRaftVoterRequest, self.add_voter)
        dispatcher.register(RemoveRaftVoterRequest, self.remove_voter)
        dispatcher.register(UpdateRaftVoterRequest, self.update_voter)
        dispatcher.subscribe_connection_ends(self._connection_closed)

    # -- replicas

    def replica_request(self, context: RequestContext, request: Any) -> Any:
        """Serve Vote, BeginQuorumEpoch, EndQuorumEpoch and FetchSnapshot."""
        if request.cluster_id is not None and request.cluster_id != self._raft.cluster_id:
            return RESPONSES[type(request)](error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        version = context.api_version
        try:
            flat = raft_wire.from_wire(request, version)
        except raft_wire.InvalidPartition:
            return RESPONSES[type(request)](error_code=ErrorCode.INVALID_REQUEST)

        def answer(reply: m.Reply) -> None:
            context.respond(raft_wire.response_to_wire(flat, reply, version))

        def respond(reply: m.Reply) -> None:
            if isinstance(reply, m.FetchSnapshotReply):
                read = partial(self._read_snapshot, reply)
                self._cold_reads.look_for(context.connection, "a read of a snapshot", read, lambda _: answer(reply))
            else:
                answer(reply)

        self._raft.request(flat, respond)
        return None

    def fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
        """Serve a fetch. The leader parks it until there is something to report."""
        if request.cluster_id is not None and request.cluster_id != self._raft.cluster_id:
            return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        version = context.api_version
        try:
            flat = raft_wire.from_wire(request, version)
        except raft_wire.InvalidPartition:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)

        def respond(reply: m.Reply) -> None:
            response, epoch = raft_wire.response_to_wire(flat, reply, version), self._raft.quorum.epoch
            assert isinstance(reply, m.FetchReply)

            def answer(records: bytes | ApiError | StorageError) -> None:
                partition = response.responses[0].partitions[0]
                if isinstance(records, CorruptMetadata):
                    partition.error_code = ErrorCode.CORRUPT_MESSAGE
                elif isinstance(records, (ApiError, StorageError)):
                    partition.error_code = records.code if isinstance(records, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
                elif self._raft.quorum.epoch != epoch:
                    # While they were read from the disk, others may have been appended there.
                    partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    partition.records = records
                context.respond(response)
                if isinstance(records, CorruptMetadata):
                    self._raft.found_corrupt(records)

            if 0 <= reply.read_from < reply.read_to:
                self._cold_reads.look_for(context.connection, "a fetch of metadata", partial(self._records, reply), answer)
            else:
                context.respond(response)

        self._fetches[context.connection] = respond
        self._raft.request(flat, respond)
        return None

    def _records(self, reply: m.FetchReply) -> bytes | ApiError | StorageError:
        """The records of an answer, or why they cannot be read."""
        try:
            return self._raft.metadata_log.read(reply.read_from, reply.read_to, reply.bytes_max)
        except (ApiError, StorageError) as error:
            return error

    def _connection_closed(self, connection: Connection) -> None:
        respond = self._fetches.pop(connection, None)
        if respond is not None:
            self._raft.disconnected(respond)

    def _read_snapshot(self, reply: m.FetchSnapshotReply) -> None:
        if reply.error is not ErrorCode.NONE:
            return
        try:
            found = self._raft.metadata_log.read_snapshot_bytes(reply.snapshot, reply.position, reply.bytes_max)
        except StorageError:
            reply.error = ErrorCode.KAFKA_STORAGE_ERROR
            return
        if found is None:
            reply.error = ErrorCode.SNAPSHOT_NOT_FOUND
            return
        reply.size, reply.data = found
        if not reply.data:
            reply.error = ErrorCode.POSITION_OUT_OF_RANGE

    # -- describing

    def describe_quorum(self, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """The leader's view. Another node answers NOT_LEADER_OR_FOLLOWER with the leader that it knows. As in Apache Kafka, the metadata
        log is described only if nothing else is asked for."""
        kind = DescribeQuorumResponse
        version = context.api_version
        response = kind()
        wanted = [(topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
        is_valid = len(request.topics) == 1 and wanted == [(METADATA_TOPIC, 0)]
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                if is_valid:
                    partitions.append(self._describe(version))
                else:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    partitions.append(
                        kind.PartitionData(partition_index=partition.partition_index, error_code=error, error_message=error.text)
                    )
            response.topics.append(kind.TopicData(topic_name=topic.topic_name, partitions=partitions))
        if version >= 2 and any(p.error_code == 0 for topic in response.topics for p in topic.partitions):
            for voter in self._raft.quorum.voters.voters():
                listeners = [kind.Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints]
                response.nodes.append(kind.Node(node_id=voter.key.node_id, listeners=listeners))
        return response

    def _describe(self, version: int) -> Any:
        kind = DescribeQuorumResponse
        quorum = self._raft.quorum
        role = quorum.role
        if not isinstance(role, Leader):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return kind.PartitionData(error_code=error, error_message=error.text, leader_id=quorum.leader_id, leader_epoch=quorum.epoch)
        own = ReplicaProgress(quorum.local, quorum.log.end_offset, self._now_ms(), self._now_ms())
        voters = []
        for voter in quorum.voters.voters():
            if quorum.voters.is_voter(quorum.local) and voter.key.node_id == quorum.local.node_id:
                voters.append(self._replica(voter.key, own, version))
            else:
                progress = role.progress.of_voter(quorum.voters, voter.key.node_id)
                voters.append(self._replica(voter.key, progress or ReplicaProgress(voter.key), version))
        role.progress.drop_observers(quorum.voters, self._now_ms() - quorum.config.observer_session_ms)
        observers = [self._replica(entry.key, entry, version) for entry in role.progress.observers(quorum.voters, quorum.local)]
        return kind.PartitionData(
            leader_id=quorum.leader_id,
            leader_epoch=quorum.epoch,
            high_watermark=named_high_watermark(quorum),
            error_message=None if version < 2 else "",
            current_voters=voters,
            observers=observers,
        )

    def _replica(self, key: ReplicaKey, progress: ReplicaProgress, version: int) -> Any:
        state = DescribeQuorumResponse.ReplicaState(
            replica_id=key.node_id,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=self._wall(progress.last_fetch_ms),
            last_caught_up_timestamp=self._wall(progress.last_caught_up_ms),
        )
        if version >= 2:
            state.replica_directory_id = key.directory_id
        return state

    def _wall(self, monotonic_ms: int) -> int:
        return -1 if monotonic_ms < 0 else self._wall_ms() - (self._now_ms() - monotonic_ms)

    # -- the voter set

    def _wrong_cluster(self, cluster_id: str | None) -> str | None:
        if cluster_id is None or cluster_id == self._raft.cluster_id:
            return None
        return f'The given id "{cluster_id}" doesn\'t match the cluster id "{self._raft.cluster_id}"'

    def add_voter(self, context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse | None:
        """Answered when the new voter set is committed, or already when it is appended if the request says so."""
        wrong = self._wrong_cluster(request.cluster_id)
        if wrong is not None:
            return AddRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=wrong)
        endpoints = tuple(Endpoint(e.name, e.host, e.port) for e in request.listeners)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        flat = m.AddVoterRequest(key, endpoints, request.timeout_ms, request.ack_when_committed)
        self._raft.request(flat, lambda reply: context.respond(AddRaftVoterResponse(error_code=reply.error, error_message=reply.text)))
        return None

    def remove_voter(self, context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse | None:
        """Answered when the new set is committed."""
        wrong = self._wrong_cluster(request.cluster_id)
        if wrong is not None:
            return RemoveRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=wrong)
        flat = m.RemoveVoterRequest(ReplicaKey(request.voter_id, bytes(request.voter_directory_id)))
        self._raft.request(flat, lambda reply: context.respond(RemoveRaftVoterResponse(error_code=reply.error, error_message=reply.text)))
        return None

    def update_voter(self, context: RequestContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse | None:
        """A voter reports its endpoints and the feature levels that it supports."""
        if self._wrong_cluster(request.cluster_id) is not None:
            return UpdateRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        endpoints = tuple(Endpoint(e.name, e.host, e.port) for e in request.listeners)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        levels = request.k_raft_version_feature
        flat = m.UpdateVoterRequest(
            request.current_leader_epoch, key, endpoints, levels.min_supported_version, levels.max_supported_version
        )

        def respond(reply: m.Reply) -> None:
            leader = UpdateRaftVoterResponse.CurrentLeader(leader_id=reply.leader_id, leader_epoch=reply.epoch)
            if reply.endpoint is not None:
                leader.host, leader.port = reply.endpoint.host, reply.endpoint.port
            context.respond(UpdateRaftVoterResponse(error_code=reply.error, current_leader=leader))

        self._raft.request(flat, respond)
        return None
