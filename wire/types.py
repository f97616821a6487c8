"""The value types of Kafka's protocol, as used in message declarations."""

from __future__ import annotations

import functools

from minikafka.late_dataclass import dataclass

#: Kafka's limit for text, in compact fields too.
STRING_BYTES_MAX = 32_767
#: Limit for one section. Kafka has none, but its messages define only a few, and skipping each one takes time.
TAGGED_FIELDS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number, boolean or uuid of constant size; `code` is its `struct` format."""

    name: str
    code: str
    size: int
    zero: object


@dataclass(frozen=True, slots=True)
class Variable:
    """string, bytes or records: a length, then that many bytes."""

    name: str


class Group:
    """Base class of `declaration.Struct`, a group of fields."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Array:
    """A count, then that many elements."""

    element: Fixed | Variable | type[Group]


int8 = Fixed("int8", "b", 1, 0)
int16 = Fixed("int16", "h", 2, 0)
uint16 = Fixed("uint16", "H", 2, 0)
int32 = Fixed("int32", "i", 4, 0)
uint32 = Fixed("uint32", "I", 4, 0)
int64 = Fixed("int64", "q", 8, 0)
float64 = Fixed("float64", "d", 8, 0.0)
boolean = Fixed("bool", "?", 1, False)
uuid = Fixed("uuid", "16s", 16, bytes(16))
string = Variable("string")
bytes_ = Variable("bytes")
record_set = Variable("records")

Type = Fixed | Variable | Array


def array(element: Fixed | Variable | type[Group]) -> Array:
    """The type of a list of `element`."""
    return Array(element)


EVERY_VERSION_MAX = 32767


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `low > high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    @classmethod
    @functools.cache
    def parse(cls, text: str | None) -> Versions:
        """Kafka's notation: "3-5", "3+", "3" or "none"."""
        if text is None or text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), EVERY_VERSION_MAX)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))
