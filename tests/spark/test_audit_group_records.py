"""What groups' records other than offsets say is read by the audit's own layouts, which the broker's are held against."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from helpers.log_fault_groups import group_record
from helpers.wire_values import random_message

from minikafka.spark import group_records
from minikafka.spark.group_records import CLASSIC, LAYOUTS, NAMED_TWICE, read_group_record
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_fields import Fields
from minikafka.wire.message import Record
from minikafka.wire.records import group_records as written
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value

OFFSETS = {0, 1}
VALUES = {one.RECORD_TYPE: one for name, one in vars(written).items() if name.endswith("Value") and issubclass(one, Record)}
KEYS = {one.RECORD_TYPE: one for name, one in vars(written).items() if name.endswith("Key") and issubclass(one, Record)}


def test_all_kinds_have_a_layout() -> None:
    assert {CLASSIC, *LAYOUTS} == VALUES.keys() - OFFSETS == KEYS.keys() - OFFSETS
    assert {kind for kind, one in KEYS.items() if kind not in OFFSETS and len(one.__annotations__) == 2} == NAMED_TWICE


@pytest.mark.parametrize("kind", sorted(LAYOUTS))
def test_a_value_is_read_to_its_end_and_one_that_is_cut_is_not_read(kind: int) -> None:
    for seed in range(20):
        value = encode_coordinator_value(random_message(VALUES[kind], 0, seed), 0)
        fields = Fields(value, 2)
        group_records._flexible(fields, LAYOUTS[kind])
        fields.finish()
        with pytest.raises(FormatError):
            group_records._flexible(Fields(value[:-1], 2), LAYOUTS[kind])


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_classic_group_is_read(version: int) -> None:
    for seed in range(20):
        made: Any = random_message(VALUES[CLASSIC], version, seed)
        for number, one in enumerate(made.members):
            one.member_id = str(number)
            one.group_instance_id = None if number % 2 or version < 3 else str(number)
        made.generation = 1 + (made.generation & ((1 << 30) - 1))
        made.leader, made.protocol = (made.members[-1].member_id, "range") if made.members else (None, None)
        made.protocol_type = "consumer" if made.members else ""
        value, key = encode_coordinator_value(made, version), encode_coordinator_key(KEYS[CLASSIC](group="g"))
        read_group_record(key, value)
        for wrong in (value[:-1], value + b"x"):
            with pytest.raises(FormatError):
                read_group_record(key, wrong)


def current(kind: int, state: int, assigned: list[Any], pending: list[Any], epoch: int = 3, before: int = 2) -> Any:
    names = {8: ("assigned_partitions", "partitions_pending_revocation"), 22: ("active_tasks", "active_tasks_pending_revocation")}
    more = {"standby_tasks": [], "warmup_tasks": [], "standby_tasks_pending_revocation": [], "warmup_tasks_pending_revocation": []}
    lists = {name: held for name, held in zip(names[kind], (assigned, pending), strict=True)} | (more if kind == 22 else {})
    return VALUES[kind](member_epoch=epoch, previous_member_epoch=before, state=state, **lists)


@pytest.mark.parametrize(("kind", "state"), [(8, 0), (22, 1)])
def test_what_no_coordinator_writes_of_a_member_is_an_error(kind: int, state: int) -> None:
    def holds(*partitions: int, epochs: int | None = None, since: int = 3) -> Any:
        stamped = None if epochs is None else [since] * epochs
        if kind == 8:
            return VALUES[8].TopicPartitions(topic_id=bytes(16), partitions=[*partitions], assignment_epochs=stamped)
        return VALUES[22].TaskIds(subtopology_id="0", partitions=[*partitions], assignment_epochs=stamped)

    key = encode_coordinator_key(KEYS[kind](group_id="g", member_id="m"))
    for right in (
        current(kind, state + 1, [holds(0, 1, epochs=2)], [holds(2)]), current(kind, state + 1, [holds(0)], []),
        current(kind, state, [holds(0, epochs=1)], [], -2, 3), current(kind, state, [holds(0, epochs=1)], [], 0, 0),
        current(kind, state, [holds(0, epochs=1, since=1)], [], 3, 3), current(kind, state, [], [], 3, -2),
    ):  # fmt: skip
        read_group_record(key, encode_coordinator_value(right, 0))
    read_group_record(key, None)
    for wrong, text in (
        (current(kind, 9, [], []), "unknown state 9"), (current(kind, state, [holds(0, 0)], []), "twice"),
        (current(kind, state, [holds(1)], [holds(1)]), "twice"), (current(kind, state, [holds(-1)], []), "partition -1"),
        (current(kind, state, [holds(0, 1, epochs=1)], []), "2 assigned partitions have 1 epochs"),
        (current(kind, state, [holds(0)], [holds(1)]), "stable and has partitions to give up"),
        (current(kind, state, [holds(0)], [], 3, 4), "in epoch 3, after the later epoch 4"),
        (current(kind, state, [holds(0)], [], 3, -3), "in epoch 3, after epoch -3"),
        (current(kind, state, [holds(0, epochs=1, since=4)], []), "in epoch 3 holds a partition since epoch 4"),
    ):  # fmt: skip
        with pytest.raises(FormatError, match=text):
            read_group_record(key, encode_coordinator_value(wrong, 0))


def test_what_no_coordinator_writes_of_a_group_is_an_error() -> None:
    member = VALUES[CLASSIC].MemberMetadata
    one = {"client_id": "c", "client_host": "h", "session_timeout": 1, "subscription": b"", "assignment": b""}
    classic = {"protocol_type": "consumer", "generation": 1, "protocol": "range"}
    for kind, value, text in (
        (3, VALUES[3](epoch=-1), "epoch -1"), (6, VALUES[6](assignment_epoch=-5), "epoch -5"),
        (CLASSIC, VALUES[CLASSIC](leader="a", members=[member(member_id="b", **one)], **classic), "led by a"),
        (CLASSIC, VALUES[CLASSIC](leader="b", members=[member(member_id="b", **one)] * 2, **classic), "twice"),
        *((CLASSIC, VALUES[CLASSIC](**{**classic, "leader": "b", "members": [member(member_id="b", **one)]} | wrong), "has the members")
          for wrong in ({"leader": None}, {"protocol": None}, {"generation": 0}, {"protocol_type": ""})),
        (CLASSIC, VALUES[CLASSIC](leader="", members=[member(member_id="", **one)], **classic), "has the members"),
    ):  # fmt: skip
        key = encode_coordinator_key(KEYS[kind](**{"group" if kind == CLASSIC else "group_id": "g"}))
        with pytest.raises(FormatError, match=text):
            read_group_record(key, encode_coordinator_value(value, 0))
    for value in (struct.pack(">hhihhqi", 3, 0, 1, -1, -1, 0, -2), encode_coordinator_value(VALUES[3](epoch=1), 0) + b"x"):
        with pytest.raises(FormatError):
            read_group_record(encode_coordinator_key(KEYS[CLASSIC](group="g") if value[1] else KEYS[3](group_id="g")), value)
    read_group_record(b"\0\x63rubbish", b"")  # of a kind that a coordinator passes over


def test_records_that_were_put_together_by_hand_are_read() -> None:
    for kind in range(2, 25):
        read_group_record(*group_record(kind, "g", 7))
