"""The Prometheus text format, written straight: tens of thousands of samples a scrape are too many for objects of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def labels(**pairs: str) -> str:
    """`{topic="t",partition="0"}`."""
    return "{" + ",".join(f'{name}="{value.translate(ESCAPES)}"' for name, value in pairs.items()) + "}"


def number(value: float) -> str:
    """As Prometheus reads it; whole numbers without a point."""
    return str(int(value)) if value == int(value) else repr(float(value))


class Page:
    """Families of samples as text. Names of counters are given without `_total`.

    Dialects: "s" are the names of Strimzi's rules (counters end in _total), "c" those of Confluent's (…persec); both can be written at
    once.
    """

    def __init__(self, dialects: Iterable[str] = ("s",)) -> None:
        self._dialects = frozenset(dialects)
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, value: float) -> None:
        """One sample without labels."""
        self.gauges(name, text, [("", value)])

    def counter(self, name: str, text: str, value: float) -> None:
        """One sample without labels."""
        self.counters(name, text, [("", value)])

    def gauges(self, name: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        """Samples as (labels, value)."""
        self._head(name, text, "gauge")
        self._lines += [f"{name}{label} {number(value)}" for label, value in samples]

    def counters(self, name: str, text: str, samples: Iterable[tuple[str, float]], persec: bool = True) -> None:
        """Samples as (labels, value); with `persec` the beans of Kafka call the counter …PerSec, which dialect "c" keeps."""
        rows = list(samples)
        if "c" in self._dialects and persec:
            own = f"{name}persec"
            self._head(own, text, "untyped")
            self._lines += [f"{own}{label} {number(value)}" for label, value in rows]
            if "s" not in self._dialects:
                return
        self._head(f"{name}_total", text, "counter")
        self._lines += [f"{name}_total{label} {number(value)}" for label, value in rows]

    def _head(self, name: str, text: str, kind: str) -> None:
        self._lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}")

    def text(self) -> str:
        """Everything written so far."""
        return "\n".join(self._lines) + "\n" if self._lines else ""


def sums(rows: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """By topic, of rows of numbers by name."""
    found: dict[str, dict[str, float]] = {}
    for topic, values in rows:
        entry = found.setdefault(topic, dict.fromkeys(values, 0))
        for name, value in values.items():
            entry[name] += value
    return found
