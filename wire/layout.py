"""The layout of a message version, built from its declaration: a tree of fields with their lengths and tags.

`wire.compiler` generates the codecs from it, and `wire.grammar` the `construct` that is the readable reference.
"""

from __future__ import annotations

from typing import TypeAlias

from minikafka.late_dataclass import dataclass
from minikafka.wire.declaration import Field, Struct, VersionedStruct
from minikafka.wire.types import Array, Fixed, Type, Variable


@dataclass(frozen=True, slots=True)
class Length:
    """Length or count: compact (varint, plus one, 0 = null) or a signed number of `size` bytes (-1 = null)."""

    flexible: bool
    size: int


@dataclass(frozen=True, slots=True)
class FixedLeaf:
    """A number or boolean; `code` is its `struct` format, `size` its bytes."""

    code: str
    size: int


@dataclass(frozen=True, slots=True)
class UuidLeaf:
    """Sixteen raw bytes."""

    code: str = "16s"
    size: int = 16


@dataclass(frozen=True, slots=True)
class VariableLeaf:
    """string, bytes or records. Values are str and bytes; null is None."""

    kind: str
    nullable: bool
    length: Length


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """A count and that many elements, each of at least `least` bytes."""

    element: Node
    nullable: bool
    length: Length
    least: int


@dataclass(frozen=True, slots=True)
class NullableNode:
    """A struct behind a byte: -1 = null, 1 = the struct follows (KIP-893); in a tagged field the byte is a varint and 0 = null."""

    struct: StructNode
    is_tagged: bool

    @property
    def null(self) -> bytes:
        """What stands for null."""
        return b"\0" if self.is_tagged else b"\xff"


@dataclass(frozen=True, slots=True)
class TaggedNode:
    """The section of tagged fields that ends a flexible struct."""

    fields: list[tuple[Field, Node]]


@dataclass(frozen=True, slots=True)
class StructNode:
    """The fields of one declared struct in one version. `owner` is the class, `absent` are its fields that the version lacks, `tagged` is
    the section of tagged fields or None."""

    owner: type[Struct]
    fields: list[tuple[Field, Node]]
    tagged: TaggedNode | None
    absent: list[Field]


Node: TypeAlias = FixedLeaf | UuidLeaf | VariableLeaf | ArrayNode | NullableNode | StructNode


def layout(message: type[VersionedStruct], version: int) -> StructNode:
    """The layout of a message version."""
    return _struct(message, version, message.is_flexible(version))


def _minimum_size(node: Node) -> int:
    """The least number of bytes that a value takes; it bounds array counts."""
    if isinstance(node, (FixedLeaf, UuidLeaf)):
        return node.size
    if isinstance(node, (VariableLeaf, ArrayNode)):
        return 1 if node.length.flexible else node.length.size
    if isinstance(node, StructNode):
        return sum(_minimum_size(inner) for _, inner in node.fields) + (1 if node.tagged is not None else 0)
    return 1


def _node(kind: Type | type[Struct], version: int, flexible: bool, nullable: bool, is_tagged: bool = False) -> Node:
    if isinstance(kind, Fixed):
        return UuidLeaf() if kind.code == "16s" else FixedLeaf(kind.code, kind.size)
    if isinstance(kind, Variable):
        return VariableLeaf(kind.name, nullable or kind.name == "records", Length(flexible, 2 if kind.name == "string" else 4))
    if isinstance(kind, Array):
        element = _node(kind.element, version, flexible, False)  # type: ignore[arg-type]
        return ArrayNode(element, nullable, Length(flexible, 4), max(_minimum_size(element), 1))
    struct = _struct(kind, version, flexible)
    return NullableNode(struct, is_tagged) if nullable else struct


def _struct(owner: type[Struct], version: int, flexible: bool) -> StructNode:
    plain: list[tuple[Field, Node]] = []
    tagged: list[tuple[Field, Node]] = []
    absent: list[Field] = []
    for declared in owner.FIELDS:
        kind = declared.type if declared.type is not None else declared.struct
        assert kind is not None
        is_tagged = declared.tag is not None and version in declared.tagged
        if (is_tagged and flexible) or (not is_tagged and version in declared.versions):
            node = _node(kind, version, flexible, version in declared.nullable, is_tagged)
            (tagged if is_tagged else plain).append((declared, node))
        else:
            absent.append(declared)
    tagged.sort(key=lambda entry: entry[0].tag or 0)
    return StructNode(owner, plain, TaggedNode(tagged) if flexible else None, absent)
