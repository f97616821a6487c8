"""Decodes pushed metrics: OpenTelemetry's MetricsData, parsed by the package `opentelemetry-proto` (the extra `client-metrics`).

Names and labels are bounded in size and number here, because they become labels of /metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from math import isfinite
from typing import Any

from minikafka.core.client_metrics.series import Labels, Point
from minikafka.late_dataclass import dataclass
from minikafka.wire.compression import decompress
from minikafka.wire.errors import CorruptRecord

#: Messages of one push that are read; the following ones are only counted.
MESSAGES_MAX = 10_000
TEXT_CHARACTERS_MAX = 128
ATTRIBUTES_MAX = 16
#: Attributes that become labels of their own; all others share one label, which bounds the number of labels.
LABELS = frozenset(
    {
        "acks", "assignor", "broker_id", "client_rack", "group_id", "group_instance_id", "group_member_id", "listener", "node_id",
        "partition", "process_id", "processor_node_id", "request_type", "store", "subtopology_id", "task_id", "thread_id", "topic",
        "transactional_id", "type",
    }
)  # fmt: skip
OTHERS = "attributes"
_NO_LABEL = re.compile(r"[^a-z0-9]+")
_DELTA = 1
_SHOWN = ("string_value", "int_value", "bool_value", "double_value")

MetricsData: Any = None


class Unreadable(Exception):
    """The push is not valid MetricsData, or too large when decompressed."""


@dataclass(slots=True)
class Read:
    """The points of a push, and the number of messages that were skipped."""

    points: list[Point] = field(default_factory=list)
    left: int = 0


def load() -> bool:
    """Import the parser, which is slow. Returns whether it is installed."""
    global MetricsData  # noqa: PLW0603
    try:
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData as Found
    except ImportError:
        return False
    MetricsData = Found
    return True


def read(compression_type: int, data: bytes, size_max: int) -> Read:
    """Decode a push of at most `size_max` bytes when decompressed; no points if the parser is missing. Raises Unreadable."""
    found = Read()
    try:
        plain = decompress(compression_type, data, size_max)
    except CorruptRecord as error:
        raise Unreadable(str(error)) from error
    if MetricsData is None:
        return found
    message = _parsed(plain)
    for count, point in enumerate(_points(message)):
        if count >= MESSAGES_MAX:
            found.left += 1
            break
        if point is not None and isfinite(point.value) and (point.value >= 0 or not point.is_counter):
            found.points.append(point)
    return found


def _parsed(plain: bytes) -> Any:
    from google.protobuf.message import DecodeError

    message = MetricsData()
    try:
        message.ParseFromString(plain)
    except DecodeError as error:
        raise Unreadable(str(error)) from error
    return message


def _points(message: Any) -> Iterator[Point | None]:
    """All points, and None for each message in between."""
    for resource in message.resource_metrics:
        yield None
        common = _labels(resource.resource.attributes, {})
        for scope in resource.scope_metrics:
            yield None
            for metric in scope.metrics:
                yield None
                yield from _of_metric(metric, common)


def _of_metric(metric: Any, common: dict[str, str]) -> Iterator[Point]:
    name, kind = metric.name[:TEXT_CHARACTERS_MAX], metric.WhichOneof("data")
    if kind in ("gauge", "sum"):
        data = getattr(metric, kind)
        is_counter = kind == "sum" and data.is_monotonic
        is_delta = kind == "sum" and data.aggregation_temporality == _DELTA
        for point in data.data_points:
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            yield Point(name, _all(common, point.attributes), value, is_counter, is_delta)
    elif kind is not None:
        data = getattr(metric, kind)
        is_delta = kind != "summary" and data.aggregation_temporality == _DELTA
        for point in data.data_points:
            labels = _all(common, point.attributes)
            yield Point(f"{name}.count", labels, point.count, True, is_delta)
            yield Point(f"{name}.sum", labels, point.sum, False, is_delta)


def _all(common: dict[str, str], attributes: Any) -> Labels:
    return tuple(sorted(_labels(attributes, common).items()))


def _labels(attributes: Iterable[Any], common: dict[str, str]) -> dict[str, str]:
    found, others = dict(common), []
    for _, attribute in zip(range(ATTRIBUTES_MAX), attributes, strict=False):
        name = _NO_LABEL.sub("_", attribute.key[:TEXT_CHARACTERS_MAX].lower())
        value = attribute.value
        kind = value.WhichOneof("value")
        text = str(getattr(value, kind))[:TEXT_CHARACTERS_MAX] if kind in _SHOWN else ""
        if name in LABELS:
            found[name] = text
        elif name != "client_id":
            others.append(f"{name}={text}")
    if others:
        found[OTHERS] = ",".join(sorted(others))[:TEXT_CHARACTERS_MAX]
    return found
