"""ACLs and filters over them, with Kafka's names and numbers (org.apache.kafka.common.acl and .resource; KIP-11, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, TypeVar, cast

from minikafka.wire.records.metadata_records import AccessControlEntryRecord

WILDCARD = "*"
#: The only resource name of type CLUSTER.
CLUSTER_NAME = "kafka-cluster"
WILDCARD_PRINCIPAL = "User:*"
Kind = TypeVar("Kind", bound="_Named")


class _Named(IntEnum):
    """A protocol number with the label that Kafka's tools print."""

    @property
    def label(self) -> str:
        """TransactionalId for TRANSACTIONAL_ID."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @classmethod
    def of(cls: type[Kind], number: int) -> Kind:
        """The member with this number; UNKNOWN if there is none."""
        found = cls._value2member_map_.get(number)
        return cls(0) if found is None else cast(Kind, found)

    @classmethod
    def parse(cls: type[Kind], text: str) -> Kind:
        """The member with this name or label, ignoring case. Raises ValueError."""
        normalized = text.strip().replace("_", "").replace("-", "").lower()
        for member in cls:
            if member.name.replace("_", "").lower() == normalized and member:
                return member
        raise ValueError(f"{text!r}: must be one of {', '.join(member.label for member in cls if member)}")


class ResourceType(_Named):
    """The type of the resource that an ACL applies to."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How an ACL's name matches resource names. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    """The operation that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Named):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
#: The operations of each resource type, of which describe APIs return the authorized ones (AclEntry.supportedOperations).
OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip


def operation_bits(operations: tuple[Operation, ...] | list[Operation]) -> int:
    """Operations as the 32-bit field of the ...AuthorizedOperations fields."""
    return sum(1 << operation for operation in operations)


class Acl(NamedTuple):
    """One access control entry: it allows or denies `principal` an `operation` from `host` on the resources that match the pattern."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @classmethod
    def of_record(cls, record: AccessControlEntryRecord) -> Acl:
        """The entry in a metadata record."""
        return cls(
            ResourceType.of(record.resource_type),
            record.resource_name,
            PatternType.of(record.pattern_type),
            record.principal,
            record.host,
            Operation.of(record.operation),
            Permission.of(record.permission_type),
        )

    def to_record(self, acl_id: bytes) -> AccessControlEntryRecord:
        """The metadata record of this entry. `acl_id`: 16 bytes."""
        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    def __str__(self) -> str:
        verb = "ALLOW" if self.permission is Permission.ALLOW else "DENY"
        resource = f"{self.resource_type.label} {self.pattern_type.name} {self.resource_name!r}"
        text = f"{verb} {self.operation.label} on {resource} for {self.principal} from {self.host}"
        # It is written to logs, and must be a single line there.
        return text if text.isprintable() else text.encode("unicode_escape").decode()


class AclFilter(NamedTuple):
    """A filter of ACLs. None and ANY match everything (ResourcePatternFilter, AccessControlEntryFilter)."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether a part has a number that the protocol does not define."""
        return not (self.resource_type and self.pattern_type and self.operation and self.permission)

    def matches(self, acl: Acl) -> bool:
        """Whether the filter matches the ACL. With MATCH: whether the ACL applies to the resource `resource_name`."""
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        return (
            self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def select(self, acls: Iterable[Acl]) -> list[Acl]:
        """Those of the ACLs that match. Some ten times as fast as `matches` for each of very many."""
        for number, (wanted, free) in enumerate(zip(self, _FREE, strict=True)):
            if wanted not in free and not (number == _NAME and self.pattern_type is PatternType.MATCH):
                acls = [acl for acl in acls if acl[number] == wanted]
        if self.pattern_type is PatternType.MATCH and self.resource_name is not None:
            return [acl for acl in acls if self._matches_name(acl)]
        return list(acls)

    def _matches_name(self, acl: Acl) -> bool:
        filter_name, name = self.resource_name, acl.resource_name
        if filter_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return filter_name == name
        if acl.pattern_type is PatternType.PREFIXED:
            return filter_name.startswith(name)
        return name in (filter_name, WILDCARD)


#: For each part of a filter, what matches everything.
_FREE: tuple[frozenset[object], ...] = (
    frozenset({ResourceType.ANY}), frozenset({None}), frozenset({PatternType.ANY, PatternType.MATCH}), frozenset({None}), frozenset({None}),
    frozenset({Operation.ANY}), frozenset({Permission.ANY}),
)  # fmt: skip
_NAME = Acl._fields.index("resource_name")
