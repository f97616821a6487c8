"""Typed property tables: parsing, ranges, suggestions for misspelled names. They declare both broker and topic properties."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from minikafka.late_dataclass import dataclass

_DECIMAL, _HEXADECIMAL = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", r"0[xX](?:[\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)[pP][+-]?\d+"
_DOUBLE = re.compile(rf"([+-]?(?:NaN|Infinity|{_DECIMAL}|{_HEXADECIMAL}))[fFdD]?", re.ASCII)
INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


class ConfigurationError(Exception):
    """Invalid properties; `problems` has a sentence for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@cache
def attribute_of(name: str) -> str:
    """The Python attribute for a property's name."""
    return name.replace(".", "_").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Property:
    """One property: Kafka's name, type, default (as text), allowed values, and description.

    `kind` is one of boolean, short, int, long, double, string, class, list, password. `effect` is "full", "accepted" (without effect
    here) or "refused" (any value but the default is an error; `refusal` is the reason). `dynamic`: can be altered while the broker runs.
    `internal`: Kafka does not describe it to administrators. `convert`: converts the parsed value, or raises ValueError.
    """

    name: str
    kind: str
    default: str | None
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    effect: str = "full"
    refusal: str = ""
    internal: bool = False
    synonyms: tuple[str, ...] = ()
    convert: Callable[[Any], Any] | None = None

    @property
    def attribute(self) -> str:
        """The name as a Python attribute."""
        return attribute_of(self.name)

    def parse(self, text: str) -> Any:
        """The typed value. Raises ValueError; its text says what is allowed."""
        value = _PARSERS[self.kind](text.strip())
        if self.kind in ("short", "int", "long", "double"):
            most = {"short": INT16_MAX, "int": INT32_MAX, "long": INT64_MAX}.get(self.kind)
            limit = (None, None) if most is None else (-most - 1, most)
            low = self.low if self.low is not None else limit[0]
            high = self.high if self.high is not None else limit[1]
            if (low is not None and value < low) or (high is not None and value > high):
                raise ValueError(f"must be {_range(low, high)}")
        if self.refusal and value != self.default_value():
            raise ValueError(f"must stay {self.default or 'unset'}: {self.refusal}")
        if self.choices:
            for item in value if self.kind == "list" else [value]:
                if item not in self.choices:
                    raise ValueError(f"must be one of {', '.join(self.choices)}" + _suggestion(str(item), self.choices))
        return value if self.convert is None else self.convert(value)

    def default_value(self) -> Any:
        """The typed default; None without a default."""
        if self.default is None:
            return None
        value = _PARSERS[self.kind](self.default)
        return value if self.convert is None else self.convert(value)


def gzip_level(level: int) -> int:
    """Raises ValueError for 0, which is no compression."""
    if level == 0:
        raise ValueError("must be -1, or between 1 and 9")
    return level


def counts_of_hosts(text: str) -> dict[str, int]:
    """Parse `host:count, [::1]:count`. Returns the counts by host, as written. Raises ValueError."""
    counts: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.strip().isdigit():
            raise ValueError(f"{entry} must be host:count")
        counts[host.strip().removeprefix("[").removesuffix("]")] = int(count)
    return counts


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"between {low:,} and {high:,}".replace(",", "_").replace("_", "")
    return f"at least {low}" if low is not None else f"at most {high}"


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def _integer(text: str) -> int:
    if "_" in text:
        raise ValueError("must be a whole number")
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _number(text: str) -> float:
    """As Java reads it (Double.valueOf)."""
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise ValueError("must be a number")
    return float.fromhex(found[1]) if "x" in text.lower() else float(found[1])


_PARSERS: dict[str, Callable[[str], Any]] = {
    "boolean": _boolean,
    "short": _integer,
    "int": _integer,
    "long": _integer,
    "double": _number,
    "string": str,
    "class": str,
    "password": str,
    "list": lambda text: [item.strip() for item in text.split(",") if item.strip()],
}


def _suggestion(word: str, names: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, list(names), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


class PropertyTable:
    """Properties by name."""

    def __init__(self, properties: Iterable[Property]) -> None:
        self._properties = {entry.name: entry for entry in properties}
        self._defaults = {entry.attribute: entry.default_value() for entry in self._properties.values()}

    def __iter__(self) -> Any:
        return iter(self._properties.values())

    def __contains__(self, name: str) -> bool:
        return name in self._properties

    def get(self, name: str) -> Property | None:
        """The property of this name, or None."""
        return self._properties.get(name)

    def defaults(self) -> dict[str, Any]:
        """Typed defaults of all properties, by attribute. Lists are copies."""
        return {name: value[:] if type(value) is list else value for name, value in self._defaults.items()}

    def problem(self, name: str, text: str) -> str | None:
        """The problem with setting `name` to `text`, as a sentence, or None."""
        entry = self._properties.get(name)
        if entry is None:
            return f"{name} is not a property{_suggestion(name, self._properties)}"
        try:
            entry.parse(text)
        except ValueError as error:
            return f"{name}={text}: {error}"
        return None

    def unknown(self, name: str) -> str:
        """The message for an unknown property."""
        return f"{name} is not a property{_suggestion(name, self._properties)}"

    def parse(self, given: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
        """Typed values of all given properties. Appends a sentence to `problems` for each invalid one."""
        values: dict[str, Any] = {}
        for name, text in given.items():
            problem = self.problem(name, text)
            if problem is not None:
                problems.append(problem)
            else:
                values[name] = self._properties[name].parse(text)
        return values
