"""Values for every message and version, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from minikafka.wire.grammar import ArrayNode, FixedLeaf, NullableNode, StructNode, UuidLeaf, VariableLeaf, grammar
from minikafka.wire.message import Message
from minikafka.wire.records import client_records, group_records, metadata_records, raft_records, share_records, transaction_records
from minikafka.wire.registry import apis

RANGES = {"b": 7, "h": 15, "i": 31, "q": 63}


def all_messages() -> list[type[Message]]:
    """Requests, responses and stored records."""
    found: list[type[Message]] = [cls for api in apis() for cls in (api.request, api.response)]
    for module in (metadata_records, group_records, transaction_records, share_records, raft_records, client_records):
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
        ]
    return found


def message_versions() -> Iterator[tuple[type[Message], int]]:
    """Every (message, version)."""
    for message in all_messages():
        for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
            yield message, version


def random_value(node: Any, draw: random.Random, depth: int = 0) -> Any:
    """A value of the grammar's node, as a message holds it."""
    if isinstance(node, UuidLeaf):
        return draw.randbytes(16)
    if isinstance(node, FixedLeaf):
        return _number(node.code, draw)
    if isinstance(node, VariableLeaf):
        if node.nullable and draw.random() < 0.2:
            return None
        size = draw.choice([0, 1, 5, 130])
        return "".join(draw.choice("abcé☃") for _ in range(size)) if node.kind == "string" else draw.randbytes(size)
    if isinstance(node, ArrayNode):
        if node.nullable and draw.random() < 0.2:
            return None
        return [random_value(node.subcon, draw, depth + 1) for _ in range(draw.choice([0, 1, 2] if depth < 3 else [0, 1]))]
    if isinstance(node, NullableNode):
        return None if draw.random() < 0.3 else random_value(node.subcon, draw, depth)
    assert isinstance(node, StructNode)
    values = {declared.name: random_value(inner, draw, depth) for declared, inner in node.fields}
    if node.tagged is not None:
        values |= {d.name: random_value(inner, draw, depth) for d, inner in node.tagged.fields if draw.random() < 0.6}
    return node.owner(**values)


def _number(code: str, draw: random.Random) -> Any:
    if code == "?":
        return draw.random() < 0.5
    if code == "d":
        return draw.choice([0.0, 1.5, -2.25e10])
    if code in ("H", "I"):
        return draw.randrange(1 << (16 if code == "H" else 32))
    limit = 1 << RANGES[code]
    return draw.choice([0, 1, -1, limit - 1, -limit, draw.randrange(-limit, limit)])


def random_message(message: type[Message], version: int, seed: int = 0) -> Message:
    """A random message of a class and version, by seed."""
    made: Message = random_value(grammar(message, version), random.Random(f"{message.__name__}-{version}-{seed}"))
    return made
