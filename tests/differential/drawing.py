"""Sequences of requests drawn from a seed: fields by their names from small pools, good and bad, the rest from the schemas."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.wire_values import random_value

from minikafka.wire.grammar import ArrayNode, NullableNode, StructNode, UuidLeaf, VariableLeaf, grammar
from minikafka.wire.message import Request
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.registry import api

#: API key -> (how often, oldest version, newest version): versions that Apache Kafka 4.4 and minikafka both serve.
APIS: Mapping[int, tuple[int, int, int]] = {
    19: (3, 2, 7), 20: (1, 1, 6), 37: (2, 0, 3), 3: (2, 5, 13), 32: (2, 1, 4), 44: (2, 0, 1), 2: (3, 1, 10), 0: (5, 3, 13),
    8: (4, 2, 10), 9: (4, 1, 10), 11: (3, 5, 9), 12: (2, 0, 4), 13: (1, 0, 5), 14: (3, 3, 5), 15: (2, 0, 6), 16: (1, 0, 5),
    42: (1, 0, 2), 47: (2, 0, 0), 22: (4, 0, 5), 24: (4, 0, 3), 25: (3, 0, 4), 26: (3, 0, 4), 28: (3, 0, 5), 65: (2, 0, 0),
    66: (1, 0, 1), 61: (2, 0, 0), 21: (2, 0, 2), 68: (3, 0, 1), 69: (2, 0, 1), 23: (2, 2, 4),
}  # fmt: skip
TOPIC, BROKER, GROUP = 2, 4, 32
TOPIC_CONFIGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas", "compression.type", "no.such.config")
VALUES = ("1000", "-1", "-2", "compact", "delete", "compact,delete", "lz4", "x", "", "1", None)


@dataclass(frozen=True, slots=True)
class Known:
    """Something that a broker has drawn: a topic's id, a member's id, a producer's id, or a batch of records with one."""

    kind: str
    which: Any


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
    keys = [key for key, (weight, _, _) in APIS.items() for _ in range(weight)]
    for _ in range(length):
        key = draw.choice(keys)
        entry = api(key)
        assert entry is not None
        version = draw.randint(*APIS[key][1:])
        steps.append(Step(_Drawing(draw, key).message(grammar(entry.request, version)), version))
    return steps


class _Drawing:
    def __init__(self, draw: random.Random, key: int) -> None:
        self.draw = draw
        self.key = key
        self.resource = TOPIC

    def message(self, node: StructNode) -> Any:
        """A message or a part of one."""
        declared = list(node.fields) + ([] if node.tagged is None else list(node.tagged.fields))
        return node.owner(**{field.name: self.value(field.name, inner) for field, inner in declared})

    def value(self, name: str, node: Any) -> Any:
        """The value of a field."""
        if isinstance(node, NullableNode):
            return self.value(name, node.subcon)
        if isinstance(node, ArrayNode):
            if (name in ("assignments", "broker_ids") and self.key != 14) or name in ("states_filter", "types_filter", "state_filters"):
                return []
            count = 1 if name in ("transactions", "resources") else self.draw.choice([1, 1, 1, 2])
            found = [self.value(name, node.subcon) for _ in range(count)]
            # Apache Kafka never answers a member that names a protocol twice (docs/compatibility.md).
            return list({one.name: one for one in found}.values()) if (self.key, name) == (11, "protocols") else found
        if isinstance(node, StructNode):
            return self.message(node)
        pool = POOLS.get((self.key, name)) or POOLS.get((None, name))
        if pool is not None:
            return pool(self)
        if isinstance(node, UuidLeaf):
            return Known("topic", self.topic())
        if isinstance(node, VariableLeaf) and node.nullable:
            return None
        return random_value(node, self.draw)

    def one(self, *values: Any, wrong: tuple[Any, ...] = ()) -> Any:
        """One of the values, seldom a wrong one."""
        return self.draw.choice(wrong) if wrong and self.draw.random() < 0.12 else self.draw.choice(values)

    def topic(self) -> str:
        """A name."""
        return str(self.one("~a", "~a", "~a", "~b", "~c", wrong=("~none", "", "bad name")))

    def resource_name(self) -> str:
        """Belongs to the type that was drawn just before."""
        names = {TOPIC: self.topic(), GROUP: self.group(), BROKER: self.one("1", wrong=("", "7", "x"))}
        return str(names.get(self.resource, "x"))

    def resource_type(self) -> int:
        """Mostly topics."""
        # A broker's properties would be those of later sequences.
        self.resource = int(self.one(TOPIC, TOPIC, GROUP, TOPIC if self.key == 44 else BROKER, wrong=(0, 99)))
        return self.resource

    def group(self) -> str:
        """A group's id."""
        return str(self.one("~g", "~g", "~h", wrong=("", "~none")))

    def batch(self) -> Known:
        """(producer, epoch, first sequence, records, in a transaction)."""
        is_idempotent = self.draw.random() < 0.5
        producer = self.draw.randrange(3) if is_idempotent else -1
        is_transactional = is_idempotent and self.draw.random() < 0.5
        return Known("batch", (producer, self.one(0, 0, 1), self.one(0, 0, 1, 2), self.one(1, 2, 3), is_transactional))


def _of(*values: Any, wrong: tuple[Any, ...] = ()) -> Callable[[_Drawing], Any]:
    return lambda drawing: drawing.one(*values, wrong=wrong)


#: (API key or None, field) -> how to draw it.
POOLS: Mapping[tuple[int | None, str], Callable[[_Drawing], Any]] = {
    (None, "name"): _Drawing.topic,
    (None, "topic"): _Drawing.topic,
    (None, "topic_id"): lambda drawing: Known("topic", drawing.topic()),
    (None, "topics"): _Drawing.topic,
    (None, "topic_names"): _Drawing.topic,
    (None, "subscribed_topic_names"): _Drawing.topic,
    (None, "group_id"): _Drawing.group,
    (None, "group_ids"): _Drawing.group,
    (None, "groups"): _Drawing.group,
    (None, "groups_names"): _Drawing.group,
    (None, "member_id"): lambda drawing: Known("member", drawing.draw.randrange(3)),
    (68, "member_id"): _of("m1", "m2", wrong=("",)),
    (68, "server_assignor"): _of(None, "uniform", "range", wrong=("none",)),
    (68, "member_epoch"): _of(0, 0, 1, 2, -1, wrong=(-2, 9)),
    (68, "topic_partitions"): _of(),
    (None, "member_epoch"): _of(-1, 1, 2, wrong=(7,)),
    (None, "group_instance_id"): _of(None, None, None, "i"),
    (None, "instance_id"): _of(None, None, None, "i"),
    (None, "generation_id"): _of(1, 1, 1, 2, 3, wrong=(-1, 0, 9)),
    (None, "generation_id_or_member_epoch"): _of(-1, -1, 1, 1, 2, 3, wrong=(0, 9)),
    (None, "protocol_type"): _of("consumer", wrong=("connect", "")),
    (None, "protocol_name"): _of("range", wrong=("x",)),
    (11, "name"): _of("range", "range", "x"),
    (None, "session_timeout_ms"): _of(30_000, wrong=(1, 10_000_000)),
    (None, "rebalance_timeout_ms"): _of(2_000),
    (None, "transactional_id"): _of("~x", "~x", "~y", wrong=("", "~none")),
    (None, "transactional_ids"): _of("~x", "~y", wrong=("~none", "")),
    (22, "transactional_id"): _of("~x", "~y", None, wrong=("",)),
    (0, "transactional_id"): _of(None, None, "~x", "~y"),
    (None, "transaction_timeout_ms"): _of(60_000, wrong=(0, -1, 2_000_000_000)),
    (None, "producer_id"): lambda drawing: Known("producer", drawing.draw.randrange(3)),
    (22, "producer_id"): _of(-1),
    (22, "producer_epoch"): _of(-1, wrong=(0,)),
    (None, "producer_epoch"): _of(0, 0, 0, 1, wrong=(-1, 9)),
    (None, "producer_id_filters"): lambda drawing: Known("producer", drawing.draw.randrange(3)),
    (None, "partition_index"): _of(0, 0, 1, wrong=(2, 9, -1)),
    (None, "partition_indexes"): _of(0, 0, 1, wrong=(2, 9, -1)),
    (None, "partition"): _of(0, 0, 1, wrong=(2, 9, -1)),
    (None, "partitions"): _of(0, 0, 1, wrong=(2, 9, -1)),
    (None, "index"): _of(0, 0, 1, wrong=(2, -1)),
    (None, "current_leader_epoch"): _of(-1, -1, 0, wrong=(5,)),
    (None, "leader_epoch"): _of(0, 0, wrong=(-1, 5)),
    (None, "replica_id"): _of(-1),
    (None, "isolation_level"): _of(0, 1),
    (None, "timestamp"): _of(-1, -2, -3, 0, wrong=(-4, -9, 1 << 60)),
    (None, "offset"): _of(0, 1, 2, -1, wrong=(100, -2)),
    (None, "committed_offset"): _of(0, 5, 10, wrong=(-1, -5)),
    (None, "committed_leader_epoch"): _of(-1, 0),
    (None, "committed_metadata"): _of("", "m", None, wrong=("x" * 30,)),
    (None, "acks"): _of(-1, 1, wrong=(2,)),
    (None, "records"): _Drawing.batch,
    (None, "timeout_ms"): _of(10_000),
    (None, "validate_only"): _of(False, False, False, True),
    (None, "num_partitions"): _of(1, 2, -1, wrong=(0, -2)),
    (None, "replication_factor"): _of(1, -1, wrong=(0, 3)),
    (None, "count"): _of(3, 4, wrong=(1, 0, -1)),
    (19, "configs"): _of(),
    (None, "key_type"): _of(0, 1, wrong=(5,)),
    (None, "resource_type"): _Drawing.resource_type,
    (None, "resource_name"): _Drawing.resource_name,
    (None, "configuration_keys"): _of(*TOPIC_CONFIGS),
    (44, "name"): _of(*TOPIC_CONFIGS, wrong=("consumer.session.timeout.ms",)),
    (44, "config_operation"): _of(0, 0, 1, 2, 3, wrong=(9,)),
    (None, "value"): _of(*VALUES),
    (None, "include_documentation"): _of(False),
    (None, "include_synonyms"): _of(False),
    (None, "allow_auto_topic_creation"): _of(False),
    (None, "metadata"): _of(b"", b"meta"),
    (None, "assignment"): _of(b"", b"mine"),
    (None, "verify_only"): _of(False),
    (24, "v3_and_below_transactional_id"): _of("~x", "~x", "~y", wrong=("", "~none")),
    (24, "v3_and_below_producer_id"): lambda drawing: Known("producer", drawing.draw.randrange(3)),
    (24, "v3_and_below_producer_epoch"): _of(0, 0, 0, 1, wrong=(-1, 9)),
}
