"""Look-ups of the ACLs of a metadata image by value, resource name and principal. A cluster may have a hundred thousand ACLs, so nothing
that a request asks for may look at all of them one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from zlib import crc32

from minikafka.core.authorizer.acl import Acl, AclFilter, PatternType
from minikafka.core.sharded_map import ShardedMap

#: A dict keeps the order in which they were created.
_Acls = dict[Acl, None]


def _number_of_text(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def _number_of_acl(acl: Acl) -> int:
    return crc32(acl.principal.encode("utf-8", "surrogatepass"), _number_of_text(acl.resource_name))


def number_of_id(acl_id: bytes) -> int:
    """Spreads the ids of ACLs, which are random."""
    return int.from_bytes(acl_id[-2:])


class AclIndex:
    """Copy on write: a copy shares the tables of single names and principals until one of them changes."""

    __slots__ = ("_by_name", "_by_principal", "_ids", "_owned", "count")

    def __init__(self) -> None:
        #: The ids of each ACL: a log may hold one ACL twice.
        self._ids: ShardedMap[Acl, tuple[bytes, ...]] = ShardedMap(_number_of_acl)
        self._by_name: ShardedMap[str, _Acls] = ShardedMap(_number_of_text)
        self._by_principal: ShardedMap[str, _Acls] = ShardedMap(_number_of_text)
        self._owned: set[tuple[bool, str]] = set()
        #: Number of ids.
        self.count = 0

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._ids

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclIndex) and self._ids == other._ids

    def __hash__(self) -> int:
        return hash(self.count)

    def copy(self) -> AclIndex:
        """Another index with the same ACLs. Change only the copy afterwards."""
        copied = AclIndex()
        copied._ids, copied._by_name, copied._by_principal = self._ids.copy(), self._by_name.copy(), self._by_principal.copy()
        copied.count = self.count
        return copied

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """Add an ACL under an id that is not in use."""
        self.count += 1
        self._ids[acl] = (*self._ids.get(acl, ()), acl_id)
        self._table(self._by_name, acl.resource_name)[acl] = None
        self._table(self._by_principal, acl.principal)[acl] = None

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        """Remove an ACL that is in the index under this id."""
        self.count -= 1
        left = tuple(other for other in self._ids[acl] if other != acl_id)
        if left:
            self._ids[acl] = left
            return
        del self._ids[acl]
        for tables, name in ((self._by_name, acl.resource_name), (self._by_principal, acl.principal)):
            table = self._table(tables, name)
            del table[acl]
            if not table:
                del tables[name]

    def _table(self, tables: ShardedMap[str, _Acls], name: str) -> _Acls:
        key = (tables is self._by_name, name)
        table = tables.get(name)
        if table is None or key not in self._owned:
            self._owned.add(key)
            table = tables[name] = {} if table is None else dict(table)
        return table

    def candidates(self, acl_filter: AclFilter) -> Collection[Acl]:
        """Different ACLs among which are all that match the filter."""
        if acl_filter.resource_name is not None and acl_filter.pattern_type is not PatternType.MATCH:
            return self._by_name.get(acl_filter.resource_name, {}).keys()
        if acl_filter.principal is not None:
            return self._by_principal.get(acl_filter.principal, {}).keys()
        return self._ids.keys()

    def ids(self, acl: Acl) -> tuple[bytes, ...]:
        """The ids under which the ACL is in the index."""
        return self._ids.get(acl, ())
