"""Which node a client means (KIP-1242): it may say so when it connects, and is told when it has come to another one."""

from __future__ import annotations

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.api_versions import ApiVersionsRequest

#: Cluster id and node id.
Identity = tuple[str, int]
NO_NODE = -1


def misled(request: ApiVersionsRequest, identity: Identity | None) -> ErrorCode:
    """NONE for the right node, and where nobody says which. Controllers, which have no `identity`, only want both of the two or none."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is None or identity is None or identity == (request.cluster_id, request.node_id):
        return ErrorCode.NONE
    return ErrorCode.REBOOTSTRAP_REQUIRED
