"""Requests with as many entries in one of their lists as fit into a frame, for every list of every API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minikafka.wire.frame import encode_request
from minikafka.wire.grammar import ArrayNode, FixedLeaf, NullableNode, StructNode, UuidLeaf, VariableLeaf, grammar
from minikafka.wire.message import Request

Path = tuple[str, ...]
PROBE = 1000


def lists_of(request: type[Request], version: int) -> list[Path]:
    """Every list of a request, each as the names of the fields on the way to it."""
    return list(_lists(grammar(request, version), ()))


def long_frame(request: type[Request], version: int, path: Path, size: int) -> tuple[bytes, int]:
    """A frame of so many bytes, more or less, and how many entries its list has."""
    tree = grammar(request, version)
    empty, probe = (len(_frame(_filled(tree, path, count), version)) for count in (0, PROBE))
    count = max(1, (size - empty) * PROBE // (probe - empty))
    return _frame(_filled(tree, path, count), version), count


def filled(kind: Any, version: int, path: Path, count: int) -> Any:
    """A message with so many entries in one of its lists."""
    return _filled(grammar(kind, version), path, count)


def _frame(request: Any, version: int) -> bytes:
    return b"".join(bytes(piece) for piece in encode_request(request, version, 1, "long"))


def _fields(node: StructNode) -> list[tuple[Any, Any]]:
    return [*node.fields, *(node.tagged.fields if node.tagged is not None else [])]


def _lists(node: Any, path: Path) -> Iterator[Path]:
    if isinstance(node, ArrayNode):
        yield path
        yield from _lists(node.subcon, path)
    elif isinstance(node, NullableNode):
        yield from _lists(node.subcon, path)
    elif isinstance(node, StructNode):
        for declared, inner in _fields(node):
            yield from _lists(inner, (*path, declared.name))


def _filled(node: Any, path: Path, count: int) -> Any:
    if isinstance(node, ArrayNode):
        return [_filled(node.subcon, path, count)] if path else [_plain(node.subcon, number) for number in range(count)]
    if isinstance(node, NullableNode):
        return _filled(node.subcon, path, count)
    value = _plain(node, 1)
    inner = next(inner for declared, inner in _fields(node) if declared.name == path[0])
    setattr(value, path[0], _filled(inner, path[1:], count))
    return value


def _plain(node: Any, number: int) -> Any:
    if isinstance(node, UuidLeaf):
        return number.to_bytes(16, "big")
    if isinstance(node, FixedLeaf):
        return {"?": False, "d": 0.0}.get(node.code, number % 120)
    if isinstance(node, VariableLeaf):
        return {"string": f"{number:x}", "bytes": b""}.get(node.kind)
    if isinstance(node, ArrayNode):
        return []
    if isinstance(node, NullableNode):
        return None
    return node.owner(**{declared.name: _plain(inner, number) for declared, inner in node.fields})
