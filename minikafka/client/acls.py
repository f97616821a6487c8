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
    """An Admin that manages ACLs."""

    async def describe_acls(self, acl_filter: AclFilter | None = None) -> list[Acl]:
        """The ACLs that match the filter; all of them for None. Raises BrokerError."""
        chosen = acl_filter or AclFilter()
        response = await self._ask(
            DescribeAclsRequest(
                resource_type_filter=chosen.resource_type,
                resource_name_filter=chosen.resource_name,
                pattern_type_filter=chosen.pattern_type,
                principal_filter=chosen.principal,
                host_filter=chosen.host,
                operation=chosen.operation,
                permission_type=chosen.permission,
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
        """Create ACLs; existing ones are kept. Raises BrokerError for the first ACL that the broker rejects."""
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
        """Delete the ACLs that match any of the filters, and return them. Raises BrokerError."""
        kind = DeleteAclsRequest
        response = await self._ask(
            kind(
                filters=[
                    kind.DeleteAclsFilter(
                        resource_type_filter=acl_filter.resource_type,
                        resource_name_filter=acl_filter.resource_name,
                        pattern_type_filter=acl_filter.pattern_type,
                        principal_filter=acl_filter.principal,
                        host_filter=acl_filter.host,
                        operation=acl_filter.operation,
                        permission_type=acl_filter.permission,
                    )
                    for acl_filter in filters
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
