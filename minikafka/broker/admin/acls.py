"""Answers DescribeAcls from this node's ACLs, and passes CreateAcls and DeleteAcls to the controller (AclApis of Kafka; KIP-140)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.front.turns import in_steps
from minikafka.core.controller.acls import acl_of, filter_fault_of, filter_of
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from minikafka.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from minikafka.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.core.authorizer.acl import Acl, AclFilter
    from minikafka.core.metadata.image import MetadataImage

#: ACLs that are compared with a filter in one turn.
COMPARISONS_AT_ONCE = 8_192
NO_AUTHORIZER = "No Authorizer is configured."
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"


class HasImage(Protocol):
    """What has the image whose ACLs are applied."""

    image: MetadataImage


async def describe_acls(authority: HasImage | None, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The ACLs that match the filter, by resource; found and described in steps."""
    kind = DescribeAclsResponse
    if authority is None:
        return kind(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)
    wanted = filter_of(request)
    fault = filter_fault_of(wanted)
    if fault is not None and 0 in (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type):
        return kind(error_code=ErrorCode.INVALID_REQUEST, error_message=fault)
    if fault is not None:
        return kind()  # types of a newer client, of which there are no ACLs
    found: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
    async for acl in in_steps(await _selected(wanted, list(authority.image.acl_index.candidates(wanted)))):
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = found.get(key)
        if resource is None:
            resource = found[key] = kind.DescribeAclsResource(resource_type=key[0], resource_name=key[1], pattern_type=key[2])
        resource.acls.append(
            kind.AclDescription(principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission)
        )
    return kind(resources=list(found.values()))


async def _selected(wanted: AclFilter, acls: list[Acl]) -> list[Acl]:
    found: list[Acl] = []
    for at in range(0, len(acls), COMPARISONS_AT_ONCE):
        if at:
            await asyncio.sleep(0)
        found += wanted.select(acls[at : at + COMPARISONS_AT_ONCE])
    return found


class AclHandlers:
    """The ACL APIs on a broker's listeners."""

    def __init__(self, authority: HasImage | None, forwarder: Forwarder) -> None:
        self._authority = authority
        self._forwarder = forwarder

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(DescribeAclsRequest, self.describe)
        dispatcher.register(CreateAclsRequest, self.create)
        dispatcher.register(DeleteAclsRequest, self.delete)

    async def describe(self, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """DescribeAcls."""
        return await describe_acls(self._authority, request)

    async def create(self, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        """CreateAcls; this broker applies the ACLs before the client gets its answer."""
        response: CreateAclsResponse = await self._forwarder.forward(context, request)
        created = {acl_of(asked) for asked, result in zip(request.creations, response.results, strict=False) if not result.error_code}
        if created:
            await self._forwarder.until(lambda image: all(acl in image.acl_index for acl in created))
        return response

    async def delete(self, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """DeleteAcls; this broker has dropped the ACLs before the client gets its answer."""
        response: DeleteAclsResponse = await self._forwarder.forward(context, request)
        gone = {acl_of(acl) for result in response.filter_results if not result.error_code for acl in result.matching_acls}
        if gone:
            await self._forwarder.until(lambda image: not any(acl in image.acl_index for acl in gone))
        return response


class ControllerAclHandlers:
    """The ACL APIs on a controller's listener. Register it after the controller's other handlers: it replaces some."""

    def __init__(self, authority: HasImage | None, decide: Callable[[Any, Any], None]) -> None:
        """`decide` passes a request to the active controller."""
        self._authority = authority
        self._decide = decide

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the APIs."""
        dispatcher.register(DescribeAclsRequest, self.describe)
        dispatcher.register(CreateAclsRequest, self.change)
        dispatcher.register(DeleteAclsRequest, self.change)

    async def describe(self, context: Any, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """DescribeAcls."""
        return await describe_acls(self._authority, request)

    def change(self, context: Any, request: Any) -> Any:
        """CreateAcls and DeleteAcls; refused without an authorizer, because nothing would apply them."""
        if self._authority is None:
            return failure_response(request, context.api_version, ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
        self._decide(context, request)
        return None
