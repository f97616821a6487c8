"""The rest of the metadata log, besides topics, partitions and brokers: configs, features, users, ACLs, quotas, controllers, the next
producer id.

Each record sets or removes one entry, and a snapshot holds the remaining entries. Records of other kinds are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from minikafka.spark import metadata_registrations, metadata_values
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_fields import Fields

DELEGATION_TOKEN, USER_SCRAM, FEATURE_LEVEL, CLIENT_QUOTA, PRODUCER_IDS, ACCESS_CONTROL = 10, 11, 12, 14, 15, 18
CONFIG, REMOVE_ACCESS_CONTROL, REMOVE_USER_SCRAM, REMOVE_DELEGATION_TOKEN = 4, 19, 22, 26
REGISTER_CONTROLLER, UNREGISTER_CONTROLLER = 27, 29
#: A controller ends if there is nothing to remove.
REMOVES_KNOWN = {REMOVE_ACCESS_CONTROL, REMOVE_USER_SCRAM}
REMOVALS = REMOVES_KNOWN | {REMOVE_DELEGATION_TOKEN, UNREGISTER_CONTROLLER}
TOPIC_RESOURCE = 2
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
#: Keys are a word for the kind, then the identifying parts. Values may be secret: they are compared, never printed.
Name = tuple[str, ...]
NEXT_PRODUCER_ID: Name = ("next producer id",)
State = dict[Name, bytes]
Found = tuple[Name, bytes | None]


def note(state: State, kind: int, fields: Fields) -> list[Name]:
    """Apply a record of this kind. Returns the entries that it concerns. Raises FormatError, also where a controller ends (the replay
    methods of AclControlManager, ScramControlManager, ProducerIdControlManager, FeatureControlManager)."""
    found = said(kind, fields)
    if found is None:
        return []
    name, value = found
    if value is None and kind in REMOVES_KNOWN and name not in state:
        raise FormatError(f"a {name[0]} is removed that does not exist")
    if kind == ACCESS_CONTROL and name in state:
        raise FormatError(f"the rule {name[1]} is made a second time")
    if kind == PRODUCER_IDS and name in state and value is not None and int(value) <= int(state[name]):
        raise FormatError(f"the next producer id falls from {int(state[name])} to {int(value)}")
    if value is None:
        state.pop(name, None)
    else:
        state[name] = value
    return [name]


def said(kind: int, fields: Fields) -> Found | None:
    """(an entry, its value, None if it is removed) by a record of this kind; None if these are no records of such entries."""
    reader = _READERS.get(kind)
    if reader is None:
        return None
    found = reader(fields)
    fields.finish()
    return found


def forget_topic(state: State, topic: str) -> list[Name]:
    """Remove the configs of a deleted topic. Returns them."""
    forgotten = [name for name in state if name[:3] == ("setting", str(TOPIC_RESOURCE), topic)]
    for name in forgotten:
        del state[name]
    return forgotten


def _removed(name: Name, fields: Fields) -> Found:
    fields.tagged()
    return name, None


def _config(fields: Fields) -> Found:
    resource, owner, option, value = fields.integer(1), fields.string(), fields.string(), fields.nullable_string()
    fields.tagged()
    metadata_values.check_setting(resource, owner, option, value)
    name = "setting", str(resource), owner, option
    return name, None if value is None else value.encode()


def _feature(fields: Fields) -> Found:
    name, level = ("feature", fields.string()), fields.integer(2)
    fields.tagged()
    metadata_values.check_feature(name[1], level)
    return name, b"%d" % level if level else None


def _scram(fields: Fields) -> Found:
    user, mechanism = fields.string(), fields.integer(1)
    value = fields.following()
    metadata_values.check_credential(user, mechanism, fields)
    return ("credential", user, str(mechanism)), value


def _rule(fields: Fields) -> Found:
    rule, value = fields.uuid(), fields.following()
    metadata_values.check_rule(fields)
    if rule == NO_ID:
        raise FormatError("a rule has the id of none")
    return ("rule", rule), value


def _quota(fields: Fields) -> Found:
    named: list[tuple[str, str | None]] = []
    for _ in range(fields.count()):
        named.append((fields.string(), fields.nullable_string()))
        fields.tagged()
    entity = sorted(kind if name is None else f"{kind}={name}" for kind, name in named)
    key, value, is_removed = fields.string(), fields.raw(8), fields.integer(1) != 0
    fields.tagged()
    if not is_removed:  # a controller removes what nobody can have, too
        metadata_values.check_quota(named, key, struct.unpack(">d", value)[0])
    return ("quota", *entity, key), None if is_removed else value


def _producer_ids(fields: Fields) -> Found:
    fields.integer(4), fields.integer(8)
    following = fields.integer(8)
    fields.tagged()
    if following < 0:
        raise FormatError(f"the next producer id is {following}")
    return NEXT_PRODUCER_ID, b"%d" % following


def _token(fields: Fields) -> Found:
    before = fields.string(), fields.string()
    renewers = [fields.string() for _ in range(fields.count())]
    times = fields.integer(8), fields.integer(8), fields.integer(8)
    name, _ = _removed(("token", fields.string()), fields)
    metadata_values.check_token((*before, *renewers), *times, name[1])
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
    UNREGISTER_CONTROLLER: lambda fields: _removed(("controller", str(fields.integer(4))), fields),
}
#: The types of the records that `note` reads whole.
TYPES = tuple(kind for kind in _READERS if kind != CONFIG)
