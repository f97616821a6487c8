"""Requests that the fuzzer sends: drawn from the schemas, aimed at what the cluster has, kept ones, and damaged copies of all of these.

Drawing is most of the fuzzer's own work, so there is one compiled function a field. What brokers answer (ids of members, of producers, of
topics, epochs) is used in later requests, which gets them past the first checks.
"""

from __future__ import annotations

import base64
import random
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from minikafka.wire.batch import build_batch
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import WireError
from minikafka.wire.frame import encode_request
from minikafka.wire.grammar import ArrayNode, FixedLeaf, NullableNode, StructNode, UuidLeaf, VariableLeaf, grammar
from minikafka.wire.header import decode_response_header
from minikafka.wire.registry import api, apis

#: What would rightly change the cluster so that the rest is no test any more: registrations, dynamic configuration, ACLs, quotas, voters.
LEFT_OUT = frozenset({30, 31, 33, 44, 45, 49, 57, 64, 80, 81, 82})
#: On controllers, beside those: elections, heartbeats and registrations in another's name, and changes of replication.
LEFT_OUT_ON_CONTROLLERS = LEFT_OUT | {52, 53, 54, 56, 58, 62, 63, 70, 73}
#: The topic whose records must all be there at the end: no request names it.
WITNESS = "witness"
CORPUS = Path(__file__).parent / "fuzz_corpus.txt"
CORPUS_SHARE = 0.004
DAMAGED_SHARE = 0.25
#: Frames kept for damaged copies.
POOL_MAX = 2_000
#: Values of a field that answers held, the latest of which are used in requests.
LEARNED_MAX = 16
#: Elements of a list of an answer that are looked at.
LOOKED_AT_MAX = 8
_LIMITS = {"b": 7, "h": 15, "i": 31, "q": 63}
_DEPTH_OF_SHORT_LISTS = 3
_TEXT = "".join(random.Random(1).choices("abcé☃", k=4_096))
_BYTES = random.Random(1).randbytes(4_096)
#: Few names, so that requests meet what earlier ones made.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "group_id": tuple(f"group-{number}" for number in range(12)),
    "transactional_id": ("first", "second", "third"),
    "member_id": ("", "m1", "m2"),
    "protocol_type": ("consumer", "connect"),
    "server_assignor": ("uniform", "range", None),
    "partition": (0, 1), "index": (0, 1), "partition_index": (0, 1),
    "timeout_ms": tuple(range(20)), "max_wait_ms": tuple(range(20)),
    "session_timeout_ms": (20, 6_000), "rebalance_timeout_ms": (20, 6_000),
    "member_epoch": (0, -1, 1), "generation_id": (-1, 1), "share_session_epoch": (0, 1, -1), "session_epoch": (0, 1, -1),
    "producer_epoch": (0, 1), "leader_epoch": (0, 1), "current_leader_epoch": (0, 1, -1),
}  # fmt: skip
_TOPIC_FIELDS = frozenset({"topic", "name"})
_AIMED_SHARE = 0.75
#: Fields whose values are taken from answers.
LEARNED = frozenset({
    "member_id", "member_epoch", "generation_id", "producer_id", "producer_epoch", "topic_id", "session_id", "leader_epoch",
    "protocol_name", "token_id", "hmac", "log_dir", "cluster_id", "first_offset", "last_offset", "base_offset",
})  # fmt: skip
Draw = Callable[[], Any]
#: The latest values of fields of answers, by name.
Learned = dict[str, deque[Any]]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A frame to send. `key` and `version` are those of the request that it was, before it was damaged."""

    name: str
    key: int
    version: int
    frame: bytes
    is_damaged: bool = False


class Requests:
    """Draws requests for one listener, the same ones for the same seed and answers."""

    def __init__(self, seed: str, listener: str, topics: list[str], learned: Learned, *, wild: bool = False) -> None:
        self._draw = random.Random(seed)
        self._topics = topics
        self._corpus = corpus(listener)
        left_out = frozenset() if wild else LEFT_OUT if listener == "broker" else LEFT_OUT_ON_CONTROLLERS
        self._kinds = [
            (one, version)
            for one in apis()
            if listener in one.listeners and one.key not in left_out
            for version in range(one.min_version, one.max_version + 1)
        ]
        self._drawers: dict[tuple[int, int], Draw] = {}
        self._pool: deque[Drawn] = deque(maxlen=POOL_MAX)
        self._learned = learned

    def __iter__(self) -> Iterator[Drawn]:
        return self

    def __next__(self) -> Drawn:
        """The next request, whose correlation id may be any."""
        random_ = self._draw.random
        if self._corpus and random_() < CORPUS_SHARE:
            name, frame = self._draw.choice(self._corpus)
            kept = Drawn(name, *struct.unpack_from(">hh", frame, 4), frame)
            return self._damaged(kept) if random_() < DAMAGED_SHARE else kept
        if self._pool and random_() < DAMAGED_SHARE:
            return self._damaged(self._pool[int(random_() * len(self._pool))])
        drawn = self._from_schema()
        self._pool.append(drawn)
        return drawn

    def _from_schema(self) -> Drawn:
        one, version = self._kinds[int(self._draw.random() * len(self._kinds))]
        drawer = self._drawers.get((one.key, version))
        if drawer is None:
            drawer = self._drawers[one.key, version] = self._drawer(grammar(one.request, version), "", 0)
        pieces = encode_request(drawer(), version, self._draw.getrandbits(31), "fuzz")
        return Drawn(one.name, one.key, version, b"".join(bytes(piece) for piece in pieces))  # type: ignore[arg-type]

    def _damaged(self, drawn: Drawn) -> Drawn:
        frame = bytearray(drawn.frame)
        damage(frame, self._draw)
        return Drawn(drawn.name, drawn.key, drawn.version, bytes(frame), is_damaged=True)

    # -- what was answered ---------------------------------------------------------------------------------------------

    def learn(self, drawn: Drawn, answer: bytes) -> None:
        """Keep ids and epochs of an answer (without its size) for later requests."""
        entry = api(drawn.key)
        assert entry is not None
        try:
            value = entry.response.decode(drawn.version, answer, decode_response_header(answer, drawn.key, drawn.version)[1])
        except WireError:
            return  # The damage changed what was asked.
        self._look_at(value)

    def _look_at(self, value: Any) -> None:
        fields = [(declared, getattr(value, declared.name)) for declared in value.FIELDS]
        if any(isinstance(held, str) and held == WITNESS for _, held in fields):
            return  # Nothing is known of it by which it could be deleted.
        for declared, held in fields:
            if declared.name in LEARNED and held:
                self._learned.setdefault(declared.name, deque(maxlen=LEARNED_MAX)).append(held)
            for item in held[:LOOKED_AT_MAX] if isinstance(held, list) else (held,):
                if hasattr(item, "FIELDS"):
                    self._look_at(item)

    # -- drawers ---------------------------------------------------------------------------------------------------------

    def _drawer(self, node: Any, name: str, depth: int) -> Draw:
        """A function that draws values of the grammar's node, which is the field `name`."""
        if isinstance(node, (UuidLeaf, FixedLeaf, VariableLeaf)):
            return self._aimed(self._leaf(node, name), node, name)
        random_ = self._draw.random
        if isinstance(node, ArrayNode):
            element, longest = self._drawer(node.subcon, name, depth + 1), 3 if depth < _DEPTH_OF_SHORT_LISTS else 2
            nulls = 0.2 if node.nullable else 0.0
            return lambda: None if random_() < nulls else [element() for _ in range(int(random_() * longest))]
        if isinstance(node, NullableNode):
            inner = self._drawer(node.subcon, name, depth)
            return lambda: None if random_() < 0.3 else inner()
        assert isinstance(node, StructNode)
        always = [(declared.name, self._drawer(inner, declared.name, depth)) for declared, inner in node.fields]
        tagged = () if node.tagged is None else node.tagged.fields
        sometimes = [(declared.name, self._drawer(inner, declared.name, depth)) for declared, inner in tagged]
        owner = node.owner

        def struct_value() -> Any:
            values = {field: draw() for field, draw in always}
            for field, draw in sometimes:
                if random_() < 0.6:
                    values[field] = draw()
            return owner(**values)

        return struct_value

    def _aimed(self, free: Draw, node: Any, name: str) -> Draw:
        """Mostly values that mean something to the cluster."""
        random_, learned = self._draw.random, self._learned
        choices = tuple(self._topics) if name in _TOPIC_FIELDS and isinstance(node, VariableLeaf) else _CHOICES.get(name, ())
        choices = tuple(one for one in choices if one is not None or getattr(node, "nullable", False))
        if not choices and name not in LEARNED:
            return free

        def aimed() -> Any:
            at = random_()
            if at > _AIMED_SHARE:
                return free()
            known = learned.get(name)
            if known and (at < _AIMED_SHARE / 2 or not choices):
                return known[int(random_() * len(known))]
            return choices[int(random_() * len(choices))] if choices else free()

        return aimed

    def _leaf(self, node: Any, name: str) -> Draw:
        random_, bits = self._draw.random, self._draw.getrandbits
        if isinstance(node, UuidLeaf):
            return lambda: bytes(16) if random_() < 0.2 else bits(128).to_bytes(16)
        if isinstance(node, FixedLeaf):
            return self._number(node.code)
        if node.kind == "records":
            return lambda: self._records() if random_() < 0.9 else None
        nulls, sizes = 0.2 if node.nullable else 0.0, (0, 1, 5, 130)
        source: Any = _TEXT if node.kind == "string" else _BYTES

        def part() -> Any:
            if random_() < nulls:
                return None
            start = int(random_() * 3_900)
            return source[start : start + sizes[int(random_() * 4)]]

        return part

    def _number(self, code: str) -> Draw:
        random_, bits = self._draw.random, self._draw.getrandbits
        if code == "?":
            return lambda: random_() < 0.5
        if code == "d":
            return lambda: (0.0, 1.5, -2.25e10)[int(random_() * 3)]
        if code in ("H", "I"):
            return lambda: bits(16 if code == "H" else 32)
        limit = 1 << _LIMITS[code]
        usual = (0, 0, 1, 1, -1, limit - 1, -limit)
        width = _LIMITS[code] + 1
        return lambda: usual[int(random_() * 7)] if random_() < 0.85 else bits(width) - limit

    def _records(self) -> bytes:
        """A batch, more or less as a producer writes it."""
        draw = self._draw
        times = (0, -1, 1 << 62, 1_700_000_000_000)
        rows = [(n, times[int(draw.random() * 4)], b"k", _BYTES[: (0, 9, 900)[int(draw.random() * 3)]], ()) for n in range(3)]
        learned = self._learned.get("producer_id")
        producer_id = draw.choice(learned) if learned and draw.random() < 0.3 else draw.choice([-1, -1, 7])
        batch = build_batch(rows, compression=draw.choice(list(CompressionType)), producer_id=producer_id)
        if draw.random() < 0.3:
            struct.pack_into(">b", batch, draw.randrange(len(batch)), draw.randrange(-128, 128))
        return bytes(batch)


@cache
def corpus(listener: str) -> list[tuple[str, bytes]]:
    """Frames that have once done harm, or came near it."""
    rows = [line.split() for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    return [(what, zlib.decompress(base64.b64decode(text))) for kind, what, text in rows if kind == listener]


def damage(frame: bytearray, draw: random.Random) -> None:
    """Change, cut or put in bytes behind the size, which stays right now and then only."""
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(4, len(frame))
        kind = int(draw.random() * 3)
        if kind == 0:
            frame[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.getrandbits(8)))
        elif kind == 1 and len(frame) > 16:
            del frame[max(at, 12) :]
        else:
            frame[at:at] = draw.randbytes(draw.choice((1, 4, 200)))
    if draw.random() < 0.95:
        struct.pack_into(">i", frame, 0, len(frame) - 4)
