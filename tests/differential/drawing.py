"""Sequences of requests drawn from a seed: fields by their names from small pools of good and bad values, the rest from the schemas."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from differential.apis import APIS, BROKER, EMPTY, GROUP, NULLS, OFTEN_EMPTY, POOLS, SINGLE, THEMES, TOPIC, WITHOUT_REPETITION
from differential.known import Known
from helpers.wire_values import random_value

from minikafka.wire.grammar import ArrayNode, NullableNode, StructNode, UuidLeaf, VariableLeaf, grammar
from minikafka.wire.message import Request, Struct
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.registry import api

#: An API of the sequence's theme is so many times as likely as another.
THEME_WEIGHT = 12
#: How often an array or struct that may be null is, and one that is seldom filled is not.
NULL_SHARE, FILLED_SHARE = 0.3, 0.3


@dataclass(slots=True)
class Step:
    """One request of a sequence; `request` holds Known where each broker has its own value."""

    request: Request
    version: int

    def __str__(self) -> str:
        return f"{type(self.request).__name__} {self.version} {self.request}"


def sequence(seed: int, length: int) -> list[Step]:
    """The requests of a seed. Names begin with "~", which stands for the prefix of a run."""
    draw = random.Random(f"sequence-{seed}")
    kind = CreateTopicsRequest.CreatableTopic
    topics = [kind(name=name, num_partitions=count, replication_factor=1) for name, count in (("~a", 2), ("~b", 1))]
    steps = [Step(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)]
    themes = draw.sample(sorted(THEMES), draw.choice((1, 1, 2)))
    weights = {key: drawn.weight for key, drawn in APIS.items()}
    for theme in themes:
        weights |= {key: drawn.weight * THEME_WEIGHT for key, drawn in THEMES[theme].items()}
    for key in draw.choices(list(weights), list(weights.values()), k=length):
        entry = api(key)
        assert entry is not None
        version = draw.randint(APIS[key].oldest, APIS[key].newest)
        steps.append(Step(Drawing(draw, key).message(grammar(entry.request, version)), version))
    return steps


class Drawing:
    """One request."""

    def __init__(self, draw: random.Random, key: int) -> None:
        self.draw = draw
        self.key = key
        self._resource = TOPIC

    def message(self, node: StructNode, parent: str = "") -> Any:
        """A message or a part of one."""
        declared = list(node.fields) + ([] if node.tagged is None else list(node.tagged.fields))
        return node.owner(**{field.name: self._value(field.name, inner, parent) for field, inner in declared})

    def _value(self, name: str, node: Any, parent: str) -> Any:
        """The value of a field."""
        is_nullable = isinstance(node, NullableNode) or getattr(node, "nullable", False)
        if is_nullable and (self.key, name) in NULLS and self.draw.random() < NULL_SHARE:
            return None
        if isinstance(node, NullableNode):
            return self._value(name, node.subcon, parent)
        if isinstance(node, ArrayNode):
            return self._array(name, node, parent)
        if isinstance(node, StructNode):
            return self.message(node, name)
        pool = POOLS.get((self.key, f"{parent}.{name}")) or POOLS.get((self.key, name)) or POOLS.get((None, name))
        if pool is not None:
            return pool(self)
        if isinstance(node, UuidLeaf):
            return Known("topic", self.topic())
        if isinstance(node, VariableLeaf) and node.nullable:
            return None
        return random_value(node, self.draw)

    def _array(self, name: str, node: ArrayNode, parent: str) -> list[Any]:
        is_empty = (self.key, name) in OFTEN_EMPTY and self.draw.random() >= FILLED_SHARE
        if is_empty or (self.key, name) in EMPTY:
            return []
        count = 1 if name in SINGLE else self.draw.choice([1, 1, 1, 2])
        found = [self._value(name, node.subcon, parent) for _ in range(count)]
        # Apache Kafka never answers a member that names a protocol twice (docs/compatibility.md).
        if self.key in WITHOUT_REPETITION or (self.key, name) == (11, "protocols"):
            return list({_first_field(one): one for one in found}.values())
        return found

    def one(self, *values: Any, wrong: tuple[Any, ...] = ()) -> Any:
        """One of the values, seldom a wrong one."""
        return self.draw.choice(wrong) if wrong and self.draw.random() < 0.12 else self.draw.choice(values)

    def topic(self) -> str:
        """A name."""
        return str(self.one("~a", "~a", "~a", "~b", "~c", wrong=("~none", "", "bad name")))

    def resource_name(self) -> str:
        """Belongs to the type that was drawn just before."""
        names = {TOPIC: self.topic(), GROUP: self.group(), BROKER: self.one("1", wrong=("", "7", "x"))}
        return str(names.get(self._resource, "x"))

    def resource_type(self) -> int:
        """Mostly topics."""
        # A broker's properties would be those of later sequences.
        is_change = self.key in (33, 44)
        self._resource = int(self.one(TOPIC, TOPIC, GROUP, TOPIC if is_change else BROKER, wrong=(0, 99)))
        return self._resource

    def group(self) -> str:
        """A group's id."""
        return str(self.one("~g", "~g", "~h", wrong=("", "~none")))

    def batch(self) -> Known:
        """(producer, epoch, first sequence, records, in a transaction)."""
        is_idempotent = self.draw.random() < 0.5
        producer = self.draw.randrange(3) if is_idempotent else -1
        is_transactional = is_idempotent and self.draw.random() < 0.5
        return Known("batch", (producer, self.one(0, 0, 1), self.one(0, 0, 1, 2), self.one(1, 2, 3), is_transactional))


def _first_field(value: Any) -> Any:
    """The name or number of a part of a message; a value itself."""
    return getattr(value, value.FIELDS[0].name) if isinstance(value, Struct) else value
