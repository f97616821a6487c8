"""Guards of APIs about the cluster as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.broker.security.authorization.guard import Guard, Verdict
from minikafka.broker.security.authorization.topics import cluster_operations
from minikafka.core.authorizer.acl import Operation
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority, AuthorizableContext


def open_to_all(authority: Authority, context: AuthorizableContext, request: Any) -> Verdict:
    """No guard: for requests that come before authentication, and for those that the controller authorizes."""
    return None


def on_cluster(operation: Operation) -> Guard:
    """A guard that needs `operation` on the cluster for the whole request."""

    def guard(authority: Authority, context: AuthorizableContext, request: Any) -> Verdict:
        authority.require_on_cluster(context, operation)
        return None

    return guard


def describe_cluster(authority: Authority, context: AuthorizableContext, request: DescribeClusterRequest) -> Verdict:
    """Anyone may see the brokers and the cluster id. The authorized operations need DESCRIBE on the cluster."""
    if not request.include_cluster_authorized_operations:
        return None

    def merge(response: DescribeClusterResponse) -> DescribeClusterResponse:
        if not response.error_code:
            response.cluster_authorized_operations = cluster_operations(authority, context)
        return response

    return merge


def describe_controllers(authority: Authority, context: AuthorizableContext, request: DescribeClusterRequest) -> Verdict:
    """On a controller's listener: needs ALTER on the cluster (KIP-919)."""
    authority.require_on_cluster(context, Operation.ALTER)
    return describe_cluster(authority, context, request)
