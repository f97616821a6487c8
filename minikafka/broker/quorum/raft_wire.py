"""Translates KRaft messages between the wire (topics, partitions, versions) and the core (flat)."""

from __future__ import annotations

from typing import Any

from minikafka.core.raft import messages as m
from minikafka.core.raft.types import NO_NODE, Endpoint, OffsetAndEpoch, ReplicaKey
from minikafka.net.channel import CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION
from minikafka.storage.log_dir import METADATA_TOPIC
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_raft_voter import AddRaftVoterRequest
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from minikafka.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from minikafka.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from minikafka.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from minikafka.wire.messages.vote import VoteRequest, VoteResponse
from minikafka.wire.uuid import METADATA_TOPIC_ID

#: API key -> first version whose response has NodeEndpoints.
ENDPOINTS_FROM = {1: 17, 52: 1, 53: 1, 54: 1, 59: 1}
HIGH_WATERMARK_FROM = 18
KRAFT_VERSION = "kraft.version"


class InvalidPartition(Exception):
    """The request is not about the single partition of the metadata log."""


# -- requests to peers


def to_wire(request: m.Request, cluster_id: str) -> Any:
    """The wire request for a flat one."""
    if isinstance(request, m.FetchRequest):
        return _fetch_to_wire(request, cluster_id)
    if isinstance(request, m.VoteRequest):
        return _vote_to_wire(request, cluster_id)
    if isinstance(request, m.BeginQuorumEpochRequest):
        return _begin_to_wire(request, cluster_id)
    if isinstance(request, m.EndQuorumEpochRequest):
        return _end_to_wire(request, cluster_id)
    if isinstance(request, m.FetchSnapshotRequest):
        return _snapshot_to_wire(request, cluster_id)
    if isinstance(request, m.VersionsRequest):
        return ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION)
    listeners = request.endpoints if not isinstance(request, m.RemoveVoterRequest) else ()
    key = request.key
    if isinstance(request, m.RemoveVoterRequest):
        return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=key.node_id, voter_directory_id=key.directory_id)
    kind: Any = AddRaftVoterRequest if isinstance(request, m.AddVoterRequest) else UpdateRaftVoterRequest
    message = kind(
        cluster_id=cluster_id,
        voter_id=key.node_id,
        voter_directory_id=key.directory_id,
        listeners=[kind.Listener(name=name, host=host, port=port) for name, host, port in listeners],
    )
    if isinstance(request, m.AddVoterRequest):
        message.timeout_ms, message.ack_when_committed = request.timeout_ms, request.ack_when_committed
    else:
        message.current_leader_epoch = request.epoch
        message.k_raft_version_feature = kind.KRaftVersionFeature(
            min_supported_version=request.version_min, max_supported_version=request.version_max
        )
    return message


def _fetch_to_wire(request: m.FetchRequest, cluster_id: str) -> FetchRequest:
    # As in Kafka: no session, no limit per partition, no wait for data.
    partition = FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        replica_directory_id=request.replica.directory_id,
    )
    if request.high_watermark is not None:
        partition.high_watermark = request.high_watermark
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=request.replica.node_id),
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.bytes_max,
        topics=[FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _vote_to_wire(request: m.VoteRequest, cluster_id: str) -> VoteRequest:
    voter = request.voter or ReplicaKey(NO_NODE)
    partition = VoteRequest.PartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.offset,
        pre_vote=request.pre_vote,
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, voter_id=voter.node_id, topics=[topic])


def _begin_to_wire(request: m.BeginQuorumEpochRequest, cluster_id: str) -> BeginQuorumEpochRequest:
    voter = request.voter or ReplicaKey(NO_NODE)
    kind = BeginQuorumEpochRequest
    partition = kind.PartitionData(
        partition_index=0, voter_directory_id=voter.directory_id, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    return kind(
        cluster_id=cluster_id,
        voter_id=voter.node_id,
        topics=[kind.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[kind.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in request.endpoints],
    )


def _end_to_wire(request: m.EndQuorumEpochRequest, cluster_id: str) -> EndQuorumEpochRequest:
    kind = EndQuorumEpochRequest
    partition = kind.PartitionData(
        partition_index=0,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.node_id for key in request.candidates],
        preferred_candidates=[
            kind.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id) for key in request.candidates
        ],
    )
    return kind(
        cluster_id=cluster_id,
        topics=[kind.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[kind.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in request.endpoints],
    )


def _snapshot_to_wire(request: m.FetchSnapshotRequest, cluster_id: str) -> FetchSnapshotRequest:
    kind = FetchSnapshotRequest
    partition = kind.PartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=kind.SnapshotId(end_offset=request.snapshot.offset, epoch=request.snapshot.epoch),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return kind(
        cluster_id=cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=request.bytes_max,
        topics=[kind.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


# -- responses from peers


def reply_from_wire(request: m.Request, response: Any) -> m.Reply:
    """The flat reply. A response that is not about the metadata partition becomes UNKNOWN_SERVER_ERROR."""
    error = _code(response.error_code)
    if isinstance(request, (m.AddVoterRequest, m.RemoveVoterRequest)):
        return m.Reply(error, text=response.error_message)
    if isinstance(request, m.UpdateVoterRequest):
        return m.Reply(error)
    if isinstance(request, m.VersionsRequest):
        ranges = [entry for entry in response.supported_features if entry.name == KRAFT_VERSION]
        low, high = (ranges[0].min_version, ranges[0].max_version) if ranges else (0, 0)
        return m.VersionsReply(error, version_min=low, version_max=high)
    if isinstance(request, m.FetchRequest):
        topics = response.responses
    else:
        topics = response.topics
    partition = topics[0].partitions[0] if topics and topics[0].partitions else None
    if error is ErrorCode.NONE and partition is None:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    if partition is None or error is not ErrorCode.NONE:
        return _kind_of(request)(error)
    error = _code(partition.error_code)
    current = getattr(partition, "current_leader", partition)
    leader_id, epoch = current.leader_id, current.leader_epoch
    leaders = [entry for entry in response.node_endpoints if entry.node_id == leader_id and entry.host and entry.port > 0]
    endpoint = Endpoint("", leaders[0].host, leaders[0].port) if leaders else None
    if isinstance(request, m.VoteRequest):
        return m.VoteReply(error, leader_id, epoch, endpoint, None, partition.vote_granted)
    if isinstance(request, m.FetchRequest):
        return _fetch_reply(m.FetchReply(error, leader_id, epoch, endpoint), partition)
    if isinstance(request, m.FetchSnapshotRequest):
        reply = m.FetchSnapshotReply(error, leader_id, epoch, endpoint)
        reply.snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        reply.size, reply.position = partition.size, partition.position
        reply.data = partition.unaligned_records or b""
        reply.data_size = len(reply.data)
        return reply
    return m.Reply(error, leader_id, epoch, endpoint)


def _fetch_reply(reply: m.FetchReply, partition: Any) -> m.FetchReply:
    reply.high_watermark, reply.log_start_offset = partition.high_watermark, partition.log_start_offset
    if partition.diverging_epoch.epoch >= 0:
        reply.diverging = OffsetAndEpoch(partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch)
    if partition.snapshot_id.epoch >= 0 or partition.snapshot_id.end_offset >= 0:
        reply.snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    reply.records = partition.records
    return reply


def _kind_of(request: m.Request) -> type[m.Reply]:
    if isinstance(request, m.FetchRequest):
        return m.FetchReply
    if isinstance(request, m.VoteRequest):
        return m.VoteReply
    if isinstance(request, m.FetchSnapshotRequest):
        return m.FetchSnapshotReply
    return m.Reply


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# -- requests from peers


def from_wire(request: Any, version: int) -> m.Request:
    """The flat request. Raises InvalidPartition unless it names exactly the partition of the metadata log."""
    if isinstance(request, FetchRequest):
        return _fetch_from_wire(request, version)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise InvalidPartition
    topic = request.topics[0]
    partition = topic.partitions[0]
    if isinstance(request, FetchSnapshotRequest):
        if topic.name != METADATA_TOPIC or partition.partition != 0:
            raise InvalidPartition
        snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        replica = ReplicaKey(request.replica_id, bytes(partition.replica_directory_id))
        return m.FetchSnapshotRequest(partition.current_leader_epoch, replica, snapshot, partition.position, request.max_bytes)
    if topic.topic_name != METADATA_TOPIC or partition.partition_index != 0:
        raise InvalidPartition
    if isinstance(request, VoteRequest):
        return m.VoteRequest(
            partition.replica_epoch,
            ReplicaKey(partition.replica_id, bytes(partition.replica_directory_id)),
            ReplicaKey(request.voter_id, bytes(partition.voter_directory_id)),
            OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
            partition.pre_vote,
        )
    endpoints = tuple(Endpoint(e.name, e.host, e.port) for e in request.leader_endpoints)
    if isinstance(request, BeginQuorumEpochRequest):
        voter = ReplicaKey(request.voter_id, bytes(partition.voter_directory_id))
        return m.BeginQuorumEpochRequest(partition.leader_epoch, partition.leader_id, voter, endpoints)
    if version == 0:
        candidates = tuple(ReplicaKey(node_id) for node_id in partition.preferred_successors)
    else:
        candidates = tuple(ReplicaKey(e.candidate_id, bytes(e.candidate_directory_id)) for e in partition.preferred_candidates)
    return m.EndQuorumEpochRequest(partition.leader_epoch, partition.leader_id, candidates, endpoints)


def _fetch_from_wire(request: FetchRequest, version: int) -> m.FetchRequest:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise InvalidPartition
    topic = request.topics[0]
    partition = topic.partitions[0]
    if bytes(topic.topic_id) != METADATA_TOPIC_ID or partition.partition != 0:
        raise InvalidPartition
    node_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    return m.FetchRequest(
        partition.current_leader_epoch,
        ReplicaKey(node_id, bytes(partition.replica_directory_id)),
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark if version >= HIGH_WATERMARK_FROM else None,
        request.max_wait_ms,
        max(request.max_bytes, 1),
    )


# -- responses to peers


def response_to_wire(request: m.Request, reply: m.Reply, version: int) -> Any:
    """The wire response to any of the replicas' five requests. The host adds the records of a fetch."""
    if isinstance(request, m.FetchRequest):
        assert isinstance(reply, m.FetchReply)
        return _fetch_response(reply, version)
    if isinstance(request, m.FetchSnapshotRequest):
        assert isinstance(reply, m.FetchSnapshotReply)
        return _snapshot_response(reply, version)
    error, leader_id, epoch = reply.error, reply.leader_id, reply.epoch
    kind: Any
    if isinstance(request, m.VoteRequest):
        assert isinstance(reply, m.VoteReply)
        kind = VoteResponse
        partition: Any = kind.PartitionData(error_code=error, leader_id=leader_id, leader_epoch=epoch, vote_granted=reply.granted)
    else:
        kind = BeginQuorumEpochResponse if isinstance(request, m.BeginQuorumEpochRequest) else EndQuorumEpochResponse
        partition = kind.PartitionData(error_code=error, leader_id=leader_id, leader_epoch=epoch)
    response = kind(topics=[kind.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    _add_endpoint(response, reply, version)
    return response


def _fetch_response(reply: m.FetchReply, version: int) -> FetchResponse:
    kind = FetchResponse
    partition = kind.PartitionData(
        partition_index=0,
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        log_start_offset=reply.log_start_offset,
        current_leader=kind.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        records=b"",
    )
    if reply.diverging is not None:
        partition.diverging_epoch = kind.EpochEndOffset(epoch=reply.diverging.epoch, end_offset=reply.diverging.offset)
    if reply.snapshot is not None:
        partition.snapshot_id = kind.SnapshotId(end_offset=reply.snapshot.offset, epoch=reply.snapshot.epoch)
    response = kind(responses=[kind.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])])
    _add_endpoint(response, reply, version)
    return response


def _snapshot_response(reply: m.FetchSnapshotReply, version: int) -> FetchSnapshotResponse:
    kind = FetchSnapshotResponse
    partition = kind.PartitionSnapshot(
        index=0,
        error_code=reply.error,
        snapshot_id=kind.SnapshotId(end_offset=reply.snapshot.offset, epoch=reply.snapshot.epoch),
        current_leader=kind.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        size=reply.size,
        position=reply.position,
        unaligned_records=reply.data if reply.data is not None else b"",
    )
    response = kind(topics=[kind.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])])
    _add_endpoint(response, reply, version)
    return response


def _add_endpoint(response: Any, reply: m.Reply, version: int) -> None:
    if reply.leader_id >= 0 and reply.endpoint is not None and version >= ENDPOINTS_FROM[response.API_KEY]:
        _, host, port = reply.endpoint
        response.node_endpoints = [response.NodeEndpoint(node_id=reply.leader_id, host=host, port=port)]
