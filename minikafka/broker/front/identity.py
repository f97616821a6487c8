"""Clients may say in ApiVersions which node they expect (KIP-1242), and get an error if they reached another one."""

from __future__ import annotations

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.api_versions import ApiVersionsRequest

#: Cluster id and node id.
Identity = tuple[str, int]
NO_NODE = -1


def misled(request: ApiVersionsRequest, identity: Identity | None) -> ErrorCode:
    """NONE if the client names this node or none, else the error. Controllers have no `identity` and check only that the client sets both
    fields or neither."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is None or identity is None or identity == (request.cluster_id, request.node_id):
        return ErrorCode.NONE
    return ErrorCode.REBOOTSTRAP_REQUIRED
