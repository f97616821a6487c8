"""The rest of the metadata log, besides topics, partitions and brokers: configs, features, users, ACLs, quotas, controllers, the next
producer id.

Each record sets or removes one entry, and a snapshot holds the remaining entries. Records of other kinds are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from minikafka.spark import metadata_registrations
from minikafka.spark.logformat import FormatError

DELEGATION_TOKEN, USER_SCRAM, FEATURE_LEVEL, CLIENT_QUOTA, PRODUCER_IDS, ACCESS_CONTROL = 10, 11, 12, 14, 15, 18
CONFIG, REMOVE_ACCESS_CONTROL, REMOVE_USER_SCRAM, REMOVE_DELEGATION_TOKEN = 4, 19, 22, 26
REGISTER_CONTROLLER = 27
#: A controller ends if there is nothing to remove.
REMOVES_KNOWN = {REMOVE_ACCESS_CONTROL, REMOVE_USER_SCRAM}
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
    def uuids(self) -> tuple[str, ...]: ...
    def uuids_or(self, before: tuple[str, ...]) -> tuple[str, ...]: ...
    def finish(self) -> None: ...
    def tagged(self, since: dict[int, int] | None = None, version: int = 0) -> dict[int, Self]: ...


def note(state: State, kind: int, fields: Fields) -> list[Name]:
    """Apply a record of this kind. Returns the entries that it concerns. Raises FormatError, also where a controller ends (the replay
    methods of AclControlManager, ScramControlManager, ProducerIdControlManager, FeatureControlManager)."""
    reader = _READERS.get(kind)
    if reader is None:
        return []
    name, value = reader(fields)
    fields.finish()
    if value is None and kind in REMOVES_KNOWN and name not in state:
        raise FormatError(f"a {name[0]} is removed that does not exist")
    if kind == PRODUCER_IDS and name in state and value is not None and int(value) <= int(state[name]):
        raise FormatError(f"the next producer id falls from {int(state[name])} to {int(value)}")
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


def _removed(name: Name, fields: Fields) -> Found:
    fields.tagged()
    return name, None


def _config(fields: Fields) -> Found:
    name = ("setting", str(fields.integer(1)), fields.string(), fields.string())
    value = fields.nullable_string()
    fields.tagged()
    return name, None if value is None else value.encode()


def _feature(fields: Fields) -> Found:
    name, level = ("feature", fields.string()), fields.integer(2)
    fields.tagged()
    if level < 0:
        raise FormatError(f"the feature {name[1]} has level {level}")
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
    key, value, is_removed = fields.string(), fields.raw(8), fields.integer(1) != 0
    fields.tagged()
    return ("quota", *sorted(entity), key), None if is_removed else value


def _producer_ids(fields: Fields) -> Found:
    fields.integer(4), fields.integer(8)
    following = fields.integer(8)
    fields.tagged()
    return ("next producer id",), b"%d" % following


def _token(fields: Fields) -> Found:
    before = fields.string(), fields.string()
    renewers = [fields.string() for _ in range(fields.count())]
    times = fields.raw(24)
    name, _ = _removed(("token", fields.string()), fields)
    return name, repr((before, renewers, times)).encode()


_READERS: dict[int, Callable[[Fields], Found]] = {
    CONFIG: _config,
    FEATURE_LEVEL: _feature,
    USER_SCRAM: _scram,
    REMOVE_USER_SCRAM: lambda fields: _removed(("credential", fields.string(), str(fields.integer(1))), fields),
    ACCESS_CONTROL: _rule,
    REMOVE_ACCESS_CONTROL: lambda fields: _removed(("rule", fields.uuid()), fields),
    CLIENT_QUOTA: _quota,
    PRODUCER_IDS: _producer_ids,
    DELEGATION_TOKEN: _token,
    REMOVE_DELEGATION_TOKEN: lambda fields: _removed(("token", fields.string()), fields),
    REGISTER_CONTROLLER: metadata_registrations.controller,
}
#: The types of the records that `note` reads whole.
TYPES = tuple(kind for kind in _READERS if kind != CONFIG)
