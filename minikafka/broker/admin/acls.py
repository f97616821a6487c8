"""Answers DescribeAcls from this node's ACLs, and passes CreateAcls and DeleteAcls to the controller (AclApis of Kafka; KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.broker.front.error_responses import failure_response
from minikafka.core.authorizer.acl import Acl
from minikafka.core.controller.acls import filter_fault_of, filter_of
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from minikafka.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from minikafka.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.core.authorizer.authorizer import AclAuthorizer
    from minikafka.core.metadata.image import MetadataImage

NO_AUTHORIZER = "No Authorizer is configured."
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"


def describe_acls(authorizer: AclAuthorizer | None, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The ACLs that match the filter, by resource."""
    kind = DescribeAclsResponse
    if authorizer is None:
        return kind(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)
    wanted = filter_of(request)
    fault = filter_fault_of(wanted)
    if fault is not None:
        return kind(error_code=ErrorCode.INVALID_REQUEST, error_message=fault)
    found: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
    for acl in authorizer.select(wanted):
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = found.get(key)
        if resource is None:
            resource = found[key] = kind.DescribeAclsResource(resource_type=key[0], resource_name=key[1], pattern_type=key[2])
        resource.acls.append(
            kind.AclDescription(principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission)
        )
    return kind(resources=list(found.values()))


class AclHandlers:
    """The ACL APIs on a broker's listeners."""

    def __init__(self, authorizer: AclAuthorizer | None, forwarder: Forwarder) -> None:
        self._authorizer = authorizer
        self._forwarder = forwarder

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(DescribeAclsRequest, self.describe)
        dispatcher.register(CreateAclsRequest, self.create)
        dispatcher.register(DeleteAclsRequest, self.delete)

    def describe(self, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """DescribeAcls."""
        return describe_acls(self._authorizer, request)

    async def create(self, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        """CreateAcls; this broker applies the ACLs before the client gets its answer."""
        response: CreateAclsResponse = await self._forwarder.forward(context, request)
        created = {
            (c.resource_type, c.resource_name, c.resource_pattern_type, c.principal, c.host, c.operation, c.permission_type)
            for c, result in zip(request.creations, response.results, strict=False)
            if not result.error_code
        }
        if created:
            await self._forwarder.until(lambda image: created <= _acls_of(image))
        return response

    async def delete(self, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """DeleteAcls; this broker has dropped the ACLs before the client gets its answer."""
        response: DeleteAclsResponse = await self._forwarder.forward(context, request)
        gone = {
            (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type)
            for result in response.filter_results
            if not result.error_code
            for acl in result.matching_acls
        }
        if gone:
            await self._forwarder.until(lambda image: not gone & _acls_of(image))
        return response


def _acls_of(image: MetadataImage) -> set[tuple[object, ...]]:
    return {tuple(Acl.of_record(record)) for record in image.acls.values()}


class ControllerAclHandlers:
    """The ACL APIs on a controller's listener. Register it after the controller's other handlers: it replaces some."""

    def __init__(self, authorizer: AclAuthorizer | None, decide: Callable[[Any, Any], None]) -> None:
        """`decide` passes a request to the active controller."""
        self._authorizer = authorizer
        self._decide = decide

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(DescribeAclsRequest, self.describe)
        dispatcher.register(CreateAclsRequest, self.change)
        dispatcher.register(DeleteAclsRequest, self.change)

    def describe(self, context: Any, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """DescribeAcls."""
        return describe_acls(self._authorizer, request)

    def change(self, context: Any, request: Any) -> Any:
        """CreateAcls and DeleteAcls; refused without an authorizer, because nothing would apply them."""
        if self._authorizer is None:
            return failure_response(request, context.api_version, ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
        self._decide(context, request)
        return None
