"""The rest of the metadata log, besides topics, partitions and brokers: configs, features, users, ACLs, quotas, the next producer id.

Each record sets or removes one entry, and a snapshot holds the remaining entries. Records of other kinds are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

DELEGATION_TOKEN, USER_SCRAM, FEATURE_LEVEL, CLIENT_QUOTA, PRODUCER_IDS, ACCESS_CONTROL = 10, 11, 12, 14, 15, 18
CONFIG, REMOVE_ACCESS_CONTROL, REMOVE_USER_SCRAM, REMOVE_DELEGATION_TOKEN = 4, 19, 22, 26
TOPIC_RESOURCE = 2
#: Keys are a word for the kind, then the identifying parts. Values may be secret: they are compared, never printed.
Name = tuple[str, ...]
State = dict[Name, bytes]


class Fields(Protocol):
    """The part of a record's fields that this module uses."""

    def raw(self, size: int) -> bytes: ...
    def rest(self) -> bytes: ...
    def integer(self, size: int) -> int: ...
    def count(self, size: int = 1) -> int: ...
    def uuid(self) -> str: ...
    def string(self) -> str: ...
    def nullable_string(self) -> str | None: ...
    def tagged(self) -> object: ...


def note(state: State, kind: int, fields: Fields) -> list[Name]:
    """Apply a record of this kind. Returns the entries that it concerns. Raises FormatError."""
    reader = _READERS.get(kind)
    if reader is None:
        return []
    name, value = reader(fields)
    if value is None:
        state.pop(name, None)
    else:
        state[name] = value
    return [name]


def forget_topic(state: State, topic: str) -> list[Name]:
    """Remove the configs of a deleted topic. Returns them."""
    forgotten = [name for name in state if name[:3] == ("setting", str(TOPIC_RESOURCE), topic)]
    for name in forgotten:
        del state[name]
    return forgotten


Found = tuple[Name, bytes | None]


def _config(fields: Fields) -> Found:
    name = ("setting", str(fields.integer(1)), fields.string(), fields.string())
    value = fields.nullable_string()
    return name, None if value is None else value.encode()


def _feature(fields: Fields) -> Found:
    name, level = ("feature", fields.string()), fields.integer(2)
    return name, b"%d" % level if level else None


def _scram(fields: Fields) -> Found:
    return ("credential", fields.string(), str(fields.integer(1))), fields.rest()


def _rule(fields: Fields) -> Found:
    return ("rule", fields.uuid()), fields.rest()


def _quota(fields: Fields) -> Found:
    entity = []
    for _ in range(fields.count()):
        kind, name = fields.string(), fields.nullable_string()
        fields.tagged()
        entity.append(kind if name is None else f"{kind}={name}")
    key, value = fields.string(), fields.raw(8)
    return ("quota", *sorted(entity), key), None if fields.integer(1) else value


def _producer_ids(fields: Fields) -> Found:
    fields.integer(4), fields.integer(8)
    return ("next producer id",), b"%d" % fields.integer(8)


def _token(fields: Fields) -> Found:
    before = fields.string(), fields.string()
    renewers = [fields.string() for _ in range(fields.count())]
    times = fields.raw(24)
    return ("token", fields.string()), repr((before, renewers, times)).encode()


_READERS: dict[int, Callable[[Fields], Found]] = {
    CONFIG: _config,
    FEATURE_LEVEL: _feature,
    USER_SCRAM: _scram,
    REMOVE_USER_SCRAM: lambda fields: (("credential", fields.string(), str(fields.integer(1))), None),
    ACCESS_CONTROL: _rule,
    REMOVE_ACCESS_CONTROL: lambda fields: (("rule", fields.uuid()), None),
    CLIENT_QUOTA: _quota,
    PRODUCER_IDS: _producer_ids,
    DELEGATION_TOKEN: _token,
    REMOVE_DELEGATION_TOKEN: lambda fields: (("token", fields.string()), None),
}
