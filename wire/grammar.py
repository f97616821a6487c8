"""The grammar of a message version as a `construct` tree, built from its layout.

The tree is the readable reference: `grammar(HeartbeatRequest, 4).parse(data)` gives a Container, `.build(...)` gives bytes, and tests
compare the compiled codecs with both. Nothing else imports this module: construct takes 2.5 MB and a tenth of a broker's imports. The
classes have the names of the layout's nodes. The leaves are our own, because construct's accept a truncated trailing string, read length
-1 as "the rest" and a negative count as empty; ours check lengths against the bytes that are left.
"""

from __future__ import annotations

import io
from typing import Any

from construct import Bytes, Construct, FormatField, Renamed, StreamError, Subconstruct
from construct import Struct as ConstructStruct
from construct.core import Container, ListContainer

from minikafka.wire import layout
from minikafka.wire.declaration import Field, VersionedStruct
from minikafka.wire.types import STRING_BYTES_MAX, TAGGED_FIELDS_MAX

#: construct names 32-bit numbers by `struct`'s codes for long.
FORMATS = {"b": "b", "h": "h", "H": "H", "i": "l", "I": "L", "q": "q", "d": "d", "?": "?"}


def _left(stream: io.BytesIO) -> int:
    return len(stream.getbuffer()) - stream.tell()


def _take(stream: io.BytesIO, count: int, path: str) -> bytes:
    if not 0 <= count <= _left(stream):
        raise StreamError(f"{count} bytes needed, {_left(stream)} left", path=path)
    return stream.read(count)


class FixedLeaf(FormatField):  # type: ignore[misc]
    """A number or boolean; `code` is its `struct` format, `size` its bytes."""

    def __init__(self, node: layout.FixedLeaf) -> None:
        super().__init__(">", FORMATS[node.code])
        self.code = node.code
        self.size = node.size


class UuidLeaf(Bytes):  # type: ignore[misc]
    """Sixteen raw bytes."""

    code = "16s"
    size = 16

    def __init__(self) -> None:
        super().__init__(16)


class UnsignedVarint(Construct):  # type: ignore[misc]
    """KIP-482: seven bits a byte, at most five bytes, the bits above 32 are dropped."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = _take(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise StreamError("a varint is longer than five bytes", path=path)

    def _build(self, obj: int, stream: io.BytesIO, context: Any, path: str) -> int:
        value = obj
        while value > 0x7F:
            stream.write(bytes((value & 0x7F | 0x80,)))
            value >>= 7
        stream.write(bytes((value,)))
        return obj


VARINT = UnsignedVarint()


class _Length:
    """Length or count: compact (varint, plus one, 0 = null) or a signed number (-1 = null)."""

    def __init__(self, length: layout.Length) -> None:
        self.flexible = length.flexible
        self.size = length.size

    def parse(self, stream: io.BytesIO, path: str) -> int:
        if self.flexible:
            return int(VARINT._parse(stream, None, path)) - 1
        return int.from_bytes(_take(stream, self.size, path), "big", signed=True)

    def build(self, count: int, stream: io.BytesIO, path: str) -> None:
        if self.flexible:
            VARINT._build(count + 1, stream, None, path)
        else:
            stream.write(count.to_bytes(self.size, "big", signed=True))


class VariableLeaf(Construct):  # type: ignore[misc]
    """string, bytes or records. Values are str and bytes; null is None."""

    def __init__(self, node: layout.VariableLeaf) -> None:
        super().__init__()
        self.kind = node.kind
        self.nullable = node.nullable
        self.length = _Length(node.length)

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> str | bytes | None:
        count = self.length.parse(stream, path)
        if count < 0:
            if not self.nullable:
                raise StreamError("must not be null", path=path)
            return None
        data = _take(stream, count, path)
        if self.kind != "string":
            return data
        text = data.decode("utf-8", "replace")
        if max(count, len(text.encode())) > STRING_BYTES_MAX:
            raise StreamError(f"text of more than {STRING_BYTES_MAX} bytes", path=path)
        return text

    def _build(self, obj: str | bytes | None, stream: io.BytesIO, context: Any, path: str) -> Any:
        if obj is None:
            if not self.nullable:
                raise StreamError("must not be null", path=path)
            self.length.build(-1, stream, path)
            return obj
        data = obj.encode("utf-8", "surrogatepass") if isinstance(obj, str) else bytes(obj)
        if self.kind == "string" and len(data) > STRING_BYTES_MAX:
            raise StreamError(f"text of more than {STRING_BYTES_MAX} bytes", path=path)
        self.length.build(len(data), stream, path)
        stream.write(data)
        return obj


class ArrayNode(Subconstruct):  # type: ignore[misc]
    """A count and that many elements. A count that cannot fit into the bytes that are left is refused before any element is read."""

    def __init__(self, node: layout.ArrayNode) -> None:
        super().__init__(_construct(node.element))
        self.nullable = node.nullable
        self.length = _Length(node.length)
        self.least = node.least

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        count = self.length.parse(stream, path)
        if count < 0:
            if not self.nullable:
                raise StreamError("must not be null", path=path)
            return None
        if count * self.least > _left(stream):
            raise StreamError(f"{count} elements do not fit into {_left(stream)} bytes", path=path)
        return ListContainer(self.subcon._parsereport(stream, context, path) for _ in range(count))

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        if obj is None:
            if not self.nullable:
                raise StreamError("must not be null", path=path)
            self.length.build(-1, stream, path)
            return obj
        self.length.build(len(obj), stream, path)
        for item in obj:
            self.subcon._build(item, stream, context, path)
        return obj


class NullableNode(Subconstruct):  # type: ignore[misc]
    """A struct behind a byte: -1 = null, 1 = the struct follows (KIP-893); in a tagged field the byte is a varint and 0 = null."""

    def __init__(self, node: layout.NullableNode) -> None:
        super().__init__(StructNode(node.struct))
        self.is_tagged = node.is_tagged
        self.null = node.null

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        presence = _take(stream, 1, path)[0]
        return None if (presence == 0 if self.is_tagged else presence > 127) else self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        if obj is None:
            stream.write(self.null)
            return obj
        stream.write(b"\x01")
        self.subcon._build(obj, stream, context, path)
        return obj


class TaggedNode(Construct):  # type: ignore[misc]
    """The section of tagged fields that ends a flexible struct: unknown tags are skipped, default values are not written."""

    def __init__(self, node: layout.TaggedNode) -> None:
        super().__init__()
        self.fields = [(declared, _construct(inner)) for declared, inner in node.fields]

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        found = Container()
        nodes_by_tag = {declared.tag: (declared, node) for declared, node in self.fields}
        count = VARINT._parse(stream, context, path)
        if count > TAGGED_FIELDS_MAX or count * 2 > _left(stream):
            raise StreamError(f"{count} tagged fields do not fit into {_left(stream)} bytes", path=path)
        for _ in range(count):
            tag = VARINT._parse(stream, context, path)
            data = _take(stream, VARINT._parse(stream, context, path), path)
            if tag in nodes_by_tag:
                declared, node = nodes_by_tag[tag]
                found[declared.name] = node.parse(data)
        return found

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        present = [(declared, node) for declared, node in self.fields if declared.name in (obj or {})]
        VARINT._build(len(present), stream, context, path)
        for declared, node in present:
            data = node.build(obj[declared.name])
            VARINT._build(declared.tag or 0, stream, context, path)
            VARINT._build(len(data), stream, context, path)
            stream.write(data)
        return obj


class StructNode(ConstructStruct):  # type: ignore[misc]
    """The fields of one declared struct in one version. `owner` is the class, `absent` are its fields that the version lacks, `tagged` is
    the section of tagged fields or None."""

    def __init__(self, node: layout.StructNode) -> None:
        self.owner = node.owner
        self.fields: list[tuple[Field, Construct]] = [(declared, _construct(inner)) for declared, inner in node.fields]
        self.tagged = None if node.tagged is None else TaggedNode(node.tagged)
        self.absent = node.absent
        named = [Renamed(inner, newname=declared.name) for declared, inner in self.fields]
        super().__init__(*named, *([Renamed(self.tagged, newname="_tagged_fields")] if self.tagged is not None else []))


def _construct(node: layout.Node) -> Construct:
    match node:
        case layout.FixedLeaf():
            return FixedLeaf(node)
        case layout.UuidLeaf():
            return UuidLeaf()
        case layout.VariableLeaf():
            return VariableLeaf(node)
        case layout.ArrayNode():
            return ArrayNode(node)
        case layout.NullableNode():
            return NullableNode(node)
        case layout.StructNode():
            return StructNode(node)


def grammar(message: type[VersionedStruct], version: int) -> StructNode:
    """The construct of a message version."""
    return StructNode(layout.layout(message, version))


# -- between containers and messages, for tests that compare the two -------------------------------------------------------


def to_container(node: Construct, value: Any) -> Any:
    """A message (or a part of one) as the grammar's plain containers; tagged fields that hold their default are left out."""
    if value is None:
        return None
    if isinstance(node, NullableNode):
        return to_container(node.subcon, value)
    if isinstance(node, ArrayNode):
        return [to_container(node.subcon, item) for item in value]
    if isinstance(node, StructNode):
        container = {declared.name: to_container(inner, getattr(value, declared.name)) for declared, inner in node.fields}
        if node.tagged is not None:
            container["_tagged_fields"] = {
                declared.name: to_container(inner, getattr(value, declared.name))
                for declared, inner in node.tagged.fields
                if getattr(value, declared.name) != declared.omitted_value()
            }
        return container
    return bytes(value) if isinstance(value, (memoryview, bytearray)) else value


def from_container(node: Construct, container: Any) -> Any:
    """The message (or part) that a parsed container stands for; absent fields hold their defaults."""
    if container is None:
        return None
    if isinstance(node, NullableNode):
        return from_container(node.subcon, container)
    if isinstance(node, ArrayNode):
        return [from_container(node.subcon, item) for item in container]
    if isinstance(node, StructNode):
        values = {declared.name: from_container(inner, container[declared.name]) for declared, inner in node.fields}
        if node.tagged is not None:
            found = container["_tagged_fields"]
            values |= {d.name: from_container(inner, found[d.name]) for d, inner in node.tagged.fields if d.name in found}
        return node.owner(**values)
    return container
