"""ACLs as records: which may be created, and which a filter deletes. Rules: Apache Kafka's AclApis and AclControlManager."""

from __future__ import annotations

from minikafka.core.authorizer.acl import CLUSTER_NAME, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from minikafka.core.authorizer.index import AclIndex
from minikafka.core.authorizer.ranges import InvalidRange, is_range, parsed
from minikafka.core.controller.config import RECORDS_PER_REQUEST_MAX, RandomSource
from minikafka.core.controller.state import ControllerState, Result
from minikafka.core.controller.topics import random_uuid
from minikafka.core.metadata.image import METADATA_VERSION
from minikafka.core.metadata.versions import NEWEST, RANGES_IN_ACLS
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from minikafka.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from minikafka.wire.messages.describe_acls import DescribeAclsRequest
from minikafka.wire.records.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

_TOO_OLD_FOR_RANGES = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
#: Most comparisons of ACLs with filters in one request, in addition to one comparison per ACL.
COMPARISONS_MAX = 100_000


class AclControl:
    """Creates and deletes ACLs. The caller has authorized the change."""

    def __init__(self, state: ControllerState, random: RandomSource) -> None:
        self._state = state
        self._random = random

    def create(self, request: CreateAclsRequest) -> Result:
        """CreateAcls: each ACL succeeds or fails on its own. An ACL that exists already succeeds without a record."""
        existing, new = self._state.image.acl_index, set[Acl]()
        results: list[CreateAclsResponse.AclCreationResult] = []
        records: list[AccessControlEntryRecord] = []
        taken: set[bytes] = set()
        for creation in request.creations:
            result = CreateAclsResponse.AclCreationResult()
            results.append(result)
            acl = acl_of(creation)
            fault = fault_of(acl)
            if fault is None and is_range(acl.host):
                if not self._may_have_ranges:
                    result.error_code, result.error_message = ErrorCode.UNSUPPORTED_VERSION, _TOO_OLD_FOR_RANGES
                    continue
                fault = _fault_of_range(acl.host)
            if fault is not None:
                result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, fault
            elif acl not in existing and acl not in new:
                new.add(acl)
                if len(records) == RECORDS_PER_REQUEST_MAX:
                    raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
                records.append(acl.to_record(self._new_id(taken)))
                taken.add(records[-1].id)
        return Result(CreateAclsResponse(results=results), records)

    @property
    def _may_have_ranges(self) -> bool:
        return self._state.image.features.get(METADATA_VERSION, NEWEST) >= RANGES_IN_ACLS

    def _new_id(self, taken: set[bytes]) -> bytes:
        while True:
            acl_id = random_uuid(self._random)
            if acl_id not in self._state.image.acls and acl_id not in taken:
                return acl_id

    def delete(self, request: DeleteAclsRequest) -> Result:
        """DeleteAcls: the answer names the ACLs of each filter; each is removed once."""
        lookup = _Lookup(self._state.image.acl_index)
        results = []
        doomed: dict[bytes, None] = {}
        listed = 0
        for requested in request.filters:
            result = DeleteAclsResponse.DeleteAclsFilterResult()
            results.append(result)
            acl_filter = filter_of(requested)
            fault = filter_fault_of(acl_filter)
            if fault is not None:
                result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, fault
                continue
            matching = lookup.matching(acl_filter)
            listed += len(matching)
            if listed > RECORDS_PER_REQUEST_MAX or lookup.looked_at > lookup.looks_max:
                # An ACL that several filters match is listed for each of them, so it counts several times.
                text = f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete operation."
                raise ApiError(ErrorCode.POLICY_VIOLATION, text)
            for acl_id, acl in matching:
                doomed[acl_id] = None
                result.matching_acls.append(
                    DeleteAclsResponse.DeleteAclsMatchingAcl(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                )
        return Result(DeleteAclsResponse(filter_results=results), [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in doomed])


class _Lookup:
    """Finds the ACLs that match filters without comparing every ACL with every filter."""

    def __init__(self, index: AclIndex) -> None:
        self._index = index
        self._found: dict[AclFilter, list[tuple[bytes, Acl]]] = {}
        #: Comparisons so far, and their limit, which is enough for every deletion that is small enough.
        self.looked_at = 0
        self.looks_max = COMPARISONS_MAX + index.count

    def matching(self, acl_filter: AclFilter) -> list[tuple[bytes, Acl]]:
        """(id, ACL) of the ACLs that match a filter."""
        found = self._found.get(acl_filter)
        if found is None:
            candidates = self._index.candidates(acl_filter)
            self.looked_at += len(candidates)
            if self.looked_at > self.looks_max:
                return []
            found = self._found[acl_filter] = [(acl_id, acl) for acl in acl_filter.select(candidates) for acl_id in self._index.ids(acl)]
        return found


def _fault_of_range(host: str) -> str | None:
    try:
        parsed(host)
    except InvalidRange as error:
        return f"Invalid CIDR notation '{host}': {error}"
    return None


def acl_of(named: CreateAclsRequest.AclCreation | DeleteAclsResponse.DeleteAclsMatchingAcl) -> Acl:
    """The ACL that a request creates, or that an answer names."""
    pattern_type = named.resource_pattern_type if isinstance(named, CreateAclsRequest.AclCreation) else named.pattern_type
    return Acl(
        ResourceType.of(named.resource_type),
        named.resource_name,
        PatternType.of(pattern_type),
        named.principal,
        named.host,
        Operation.of(named.operation),
        Permission.of(named.permission_type),
    )


def fault_of(acl: Acl) -> str | None:
    """Why an ACL cannot be created, or None."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    if not acl.host:
        return "Host pattern cannot be null or empty"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from the principal name)"
        )
    return None


def filter_of(requested: DeleteAclsRequest.DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """The filter that a request's fields describe."""
    return AclFilter(
        ResourceType.of(requested.resource_type_filter),
        requested.resource_name_filter,
        PatternType.of(requested.pattern_type_filter),
        requested.principal_filter,
        requested.host_filter,
        Operation.of(requested.operation),
        Permission.of(requested.permission_type),
    )


def filter_fault_of(acl_filter: AclFilter) -> str | None:
    """What is wrong with a filter, or None."""
    if not (acl_filter.resource_type and acl_filter.pattern_type):
        return "Unknown patternFilter."
    if not (acl_filter.operation and acl_filter.permission):
        return "Unknown entryFilter."
    return None
