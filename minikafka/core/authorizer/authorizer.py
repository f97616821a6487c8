"""Decides whether a principal may perform an operation, like Apache Kafka's StandardAuthorizer.

Super users may do everything. Otherwise a matching DENY decides, then a matching ALLOW. If a resource has ACLs but none matches, access is
denied. If it has no ACLs, `allow.everyone.if.no.acl.found` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from minikafka.core.authorizer.acl import (
    OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from minikafka.core.authorizer.ranges import Peer, Place
from minikafka.wire.records.metadata_records import AccessControlEntryRecord

#: Operations whose ALLOW implies this operation. A DENY implies nothing else.
_GRANTED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
DECISIONS_KEPT = 10_000
#: A resource name that stands for no particular resource, to check permissions by type (Authorizer.authorizeByResourceType).
_NO_RESOURCE = "hardcode"


class _Entry(NamedTuple):
    """An ACL with its parsed host: `place` is None if the host is not an address or a range."""

    acl: Acl
    place: Place | None


#: Name of a pattern -> principal -> ACLs by id. A resource may have a hundred thousand, each about another principal.
_Table = dict[str, dict[str, dict[bytes, _Entry]]]
_NO_ENTRIES: Mapping[bytes, _Entry] = {}


class Decision(NamedTuple):
    """Whether an operation is allowed, and why: the ACL that decided, or else a rule in words."""

    is_allowed: bool
    acl: Acl | None
    rule: str


_SUPER_USER = Decision(True, None, "a super user")
_CLOSED = Decision(False, None, "no ACL allows it")
_OPEN_BY_DEFAULT = Decision(True, None, "no ACL is about the resource (allow.everyone.if.no.acl.found)")


class AclAuthorizer:
    """Holds the ACLs and decides. Decisions are cached until an ACL changes; `generation` counts these changes.

    Invariant: every decision follows from the ACLs that `replace` was last given.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.generation = 0
        self._without_acl = _OPEN_BY_DEFAULT if allow_everyone else _CLOSED
        self._acls: dict[bytes, _Entry] = {}
        #: Type -> name of a literal pattern -> principal -> ACLs; WILDCARD is a name like any other.
        self._literal: dict[ResourceType, _Table] = {}
        self._prefixed: dict[ResourceType, _Table] = {}
        #: (type, principal, permission) -> ACLs.
        self._by_principal: dict[tuple[ResourceType, str, Permission], dict[bytes, _Entry]] = {}
        #: Type -> length of a prefix -> how many have it.
        self._prefix_counts: dict[ResourceType, dict[int, int]] = {}
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        self._decided: dict[tuple[str, str, Operation, ResourceType, str], Decision] = {}
        self._decided_by_type: dict[tuple[str, str, Operation, ResourceType], bool] = {}

    @property
    def acls(self) -> Iterator[Acl]:
        """Every ACL, in the order in which they were created."""
        return (entry.acl for entry in self._acls.values())

    @property
    def count(self) -> int:
        """Number of ACLs."""
        return len(self._acls)

    def replace(self, records: Mapping[bytes, AccessControlEntryRecord]) -> None:
        """Set the ACLs to those of an image, by id."""
        gone = {acl_id: None for acl_id in self._acls if acl_id not in records}
        new = {acl_id: record for acl_id, record in records.items() if acl_id not in self._acls}
        if gone or new:
            self.change({**gone, **new})

    def change(self, records: Mapping[bytes, AccessControlEntryRecord | None]) -> None:
        """Set or, with None, remove some ACLs."""
        for acl_id, record in records.items():
            if acl_id in self._acls:
                self._remove(acl_id)
            if record is not None:
                self._add(acl_id, Acl.of_record(record))
        self.generation += 1
        self._decided.clear()
        self._decided_by_type.clear()

    def _table_of(self, acl: Acl) -> _Table:
        tables = self._prefixed if acl.pattern_type is PatternType.PREFIXED else self._literal
        return tables.setdefault(acl.resource_type, {})

    def _add(self, acl_id: bytes, acl: Acl) -> None:
        entry = self._acls[acl_id] = _Entry(acl, Place.of(acl.host))
        table = self._table_of(acl)
        if acl.resource_name not in table:
            table[acl.resource_name] = {}
            self._count_prefix(acl, 1)
        table[acl.resource_name].setdefault(acl.principal, {})[acl_id] = entry
        self._by_principal.setdefault((acl.resource_type, acl.principal, acl.permission), {})[acl_id] = entry

    def _remove(self, acl_id: bytes) -> None:
        acl = self._acls.pop(acl_id).acl
        table = self._table_of(acl)
        by_principal = table[acl.resource_name]
        del by_principal[acl.principal][acl_id]
        if not by_principal[acl.principal]:
            del by_principal[acl.principal]
        if not by_principal:
            del table[acl.resource_name]
            self._count_prefix(acl, -1)
        key = (acl.resource_type, acl.principal, acl.permission)
        del self._by_principal[key][acl_id]
        if not self._by_principal[key]:
            del self._by_principal[key]

    def _count_prefix(self, acl: Acl, change: int) -> None:
        if acl.pattern_type is PatternType.PREFIXED:
            counts, length = self._prefix_counts.setdefault(acl.resource_type, {}), len(acl.resource_name)
            counts[length] = counts.get(length, 0) + change
            if not counts[length]:
                del counts[length]
            if counts.get(length, 0) in (0, 1):
                self._prefix_lengths[acl.resource_type] = tuple(sorted(counts))

    # -- decisions -------------------------------------------------------------------------------------------------

    def decide(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> Decision:
        """Whether `principal` ("User:alice") may perform the operation from `host` (an address as text)."""
        key = (principal, host, operation, resource_type, name)
        decision = self._decided.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, resource_type, name)
            if len(self._decided) >= DECISIONS_KEPT:
                self._decided.clear()
            self._decided[key] = decision
        return decision

    def _decide(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> Decision:
        if principal in self.super_users:
            return _SUPER_USER
        allow: Acl | None = None
        about_it, peer = False, Peer.of(host)
        for by_principal in self._about(resource_type, name):
            about_it = True
            for who in (principal, WILDCARD_PRINCIPAL):
                for entry in by_principal.get(who, _NO_ENTRIES).values():
                    if _applies(entry, peer, operation):
                        if entry.acl.permission is Permission.DENY:
                            return Decision(False, entry.acl, "")
                        allow = entry.acl
        if allow is not None:
            return Decision(True, allow, "")
        return _CLOSED if about_it else self._without_acl

    def _about(self, resource_type: ResourceType, name: str) -> Iterator[Mapping[str, Mapping[bytes, _Entry]]]:
        """The ACLs of each pattern that matches the resource, by principal."""
        literal = self._literal.get(resource_type)
        if literal:
            for pattern in (name,) if name == WILDCARD else (name, WILDCARD):
                if pattern in literal:
                    yield literal[pattern]
        prefixed = self._prefixed.get(resource_type)
        if prefixed:
            for length in self._prefix_lengths[resource_type]:
                if length > len(name):
                    break
                if name[:length] in prefixed:
                    yield prefixed[name[:length]]

    def allows_some(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of the type, existing or not, on which the principal may perform the operation (KIP-679)."""
        key = (principal, host, operation, resource_type)
        found = self._decided_by_type.get(key)
        if found is None:
            if len(self._decided_by_type) >= DECISIONS_KEPT:
                self._decided_by_type.clear()
            found = self._decided_by_type[key] = self._allows_some(principal, host, operation, resource_type)
        return found

    def _allows_some(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        if self.decide(principal, host, operation, resource_type, _NO_RESOURCE).is_allowed:
            return True
        peer = Peer.of(host)

        def patterns(permission: Permission) -> Iterator[tuple[PatternType, str]]:
            for who in dict.fromkeys((principal, WILDCARD_PRINCIPAL)):
                for entry in self._by_principal.get((resource_type, who, permission), _NO_ENTRIES).values():
                    if _applies(entry, peer, operation, by_implication=False):
                        yield entry.acl.pattern_type, entry.acl.resource_name

        denied = set(patterns(Permission.DENY))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        lengths = sorted({len(name) for kind, name in denied if kind is PatternType.PREFIXED})
        return any(
            (kind, name) == (PatternType.LITERAL, WILDCARD)
            or not ((kind, name) in denied or any((PatternType.PREFIXED, name[:end]) in denied for end in lengths if end <= len(name)))
            for kind, name in patterns(Permission.ALLOW)
        )

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> list[Operation]:
        """The operations of its type that the principal may perform on a resource."""
        return [
            operation
            for operation in OPERATIONS[resource_type]
            if self.decide(principal, host, operation, resource_type, name).is_allowed
        ]


def _applies(entry: _Entry, peer: Peer, operation: Operation, *, by_implication: bool = True) -> bool:
    """Whether an ACL of the principal applies to this peer and operation, regardless of the resource."""
    acl, place = entry
    if acl.host not in (peer.host, WILDCARD) and (place is None or not place.holds(peer)):
        return False
    if acl.operation in (operation, Operation.ALL):
        return True
    return by_implication and acl.permission is Permission.ALLOW and acl.operation in _GRANTED_BY.get(operation, ())
