"""The metadata quorum's settings, from a node's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minikafka.core.raft.types import Endpoint, QuorumConfig, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterSet

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig


def quorum_config(config: BrokerConfig) -> QuorumConfig:
    """`controller.quorum.*`, times in milliseconds."""
    return QuorumConfig(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_ms_max=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=max(config.controller_quorum_retry_backoff_ms, 1),
        retry_backoff_ms_max=max(config.controller_quorum_retry_backoff_max_ms, 1),
        fetch_bytes_max=max(config.controller_quorum_fetch_max_bytes, 1),
        fetch_snapshot_bytes_max=max(config.controller_quorum_fetch_snapshot_max_bytes, 1),
        auto_join=config.controller_quorum_auto_join_enable,
    )


def static_voters(config: BrokerConfig, node_id: int, own_endpoints: Sequence[Endpoint]) -> VoterSet:
    """The voters in `controller.quorum.voters`. Port 0 for this node stands for the port in `own_endpoints`."""
    names = config.controller_listener_names or ["CONTROLLER"]
    voters = []
    for voter_id, (host, port) in config.voters.items():
        endpoint = Endpoint(names[0], host, port)
        if voter_id == node_id and own_endpoints and port == 0:
            endpoint = own_endpoints[0]
        voters.append(Voter(ReplicaKey(voter_id), (endpoint,)))
    return VoterSet(voters)
