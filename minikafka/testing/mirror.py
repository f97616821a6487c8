"""Builds error responses from requests: the response names every topic, partition or group of the request, each with an error code.

Requests and responses of Kafka's protocol have matching structures (a topic with partitions is answered by a topic with partitions), so one
generic walk over the declared fields serves all APIs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from minikafka.broker.front.error_responses import FAILURES
from minikafka.wire.errors import ErrorCode
from minikafka.wire.types import Array

Key = tuple[str | bytes, int]
Chosen = Callable[[Key], bool]
TOPIC_FIELDS = ("name", "topic", "topic_name")
PARTITION_FIELDS = ("partition_index", "index", "partition", "partition_id")
PARTITION_LISTS = ("partition_indexes", "partitions")
EVERY_PARTITION = -1
NO_ID = bytes(16)


def partitions_of(message: Any) -> Iterator[Key]:
    """(topic name or id, partition) for everything that a request or response names; partition -1: a topic without partitions."""
    for declared in type(message).FIELDS:
        value = getattr(message, declared.name)
        if not isinstance(value, list) or not isinstance(declared.type, Array):
            continue
        for item in value:
            if isinstance(item, str) and declared.name in ("topic_names", "topics"):
                yield item, EVERY_PARTITION
            elif hasattr(item, "FIELDS"):
                topic = _topic(item)
                if topic is None:
                    yield from partitions_of(item)
                else:
                    yield from ((topic, index) for index in _indexes(item) or [EVERY_PARTITION])


def _topic(item: Any) -> str | bytes | None:
    for name in TOPIC_FIELDS:
        value = getattr(item, name, None)
        if isinstance(value, str) and value:
            return value
    topic_id = getattr(item, "topic_id", NO_ID)
    return topic_id if topic_id != NO_ID else None


def _indexes(item: Any) -> list[int]:
    found: list[int] = []
    for declared in type(item).FIELDS:
        value = getattr(item, declared.name)
        if not isinstance(value, list):
            continue
        for inner in value:
            if hasattr(inner, "FIELDS"):
                index = _index(inner)
                if index is not None:
                    found.append(index)
            elif isinstance(inner, int) and declared.name in PARTITION_LISTS:
                found.append(inner)
    return found


def _index(item: Any) -> int | None:
    return next((getattr(item, name) for name in PARTITION_FIELDS if isinstance(getattr(item, name, None), int)), None)


def without_partitions(request: Any, chosen: Chosen) -> Any | None:
    """A copy of the request without the chosen partitions; None if nothing remains."""
    rest = copy.copy(request)
    kept = False
    for declared in type(request).FIELDS:
        value = getattr(request, declared.name)
        if not isinstance(value, list) or not value or not isinstance(declared.type, Array):
            continue
        left: list[Any] = []
        for item in value:
            if isinstance(item, str):
                if not (declared.name in ("topic_names", "topics") and chosen((item, EVERY_PARTITION))):
                    left.append(item)
            elif hasattr(item, "FIELDS"):
                smaller = _without(item, chosen)
                if smaller is not None:
                    left.append(smaller)
            else:
                left.append(item)
        setattr(rest, declared.name, left)
        kept = kept or bool(left)
    return rest if kept else None


def _without(item: Any, chosen: Chosen) -> Any | None:
    topic = _topic(item)
    if topic is None:
        return without_partitions(item, chosen)
    if not _indexes(item):
        return None if chosen((topic, EVERY_PARTITION)) else item
    rest = copy.copy(item)
    kept = False
    for declared in type(item).FIELDS:
        value = getattr(item, declared.name)
        if isinstance(value, list) and value:
            left = [inner for inner in value if not chosen((topic, _index(inner) if hasattr(inner, "FIELDS") else inner))]  # type: ignore[arg-type]
            setattr(rest, declared.name, left)
            kept = kept or bool(left)
    return rest if kept else None


def mirrored_failure(request: Any, response_class: type, version: int, code: ErrorCode, chosen: Chosen | None = None) -> Any:
    """A response with `code` for everything (or all that is chosen) that the request names."""
    builder = FAILURES.get(type(request))
    if builder is not None and (chosen is None or next(partitions_of(request), None) is None):
        return builder(request, version, code, code.text)
    response: Any = response_class()
    named = _mirror_arrays(request, response, version, code, chosen, None)
    if not named and any(declared.name == "error_code" for declared in _present(response, version)):
        response.error_code = code
    return response


def _present(struct: Any, version: int) -> list[Any]:
    return [declared for declared in type(struct).FIELDS if declared.versions.low <= version <= declared.versions.high]


def _structs(declared: Any) -> Any | None:
    element = declared.type.element if isinstance(declared.type, Array) else None
    return element if hasattr(element, "FIELDS") else None


def _has_error_code(struct: Any, version: int) -> bool:
    fields = [d for d in struct.FIELDS if d.versions.low <= version <= d.versions.high]
    return any(d.name == "error_code" for d in fields) or any(_structs(d) and _has_error_code(_structs(d), version) for d in fields)


def _mirror_arrays(source: Any, target: Any, version: int, code: ErrorCode, chosen: Chosen | None, topic: str | bytes | None) -> bool:
    named = False
    for declared in _present(target, version):
        element = _structs(declared)
        if element is None or not _has_error_code(element, version):
            continue
        for origin in _present(source, version):
            items = getattr(source, origin.name)
            if not isinstance(items, list) or not items:
                continue
            answers = [_mirror(item, element(), version, code, chosen, topic) for item in items]
            answers = [answer for answer in answers if answer is not None]
            if answers:
                setattr(target, declared.name, answers)
                named = True
                break
    return named


def _mirror(item: Any, answer: Any, version: int, code: ErrorCode, chosen: Chosen | None, topic: str | bytes | None) -> Any | None:
    fields = {declared.name: declared for declared in _present(answer, version)}
    if hasattr(item, "FIELDS"):
        own = _topic(item)
        topic = own if own is not None else topic
        index = _index(item)
        for name in fields:
            if not isinstance(getattr(item, name, None), list | memoryview | None):
                setattr(answer, name, getattr(item, name))
        if "topic" in fields and not getattr(answer, "topic", None) and isinstance(own, str):
            answer.topic = own
    elif isinstance(item, str):
        key = next((name for name in ("key", "name", "group_id", "topic", "transactional_id") if name in fields), None)
        if key is None:
            return None
        setattr(answer, key, item)
        index = None
    else:
        index = item
    if index is not None:
        for name in PARTITION_FIELDS:
            if name in fields:
                setattr(answer, name, index)
    if "error_code" not in fields:
        return answer if _mirror_arrays(item, answer, version, code, chosen, topic) else None
    if chosen is not None and topic is not None and not chosen((topic, EVERY_PARTITION if index is None else index)):
        return None
    _fail(answer, code)
    return answer


def patch_errors(response: Any, code: ErrorCode, chosen: Chosen | None = None) -> int:
    """Set `code` everywhere in a response (or where chosen). Returns the number of places."""
    count = _patch(response, code, chosen, None)
    if not count and hasattr(response, "error_code") and chosen is None:
        _fail(response, code)
        count = 1
    return count


def _patch(struct: Any, code: ErrorCode, chosen: Chosen | None, topic: str | bytes | None) -> int:
    count = 0
    for declared in type(struct).FIELDS:
        value = getattr(struct, declared.name)
        if not isinstance(value, list) or _structs(declared) is None:
            continue
        for item in value:
            own = _topic(item)
            name = own if own is not None else topic
            inner = _patch(item, code, chosen, name)
            if not inner and hasattr(item, "error_code"):
                index = _index(item)
                if chosen is None or (name is not None and chosen((name, EVERY_PARTITION if index is None else index))):
                    _fail(item, code)
                    inner = 1
            count += inner
    return count


def _fail(answer: Any, code: ErrorCode) -> None:
    answer.error_code = code
    for name, value in (("base_offset", -1), ("high_watermark", -1), ("last_stable_offset", -1), ("offset", -1), ("records", b"")):
        if hasattr(answer, name):
            setattr(answer, name, value)
