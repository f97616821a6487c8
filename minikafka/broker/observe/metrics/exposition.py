"""Writes the Prometheus text format directly: a scrape has too many samples, tens of thousands, to make an object of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isnan

from minikafka.broker.observe.metrics.table import METRICS, Metric

ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Samples = Iterable[tuple[str, float]]


def labels(**pairs: str) -> str:
    """`{topic="t",partition="0"}`."""
    return "{" + ",".join(f'{name}="{value.translate(ESCAPES)}"' for name, value in pairs.items()) + "}"


def number(value: float) -> str:
    """A value in Prometheus' syntax; integers without a decimal point."""
    if isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) else repr(float(value))


class Page:
    """Families of samples as text, each under its names in the configured dialects (see `table`)."""

    def __init__(self, dialects: Iterable[str] = ("s",)) -> None:
        self._dialects = tuple(dialects)
        self._lines: list[str] = []

    def one(self, name: str, value: float) -> None:
        """Write a family of one sample without labels. Raises KeyError for a name that is not in the table."""
        self.many(name, (("", value),))

    def many(self, name: str, samples: Samples) -> None:
        """Write samples (labels, value). The labels must be the same in every dialect."""
        rows = list(samples)
        for metric_name, metric in self.heads(name):
            self._head(metric_name, metric)
            self._lines += [f"{metric_name}{label} {number(value)}" for label, value in rows]

    def labelled(self, name: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """Write samples ({label: value}, value). The labels are in the spelling of dialect S."""
        rows = list(samples)
        for metric_name, metric in self.heads(name):
            self._head(metric_name, metric)
            dialects = [dialect for dialect in self._dialects if metric.names.get(dialect) == metric_name]
            for pairs, value in rows:
                names = {metric.label_in(dialect, label): text for label, text in pairs.items() for dialect in dialects}
                self._lines.append(f"{metric_name}{labels(**names)} {number(value)}")

    def quantiles(self, name: str, samples: Iterable[tuple[Mapping[str, str], Iterable[tuple[str, float]], int]]) -> None:
        """Write samples ({label: value}, ((quantile, value), …), count)."""
        rows = list(samples)
        for metric_name, metric in self.heads(name):
            self._head(metric_name, metric)
            for pairs, values, count in rows:
                for quantile, value in values:
                    self._lines.append(f"{metric_name}{labels(**pairs, quantile=quantile)} {value:.6g}")
                self._lines.append(f"{metric_name}_count{labels(**pairs) if pairs else ''} {count}")

    def heads(self, name: str) -> list[tuple[str, Metric]]:
        """The distinct names of a metric in the configured dialects."""
        metric = METRICS[name]
        names = dict.fromkeys(metric.names[dialect] for dialect in self._dialects if dialect in metric.names)
        return [(one, metric) for one in names]

    def _head(self, name: str, metric: Metric) -> None:
        self._lines.append(head(name, metric))

    def text(self) -> str:
        """The text written so far."""
        return "\n".join(self._lines) + "\n" if self._lines else ""


def head(name: str, metric: Metric) -> str:
    """The HELP and TYPE lines of a family."""
    kind = "untyped" if metric.kind == "counter" and not name.endswith("_total") else metric.kind
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}"
