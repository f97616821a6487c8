"""ACLs for administrators (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.client.admin import Admin
from minikafka.client.errors import refusal
from minikafka.core.authorizer.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.describe_acls import DescribeAclsRequest


class AclAdmin(Admin):
    """An Admin that knows ACLs."""

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """The ACLs that a filter means; all for None. Raises BrokerError."""
        meant = wanted or AclFilter()
        response = await self._ask(
            DescribeAclsRequest(
                resource_type_filter=meant.resource_type,
                resource_name_filter=meant.resource_name,
                pattern_type_filter=meant.pattern_type,
                principal_filter=meant.principal,
                host_filter=meant.host,
                operation=meant.operation,
                permission_type=meant.permission,
            )
        )
        if response.error_code:
            raise refusal(response.error_code, "describing ACLs", response.error_message)
        return [
            Acl(
                ResourceType.of(resource.resource_type),
                resource.resource_name,
                PatternType.of(resource.pattern_type),
                acl.principal,
                acl.host,
                Operation.of(acl.operation),
                Permission.of(acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Create ACLs; those that there are already stay. Raises BrokerError for the first that is refused."""
        kind = CreateAclsRequest
        response = await self._ask(
            kind(
                creations=[
                    kind.AclCreation(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        resource_pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ]
            )
        )
        for acl, result in zip(acls, response.results, strict=True):
            if result.error_code:
                raise refusal(result.error_code, f"creating the ACL {acl}", result.error_message)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete what any of the filters means; what was deleted. Raises BrokerError."""
        kind = DeleteAclsRequest
        response = await self._ask(
            kind(
                filters=[
                    kind.DeleteAclsFilter(
                        resource_type_filter=wanted.resource_type,
                        resource_name_filter=wanted.resource_name,
                        pattern_type_filter=wanted.pattern_type,
                        principal_filter=wanted.principal,
                        host_filter=wanted.host,
                        operation=wanted.operation,
                        permission_type=wanted.permission,
                    )
                    for wanted in filters
                ]
            )
        )
        deleted: dict[Acl, None] = {}
        for result in response.filter_results:
            if result.error_code:
                raise refusal(result.error_code, "deleting ACLs", result.error_message)
            for acl in result.matching_acls:
                if acl.error_code:
                    raise refusal(acl.error_code, "deleting an ACL", acl.error_message)
                deleted[
                    Acl(
                        ResourceType.of(acl.resource_type),
                        acl.resource_name,
                        PatternType.of(acl.pattern_type),
                        acl.principal,
                        acl.host,
                        Operation.of(acl.operation),
                        Permission.of(acl.permission_type),
                    )
                ] = None
        return list(deleted)
